//! The native engine: runs the project's own schedules on blocking threads, over data links.
//!
//! # Semantics
//! `start` allocates memory for a call's data; `feed` hands in the contribution, later or never. A
//! chunk leaves while the next ones are still being fed, as soon as the peer has room for it.
//! Chunks travel along the schedule independently of each other and are folded at the ranks where
//! they meet. The result is received and finished in its final place, which may be memory of the
//! caller's element type, and is handed out with that memory. Lent input is read until it has been
//! added and sent. Data that other ranks still wait for is held until the call is retired.
//!
//! # Credit
//! A receiver thread never waits for the program. The data of an operation goes to a peer after
//! [`Backend::credit`]. Before that a peer gets at most 64 KiB per operation and 1 MiB in total. It
//! keeps at most 33 MiB of each peer, because operations that are decided at the sender may not be
//! decided at the receiver yet.
//!
//! # Failure
//! A broken link fails the running calls that still need it, and no others. A peer that sends a
//! frame outside the schedule loses its link. No received data can make a thread panic or use
//! memory beyond the bounds. Each chunk is received into a result at most once, and never into a
//! result that has been handed out. A call cancelled before `feed` ignores the contribution. If a
//! call ends while a thread receives into its memory, that memory goes back to the pool afterwards.
//!
//! Frames that a link had accepted before it broke are not sent again. This cannot fail a call that
//! is already complete here. A peer that starts the call only later, as in a broadcast, then waits
//! until its ledger aborts it. A member that learns of a broken link should therefore abort the
//! undecided operations.
//!
//! Subnormal numbers are kept, even if the program's threads flush them to zero: sums and encodings
//! are computed in the default floating-point environment.
//!
//! # Threads
//! Each link has two threads, `potluck-tx-<rank>` and `potluck-rx-<rank>`. They end with their
//! link. No thread joins them, so a backend may be closed and dropped on any thread, including its
//! own.

mod active_op;
mod backend;
mod chunk_numbers;
mod chunk_state;
mod coding;
mod flow_control;
mod op_progress;
mod outbox;
mod partial_sum;
mod table;
#[cfg(test)]
mod tests;

pub use backend::NativeBackend;

use super::backend::{Backend, Engine};
use super::board::Board;
use super::threads::Threads;
use crate::memory::Pool;
use crate::protocol::{EngineKind, Mutation, Rank, View};
use std::sync::Arc;

/// potluck's own engine.
#[derive(Clone, Debug, Default)]
pub struct NativeEngine {
    pool: Pool,
    threads: Arc<Threads>,
    mutation: Mutation,
}

impl NativeEngine {
    /// An engine that allocates its working memory from `pool`.
    pub fn new(pool: Pool) -> NativeEngine {
        NativeEngine { pool, threads: Arc::default(), mutation: Mutation::NONE }
    }

    /// The same with one of its rules broken, as a test wants it.
    pub(crate) fn with(self, mutation: Mutation) -> NativeEngine {
        NativeEngine { mutation, ..self }
    }

    /// The backend of one View.
    pub(crate) fn backend(&self, view: &View, me: Rank) -> NativeBackend {
        let (pool, threads) = (self.pool.clone(), Arc::clone(&self.threads));
        NativeBackend::new(me, view.size(), pool, threads, self.mutation)
    }

    /// The threads of all its backends.
    #[cfg(test)]
    pub fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }
}

impl Engine for NativeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn open(&self, view: &Arc<View>, me: Rank, _board: Arc<dyn Board>) -> Arc<dyn Backend> {
        Arc::new(self.backend(view, me))
    }
}
