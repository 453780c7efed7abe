//! Layer: Shells.
//!
//! One operation in flight: its run, one gate per peer that holds frames back until the peer has
//! room, and its `done` callback.

use super::outbox::{Frame, Outbox};
use super::run::{Parcel, Run, lock};
use crate::collective::{Done, OutOfMemory};
use crate::locks::{AtomicBool, Mutex};
use crate::race::Race;
use crate::view::Rank;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One operation in flight.
pub struct Active {
    run: Run,
    gates: Vec<Mutex<Gate>>,
    done: Mutex<Option<Done>>,
    over: AtomicBool,
}

/// Flow control towards one peer: whether the peer has granted credit, and the frames that wait for
/// it.
#[derive(Default)]
struct Gate {
    open: bool,
    held: Vec<Parcel>,
    /// The peer sent a frame outside this call's schedule before its own call was known to match.
    doubtful: bool,
}

impl Active {
    /// Creates an operation among `size` ranks. `credited` has one bit for each rank that has
    /// already granted credit.
    pub fn new(run: Run, done: Done, size: usize, credited: u16) -> Active {
        let gate = |rank: usize| {
            Mutex::new(Gate {
                open: credited & (1 << rank) != 0,
                held: Vec::new(),
                doubtful: false,
            })
        };
        Active {
            run,
            gates: (0..size).map(gate).collect(),
            done: Mutex::new(Some(done)),
            over: AtomicBool::new(false),
        }
    }

    /// The progress of the operation.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Takes `done`; returns it only once. The caller must call it, without holding a lock.
    pub fn take_done(&self) -> Option<Done> {
        lock(&self.done).take()
    }

    /// Whether the operation has failed or is decided, so that later work for it can be dropped.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Queues a frame for its peer. Without credit the frame goes out eagerly within the bounds,
    /// else it is held back.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the list of frames.
    pub fn post(
        self: &Arc<Active>,
        parcel: Parcel,
        outboxes: &[Outbox],
    ) -> Result<(), OutOfMemory> {
        let to = parcel.to.index();
        let was_over = Race::PostUnchecked.is_seeded().then(|| self.is_over());
        let mut gate = lock(&self.gates[to]);
        // Checked under the lock, so that nothing is held or counted after the end.
        if was_over.unwrap_or_else(|| self.is_over()) {
            return Ok(());
        }
        let frame = Frame { of: Arc::clone(self), parcel };
        if gate.open {
            return outboxes[to].push(frame);
        }
        let refused =
            if gate.held.is_empty() { outboxes[to].push_eager(frame)? } else { Some(frame) };
        let Some(frame) = refused else { return Ok(()) };
        gate.held.try_reserve(1).map_err(|_| OutOfMemory::of::<Parcel>(gate.held.len() + 1))?;
        gate.held.push(frame.parcel);
        Ok(())
    }

    /// `peer` grants credit, and its call is the same as ours. Returns whether it has already sent
    /// a frame outside this call's schedule.
    ///
    /// # Errors
    /// As for [`post`](Active::post).
    pub fn credit(self: &Arc<Active>, peer: Rank, outbox: &Outbox) -> Result<bool, OutOfMemory> {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.open = true;
        for parcel in std::mem::take(&mut gate.held) {
            outbox.push(Frame { of: Arc::clone(self), parcel })?;
        }
        Ok(gate.doubtful)
    }

    /// Notes that `peer` sent a frame outside this call's schedule. Returns whether the reason may
    /// be a different call of the peer: its descriptor has not arrived yet.
    pub fn doubt(&self, peer: Rank) -> bool {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.doubtful = true;
        !gate.open
    }

    /// Ends the operation: drops its queued frames and returns its blocks to their pool.
    pub fn end(&self, outboxes: &[Outbox]) {
        self.over.store(true, Ordering::Release);
        for (gate, outbox) in self.gates.iter().zip(outboxes) {
            lock(gate).held.clear();
            outbox.purge(self.run.op());
        }
        self.run.clear();
    }
}
