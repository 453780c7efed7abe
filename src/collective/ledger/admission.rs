//! Which messages about operations are admitted: those that an honest member can send, within the
//! limits for each member.

use super::entry::Entry;
use super::{Ledger, LedgerEffect, Misbehaviour};
use crate::protocol::{AbortCause, AbortReason, Mutant, OpBody, OpId, Rank, Vote};

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

    /// Like `admit_caller`, for a vote of a member that need not have called `op`. Returns whether
    /// the vote counts. Beyond the limit it does not: no honest member would cast it, but another
    /// one may have led it to.
    pub(super) fn admit_answer(
        &mut self,
        from: Rank,
        op: OpId,
        by: Rank,
    ) -> Result<bool, Misbehaviour> {
        if !op.lane.participants(self.size).contains(by) {
            return Err(Misbehaviour);
        }
        if !self.is_tracked(from, op)? {
            return Ok(true);
        }
        if !self.entries.contains_key(&op) {
            let (listed, answers) = (self.bounds.listed, self.answers(from, by));
            if self.mutation.has(Mutant::NarrowAdmission) {
                if answers + self.called_by(from) >= listed {
                    return Err(Misbehaviour);
                }
            } else if answers >= 2 * listed {
                return Ok(false);
            }
        }
        self.entry(op);
        Ok(true)
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

    /// The number of operations that `from` has called and this member has neither called nor
    /// reported as decided. An honest member lists all of them.
    fn called_by(&self, from: Rank) -> usize {
        let uncalled = self.entries.values().filter(|e| e.call.is_none());
        uncalled.filter(|e| e.is_called_by(from)).count()
    }

    /// The number of undecided operations of which `from` has said only that `by` has given them
    /// up. An honest `by` lists all of them, so there are at most half as many as the limit.
    fn answers(&self, from: Rank, by: Rank) -> usize {
        let open = self.entries.values().filter(|e| e.call.is_none() && e.outcome.is_none());
        open.filter(|e| e.is_answered_by(from, by)).count()
    }

    /// Answers the call of `from` of an operation that is decided and forgotten here, or its
    /// `Abort` of that call. Either it has missed votes or reports, which were lost with a link, or
    /// it calls the operation only now: then it cannot have been committed, and is voted down.
    pub(super) fn refuse_finished(&mut self, from: Rank, op: OpId) {
        let unknown = AbortCause { reason: AbortReason::Dropped, by: from };
        let cause = self.given_up.get(op).map_or(unknown, |given_up| given_up.cause);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, Vote::Abort(cause))));
        self.report_again(from, op);
    }
}
