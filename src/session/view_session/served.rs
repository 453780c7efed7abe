//! The durations of reductions, by which rank 0 judges the plan.

use std::time::{Duration, Instant};

/// A committed reduction.
#[derive(Clone, Copy, Debug)]
pub struct ServedOp {
    pub bytes: u64,
    /// The time since all members have called it and the previous one is done.
    pub took: Duration,
    /// The revision of the plan under which it ran.
    pub revision: u32,
}

/// The reductions since the list was read.
#[derive(Default)]
pub(super) struct Served {
    last: Option<Instant>,
    ops: Vec<ServedOp>,
}

impl Served {
    pub(super) fn note(&mut self, bytes: u64, agreed_at: Instant, revision: u32) {
        let (from, now) = (self.last.map_or(agreed_at, |last| last.max(agreed_at)), Instant::now());
        self.last = Some(now);
        // The list only fills up if the control loop does not read it.
        if self.ops.len() < SERVED_MAX {
            self.ops.push(ServedOp { bytes, took: now.duration_since(from), revision });
        }
    }

    pub(super) fn take(&mut self) -> Vec<ServedOp> {
        std::mem::take(&mut self.ops)
    }
}

/// Most reductions kept: more than complete between two reads of the list.
const SERVED_MAX: usize = 64;
