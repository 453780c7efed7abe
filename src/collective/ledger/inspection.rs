//! Layer: Core.
//!
//! Queries for the model checker and the simulations.

use super::Ledger;
use crate::collective::{OpBody, OpMessage, Outcome, Vote};
use crate::defect::Seeded;
use crate::view::{OpId, Rank};

impl Ledger {
    /// This ledger with one of its rules broken.
    pub(crate) fn with(mut self, seeded: Seeded) -> Ledger {
        self.break_rule(seeded);
        self
    }

    /// Whether this vote is recorded, or makes no difference any more.
    pub(crate) fn knows(&self, from: Rank, op: OpId, vote: Vote) -> bool {
        let entry = self.entries.get(&op);
        let known = entry.and_then(|e| e.votes[from.index()]);
        let over = entry.is_some_and(|e| e.outcome == Some(Outcome::Committed));
        self.frozen || over || known == Some(vote) || matches!(known, Some(Vote::Abort(_)))
    }

    /// The operations that this member has called and not voted on, each with whether all
    /// descriptors agree.
    pub(crate) fn unvoted(&self) -> impl Iterator<Item = (OpId, bool)> {
        let me = self.me.index();
        let open = self
            .entries
            .iter()
            .filter(move |(_, e)| !self.frozen && e.call.is_some() && e.votes[me].is_none());
        open.filter(|(_, e)| e.outcome.is_none()).map(|(op, e)| (*op, e.agreed))
    }

    /// The undecided operations that this member has called.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = OpId> {
        self.entries
            .iter()
            .filter(|(_, e)| e.call.is_some() && e.outcome.is_none())
            .map(|(op, _)| *op)
    }

    /// Whether this member has called this operation.
    pub(crate) fn has_called(&self, op: OpId) -> bool {
        self.next_in(op.lane) > op.number
    }

    /// Whether this operation is a sync.
    pub(crate) fn is_of_sync(&self, op: OpId) -> bool {
        self.entries.get(&op).is_some_and(super::Entry::is_sync)
    }

    /// Whether this member holds a result of this operation. True for a forgotten operation too.
    pub(crate) fn holds(&self, op: OpId) -> bool {
        self.entries.get(&op).is_none_or(|e| e.held.is_some())
    }

    /// Applies the message of an honest member, as the session does.
    pub(crate) fn hear(&mut self, from: Rank, message: &OpMessage) {
        let fine = match message.body {
            OpBody::Describe(descriptor) => self.on_descriptor(from, descriptor).map(drop),
            OpBody::Vote(op, vote) => self.on_vote(from, op, vote),
            OpBody::Overdue(op) => self.on_overdue(from, op),
            OpBody::Settled(below) => {
                self.on_settled(from, below);
                Ok(())
            }
            OpBody::Resolved | OpBody::Ready(_) => Ok(()),
        };
        assert!(fine.is_ok(), "an honest member is never a misbehaving one");
        self.on_resolved(from, &message.resolved);
    }
}
