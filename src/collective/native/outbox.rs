//! The send queue of one peer, and the link in use.
//!
//! The queue needs no length bound because a frame only holds a reference to a block or a chunk of
//! a result. A schedule sends every chunk a fixed number of times, and the ledger bounds the number
//! of operations. When an operation ends, its frames are removed.

use super::super::links::{CurrentLink, EARLY_OPS_MAX, Generation};
use super::active_op::ActiveOp;
use super::op_progress::OutgoingFrame;
use crate::link::Shutdown;
use crate::memory::OutOfMemory;
use crate::os::{Condvar, Mutex, lock};
use crate::protocol::{OPS_IN_FLIGHT_MAX, OpId, PARTS_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

/// Most payload bytes of one operation sent to a peer before the peer grants credit.
pub const EAGER_OP_BYTES: usize = 64 * 1024;
/// Most eager payload bytes of all operations together sent to one peer.
pub const EAGER_PEER_BYTES: usize = 1024 * 1024;
/// Most eager frames of one operation, so that the bookkeeping for tiny frames cannot cost the
/// receiver more than their bytes.
pub const EAGER_OP_FRAMES: usize = 64;
/// Most early bytes that a receiver keeps for one peer. An honest sender never has more than
/// [`EAGER_PEER_BYTES`] outstanding by its own count. The rest covers operations that are decided
/// at the sender but not yet at the receiver.
pub const EARLY_BYTES_MAX: usize = EAGER_PEER_BYTES + EARLY_OPS_MAX * EAGER_OP_BYTES;
/// Most eager frames of all operations together sent to one peer: on average four for each call of
/// the largest number of steps in flight.
pub const EAGER_PEER_FRAMES: usize = 4 * OPS_IN_FLIGHT_MAX * PARTS_MAX;
/// Most early frames that a receiver keeps for one peer: as with the bytes, those of the sender's
/// own count, and those of operations that are decided at the sender.
pub const EARLY_FRAMES_MAX: usize = EAGER_PEER_FRAMES + EARLY_OPS_MAX * EAGER_OP_FRAMES;

/// A queued frame and its operation.
pub struct Frame {
    /// The operation.
    pub of: Arc<ActiveOp>,
    /// The frame itself.
    pub outgoing: OutgoingFrame,
}

/// The send queue of one peer.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutboxState {
    queue: VecDeque<Frame>,
    eager: Eager,
    link: CurrentLink,
    /// The number of threads that wait for a frame.
    waiting: usize,
}

/// The data sent to a peer before its credit.
#[derive(Debug, Default)]
pub struct Eager {
    ops: BTreeMap<OpId, Spent>,
    bytes: usize,
    frames: usize,
}

/// The part of the eager bounds that one operation has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    bytes: usize,
    frames: usize,
}

impl Spent {
    /// Counts a frame; returns `false`, and counts nothing, if it exceeds the bounds of one
    /// operation.
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
        let fits = self.bytes + bytes <= EAGER_PEER_BYTES
            && self.frames < EAGER_PEER_FRAMES
            && self.ops.entry(op).or_default().add(bytes);
        if fits {
            self.bytes += bytes;
            self.frames += 1;
        }
        fits
    }

    fn give_back(&mut self, op: OpId) {
        let spent = self.ops.remove(&op).unwrap_or_default();
        self.bytes -= spent.bytes;
        self.frames -= spent.frames;
    }
}

impl Outbox {
    /// Queues a frame for which the peer has room.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the queue.
    pub fn push(&self, frame: Frame) -> Result<(), OutOfMemory> {
        let mut state = lock(&self.state);
        // Checked under the lock, so that no frame is queued after a purge.
        if !frame.of.is_over() {
            let len = state.queue.len();
            state.queue.try_reserve(1).map_err(|_| OutOfMemory::of::<Frame>(len + 1))?;
            state.queue.push_back(frame);
            // To notify takes a system call, even if no thread waits.
            if state.waiting > 0 {
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Queues a frame within the eager bounds, or returns it.
    ///
    /// # Errors
    /// As for [`push`](Outbox::push).
    pub fn push_eager(&self, frame: Frame) -> Result<Option<Frame>, OutOfMemory> {
        let fits = lock(&self.state)
            .eager
            .add(frame.outgoing.header.op, frame.outgoing.payload.bytes().len());
        if !fits {
            return Ok(Some(frame));
        }
        self.push(frame).map(|()| None)
    }

    /// The peer has granted credit for `op`, or `op` is over: its eager frames no longer count.
    pub fn give_back(&self, op: OpId) {
        lock(&self.state).eager.give_back(op);
    }

    /// Removes the frames of an operation from the queue. The caller keeps the operation alive, so
    /// that no frame is the last to drop it, under the lock. Takes no memory.
    pub fn purge(&self, op: OpId) {
        lock(&self.state).queue.retain(|frame| frame.of.progress().op() != op);
    }

    /// Blocks until the next frame for the link `generation`; `None` once that link is over.
    pub fn next(&self, generation: Generation) -> Option<Frame> {
        let mut state = lock(&self.state);
        loop {
            if state.link.generation() != Some(generation) {
                return None;
            }
            if let Some(frame) = state.queue.pop_front() {
                return Some(frame);
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Whether a frame of the operation is queued, or one counts towards the eager bounds.
    #[cfg(all(test, potluck_threads))]
    pub fn has(&self, op: OpId) -> bool {
        let state = lock(&self.state);
        state.eager.ops.contains_key(&op)
            || state.queue.iter().any(|frame| frame.of.progress().op() == op)
    }

    /// The next frame for the link `generation`, if one is queued.
    #[cfg(test)]
    pub fn try_next(&self, generation: Generation) -> Option<Frame> {
        let mut state = lock(&self.state);
        state.link.generation().filter(|used| *used == generation)?;
        state.queue.pop_front()
    }

    /// Starts to use a link; `None` if the outbox is closed or has one.
    pub fn connect(&self, link: &Arc<dyn Shutdown>) -> Option<Generation> {
        lock(&self.state).link.connect(link)
    }

    /// The generation of the link in use.
    pub fn generation(&self) -> Option<Generation> {
        lock(&self.state).link.generation()
    }

    /// Shuts the link `generation` down if it is in use; returns whether it was.
    pub fn disconnect(&self, generation: Generation) -> bool {
        let link = lock(&self.state).link.disconnect(generation);
        self.changed.notify_all();
        link.inspect(|link| link.shutdown()).is_some()
    }

    /// Shuts the link in use down and accepts no other.
    pub fn close(&self) {
        let link = lock(&self.state).link.close();
        self.changed.notify_all();
        if let Some(link) = link {
            link.shutdown();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

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

    /// An honest sender never has more early frames at a peer than that keeps.
    #[test]
    fn all_operations_together_stay_below_the_peers_frames() {
        let mut eager = Eager::default();
        let ops = (EAGER_PEER_FRAMES / EAGER_OP_FRAMES + 1) as u64;
        let all = (0..ops).flat_map(|number| [op(number); EAGER_OP_FRAMES]);
        assert_eq!(all.filter(|op| eager.add(*op, 4)).count(), EAGER_PEER_FRAMES);
        eager.give_back(op(0));
        assert!(eager.add(op(ops), 4));
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
