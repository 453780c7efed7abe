//! Which messages about operations are admitted: those that an honest member can send, within the
//! limits for each member.

use super::entry::Entry;
use super::{Ledger, LedgerEffect, Misbehaviour};
use crate::protocol::{AbortCause, Mutant, OpBody, OpId, Rank, Vote};

impl Ledger {
    /// Creates an entry for the word of a caller about `op`, within the limits of open operations
    /// per member; none if `op` is decided and forgotten here.
    pub(super) fn admit_caller(&mut self, from: Rank, op: OpId) -> Result<(), Misbehaviour> {
        if !self.is_tracked(from, op)? {
            return Ok(());
        }
        let is_counted = |e: &Entry| e.call.is_some() || e.is_called_by(from);
        let is_news = !self.entries.get(&op).is_some_and(is_counted);
        if is_news && self.called_by(from) >= self.bounds.listed {
            return Err(Misbehaviour);
        }
        self.entry(op).callers.insert(from);
        Ok(())
    }

    /// Like `admit_caller`, for a vote of a member that need not have called `op`: it answers the
    /// `Abort` of `by`. If too many operations are known by its answers alone, the oldest of them
    /// is forgotten. It is not blamed: another member may have led it to answer calls that do not
    /// exist.
    pub(super) fn admit_answer(
        &mut self,
        from: Rank,
        op: OpId,
        by: Rank,
    ) -> Result<(), Misbehaviour> {
        if !op.lane.participants(self.size).contains(by) {
            return Err(Misbehaviour);
        }
        if !self.is_tracked(from, op)? || self.entries.contains_key(&op) {
            return Ok(());
        }
        let listed = self.bounds.listed;
        let has_answer_alone = |e: &Entry| e.call.is_none() && e.callers.is_empty();
        let answered = &self.answered[from.index()];
        if self.mutation.has(Mutant::NarrowAdmission) {
            let known = answered.iter().filter_map(|op| self.entries.get(op));
            let alone = known.filter(|e| has_answer_alone(e)).count();
            if alone + self.called_by(from) >= listed {
                return Err(Misbehaviour);
            }
        }
        // Each third member lists no more calls than `listed`, and tells of them itself.
        let most = 2 * listed * self.size.saturating_sub(1);
        let answered = &mut self.answered[from.index()];
        let oldest = (answered.len() >= most).then(|| answered.pop_front()).flatten();
        answered.push_back(op);
        if let Some(oldest) = oldest
            && self.entries.get(&oldest).is_some_and(has_answer_alone)
        {
            self.entries.remove(&oldest);
        }
        self.entry(op);
        Ok(())
    }

    /// Whether `op`, of which `from` speaks, has an entry or needs one; not if it is decided and
    /// forgotten.
    fn is_tracked(&self, from: Rank, op: OpId) -> Result<bool, Misbehaviour> {
        let concerns = |rank: Rank| op.lane.participants(self.size).contains(rank);
        if !op.lane.fits(self.size) || !concerns(from) || !concerns(self.me) {
            return Err(Misbehaviour);
        }
        let is_called = || op.number < self.next_in(op.lane);
        let is_forgotten = || is_called() || self.given_up.get(op).is_some();
        Ok(self.entries.contains_key(&op) || !is_forgotten())
    }

    fn entry(&mut self, op: OpId) -> &mut Entry {
        self.entries.entry(op).or_insert_with(|| Entry::new(op, self.size))
    }

    /// The number of operations that `from` has called, and that this member has neither called nor
    /// reported to it as decided. An honest member lists all of them.
    fn called_by(&self, from: Rank) -> usize {
        let uncalled = self.entries.values().filter(|e| e.call.is_none());
        uncalled.filter(|e| e.is_called_by(from) && !e.reported_to.contains(from)).count()
    }

    /// Answers the call of `from` of an operation that is decided and forgotten here, or its
    /// `Abort` of that call. Either it has missed votes or reports, which were lost with a link, or
    /// it calls the operation only now: then it cannot have been committed, and is voted down, for
    /// `cause` if no other one is known.
    pub(super) fn refuse_finished(&mut self, from: Rank, op: OpId, cause: AbortCause) {
        let cause = self.given_up.get(op).map_or(cause, |given_up| given_up.cause);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, Vote::Abort(cause))));
        self.report_again(from, op);
    }
}
