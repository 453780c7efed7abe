//! Deadlines of operations, and the members whose votes are missing after one.

use super::entry::Entry;
use super::{Ledger, LedgerEffect, Misbehaviour};
use crate::protocol::{AbortCause, AbortReason, OpBody, OpId, Rank, Vote};

impl Ledger {
    /// Handles the deadline of `op` on this member. Before its vote this member votes `Abort`. A
    /// vote `Done` stands, because others may have committed on it; then this member asks the
    /// members that have not voted to vote `Abort`.
    pub fn expire(&mut self, op: OpId) {
        if self.has_voted_done(op) { self.hurry(op) } else { self.abort(op, AbortReason::Deadline) }
    }

    fn hurry(&mut self, op: OpId) {
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| !self.frozen && !e.overdue) {
            entry.overdue = true;
            self.effects.push(LedgerEffect::Tell(OpBody::Overdue(op)));
        }
    }

    /// Handles the deadline of `op` on another member. A member that has voted `Done` repeats the
    /// request, so that all members wait for the same votes from the same moment on.
    pub fn on_overdue(&mut self, from: Rank, op: OpId) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        if op.step().is_some() {
            return Err(Misbehaviour);
        }
        self.admit_caller(from, op)?;
        if self.has_voted_done(op) {
            self.hurry(op);
        } else if self.entries.get(&op).is_some_and(|e| e.votes[self.me.index()].is_none()) {
            let cause = AbortCause { reason: AbortReason::Deadline, by: from };
            self.vote(op, Vote::Abort(cause));
        }
        Ok(())
    }

    /// The other members whose vote on an open `op` is missing although a correct member votes at
    /// once: `Abort` in answer to `Abort`, any vote in answer to [`Overdue`](OpBody::Overdue). None
    /// if this member has not told them that it has called it: they may not know of it.
    pub fn unanswered(&self, op: OpId) -> Vec<Rank> {
        let me = self.me;
        let has_given_up = |e: &Entry| match e.votes[me.index()] {
            Some(Vote::Abort(cause)) => cause.by == me,
            _ => false,
        };
        let has_told = |e: &Entry| e.begun_by(me).next().is_some() || has_given_up(e);
        let waits = |e: &&Entry| e.call.is_some() && e.outcome.is_none() && has_told(e);
        let open = self.entries.get(&op).filter(|_| !self.frozen).filter(waits);
        let Some(entry) = open else { return Vec::new() };
        let answers = |vote: Option<Vote>| match entry.votes[self.me.index()] {
            Some(Vote::Abort(_)) => matches!(vote, Some(Vote::Abort(_))),
            Some(Vote::Done { .. }) => vote.is_some() || !entry.overdue,
            None => true,
        };
        let ranks = (0..self.size).map(|rank| Rank(rank as u8));
        let others = ranks.filter(|rank| *rank != self.me && entry.concerns(*rank));
        others.filter(|rank| !answers(entry.votes[rank.index()])).collect()
    }
}
