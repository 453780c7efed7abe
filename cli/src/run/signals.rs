//! The signals that end a run.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the command to end.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
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
    /// From now on, they no longer end the process.
    pub fn catch() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Ask {
        tokio::select! {
            _ = self.interrupt.recv() => Ask::Interrupt,
            _ = self.terminate.recv() => Ask::Terminate,
            _ = self.hangup.recv() => Ask::Terminate,
        }
    }
}
