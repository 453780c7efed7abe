//! Layer: Shells.
//!
//! An operation that is under way here: its run, the gates that hold its frames back until peers
//! have room, and its `done`.

use super::outbox::{Frame, Outbox};
use super::run::{Parcel, Run, lock};
use crate::collective::Done;
use crate::view::Rank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// An operation that is under way here.
pub struct Active {
    run: Run,
    gates: Vec<Mutex<Gate>>,
    done: Mutex<Option<Done>>,
    over: AtomicBool,
}

/// Whether a peer has room for this operation, and what waits until it has.
#[derive(Default)]
struct Gate {
    open: bool,
    held: Vec<Parcel>,
    /// The peer sent what this call does not foresee, before it was known that its call is the
    /// same.
    doubtful: bool,
}

impl Active {
    /// An operation among `size` ranks. The ranks in `credited`, a bit each, have room for it
    /// already.
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

    /// Its progress.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Whoever gets it must call it, outside of any lock; everybody else gets `None`.
    pub fn take_done(&self) -> Option<Done> {
        lock(&self.done).take()
    }

    /// Whether nothing of it matters any more: it has failed, or is decided.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Sends a parcel, or holds it back until its peer has room.
    pub fn post(self: &Arc<Active>, parcel: Parcel, outboxes: &[Outbox]) {
        let to = parcel.to.index();
        let mut gate = lock(&self.gates[to]);
        if self.is_over() {
            return;
        }
        let frame = Frame { of: Arc::clone(self), parcel };
        if gate.open {
            outboxes[to].push(frame);
        } else if !gate.held.is_empty() {
            gate.held.push(frame.parcel);
        } else if let Err(frame) = outboxes[to].push_eager(frame) {
            gate.held.push(frame.parcel);
        }
    }

    /// `peer` has room for all of it, and calls the same. Gives whether it has sent what that call
    /// does not foresee.
    pub fn credit(self: &Arc<Active>, peer: Rank, outbox: &Outbox) -> bool {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.open = true;
        for parcel in std::mem::take(&mut gate.held) {
            outbox.push(Frame { of: Arc::clone(self), parcel });
        }
        gate.doubtful
    }

    /// `peer` has sent what this call does not foresee. Gives whether that may be because it calls
    /// something else, which its descriptor will tell.
    pub fn doubt(&self, peer: Rank) -> bool {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.doubtful = true;
        !gate.open
    }

    /// Ends it: nothing more is sent, and its blocks go back to their pool.
    pub fn end(&self, outboxes: &[Outbox]) {
        self.over.store(true, Ordering::Release);
        for (gate, outbox) in self.gates.iter().zip(outboxes) {
            lock(gate).held.clear();
            outbox.purge(self.run.op());
        }
        self.run.clear();
    }
}
