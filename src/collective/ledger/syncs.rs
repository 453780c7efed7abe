//! Syncs: whether one transfers a state, and when its transfer begins.

use super::entry::Entry;
use super::{Ledger, LedgerEffect};
use crate::protocol::{Lane, OpBody, OpId, Rank};

impl Ledger {
    /// Whether a sync in this lane transfers a state: if the members did not share one history from
    /// the start, until the lane is used for anything else. It depends only on this member's own
    /// calls and not on messages, so all members get the same answer.
    pub fn sync_brings(&self, lane: Lane) -> bool {
        !self.began_synced && self.worked.get(lane).is_none()
    }

    /// The program syncs a state in this lane.
    pub fn note_state(&mut self, lane: Lane) {
        self.states.stateful.insert(lane);
    }

    /// The engine has begun the transfer of a sync, whose state has this many bytes. The transfer
    /// had to wait for all descriptors.
    pub fn ready(&mut self, op: OpId, bytes: u64) {
        let open = |e: &&mut Entry| e.ready.is_none() && e.outcome.is_none();
        if let Some(entry) = self.entries.get_mut(&op).filter(open) {
            entry.ready = Some(bytes);
            self.effects.push(LedgerEffect::Tell(OpBody::Ready(op, bytes)));
        }
    }

    /// Another member's engine has begun the transfer of a sync. If that member is the source, the
    /// transfer can begin here too.
    pub fn on_ready(&mut self, from: Rank, op: OpId, bytes: u64) {
        let open = |e: &&mut Entry| e.outcome.is_none() && e.concerns(from);
        let Some(entry) = self.entries.get_mut(&op).filter(open) else { return };
        self.effects.push(LedgerEffect::Credit(op, from));
        let is_first = !entry.lengths.contains_key(&from);
        entry.lengths.entry(from).or_insert(bytes);
        let source = entry.sync_source(self.me, &self.sources).filter(|_| entry.agreed && is_first);
        if let Some(source) = source.filter(|source| source.rank == from) {
            self.effects.push(LedgerEffect::Agreed(op, Some(source)));
        }
    }
}
