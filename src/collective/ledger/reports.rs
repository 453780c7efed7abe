//! Reports of decided operations between members, and the garbage collection of the ledger's
//! entries.

use super::given_up::GivenUp;
use super::{Ledger, LedgerEffect};
use crate::protocol::{Mutant, OpBody, OpId, Rank, RankSet};
use std::collections::BTreeSet;

impl Ledger {
    /// Another member has decided these operations.
    pub fn on_resolved(&mut self, from: Rank, ops: &[OpId]) {
        for op in ops {
            if let Some(entry) = self.entries.get_mut(op) {
                entry.resolved_by.insert(from);
            }
            if !self.frozen {
                self.resolve_by_votes(*op);
            }
        }
        self.forget_finished();
    }

    /// All messages that `to` may have missed while its link was down: descriptors, `Ready` and
    /// votes. Reports of operations that are forgotten here are repeated when `to` repeats its
    /// messages about them.
    pub fn replay(&mut self, to: Rank) -> Vec<OpBody> {
        let me = self.me;
        let mut bodies = Vec::new();
        if self.mutation.has(Mutant::SaysNothingAgain) {
            return bodies;
        }
        for (op, entry) in self.entries.iter().filter(|(_, e)| e.concerns(to)) {
            bodies.extend(entry.begun_by(me).map(OpBody::Describe));
            bodies.extend(entry.ready.map(|bytes| OpBody::Ready(*op, bytes)));
            bodies.extend(entry.votes[me.index()].map(|vote| OpBody::Vote(*op, vote)));
            bodies.extend(entry.overdue.then_some(OpBody::Overdue(*op)));
        }
        bodies
    }

    /// Has an operation that is forgotten here reported to `to` once more: the report was lost with
    /// a link.
    pub(super) fn report_again(&mut self, to: Rank, op: OpId) {
        // It repeats its messages about its own calls and about those of each other member.
        if self.again[to.index()].len() < self.bounds.listed * self.size {
            self.again[to.index()].insert(op);
        }
    }

    /// Decided operations that others may still list; every message about operations carries them.
    /// Those that this member has not called leave the list when all have been told, and come
    /// before its own: own ones may fill the list for as long as another member does not report
    /// them. Those reported again come first; each rank's take no more than its share of half of
    /// the list, or one.
    pub fn resolved(&self) -> Vec<OpId> {
        let share = (self.bounds.listed / 2 / self.size).max(1);
        let again = self.again.iter().flat_map(|ops| ops.iter().take(share));
        let again: BTreeSet<&OpId> = again.collect();
        let decided = || self.entries.iter().filter(|(_, e)| e.outcome.is_some());
        let uncalled = decided().filter(|(_, e)| e.call.is_none());
        let called = decided().filter(|(_, e)| e.call.is_some());
        let entries = uncalled.chain(called).map(|(op, _)| op);
        again.into_iter().chain(entries).copied().take(self.bounds.listed).collect()
    }

    /// Like [`resolved`](Ledger::resolved), for a message to all other ranks of `to`, which are
    /// noted as told.
    pub fn report_resolved(&mut self, to: RankSet) -> Vec<OpId> {
        let resolved = self.resolved();
        for (rank, again) in self.again.iter_mut().enumerate() {
            if to.contains(Rank(rank as u8)) {
                resolved.iter().for_each(|op| _ = again.remove(op));
            }
        }
        for op in &resolved {
            if let Some(entry) = self.entries.get_mut(op) {
                entry.reported_to = entry.reported_to.union(to);
            }
        }
        self.forget_finished();
        resolved
    }

    /// Forgets operations that every participant has decided, once this member has called and
    /// reported them. If it forgot one without a report, the others would list it for ever. Of
    /// those that are reported and not called it keeps only that they were given up. Entries stay
    /// unchanged in a frozen ledger, because a promise has reported them.
    pub(super) fn forget_finished(&mut self) {
        if self.frozen {
            return;
        }
        let (me, effects, given_up) = (self.me, &mut self.effects, &mut self.given_up);
        self.entries.retain(|op, entry| {
            if entry.call.is_none() {
                let over = GivenUp::of(entry).filter(|_| entry.is_reported(me));
                over.into_iter().for_each(|over| given_up.set(*op, over));
                return over.is_none();
            }
            let is_known = entry.participants.is_within(entry.resolved_by);
            let over = is_known && entry.is_reported(me);
            if over && entry.is_best_effort() {
                effects.push(LedgerEffect::Retire(*op));
            }
            !over
        });
    }
}
