//! One operation in flight: its progress, one gate per peer that holds frames back until the peer
//! has room, and its `done` callback.

use super::super::backend::Done;
use super::op_progress::{OpProgress, OutgoingFrame};
use crate::os::{AtomicBool, Mutex, lock};
use crate::protocol::{Rank, RankSet};
use std::sync::atomic::Ordering;

/// One operation in flight.
pub struct ActiveOp {
    pub(super) progress: OpProgress,
    pub(super) gates: Vec<Mutex<CreditGate>>,
    done: Mutex<Option<Done>>,
    pub(super) over: AtomicBool,
}

/// Flow control towards one peer: whether the peer has granted credit, and the frames that wait for
/// it.
#[derive(Default)]
pub(super) struct CreditGate {
    pub(super) open: bool,
    pub(super) held: Vec<OutgoingFrame>,
    /// The peer sent a frame outside this call's schedule before its own call was known to match.
    pub(super) doubtful: bool,
}

impl ActiveOp {
    /// Creates an operation among `size` ranks. `credited` has one bit for each rank that has
    /// already granted credit.
    pub fn new(progress: OpProgress, done: Done, size: usize, credited: RankSet) -> ActiveOp {
        let gate = |rank: usize| {
            Mutex::new(CreditGate {
                open: credited.contains(Rank::from(rank)),
                held: Vec::new(),
                doubtful: false,
            })
        };
        ActiveOp {
            progress,
            gates: (0..size).map(gate).collect(),
            done: Mutex::new(Some(done)),
            over: AtomicBool::new(false),
        }
    }

    /// The progress of the operation.
    pub fn progress(&self) -> &OpProgress {
        &self.progress
    }

    /// Takes `done`; returns it only once. The caller must call it, without holding a lock.
    pub fn take_done(&self) -> Option<Done> {
        lock(&self.done).take()
    }

    /// Whether the operation has failed or is decided, so that later work for it can be dropped.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Notes that `peer` sent a frame outside this call's schedule. Returns whether the reason may
    /// be a different call of the peer: its descriptor has not arrived yet.
    pub fn doubt(&self, peer: Rank) -> bool {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.doubtful = true;
        !gate.open
    }
}
