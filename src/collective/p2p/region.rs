//! Layer: Shells.
//!
//! Regions: a caller's memory from which messages are sent and into which they are received.

use super::endpoint::Core;
use super::memory::{Hold, Memory};
use super::stream::RegionId;
use crate::collective::EngineFault;
use crate::view::{OpId, Rank};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};
use std::time::Duration;

/// The callback for each non-empty piece of a message received into a region. Its arguments are the
/// message's offset, the message's bytes so far, and the number of those bytes that were reported
/// before. The remaining, new bytes are still in the cache.
///
/// It runs on a receiver thread, or on the thread that posts a receive for a message that has
/// already arrived. No lock is held, but the region is. So it should be short, and must not drop
/// the region.
pub type Landed = Arc<dyn Fn(usize, &[u8], usize) + Send + Sync>;

/// Memory of one operation, for messages to send and to receive.
///
/// Messages complete in any order; each wait returns the peer of a completed one. Between two
/// ranks, within one slot of one operation, the n-th message sent matches the n-th receive posted
/// and must have its length. Slots are distinguished by 32 bits, see [`flow_of`].
///
/// Dropping a region removes its messages from all queues and then waits until no thread accesses
/// the memory. A thread that writes to a peer does so until the peer takes the bytes or the link is
/// shut down. Unsent messages of the region fail their operation with [`EngineFault::Cancelled`];
/// messages for it are dropped on arrival.
pub struct Region {
    core: Arc<Core>,
    op: OpId,
    id: RegionId,
    memory: Arc<Memory>,
}

/// The two kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Messages sent.
    Send,
    /// Messages received.
    Receive,
}

/// A region as its endpoint knows it: the memory, the completed messages, and the waiting threads.
pub struct Registered {
    /// The operation that uses it.
    pub op: OpId,
    memory: Arc<Memory>,
    landed: Option<Landed>,
    sends: Completions,
    receives: Completions,
    changed: Arc<Condvar>,
    waiting: usize,
}

#[derive(Default)]
struct Completions {
    ranks: VecDeque<Rank>,
    aborted: bool,
}

impl Region {
    pub(super) fn new(
        core: &Arc<Core>,
        op: OpId,
        memory: Memory,
        landed: Option<Landed>,
    ) -> Region {
        let memory = Arc::new(memory);
        let id = core.register(Registered::new(op, Arc::clone(&memory), landed));
        Region { core: Arc::clone(core), op, id, memory }
    }

    /// Sends `len` bytes at `offset` to the rank `to`. May write a small message to the link
    /// itself.
    ///
    /// # Errors
    /// The operation's fault. [`EngineFault::Unfit`] if the bytes are outside the region, `to` is
    /// not another rank, the operation has not begun, or it already has
    /// [`SLOTS_MAX`](super::SLOTS_MAX) slots to that rank. Nothing is sent then.
    pub fn send(&self, to: Rank, slot: u64, offset: usize, len: usize) -> Result<(), EngineFault> {
        self.within(offset, len)?;
        self.core.send(self.op, self.id, to, slot, offset, len)
    }

    /// Receives a message of exactly `len` bytes from the rank `from` to `offset`.
    ///
    /// # Errors
    /// As for [`send`](Region::send), and [`EngineFault::Protocol`] if the message has already
    /// arrived with another length.
    pub fn recv(
        &self,
        from: Rank,
        slot: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), EngineFault> {
        self.within(offset, len)?;
        self.core.recv(self.op, self.id, from, slot, offset, len)
    }

    /// Waits for the next message of this region to be handed to its link, and returns the
    /// destination. Returns `None` after [`abort_send`](Region::abort_send).
    ///
    /// # Errors
    /// The operation's fault. The operation fails with [`EngineFault::Stalled`] if none of its
    /// messages made progress for `patience`.
    pub fn wait_send(&self, patience: Duration) -> Result<Option<Rank>, EngineFault> {
        self.core.wait(self.op, self.id, Direction::Send, patience)
    }

    /// Waits for the next message received into this region, and returns the source. Returns `None`
    /// after [`abort_recv`](Region::abort_recv).
    ///
    /// # Errors
    /// As for [`wait_send`](Region::wait_send).
    pub fn wait_recv(&self, patience: Duration) -> Result<Option<Rank>, EngineFault> {
        self.core.wait(self.op, self.id, Direction::Receive, patience)
    }

    /// Ends one wait for a sent message: a current one, or else the next.
    pub fn abort_send(&self) {
        self.core.abort(self.id, Direction::Send);
    }

    /// Ends one wait for a received message: a current one, or else the next.
    pub fn abort_recv(&self) {
        self.core.abort(self.id, Direction::Receive);
    }

    fn within(&self, offset: usize, len: usize) -> Result<(), EngineFault> {
        if self.memory.contains(offset, len) { Ok(()) } else { Err(EngineFault::Unfit) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.core.unregister(self.op, self.id);
        self.memory.close();
    }
}

impl Registered {
    fn new(op: OpId, memory: Arc<Memory>, landed: Option<Landed>) -> Registered {
        let changed = Arc::new(Condvar::new());
        let (sends, receives) = (Completions::default(), Completions::default());
        Registered { op, memory, landed, sends, receives, changed, waiting: 0 }
    }

    /// The right to access its memory; `None` if the memory is closed.
    pub fn hold(&self) -> Option<Hold> {
        self.memory.hold()
    }

    /// The callback for received pieces.
    pub fn landed(&self) -> Option<Landed> {
        self.landed.clone()
    }

    /// Records a completed message. Returns the condition variable to notify.
    pub fn complete(&mut self, direction: Direction, peer: Rank) -> Option<Arc<Condvar>> {
        self.completions(direction).ranks.push_back(peer);
        self.waiters()
    }

    /// Ends one wait. Returns the condition variable to notify.
    pub fn abort(&mut self, direction: Direction) -> Option<Arc<Condvar>> {
        self.completions(direction).aborted = true;
        self.waiters()
    }

    /// The result of a wait, if there is one now.
    pub fn outcome(&mut self, direction: Direction) -> Option<Option<Rank>> {
        let completions = self.completions(direction);
        if std::mem::take(&mut completions.aborted) {
            return Some(None);
        }
        completions.ranks.pop_front().map(Some)
    }

    /// Counts a waiting thread, and returns the condition variable to wait on.
    pub fn enter(&mut self) -> Arc<Condvar> {
        self.waiting += 1;
        Arc::clone(&self.changed)
    }

    /// A waiting thread has woken up.
    pub fn leave(&mut self) {
        self.waiting -= 1;
    }

    /// The condition variable to notify; `None` if no thread waits, to save the system call.
    pub fn waiters(&self) -> Option<Arc<Condvar>> {
        (self.waiting > 0).then(|| Arc::clone(&self.changed))
    }

    fn completions(&mut self, direction: Direction) -> &mut Completions {
        match direction {
            Direction::Send => &mut self.sends,
            Direction::Receive => &mut self.receives,
        }
    }
}

/// The flow number of a slot on the wire: its two 32-bit halves combined by XOR. Slots of one
/// operation get different flows if they differ in only one half, as a counter's values do.
pub fn flow_of(slot: u64) -> u32 {
    slot as u32 ^ (slot >> 32) as u32
}
