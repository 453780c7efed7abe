//! Layer: Shells.
//!
//! The native engine: schedules of this project on blocking threads, over data links.
//!
//! # Semantics
//! A job is started, which makes room for its data, and fed, which may happen later or never. A
//! member's chunks leave while the next are fed, as soon as the peer is known to have room for
//! them, flow over each other along the schedule, and are folded where they meet. The result is
//! received and finished in its place, which may be memory of the caller's type, and is handed out
//! with it. What was lent is read until it is added and sent; what others still wait for is held
//! until the job is retired.
//!
//! # Credit
//! A reader never waits for its program. Data of an operation goes to a peer after
//! [`Backend::credit`]; before that only 64 KiB per operation and 1 MiB per peer, for which the
//! peer keeps room.
//!
//! # Failure
//! A link that breaks fails the running jobs that still need it and no other; a peer that sends
//! what no schedule foresees loses its link. Nothing received can make a thread panic or take
//! memory beyond the bounds. A chunk is received into a result once, and never into one that is
//! handed out. A job that is given up before it is fed is never fed; memory that is being received
//! into when its job ends goes back to the pool afterwards.
//!
//! What a link had taken over when it broke is not sent again. A job that is complete here cannot
//! be failed for that: a peer that starts it only later, as in a broadcast, waits until its ledger
//! aborts it. So whoever hears of a broken link should abort what is undecided.
//!
//! Subnormal numbers are kept, also where the program's threads flush them to zero: what is added
//! and encoded is so in the default floating-point environment.
//!
//! # Threads
//! Two for each link, named `potluck-tx-<rank>` and `potluck-rx-<rank>`. They end when their link
//! does; nobody joins them, so a backend may be closed and dropped on any thread, also on one of
//! theirs.

mod backend;
mod coding;
mod op;
mod outbox;
mod part;
mod run;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use outbox::{EAGER_OP_BYTES, EAGER_OP_FRAMES, EAGER_PEER_BYTES};

use super::threads::Threads;
use super::{Backend, Board, Engine, Pool};
use crate::engine::EngineKind;
use crate::view::{Rank, View};
use backend::NativeBackend;
use std::sync::Arc;
#[cfg(test)]
use std::time::Duration;

/// potluck's own engine.
#[derive(Clone, Debug, Default)]
pub struct NativeEngine {
    pool: Pool,
    threads: Arc<Threads>,
}

impl NativeEngine {
    /// An engine whose working memory comes from `pool`.
    pub fn new(pool: Pool) -> NativeEngine {
        NativeEngine { pool, threads: Arc::default() }
    }

    /// Threads of all its backends that run now.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.threads.running()
    }

    /// Threads that have ended by a panic; anything but 0 is a bug, here or in a job's `done`.
    #[cfg(test)]
    pub fn panics(&self) -> usize {
        self.threads.panics()
    }

    /// Waits until the threads of all its backends have ended; gives how many have not when
    /// `timeout` is over.
    #[cfg(test)]
    pub fn wait_for_threads(&self, timeout: Duration) -> usize {
        self.threads.wait(timeout)
    }
}

impl Engine for NativeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn open(&self, view: &Arc<View>, me: Rank, _board: Arc<dyn Board>) -> Arc<dyn Backend> {
        Arc::new(NativeBackend::new(me, view.size(), self.pool.clone(), Arc::clone(&self.threads)))
    }
}
