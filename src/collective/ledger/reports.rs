//! Reports of decided operations between members, and the garbage collection of the ledger's
//! entries.

use super::given_up::GivenUp;
use super::{Ledger, LedgerEffect};
use crate::protocol::{Mutant, OpBody, OpId, Rank, RankSet};

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

    /// Has an operation that is forgotten here reported once more: another member still lists it,
    /// because the report was lost with a link, or because it has forgotten the report too.
    pub(super) fn report_again(&mut self, op: OpId) {
        // The others list no more than this.
        if self.again.len() < self.bounds.listed * self.size.saturating_sub(1) {
            self.again.insert(op);
        }
    }

    /// Decided operations that others may still list, in order; every message about operations
    /// carries them. Own ones cannot fill the list for ever: the least that is decided everywhere
    /// comes first on every member, so all report it.
    pub fn resolved(&self) -> Vec<OpId> {
        let decided = self.entries.iter().filter(|(_, e)| e.outcome.is_some()).map(|(op, _)| op);
        self.again.iter().chain(decided).copied().take(self.bounds.listed).collect()
    }

    /// Like [`resolved`](Ledger::resolved), for a message to all other ranks of `to`.
    /// Marks operations as reported if `to` covers all their other participants.
    pub fn report_resolved(&mut self, to: RankSet) -> Vec<OpId> {
        let (resolved, me) = (self.resolved(), self.me);
        for op in &resolved {
            if op.lane.participants(self.size).without(me).is_within(to) {
                self.again.remove(op);
                self.entries.get_mut(op).into_iter().for_each(|entry| entry.reported = true);
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
        let (effects, given_up) = (&mut self.effects, &mut self.given_up);
        self.entries.retain(|op, entry| {
            if entry.call.is_none() {
                let over = GivenUp::of(entry).filter(|_| entry.reported);
                over.into_iter().for_each(|over| given_up.set(*op, over));
                return over.is_none();
            }
            let over = entry.participants.is_within(entry.resolved_by) && entry.reported;
            if over && entry.is_best_effort() {
                effects.push(LedgerEffect::Retire(*op));
            }
            !over
        });
    }
}
