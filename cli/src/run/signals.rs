//! The signals that end a run.

use std::future::pending;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the command to end.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the process ignores it since its start, as under `nohup`.
    hangup: Option<Signal>,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM, or SIGHUP: the terminal has gone.
    Terminate,
}

impl Signals {
    /// From now on, they no longer end the process. A SIGHUP that is ignored stays ignored.
    pub fn catch() -> io::Result<Signals> {
        let hangup = if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Ask {
        tokio::select! {
            _ = self.interrupt.recv() => Ask::Interrupt,
            _ = self.terminate.recv() => Ask::Terminate,
            () = hung_up(&mut self.hangup) => Ask::Terminate,
        }
    }
}

/// The next SIGHUP, if it is caught. Cancel-safe.
async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => pending().await,
    }
}

/// Whether this process ignores SIGHUP. Only Linux tells.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.is_ok_and(|status| ignores_hangup(&status))
}

/// Whether SIGHUP is among the ignored signals of this `/proc/PID/status`.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // Bit 0 is signal 1.
    set.is_some_and(|set| set & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_read_from_the_status_of_the_process() {
        let status = |ignored: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{ignored}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup(&status("none")) && !ignores_hangup(""));
    }
}
