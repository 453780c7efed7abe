//! Layer: Shells.
//!
//! A caller's memory as messages see it.

use super::endpoint::Core;
use super::memory::{Hold, Memory};
use super::stream::RegionId;
use crate::collective::EngineFault;
use crate::view::{OpId, Rank};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};
use std::time::Duration;

/// Called when a piece of a message, not an empty one, has been received into a region: with the
/// message's offset, its bytes so far, and how many of them were here before, so that the others
/// are still in the cache.
///
/// It runs on a receiving thread, or on the one that posts a receive whose message was here before;
/// under no lock, but while the region is held. So it should be short, and must not drop the
/// region.
pub type Landed = Arc<dyn Fn(usize, &[u8], usize) + Send + Sync>;

/// Memory of an operation that messages are sent from and received into.
///
/// Messages complete in any order; both kinds of wait say which has. Between two ranks, for one
/// slot of one operation, the n-th message sent meets the n-th receive posted, which must be of the
/// same length. Slots are told apart by 32 bits, see [`flow_of`].
///
/// Dropping it takes it off all queues and then waits until no thread touches it, which a thread
/// that writes to a peer does until the peer takes the bytes or the link is shut down. Messages to
/// be sent from it that have not gone make its operation fail with [`EngineFault::Cancelled`]; what
/// was to be received into it is dropped on arrival.
pub struct Region {
    core: Arc<Core>,
    op: OpId,
    id: RegionId,
    memory: Arc<Memory>,
}

/// Which of the two kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those sent.
    Send,
    /// Those received.
    Receive,
}

/// What an endpoint knows of a region.
pub struct Registered {
    /// Whose it is.
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

    /// Sends `len` bytes at `offset` to the rank `to`. May write to the link itself when they are
    /// few.
    ///
    /// # Errors
    /// The operation's fault; [`EngineFault::Unfit`] when the bytes are not in the region, `to` is
    /// no other rank, the operation has not begun, or has [`SLOTS_MAX`](super::SLOTS_MAX) slots to
    /// that rank already. Nothing is sent then.
    pub fn send(&self, to: Rank, slot: u64, offset: usize, len: usize) -> Result<(), EngineFault> {
        self.within(offset, len)?;
        self.core.send(self.op, self.id, to, slot, offset, len)
    }

    /// Receives a message of exactly `len` bytes from the rank `from` to `offset`.
    ///
    /// # Errors
    /// As for [`send`](Region::send), and [`EngineFault::Protocol`] when the message is here and of
    /// another length.
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

    /// Waits for the next message from this region that has been handed to its link; gives its
    /// destination. `None` when [`abort_send`](Region::abort_send) was called.
    ///
    /// # Errors
    /// The operation's fault. It gets [`EngineFault::Stalled`] when nothing of it was sent or
    /// received for `patience`.
    pub fn wait_send(&self, patience: Duration) -> Result<Option<Rank>, EngineFault> {
        self.core.wait(self.op, self.id, Direction::Send, patience)
    }

    /// Waits for the next message that has been received into this region; gives its source. `None`
    /// when [`abort_recv`](Region::abort_recv) was called.
    ///
    /// # Errors
    /// As for [`wait_send`](Region::wait_send).
    pub fn wait_recv(&self, patience: Duration) -> Result<Option<Rank>, EngineFault> {
        self.core.wait(self.op, self.id, Direction::Receive, patience)
    }

    /// Ends one wait for a message sent, the present or else the next one.
    pub fn abort_send(&self) {
        self.core.abort(self.id, Direction::Send);
    }

    /// Ends one wait for a message received, the present or else the next one.
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

    /// The right to touch its memory.
    pub fn hold(&self) -> Option<Hold> {
        self.memory.hold()
    }

    /// Who wants to know of messages received.
    pub fn landed(&self) -> Option<Landed> {
        self.landed.clone()
    }

    /// A message is through. Gives whom to notify.
    pub fn complete(&mut self, direction: Direction, peer: Rank) -> Option<Arc<Condvar>> {
        self.completions(direction).ranks.push_back(peer);
        self.waiters()
    }

    /// One wait is to end. Gives whom to notify.
    pub fn abort(&mut self, direction: Direction) -> Option<Arc<Condvar>> {
        self.completions(direction).aborted = true;
        self.waiters()
    }

    /// What a wait ends with, if it does.
    pub fn outcome(&mut self, direction: Direction) -> Option<Option<Rank>> {
        let completions = self.completions(direction);
        if std::mem::take(&mut completions.aborted) {
            return Some(None);
        }
        completions.ranks.pop_front().map(Some)
    }

    /// Somebody begins to wait for what this gives.
    pub fn enter(&mut self) -> Arc<Condvar> {
        self.waiting += 1;
        Arc::clone(&self.changed)
    }

    /// Somebody has waited.
    pub fn leave(&mut self) {
        self.waiting -= 1;
    }

    /// Whom to notify. To notify where nobody waits would cost a call of the system.
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

/// The flow on the wire of a slot: its two halves in one. Different slots of one operation give
/// different flows as long as they differ in one half alone, as a number counted up does.
pub fn flow_of(slot: u64) -> u32 {
    slot as u32 ^ (slot >> 32) as u32
}
