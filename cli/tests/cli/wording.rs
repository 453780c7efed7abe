//! What the command tells people, as text: trials that a newcomer makes, each kept in a file of
//! `cli/tests/golden`. `POTLUCK_WRITE=1 make test ARGS="cli words"` writes the files again.

use crate::keys::KEY;
use crate::run::{Network, SOON, clean, run};
use anyhow::{Context, Result, ensure};
use potluck::keys::ClusterKey;
use potluck_harness::{Child, Scratch};
use regex_lite::Regex;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The commands of a trial, and what each has printed.
#[derive(Default)]
struct Trial(String);

impl Trial {
    /// Runs a command to its end. `shown` is the command as a person types it.
    fn run(&mut self, shown: &str, command: &mut Command, input: &str) -> Result<()> {
        let ran = run(command, input)?;
        let _ = writeln!(self.0, "$ {shown}");
        self.0 += &ran.out;
        self.0 += &ran.err;
        if ran.code != 0 {
            let _ = writeln!(self.0, "[exit code {}]", ran.code);
        }
        self.0.push('\n');
        Ok(())
    }

    /// The lines that a command which goes on has printed, up to now.
    fn so_far(&mut self, shown: &str, child: &Child) {
        let _ = writeln!(self.0, "$ {shown}");
        for line in child.stdout().into_iter().chain(child.stderr()) {
            let _ = writeln!(self.0, "{line}");
        }
        self.0.push('\n');
    }

    /// Compares the text with the file of this name.
    fn end(self, name: &str, scratch: &Path) -> Result<()> {
        let text = normalized(&self.0, scratch)?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let file = folder.join(format!("{name}.txt"));
        if std::env::var_os("POTLUCK_WRITE").is_some() {
            fs::create_dir_all(&folder)?;
            fs::write(&file, &text)?;
        }
        let kept = fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        ensure!(kept == text, "{} differs. Told now:\n{text}", file.display());
        Ok(())
    }
}

/// Without what differs from run to run: paths, addresses, ids, keys, and the build's Gloo.
fn normalized(text: &str, scratch: &Path) -> Result<String> {
    let mut text = text.replace(&scratch.display().to_string(), "/home");
    for (pattern, name) in [
        (r"plk1[a-z2-7]+", "KEY"),
        (r"\[[0-9a-f:]+(%\w+)?\]:\d+|\b\d+\.\d+\.\d+\.\d+:\d+", "ADDRESS"),
        (r"\b[0-9a-f]{8}\b", "ID"),
        (r"\b\d+ queries sent", "N queries sent"),
        (r"this build has .*\n", ""),
        (r"\b\d{2}-\d{4}-\d{4}\b", "CODE"),
    ] {
        text = Regex::new(pattern)?.replace_all(&text, name).into_owned();
    }
    Ok(text)
}

/// Keys that are mistyped, typed at the wrong place, or of another cluster.
pub fn keys() -> Result<()> {
    let scratch = Scratch::new()?;
    let potluck = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potluck"));
        clean(&mut command, &scratch.path().join("ada"));
        command.args(arguments);
        command
    };
    let mut trial = Trial::default();
    trial.run("potluck key", &mut potluck(&["key"]), "")?;
    trial.run("potluck join < /dev/null", &mut potluck(&["join"]), "")?;
    trial.run("echo hello | potluck join", &mut potluck(&["join"]), "hello\n")?;
    let other = ClusterKey::generate()?.to_text();
    let short = &KEY[..20];
    trial.run("echo KEY-CUT-SHORT | potluck join", &mut potluck(&["join"]), short)?;
    let typo = KEY.replacen("aaaa", "aaba", 1);
    trial.run("echo KEY-WITH-A-TYPO | potluck join", &mut potluck(&["join"]), &typo)?;
    trial.run("potluck join KEY", &mut potluck(&["join", KEY]), "")?;
    trial.run("echo KEY | potluck join", &mut potluck(&["join"]), KEY)?;
    trial.run("echo KEY | potluck join", &mut potluck(&["join"]), KEY)?;
    trial.run("echo OTHER-KEY | potluck join", &mut potluck(&["join"]), &other)?;
    trial.run("potluck key", &mut potluck(&["key"]), "")?;
    trial.run("potluck up --new", &mut potluck(&["up", "--new"]), "")?;
    let mut homeless = potluck(&["key"]);
    for variable in ["POTLUCK_HOME", "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        homeless.env_remove(variable);
    }
    trial.run("env -u HOME potluck key", &mut homeless, "")?;
    fs::write(scratch.path().join("ada/cluster-default.key"), "")?;
    trial.run("potluck key    # its file is empty", &mut potluck(&["key"]), "")?;
    trial.end("keys", scratch.path())
}

/// The first machine, alone on the network.
pub fn alone() -> Result<()> {
    let network = Network::machines("loop", 1)?;
    let ada = |arguments: &[&str]| network.command("n1", "ada", arguments);
    let mut trial = Trial::default();
    trial.run("potluck status", &mut ada(&["status"]), "")?;
    let mut up = Child::spawn(&mut ada(&["up", "--name", "ada"]))?;
    up.wait_for_line(|line| line.contains("--peer"), SOON)?;
    trial.so_far("potluck up", &up);
    up.interrupt()?;
    up.wait(SOON)?;
    trial.end("alone", network.scratch.path())
}

/// A machine without the key of the cluster beside it, then with another key.
pub fn beside_a_cluster() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    let mut ada = network.up("n1", "ada", &[])?;
    crate::run::event(&mut ada, "status")?;
    let bob = |arguments: &[&str]| network.command("n2", "bob", arguments);
    let mut trial = Trial::default();
    trial.run("potluck up", &mut bob(&["up"]), "")?;
    trial.run("potluck invite", &mut bob(&["invite"]), "")?;
    trial.run("potluck join 00-0000-0000", &mut bob(&["join", "00-0000-0000"]), "")?;
    trial.end("beside-a-cluster", network.scratch.path())
}
