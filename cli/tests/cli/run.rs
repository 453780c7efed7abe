//! Runs the command, on this machine or on those of a lab, and checks its output.

use anyhow::{Context, Result, ensure};
use potluck_harness::program::isolate;
use potluck_harness::{Child, Lab, Scratch};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time limit for a document of a running command.
pub const SOON: Duration = Duration::from_secs(20);

/// Machines of a lab, and a home directory per name.
pub struct Network {
    pub lab: Lab,
    pub scratch: Scratch,
    /// Options of the commands, for the interfaces.
    place: &'static [&'static str],
}

impl Network {
    /// One machine with a loopback interface only.
    pub fn loopback() -> Result<Network> {
        let (lab, scratch) = (Lab::up_with("lo", 1)?, Scratch::new()?);
        Ok(Network { lab, scratch, place: &["--loopback"] })
    }

    /// This number of machines on the switch of a profile.
    pub fn machines(profile: &str, count: usize) -> Result<Network> {
        let (lab, scratch) = (Lab::up_with(profile, count)?, Scratch::new()?);
        Ok(Network { lab, scratch, place: &[] })
    }

    pub fn home(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn command(&self, machine: &str, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(machine, env!("CARGO_BIN_EXE_potluck"));
        command.args(arguments);
        clean(&mut command, &self.home(name));
        command
    }

    /// A command as `name` on a machine, with its JSON.
    pub fn json(&self, machine: &str, name: &str, verb: &str, arguments: &[&str]) -> Command {
        self.command(machine, name, &[&[verb, "--json"], self.place, arguments].concat())
    }

    /// Runs such a command to its end.
    pub fn run(&self, machine: &str, name: &str, verb: &str, arguments: &[&str]) -> Result<Ran> {
        run(&mut self.json(machine, name, verb, arguments), "")
    }

    /// Starts `up` as `name` on a machine.
    pub fn up(&self, machine: &str, name: &str, arguments: &[&str]) -> Result<Child> {
        let arguments = [&["--name", name], arguments].concat();
        Child::spawn(&mut self.json(machine, name, "up", &arguments))
    }
}

/// The next document of this kind.
pub fn event(child: &mut Child, kind: &str) -> Result<Value> {
    child.wait_for_event(kind, |_| true, SOON)
}

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
    isolate(command, home);
    command.env_remove("POTLUCK_LOG");
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
