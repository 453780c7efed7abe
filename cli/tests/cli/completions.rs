//! `completions`, `man` and `help`: every command is in them.

use crate::run::{potluck, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::Scratch;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The commands that `potluck --help` lists.
fn commands(home: &Path) -> Result<Vec<String>> {
    let help = told(home, &["--help"], "")?;
    ensure!(help.code == 0, "{help:?}");
    let lines = help.out.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    let names: Vec<String> =
        names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    for name in ["up", "join", "status", "completions", "man", "help"] {
        ensure!(names.iter().any(|known| known == name), "no {name} in {}", help.out);
    }
    Ok(names)
}

pub fn shells() -> Result<()> {
    let home = Scratch::new()?;
    for (shell, before, after) in
        [("bash", " ", " "), ("zsh", "\n'", ":"), ("fish", "-a \"", "\" -d '")]
    {
        let script = told(home.path(), &["completions", shell], "")?;
        ensure!(script.code == 0 && script.err.is_empty(), "{script:?}");
        for name in commands(home.path())? {
            let wanted = format!("{before}{name}{after}");
            // In the script for bash, names are words of quoted lists.
            let text =
                if shell == "bash" { script.out.replace('"', " ") } else { script.out.clone() };
            ensure!(text.contains(&wanted), "{shell} does not complete {name}");
        }
        ensure!(!script.out.contains("demo-member"), "{shell} completes a hidden command");
        ensure!(script.out.contains("namespace"), "{shell} completes no option");
        let document = told(home.path(), &["completions", shell, "--json"], "")?.json(0)?;
        ensure!(
            document["shell"] == shell
                && document["script"].as_str().map(str::trim_end) == Some(script.out.trim_end()),
            "{document}"
        );
    }
    let wrong = told(home.path(), &["completions", "cmd"], "")?;
    ensure!(wrong.code == 2 && wrong.err.contains("zsh"), "{wrong:?}");
    Ok(())
}

/// The completions by the script in a shell that reads it.
const ASK_BASH: &str = "
    source \"$1\"
    COMP_WORDS=(potluck \"${@:2}\"); COMP_CWORD=$(($# - 1))
    _potluck potluck \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
    printf '%s\\n' \"${COMPREPLY[@]}\"";

pub fn in_bash() -> Result<()> {
    let home = Scratch::new()?;
    let file = home.path().join("potluck.bash");
    std::fs::write(&file, told(home.path(), &["completions", "bash"], "")?.out)?;
    let completed = |words: &[&str]| -> Result<Vec<String>> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ASK_BASH, "bash"]).arg(&file).args(words);
        let ran = run(&mut bash, "")?;
        ensure!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
        Ok(ran.out.lines().map(str::to_owned).collect())
    };
    let all = completed(&[""])?;
    for name in commands(home.path())? {
        ensure!(all.contains(&name), "no {name} in {all:?}");
    }
    ensure!(completed(&["sta"])? == ["status"], "{:?}", completed(&["sta"])?);
    let options = completed(&["status", "--gr"])?;
    ensure!(options == ["--graph"], "{options:?}");
    ensure!(completed(&["keys", "ro"])? == ["rotate"], "{:?}", completed(&["keys", "ro"])?);
    Ok(())
}

pub fn manual() -> Result<()> {
    let home = Scratch::new()?;
    let folder = home.path().join("share/man1");
    let folder_text = folder.to_str().context("a path")?;
    let written = told(home.path(), &["man", folder_text, "--json"], "")?.json(0)?;
    let pages = written["pages"].as_array().context("a list")?;
    for page in pages {
        let file = page["file"].as_str().context("a file")?;
        ensure!(std::fs::read_to_string(file)? == page["text"].as_str().unwrap_or("?"), "{file}");
    }
    let text = |name: &str| -> Result<String> {
        let file = folder.join(format!("{name}.1"));
        std::fs::read_to_string(&file).with_context(|| file.display().to_string())
    };
    let mut names = vec!["potluck".to_owned(), "potluck-keys-rotate".to_owned()];
    let verbs = commands(home.path())?;
    names.extend(verbs.iter().filter(|name| *name != "help").map(|name| format!("potluck-{name}")));
    for name in &names {
        is_page(name, &text(name)?)?;
    }
    let program = text("potluck")?;
    ensure!(program.contains("130 interrupted"), "no exit codes in {program}");
    for name in names.iter().skip(2) {
        ensure!(program.contains(&name.replace('-', "\\-")), "no {name} in {program}");
    }
    ensure!(!folder.join("potluck-demo-member.1").exists() && !program.contains("demo\\-member"));
    ensure!(text("potluck-status")?.contains("\\-\\-graph"));
    // To stdout, all of them.
    let all = told(home.path(), &["man"], "")?;
    let titles = all.out.lines().filter(|line| line.starts_with(".TH ")).count();
    ensure!(titles == pages.len(), "{titles} of {} pages", pages.len());
    rendered(&folder.join("potluck.1"), "potluck-status(1)")?;
    rendered(&folder.join("potluck-status.1"), "--graph")?;
    let refused = told(home.path(), &["man", "/proc/nowhere"], "")?;
    ensure!(refused.complaint(1)?.contains("cannot make the folder /proc/nowhere"), "{refused:?}");
    Ok(())
}

/// The structure of a manual page: a title, and its sections in the usual order.
fn is_page(name: &str, text: &str) -> Result<()> {
    let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    ensure!(sections.starts_with(&["NAME", "SYNOPSIS", "DESCRIPTION"]), "{name}: {sections:?}");
    ensure!(text.contains(&format!(".TH {name} 1")), "{name}: no title in {text}");
    let escaped = name.replace('-', "\\-");
    ensure!(text.contains(&format!("{escaped} \\- ")), "{name}: no name in {text}");
    Ok(())
}

/// Where `man` is installed, it shows the page without a warning, and this word in it.
fn rendered(page: &Path, word: &str) -> Result<()> {
    let mut man = Command::new("man");
    man.args(["--warnings", "-l"])
        .arg(page)
        .env("MANPAGER", "cat")
        .env("MANWIDTH", "80")
        .env("LC_ALL", "C");
    let Ok(output) = man.stdin(Stdio::null()).output() else { return Ok(()) };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && complaints.is_empty(), "{complaints}");
    ensure!(text.contains("SYNOPSIS") && text.contains(word), "no {word} in {text}");
    Ok(())
}

pub fn help() -> Result<()> {
    let home = Scratch::new()?;
    let all = told(home.path(), &["help"], "")?;
    for name in commands(home.path())? {
        ensure!(all.out.contains(&format!("\n  {name} ")), "no {name} in {}", all.out);
        let of = told(home.path(), &["help", &name], "")?;
        ensure!(of.code == 0 && of.out.contains(&format!("Usage: potluck {name}")), "{of:?}");
    }
    let nested = told(home.path(), &["help", "keys", "rotate"], "")?;
    ensure!(nested.code == 0 && nested.out.contains("Usage: potluck keys rotate"), "{nested:?}");
    for arguments in [&["help", "--help"][..], &["help", "-h"]] {
        let ran = run(potluck(home.path()).args(arguments), "")?;
        ensure!(ran.code == 0 && ran.out.contains("Usage: potluck help"), "{ran:?}");
    }
    let unknown = told(home.path(), &["help", "nothing"], "")?;
    ensure!(unknown.code == 2 && unknown.err.contains("nothing"), "{unknown:?}");
    Ok(())
}

/// The document lists the pages in the order of the commands.
pub fn manual_as_json() -> Result<()> {
    let home = Scratch::new()?;
    let document: Value = told(home.path(), &["man", "--json"], "")?.json(0)?;
    ensure!(document["pages"][0]["name"] == "potluck.1", "{document}");
    ensure!(document["pages"][0]["file"].is_null(), "{document}");
    Ok(())
}
