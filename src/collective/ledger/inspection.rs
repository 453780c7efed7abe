//! Layer: Core.
//!
//! What a checker may ask of a ledger.

use super::Ledger;
use crate::collective::{OpBody, OpMessage, Outcome, Vote};
use crate::defect::Seeded;
use crate::view::{OpId, Rank};

impl Ledger {
    /// The same with one of its rules broken.
    pub(crate) fn with(mut self, seeded: Seeded) -> Ledger {
        self.break_rule(seeded);
        self
    }

    /// From now on one of its rules is broken.
    pub(crate) fn break_rule(&mut self, seeded: Seeded) {
        self.seeded = seeded;
    }

    /// Whether it has taken this vote into account, or will not any more.
    pub(crate) fn knows(&self, from: Rank, op: OpId, vote: Vote) -> bool {
        let entry = self.entries.get(&op);
        let known = entry.and_then(|e| e.votes[from.index()]);
        let over = entry.is_some_and(|e| e.outcome == Some(Outcome::Committed));
        self.frozen || over || known == Some(vote) || matches!(known, Some(Vote::Abort(_)))
    }

    /// The operations this member has called and not voted on, and whether all have called them
    /// alike.
    pub(crate) fn unvoted(&self) -> impl Iterator<Item = (OpId, bool)> {
        let me = self.me.index();
        let open = self
            .entries
            .iter()
            .filter(move |(_, e)| !self.frozen && e.call.is_some() && e.votes[me].is_none());
        open.filter(|(_, e)| e.outcome.is_none()).map(|(op, e)| (*op, e.agreed))
    }

    /// The operations this member has called that are not decided.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = OpId> {
        self.entries
            .iter()
            .filter(|(_, e)| e.call.is_some() && e.outcome.is_none())
            .map(|(op, _)| *op)
    }

    /// Whether this operation brings the members to one history.
    pub(crate) fn is_of_sync(&self, op: OpId) -> bool {
        self.entries.get(&op).is_some_and(super::Entry::is_sync)
    }

    /// Whether this member holds a result of this operation. One that is forgotten it held, or it
    /// had ended otherwise.
    pub(crate) fn holds(&self, op: OpId) -> bool {
        self.entries.get(&op).is_none_or(|e| e.held.is_some())
    }

    /// Takes in what an honest member says, as an envelope does.
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
