//! Syncs: whether one has to transfer a state, and when its transfer begins.

use super::ViewSession;
use super::decided::{Decided, SyncDue, SyncStep};
use crate::collective::{SyncSource, digest_of_parts};
use crate::memory::{Block, Staging};
use crate::os::lock;
use crate::protocol::{Lane, OpId};
use std::task::{Context as Task, Poll};

impl ViewSession {
    /// Takes the result of a sync of this lane that was dropped in an earlier View and has
    /// committed. This View may still need a sync of its own. `None` if there is no such result, or
    /// if `has_room` says that there is no room for its bytes; the result then stays.
    pub fn kept_sync(&self, lane: Lane, has_room: impl FnOnce(usize) -> bool) -> Option<Decided> {
        lock(&self.state).ledger.note_state(lane);
        self.before.take_sync(lane, has_room)
    }

    /// Decides how a sync in this lane proceeds, after [`kept_sync`](ViewSession::kept_sync).
    pub fn sync_due(&self, lane: Lane) -> SyncDue {
        let mut own = lock(&self.state);
        let lost_sync =
            own.lost_in(lane).filter(|op| own.slots.get(op).is_some_and(|slot| slot.is_sync));
        if let Some(op) = lost_sync.filter(|_| self.before.first_in(lane).is_none()) {
            own.lost.remove(&op);
            return SyncDue::Dropped(op);
        }
        // The program must fetch other abandoned results first: `Call` makes it run into the
        // refusal of `call`, which names the result.
        let is_lost = self.before.first_in(lane).or_else(|| own.lost_in(lane)).is_some();
        if is_lost || own.ledger.is_frozen() {
            return SyncDue::Call;
        }
        match own.brought.get(lane).filter(|_| own.ledger.sync_brings(lane)) {
            Some(brought) => SyncDue::Unless(*brought),
            None if own.ledger.sync_brings(lane) => SyncDue::Call,
            None => SyncDue::Nothing,
        }
    }

    /// Notes that a sync has delivered this state to the program.
    pub fn brought(&self, lane: Lane, state: &Staging) {
        let mut own = lock(&self.state);
        if own.ledger.sync_brings(lane) {
            own.brought.set(lane, digest_of_parts(state.blocks.iter().map(Block::bytes)));
        }
    }

    /// Resolves when all members have called the sync and the length of the state is known, on its
    /// source without the length; or when the sync is decided before that.
    pub fn poll_sync(&self, op: OpId, task: &mut Task<'_>) -> Poll<SyncStep> {
        let mut state = lock(&self.state);
        let Some(slot) = state.undecided(op) else {
            return Poll::Ready(SyncStep::Decided(state.take(op)));
        };
        let begins = |source: &SyncSource| source.rank == self.me || source.bytes.is_some();
        if let Some(source) = slot.source.flatten().filter(begins) {
            return Poll::Ready(SyncStep::Agreed(source));
        }
        slot.waker = Some(task.waker().clone());
        Poll::Pending
    }
}
