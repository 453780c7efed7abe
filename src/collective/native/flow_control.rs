//! Flow control of one operation: the frames that it sends to a peer before and after the peer has
//! granted credit.
//!
//! Towards each peer an operation is in one of these states, which its `CreditGate` holds:
//!
//! | state | a new frame | credit |
//! | --- | --- | --- |
//! | eager: no credit, no frame held | is queued and counted; beyond the bounds: held | open |
//! | holding: no credit, frames held | is held behind the others, so the order stays | open |
//! | open | is queued | no effect |
//!
//! When credit comes, the held frames are queued in their order. When the operation ends, held and
//! queued frames are dropped, in every state. Credit also stops the count of the eager frames
//! ([`Outbox::give_back`]).

use super::active_op::ActiveOp;
use super::op_progress::OutgoingFrame;
use super::outbox::{Frame, Outbox};
use crate::memory::OutOfMemory;
use crate::os::{Race, lock};
use crate::protocol::Rank;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ActiveOp {
    /// Queues a frame for its peer. Without credit the frame goes out eagerly within the bounds,
    /// else it is held back.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the list of frames.
    pub fn post(
        self: &Arc<ActiveOp>,
        outgoing: OutgoingFrame,
        outboxes: &[Outbox],
    ) -> Result<(), OutOfMemory> {
        let to = outgoing.to.index();
        let was_over = Race::PostUnchecked.is_seeded().then(|| self.is_over());
        let mut gate = lock(&self.gates[to]);
        // Checked under the lock, so that nothing is held or counted after the end.
        if was_over.unwrap_or_else(|| self.is_over()) {
            return Ok(());
        }
        let frame = Frame { of: Arc::clone(self), outgoing };
        if gate.open {
            return outboxes[to].push(frame);
        }
        let refused =
            if gate.held.is_empty() { outboxes[to].push_eager(frame)? } else { Some(frame) };
        let Some(frame) = refused else { return Ok(()) };
        gate.held
            .try_reserve(1)
            .map_err(|_| OutOfMemory::of::<OutgoingFrame>(gate.held.len() + 1))?;
        gate.held.push(frame.outgoing);
        Ok(())
    }

    /// `peer` grants credit, and its call is the same as ours. Returns whether it has already sent
    /// a frame outside this call's schedule.
    ///
    /// # Errors
    /// As for [`post`](ActiveOp::post).
    pub fn credit(self: &Arc<ActiveOp>, peer: Rank, outbox: &Outbox) -> Result<bool, OutOfMemory> {
        let mut gate = lock(&self.gates[peer.index()]);
        gate.open = true;
        for outgoing in std::mem::take(&mut gate.held) {
            outbox.push(Frame { of: Arc::clone(self), outgoing })?;
        }
        Ok(gate.doubtful)
    }

    /// Ends the operation: drops its queued frames and returns its blocks to their pool.
    pub fn end(&self, outboxes: &[Outbox]) {
        self.over.store(true, Ordering::Release);
        for (gate, outbox) in self.gates.iter().zip(outboxes) {
            lock(gate).held.clear();
            outbox.purge(self.progress.op());
        }
        self.progress.clear();
    }
}
