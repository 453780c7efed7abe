//! Which messages about operations are admitted: those that an honest member can send, within the
//! limits for each member.

use super::entry::Entry;
use super::{Ledger, LedgerBounds, LedgerEffect, Misbehaviour};
use crate::protocol::{AbortCause, AbortReason, Mutant, OpBody, OpId, Rank, Vote};

impl Ledger {
    /// Creates an entry for a message of `from` about `op`, within the limits of open operations
    /// per member; none if `op` is decided and forgotten here. `is_caller`: the message shows that
    /// `from` has called it.
    pub(super) fn admit(
        &mut self,
        from: Rank,
        op: OpId,
        is_caller: bool,
    ) -> Result<(), Misbehaviour> {
        let concerns = |rank: Rank| op.lane.participants(self.size).contains(rank);
        if !op.lane.fits(self.size) || !concerns(from) || !concerns(self.me) {
            return Err(Misbehaviour);
        }
        let known = self.entries.get(&op);
        let is_called = op.number < self.next_in(op.lane);
        if known.is_none() && (is_called || self.given_up.get(op).is_some()) {
            return Ok(());
        }
        let is_news = known
            .is_none_or(|entry| is_caller && entry.call.is_none() && !entry.is_called_by(from));
        if is_news && self.is_too_much(from, is_caller) {
            return Err(Misbehaviour);
        }
        let entry = self.entries.entry(op).or_insert_with(|| Entry::new(op, self.size));
        let is_new_caller = is_caller && entry.callers.insert(from);
        if is_new_caller && entry.outcome.is_some() {
            // That member has forgotten the votes and reports that it had, and calls it only now.
            entry.reported = false;
            let vote = entry.votes[self.me.index()].map(|vote| OpBody::Vote(op, vote));
            self.effects.extend(vote.map(LedgerEffect::Tell));
        }
        Ok(())
    }

    /// Whether an honest member would not tell of one more operation that this member has not
    /// called. It lists its own calls until this member has reported them decided. And it answers
    /// each third member's calls: those open there, and those decided there whose votes are still
    /// on their way to this member.
    fn is_too_much(&self, from: Rank, is_caller: bool) -> bool {
        let open = || self.entries.values().filter(|e| e.call.is_none() && e.outcome.is_none());
        let called = || open().filter(|e| e.is_called_by(from)).count();
        let answered = || open().filter(|e| e.is_answered_by(from)).count();
        let LedgerBounds { listed, .. } = self.bounds;
        if self.mutation.has(Mutant::NarrowAdmission) {
            return called() + answered() >= listed;
        }
        if is_caller {
            called() >= listed
        } else {
            answered() >= 2 * listed * self.size.saturating_sub(2)
        }
    }

    /// Answers the call of `from` of an operation that is decided and forgotten here, or its
    /// `Abort` of that call. Either it has missed votes or reports, which were lost with a link, or
    /// it calls the operation only now: then it cannot have been committed, and is voted down.
    pub(super) fn refuse_finished(&mut self, from: Rank, op: OpId) {
        let unknown = AbortCause { reason: AbortReason::Dropped, by: from };
        let cause = self.given_up.get(op).map_or(unknown, |given_up| given_up.cause);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, Vote::Abort(cause))));
        self.report_again(op);
    }
}
