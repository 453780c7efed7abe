//! Memory that is registered for one direction of transfer.

use super::memory::{Hold, Memory};
use crate::protocol::{OpId, Rank};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};

/// The callback for each non-empty piece of a message received into a region. Its arguments are the
/// message's offset, the message's bytes so far, and the number of those bytes that were reported
/// before. The remaining, new bytes are still in the cache.
///
/// It runs on a receiver thread, or on the thread that posts a receive for a message that has
/// already arrived. No lock is held, but the region is. So it should be short, and must not drop
/// the region.
pub type Landed = Arc<dyn Fn(usize, &[u8], usize) + Send + Sync>;

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

impl Registered {
    pub(super) fn new(op: OpId, memory: Arc<Memory>, landed: Option<Landed>) -> Registered {
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

#[derive(Default)]
struct Completions {
    ranks: VecDeque<Rank>,
    aborted: bool,
}
