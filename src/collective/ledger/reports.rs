//! Reports of decided operations between members, and the garbage collection of the ledger's
//! entries.

use super::entry::Entry;
use super::{Ledger, LedgerEffect};
use crate::protocol::{Mutant, OpBody, OpId, Rank, RankSet};

impl Ledger {
    /// Another member has decided these operations.
    pub fn on_resolved(&mut self, from: Rank, ops: &[OpId]) {
        for op in ops {
            if let Some(entry) = self.entries.get_mut(op) {
                entry.resolved_by.insert(from);
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
        let uncalled = self.entries.values_mut().filter(|e| e.concerns(to) && e.call.is_none());
        uncalled.for_each(|entry| entry.reported = false);
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
        if self.again.len() < self.unreported_max() {
            self.again.insert(op);
        }
    }

    /// Most operations that the others can list and wait for this member to report.
    fn unreported_max(&self) -> usize {
        self.bounds.listed * self.size.saturating_sub(1)
    }

    /// Decided operations that others may still list; every message about operations carries them.
    /// An operation that this member has not called may stay in the ledger until the View ends, so
    /// it is reported only once. It comes first: if own ones filled the list, two members could
    /// wait for each other's reports for ever.
    pub fn resolved(&self) -> Vec<OpId> {
        let decided = || self.entries.iter().filter(|(_, e)| e.outcome.is_some());
        let called = decided().filter(|(_, e)| e.call.is_some());
        let uncalled = decided().filter(|(_, e)| e.call.is_none() && !e.reported);
        let most = self.bounds.listed;
        if self.mutation.has(Mutant::ReportsInOrder) {
            return decided().map(|(op, _)| *op).take(most).collect();
        }
        let known = uncalled.chain(called).map(|(op, _)| *op);
        self.again.iter().copied().chain(known).take(most).collect()
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
    /// reported them. If it forgot one without a report, the others would list it for ever. Entries
    /// stay unchanged in a frozen ledger, because a promise has reported them.
    fn forget_finished(&mut self) {
        if self.frozen {
            return;
        }
        let over =
            |e: &Entry| e.participants.is_within(e.resolved_by) && e.call.is_some() && e.reported;
        let effects = &mut self.effects;
        self.entries.retain(|op, entry| {
            let over = over(entry);
            if over && entry.is_best_effort() {
                effects.push(LedgerEffect::Retire(*op));
            }
            !over
        });
        // These were aborted before this member's program called them. If the program calls one
        // after it is forgotten here, the others abort it again. Those that are not reported stay:
        // their callers list them until they are, and no honest caller lists more than `listed`.
        let uncalled = |is_reported: bool| {
            let is_one = move |e: &Entry| {
                e.call.is_none() && e.outcome.is_some() && e.reported == is_reported
            };
            let ops = self.entries.iter().filter(|(_, e)| is_one(e)).map(|(op, _)| *op);
            ops.collect::<Vec<OpId>>()
        };
        let unreported_max = self.unreported_max();
        let (reported, unreported) = (uncalled(true), uncalled(false));
        let reported = reported.iter().rev().skip(self.bounds.uncalled);
        for op in reported.chain(unreported.iter().rev().skip(unreported_max)) {
            self.entries.remove(op);
        }
    }
}
