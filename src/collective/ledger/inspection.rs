//! Queries for the model checker and the simulations.

use super::bounds::LedgerBounds;
use super::{Ledger, Misbehaviour};
use crate::protocol::{Mutation, OpBody, OpId, OpMessage, Outcome, Rank, Vote};

impl Ledger {
    /// This ledger with one of its rules broken.
    pub(crate) fn with(mut self, mutation: Mutation) -> Ledger {
        self.break_rule(mutation);
        self
    }

    /// This ledger with limits of its own.
    pub(crate) fn within(mut self, bounds: LedgerBounds) -> Ledger {
        self.bounds = bounds;
        self
    }

    /// Whether this message changes nothing here, now or later.
    pub(crate) fn knows(&self, from: Rank, message: &OpMessage) -> bool {
        let is_told = |entry: &super::entry::Entry| entry.resolved_by.contains(from);
        let body = match message.body {
            OpBody::Vote(op, vote) => self.knows_vote(from, op, vote),
            OpBody::Describe(descriptor) => {
                let (op, part) =
                    descriptor.op.step().map_or((descriptor.op, None), |(op, i)| (op, Some(i)));
                let calls = self.entries.get(&op).and_then(|entry| entry.calls_of(part));
                calls.and_then(|calls| calls.descriptor(from)) == Some(descriptor)
            }
            OpBody::Resolved | OpBody::Ready(..) => true,
            OpBody::Overdue(_) => false,
        };
        let reports = || message.resolved.iter().filter_map(|op| self.entries.get(op)).all(is_told);
        self.frozen || body && reports()
    }

    /// Whether this vote is recorded, or makes no difference any more.
    fn knows_vote(&self, from: Rank, op: OpId, vote: Vote) -> bool {
        let entry = self.entries.get(&op);
        let known = entry.and_then(|e| e.votes[from.index()]);
        let over = entry.is_some_and(|e| e.outcome == Some(Outcome::Committed));
        over || known == Some(vote) || matches!(known, Some(Vote::Abort(_)))
    }

    /// Whether the limits refuse the next call in any lane.
    pub(crate) fn is_full(&self) -> bool {
        let own = || self.entries.values().filter(|e| e.call.is_some());
        own().count() >= self.bounds.listed || self.undecided().count() >= self.bounds.in_flight
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
        self.entries.get(&op).is_some_and(super::entry::Entry::is_sync)
    }

    /// Whether this member holds a result of this operation. True for a forgotten operation too.
    pub(crate) fn holds(&self, op: OpId) -> bool {
        self.entries.get(&op).is_none_or(|e| e.held.is_some())
    }

    /// Applies a message, as the session does.
    ///
    /// # Errors
    /// This member takes its sender for one that breaks the protocol.
    pub(crate) fn hear(&mut self, from: Rank, message: &OpMessage) -> Result<(), Misbehaviour> {
        match message.body {
            OpBody::Describe(descriptor) => self.on_descriptor(from, descriptor).map(drop)?,
            OpBody::Vote(op, vote) => self.on_vote(from, op, vote)?,
            OpBody::Overdue(op) => self.on_overdue(from, op)?,
            OpBody::Resolved | OpBody::Ready(..) => {}
        }
        self.on_resolved(from, &message.resolved);
        Ok(())
    }
}
