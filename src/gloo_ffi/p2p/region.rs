//! Regions: a caller's memory from which messages are sent and into which they are received.

use super::endpoint::Core;
use super::matching::PeerFlow;
use super::memory::Memory;
use super::registered::{Direction, Landed, Registered, flow_of};
use super::stream::{RegionId, Span};
use crate::protocol::{EngineFault, OpId, Rank};
use std::sync::Arc;
use std::time::Duration;

/// Memory of one operation, for messages to send and to receive.
///
/// Messages complete in any order; each wait returns the peer of a completed one. Between two
/// ranks, within one slot of one operation, the n-th message sent matches the n-th receive posted
/// and must have its length. Slots are distinguished by 32 bits, see
/// [`flow_of`](super::registered::flow_of).
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

impl Region {
    pub(super) fn new(
        core: &Arc<Core>,
        op: OpId,
        memory: Memory,
        landed: Option<Landed>,
    ) -> Region {
        let memory = Arc::new(memory);
        let id = core.lock().register(Registered::new(op, Arc::clone(&memory), landed));
        Region { core: Arc::clone(core), op, id, memory }
    }

    /// Sends `len` bytes at `offset` to the rank `to`. May write a small message to the link
    /// itself.
    ///
    /// # Errors
    /// The operation's fault. [`EngineFault::Unfit`] if the bytes are outside the region, `to` is
    /// not another rank, the operation has not begun, or it already has
    /// [`SLOTS_MAX`](super::matching::SLOTS_MAX) slots to that rank. Nothing is sent then.
    pub fn send(&self, to: Rank, slot: u64, offset: usize, len: usize) -> Result<(), EngineFault> {
        self.core.send(self.peer_flow(to, slot), self.span(offset, len)?)
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
        self.core.recv(self.peer_flow(from, slot), self.span(offset, len)?)
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

    fn peer_flow(&self, peer: Rank, slot: u64) -> PeerFlow {
        PeerFlow { op: self.op, peer, flow: flow_of(slot) }
    }

    /// These bytes, if they are inside the region.
    fn span(&self, offset: usize, len: usize) -> Result<Span, EngineFault> {
        let is_inside = self.memory.contains(offset, len);
        is_inside.then_some(Span { region: self.id, offset, len }).ok_or(EngineFault::Unfit)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.core.lock().unregister(self.op, self.id);
        self.memory.close();
    }
}
