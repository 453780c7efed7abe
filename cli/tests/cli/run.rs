//! Runs the command and checks its output.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// The command with its own home directory. Of the `POTLUCK_` variables only `POTLUCK_ENGINE` is
/// inherited.
pub fn potluck(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_potluck"));
    clean(&mut command, home);
    command
}

/// Sets the same environment for another command that starts it.
pub fn clean(command: &mut Command, home: &Path) {
    for variable in [
        "POTLUCK_KEY",
        "POTLUCK_NAMESPACE",
        "POTLUCK_PEERS",
        "POTLUCK_INTERFACES",
        "POTLUCK_PARTITION",
        "POTLUCK_LOG",
    ] {
        command.env_remove(variable);
    }
    command.env("POTLUCK_HOME", home);
}

/// Runs a command to its end with `input` on its standard input.
pub fn run(command: &mut Command, input: &str) -> Result<Ran> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // An error means that the command, which does not read its input, has ended.
    let _ = child.stdin.take().context("piped")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

/// Runs potluck with these arguments.
pub fn told(home: &Path, arguments: &[&str], input: &str) -> Result<Ran> {
    run(potluck(home).args(arguments), input)
}

impl Ran {
    /// The only JSON document on stdout, after exit code `code`.
    pub fn json(&self, code: i32) -> Result<Value> {
        ensure!(self.code == code, "{self:?}");
        ensure!(self.out.lines().count() == 1, "not one document: {self:?}");
        Ok(serde_json::from_str(&self.out)?)
    }

    /// The only line on stderr, after exit code `code`.
    pub fn complaint(&self, code: i32) -> Result<&str> {
        ensure!(self.code == code && self.err.lines().count() == 1, "{self:?}");
        ensure!(self.err.starts_with("potluck: "), "{self:?}");
        Ok(&self.err)
    }
}
