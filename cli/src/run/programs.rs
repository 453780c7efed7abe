//! The programs of one generation on this machine.

use super::command::Command;
use super::guard::code_of;
use super::lines::{Copiers, Stream, open_log};
use super::report::Progress;
use super::variables::{Place, ring_file, variables};
use crate::itself;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io::{PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The programs of one generation. Dropping it kills those that run: each has a guard, whose pipe
/// from this process ends.
#[derive(Debug)]
pub struct Programs {
    /// By rank: the guard, which leads the process group of the program.
    running: BTreeMap<usize, Pid>,
    ends: mpsc::UnboundedReceiver<(usize, u8)>,
    ended: mpsc::UnboundedSender<(usize, u8)>,
    /// The first that has failed.
    failed: Option<(usize, u8)>,
    /// When those that still run are killed.
    kill_at: Option<Instant>,
    /// Held open as long as the programs may run.
    pipes: Vec<PipeWriter>,
    /// The host files of MLX, removed when this is dropped.
    ring_files: Vec<NamedTempFile>,
}

impl Programs {
    /// Starts all of them.
    pub fn start(place: &Place<'_>, command: &Command, copiers: &Copiers) -> Result<Programs> {
        let (ended, ends) = mpsc::unbounded_channel();
        let mut programs = Programs {
            running: BTreeMap::new(),
            ends,
            ended,
            failed: None,
            kill_at: None,
            pipes: Vec::new(),
            ring_files: Vec::new(),
        };
        for process in 0..usize::from(command.processes) {
            programs.start_one(place, command, process, copiers)?;
        }
        Ok(programs)
    }

    fn start_one(
        &mut self,
        place: &Place<'_>,
        command: &Command,
        process: usize,
        copiers: &Copiers,
    ) -> Result<()> {
        let rank = place.first_rank() + process;
        let open = |folder| open_log(folder, rank, place.generation);
        let log = command.logs.as_deref().map(open).transpose()?;
        let [(input, pipe), (out, of_out), (err, of_err)] =
            [std::io::pipe()?, std::io::pipe()?, std::io::pipe()?];
        let mut guard = itself::command()?;
        guard.args(["run-guard", "--"]).args(&command.words);
        guard.envs(variables(place, command, process));
        if let Some(ring) = &place.layout.ring {
            let mut file = NamedTempFile::with_prefix("potluck-ring-")?;
            file.write_all(ring_file(ring).as_bytes())?;
            guard.env("MLX_HOSTFILE", file.path());
            self.ring_files.push(file);
        }
        guard.process_group(0).stdin(input).stdout(of_out).stderr(of_err);
        let mut guard = tokio::process::Command::from(guard);
        let child = guard.spawn().context("a program cannot be started")?;
        // The ends of the pipes that the child has.
        drop(guard);
        self.pipes.push(pipe);
        copiers.copy(out, rank, Stream::Out, log.clone())?;
        copiers.copy(err, rank, Stream::Err, log)?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        self.running.insert(rank, id.context("a program has no number")?);
        tokio::spawn(tell_end(child, rank, self.ended.clone()));
        Ok(())
    }

    /// How far they are.
    pub fn progress(&self) -> Progress {
        match self.failed {
            Some((rank, code)) => {
                Progress::Failed { rank: u32::try_from(rank).unwrap_or_default(), code }
            }
            None if self.running.is_empty() => Progress::Done,
            None => Progress::Running,
        }
    }

    /// Whether all have ended.
    pub fn have_ended(&self) -> bool {
        self.running.is_empty()
    }

    /// Asks them to end, and kills them after `grace`. Later calls change nothing.
    pub fn stop(&mut self, signal: Signal, grace: Duration) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + grace);
            self.signal(signal);
        }
    }

    /// Kills them.
    pub fn kill(&mut self) {
        self.kill_at = None;
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        for group in self.running.values() {
            // An error means that it has just ended.
            let _ = kill_process_group(*group, signal);
        }
    }

    /// Waits until one of them ends, or until it is time to kill them, and does so. Cancel-safe.
    pub async fn change(&mut self) {
        let kill_at = self.kill_at.filter(|_| !self.running.is_empty());
        let overdue = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((rank, code)) = self.ends.recv() => self.note_end(rank, code),
            () = overdue => self.kill(),
        }
    }

    fn note_end(&mut self, rank: usize, code: u8) {
        if let Some(group) = self.running.remove(&rank) {
            // The processes that it has left behind. Its number is given to no other group while
            // one of them lives.
            let _ = kill_process_group(group, Signal::KILL);
        }
        if code != 0 && self.failed.is_none() {
            self.failed = Some((rank, code));
        }
    }
}

async fn tell_end(mut child: Child, rank: usize, ended: mpsc::UnboundedSender<(usize, u8)>) {
    let code = child.wait().await.map_or(1, code_of);
    // Nobody waits for it any more.
    let _ = ended.send((rank, code));
}
