//! One stopped thread of a process whose other threads run.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::lab;
use crate::process::Child;

/// A thread that is to be stopped, or is stopped. Dropping it lets the thread continue. See
/// `lab/halt`; needs `python3` and the right to trace processes.
#[derive(Debug)]
pub struct Halt(Child);

const SOON: Duration = Duration::from_secs(30);

impl Halt {
    /// Prepares to stop a thread of `process` whose name begins with `thread`; of several the
    /// oldest.
    pub fn ready(process: &Child, thread: &str) -> Result<Halt> {
        let mut command = Command::new(lab::script_path().with_file_name("halt"));
        command.args([&process.id().to_string(), thread]);
        let mut child = Child::spawn_told(&mut command)?;
        child.wait_for_line(|line| line == "armed", SOON)?;
        Ok(Halt(child))
    }

    /// Stops it. It takes effect some milliseconds later.
    pub fn fire(&mut self) -> Result<()> {
        self.0.tell("now")
    }

    /// Waits until the thread is stopped.
    pub fn made(&mut self) -> Result<()> {
        self.0.wait_for_line(|line| line == "halted", SOON).map(drop)
    }
}
