//! The text of a trial, compared with the file that is kept of it.

use crate::run::{SOON, run};
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use regex_lite::Regex;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The commands of a trial, and the output of each.
#[derive(Default)]
pub struct Trial(String);

impl Trial {
    /// Runs a command to its end. `shown` is the command as a person types it.
    pub fn run(&mut self, shown: &str, command: &mut Command, input: &str) -> Result<()> {
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
    pub fn so_far(&mut self, shown: &str, child: &Child) {
        let _ = writeln!(self.0, "$ {shown}");
        for line in child.stdout().into_iter().chain(child.stderr()) {
            let _ = writeln!(self.0, "{line}");
        }
        self.0.push('\n');
    }

    /// The next line with these words that a command which goes on prints. `shown` describes the
    /// event before it.
    pub fn line(&mut self, shown: &str, child: &mut Child, words: &str) -> Result<()> {
        let line = child.wait_for_line(|line| line.contains(words), SOON)?;
        let _ = writeln!(self.0, "# {shown}\n{line}\n");
        Ok(())
    }

    /// Compares the text with the file of this name.
    pub fn end(self, name: &str, scratch: &Path) -> Result<()> {
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

/// Without the values that differ from run to run: paths, addresses, ids, keys, and the build's
/// Gloo.
fn normalized(text: &str, scratch: &Path) -> Result<String> {
    let mut text = text.replace(&scratch.display().to_string(), "/home");
    for (pattern, name) in [
        (r"plk1[a-z2-7]+", "KEY"),
        (r"\[[0-9a-f:]+(%\w+)?\]:\d+|\b\d+\.\d+\.\d+\.\d+:\d+", "ADDRESS"),
        (r"\b[0-9a-f]{8}\b", "ID"),
        (r"\b\d+ queries sent", "N queries sent"),
        (r"this build has .*\n", ""),
        (r"\b\d{2}-\d{4}-\d{4}\b", "CODE"),
        (r"process \d+", "process N"),
        // Which of them it is depends on the moment.
        (r"\((timed out|host unreachable)\)", "(ERROR)"),
    ] {
        text = Regex::new(pattern)?.replace_all(&text, name).into_owned();
    }
    Ok(text)
}
