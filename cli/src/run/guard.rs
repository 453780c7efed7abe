//! `potluck run-guard`: the parent of one program. It ends the program, and all that this has
//! started, as soon as the supervisor has ended, however that came about.
//!
//! The guard leads the process group in which the program runs. Its standard input is a pipe that
//! only the supervisor holds open. This works on every Unix and needs no `unsafe`, unlike a signal
//! that the program asks for between `fork` and `exec`, which its own children would not get.

use crate::exit::Exit;
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use rustix::process::{Signal, kill_current_process_group};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// The parent of one program.
#[derive(Args, Debug)]
pub struct Guard {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Guard {
    /// Runs the program to its end. The exit code is the program's.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        // Signals to the group are for the program. Those that are caught, not ignored, have their
        // usual effect in it.
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let _caught = kinds.map(signal);
        std::thread::Builder::new().name("supervisor".to_owned()).spawn(end_with_supervisor)?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(Exit::Usage);
        };
        let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
        match started {
            Ok(mut child) => Ok(Exit::Program(code_of(child.wait().await?))),
            Err(error) => {
                output.say(&format!(
                    "potluck: cannot start {}: {error}; is it installed on this machine, and in \
                     PATH?",
                    program.to_string_lossy()
                ));
                let is_missing = error.kind() == ErrorKind::NotFound;
                Ok(Exit::Program(if is_missing { NOT_FOUND } else { NOT_RUNNABLE }))
            }
        }
    }
}

fn end_with_supervisor() {
    // Nothing is ever written. An error is taken for the end, too.
    let _ = std::io::stdin().read(&mut [0]);
    let _ = kill_current_process_group(Signal::KILL);
}

/// The exit code of a program as a shell gives it: 128 and the number of the signal that ended it.
pub fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The codes of a shell for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
