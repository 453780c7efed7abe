//! Layer: Shells.
//!
//! What waits to be sent to one peer, and the link it goes by.
//!
//! The queue has no length of its own because it owns next to nothing: each frame points to a block
//! of some operation's staging, a schedule sends every chunk a fixed number of times, and
//! operations are bounded by their ledger. When an operation ends, its frames are taken out.

use super::op::Active;
use super::run::{Parcel, lock};
use crate::collective::early_ops::EARLY_OPS_MAX;
use crate::link::Shutdown;
use crate::view::{OpId, PARTS_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Most payload bytes of one operation that go to a peer before it has said that it takes part.
pub const EAGER_OP_BYTES: usize = 64 * 1024;
/// Most payload bytes of all operations together that a peer may have got so.
pub const EAGER_PEER_BYTES: usize = 1024 * 1024;
/// Most eager frames of one operation, so that tiny ones cannot cost the receiver more in
/// bookkeeping than in bytes.
pub const EAGER_OP_FRAMES: usize = 64;
/// Most bytes of such frames that a receiver keeps for one peer. One that has more than
/// [`EAGER_PEER_BYTES`] under way is not honest; the rest is for what it has decided and this one
/// has not.
pub const EARLY_BYTES_MAX: usize = EARLY_OPS_MAX * EAGER_OP_BYTES;
/// Most such frames: four of each call of as many steps as may be under way.
pub const EARLY_FRAMES_MAX: usize = 4 * EARLY_OPS_MAX * PARTS_MAX;

/// A frame in a queue, and the operation that it belongs to.
pub struct Frame {
    /// Whose it is.
    pub of: Arc<Active>,
    /// What is sent.
    pub parcel: Parcel,
}

/// Identifies one link among the successive ones to a peer.
pub type Generation = u64;

/// The queue to one peer.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Frame>,
    eager: Eager,
    line: Option<(Generation, Arc<dyn Shutdown>)>,
    closed: bool,
}

/// What has gone to a peer on its own, before the peer asked for it.
#[derive(Debug, Default)]
pub struct Eager {
    ops: BTreeMap<OpId, Spent>,
    bytes: usize,
}

/// What one operation has used of its eager bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    bytes: usize,
    frames: usize,
}

impl Spent {
    /// Adds a frame, or does not when that exceeds the bounds of one operation.
    pub fn add(&mut self, bytes: usize) -> bool {
        let fits = self.bytes + bytes <= EAGER_OP_BYTES && self.frames < EAGER_OP_FRAMES;
        if fits {
            self.bytes += bytes;
            self.frames += 1;
        }
        fits
    }
}

impl Eager {
    fn add(&mut self, op: OpId, bytes: usize) -> bool {
        let fits =
            self.bytes + bytes <= EAGER_PEER_BYTES && self.ops.entry(op).or_default().add(bytes);
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    fn give_back(&mut self, op: OpId) {
        self.bytes -= self.ops.remove(&op).map_or(0, |spent| spent.bytes);
    }
}

impl Outbox {
    /// Queues a frame that the peer has room for.
    pub fn push(&self, frame: Frame) {
        let mut state = lock(&self.state);
        // Asked under the lock, so that nothing is left behind by a purge.
        if !frame.of.is_over() {
            state.queue.push_back(frame);
            self.changed.notify_all();
        }
    }

    /// Queues a frame within the eager bounds, or gives it back.
    pub fn push_eager(&self, frame: Frame) -> Result<(), Frame> {
        let fits =
            lock(&self.state).eager.add(frame.parcel.header.op, frame.parcel.payload.bytes().len());
        if !fits {
            return Err(frame);
        }
        self.push(frame);
        Ok(())
    }

    /// The peer has room for all of `op` now, or no longer cares for it: its eager frames do not
    /// count any more.
    pub fn give_back(&self, op: OpId) {
        lock(&self.state).eager.give_back(op);
    }

    /// Takes the frames of an operation out of the queue.
    pub fn purge(&self, op: OpId) {
        let mut state = lock(&self.state);
        let (gone, kept) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition(|frame| frame.of.run().op() == op);
        state.queue = kept;
        drop(state);
        // Outside of the lock: the last frame of an operation takes the operation with it.
        drop::<VecDeque<Frame>>(gone);
    }

    /// Waits for the next frame for the link `generation`; `None` when that link is over.
    pub fn next(&self, generation: Generation) -> Option<Frame> {
        let mut state = lock(&self.state);
        loop {
            if state.line.as_ref().is_none_or(|line| line.0 != generation) {
                return None;
            }
            if let Some(frame) = state.queue.pop_front() {
                return Some(frame);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Uses a new link. When the outbox is closed or a link is in use the new one is ended.
    pub fn connect(&self, generation: Generation, link: Arc<dyn Shutdown>) -> bool {
        let mut state = lock(&self.state);
        let free = !state.closed && state.line.is_none();
        if free {
            state.line = Some((generation, link));
        } else {
            drop(state);
            link.shutdown();
        }
        free
    }

    /// The link in use.
    pub fn generation(&self) -> Option<Generation> {
        lock(&self.state).line.as_ref().map(|line| line.0)
    }

    /// Ends the link `generation` if it is the one in use; says whether it was.
    pub fn disconnect(&self, generation: Generation) -> bool {
        let line = lock(&self.state).line.take_if(|line| line.0 == generation);
        self.changed.notify_all();
        line.inspect(|line| line.1.shutdown()).is_some()
    }

    /// Ends the link in use and takes no other.
    pub fn close(&self) {
        let line = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.line.take()
        };
        self.changed.notify_all();
        if let Some(line) = line {
            line.1.shutdown();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::MAIN, number }
    }

    #[test]
    fn one_operation_stays_below_its_bytes_and_frames() {
        let mut spent = Spent::default();
        assert!(spent.add(EAGER_OP_BYTES) && !spent.add(1));
        let mut eager = Eager::default();
        assert_eq!((0..100).filter(|_| eager.add(op(0), 4)).count(), EAGER_OP_FRAMES);
    }

    #[test]
    fn all_operations_together_stay_below_the_peers_bytes_until_some_are_given_back() {
        let mut eager = Eager::default();
        let taken = (0..100).filter(|n| eager.add(op(*n), EAGER_OP_BYTES)).count();
        assert_eq!(taken * EAGER_OP_BYTES, EAGER_PEER_BYTES);
        eager.give_back(op(3));
        eager.give_back(op(3));
        assert!(eager.add(op(200), EAGER_OP_BYTES) && !eager.add(op(201), 1));
    }
}
