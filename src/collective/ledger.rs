//! Layer: Core.
//!
//! Every vote and status of one View, on one member.
//!
//! One ledger sits behind one lock. Engines report results to it, the control plane feeds it the
//! other members' messages, and a promise to leave the View is a snapshot of it:
//! [`Ledger::freeze`]. After that no vote changes any more; the next View decides what is open.
//!
//! Rules. Every member votes once per operation, to all members, and `Done` only when all have
//! called it. `Committed` needs `Done` from all, `Aborted` needs `Abort` from all; until then the
//! call waits. An `Abort` is answered with an `Abort` by everybody, also by a member that voted
//! `Done` and has not committed, and by one whose program has not called the operation yet. A
//! member lists an operation from its own call until every member has reported it decided. All
//! members are those that take part: of a message its two ends.
//!
//! A step is one operation of several calls: each is described by itself, and none is voted on. A
//! call by best effort is not voted on either; it is decided on each member as soon as that one
//! holds its result, and listed by nobody.

mod calls;
mod entry;
#[cfg(test)]
mod inspection;
mod reports;
mod revisions;

use super::revision::REVISION_UNKNOWN;
use super::{
    AbortCause, AbortReason, Call, Closing, Descriptor, Kind, Mode, OpBody, Outcome, Vote,
};
use crate::defect::{Defect, Seeded};
use crate::view::{
    CommittedOp, Lane, MESSAGES_IN_FLIGHT_MAX, OPS_IN_FLIGHT_MAX, OPS_LISTED_MAX, OpId, OpSet,
    Rank, View, ViewDigest,
};
use calls::Calls;
use entry::Entry;
use revisions::Revisions;
use std::collections::{BTreeMap, BTreeSet};

/// The votes and statuses of one View on one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    view: ViewDigest,
    me: Rank,
    size: usize,
    revisions: Revisions,
    /// By rank: whose state a sync may take, because its history is the View's.
    sources: Vec<bool>,
    frozen: bool,
    /// The members share one history, from the start or since a sync was committed.
    synced: bool,
    /// They did from the start.
    began_synced: bool,
    /// Where they did not: lanes in which this member has called something else than a sync.
    worked: BTreeSet<Lane>,
    committed: OpSet,
    numbers: BTreeMap<Lane, u64>,
    entries: BTreeMap<OpId, Entry>,
    effects: Vec<LedgerEffect>,
    seeded: Seeded,
}

/// What the ledger wants done; in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LedgerEffect {
    /// Send to every other member that takes part.
    Tell(OpBody),
    /// This member's descriptor and that of the rank are both known: bulk data may flow to it.
    Credit(OpId, Rank),
    /// All descriptors are in and agree. For a sync: from whom, and how many bytes.
    Agreed(OpId, Option<(Rank, u64)>),
    /// The engine need not go on with it.
    Cancel(OpId),
    /// It is decided here.
    Resolved(OpId, Outcome),
    /// Nobody needs anything for it from the engine any more.
    Retire(OpId),
}

/// Why a call took no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The View is being replaced.
    Frozen,
    /// The members do not share one history yet.
    NeedsSync,
    /// 64 operations that this member has called are in flight, or 32 messages, or 256 are listed.
    TooManyInFlight,
}

/// What a member that sends such a message must be told: it broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misbehaviour;

impl Ledger {
    /// The empty ledger of a View in which this member is `me`.
    pub fn new(view: &View, me: Rank) -> Ledger {
        Ledger {
            view: view.digest(),
            me,
            size: view.size(),
            revisions: Revisions::new(view.plan.revision),
            sources: view.members.iter().map(|m| m.in_sync).collect(),
            frozen: false,
            synced: view.in_sync(),
            began_synced: view.in_sync(),
            worked: BTreeSet::new(),
            committed: OpSet::default(),
            numbers: BTreeMap::new(),
            entries: BTreeMap::new(),
            effects: Vec::new(),
            seeded: Seeded::NONE,
        }
    }

    /// What is to be done since the last time this was called.
    pub fn take_effects(&mut self) -> Vec<LedgerEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the View is being replaced.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether the members share one history.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether a sync of this lane brings a state: where the members did not share one history from
    /// the start, until the lane is used for something else. It depends on what this member has
    /// called and on nothing that it has heard, so that all members say the same.
    pub fn sync_brings(&self, lane: Lane) -> bool {
        !self.began_synced && !self.worked.contains(&lane)
    }

    /// Operations committed here so far.
    pub fn committed(&self) -> u64 {
        self.committed.len()
    }

    /// Operations that this member or another one has begun and that are not decided.
    ///
    /// Those of others count too: a member that is about to call may finish them, unless it leaves
    /// its View at once.
    pub fn in_flight(&self) -> usize {
        self.open().count()
    }

    fn open(&self) -> impl Iterator<Item = &OpId> {
        self.entries.iter().filter(|(_, e)| e.outcome.is_none() && e.is_begun()).map(|(op, _)| op)
    }

    /// Takes the lane's next number for a call of this member.
    pub fn call(&mut self, lane: Lane, call: Call) -> Result<OpId, CallRefusal> {
        if self.frozen {
            return Err(CallRefusal::Frozen);
        }
        if !self.synced && !matches!(call.kind, Kind::Sync { .. }) {
            return Err(CallRefusal::NeedsSync);
        }
        // Its own calls: those of others may wait for the very call that is made here.
        let own = || self.entries.iter().filter(|(_, e)| e.call.is_some());
        let in_flight = || own().filter(|(_, e)| e.outcome.is_none());
        let messages = || in_flight().filter(|(op, _)| op.lane.ends().is_some()).count();
        let too_many_messages = lane.ends().is_some() && messages() >= MESSAGES_IN_FLIGHT_MAX;
        if in_flight().count() >= OPS_IN_FLIGHT_MAX
            || own().count() >= OPS_LISTED_MAX
            || too_many_messages
        {
            return Err(CallRefusal::TooManyInFlight);
        }
        let number = self.numbers.entry(lane).or_insert(0);
        let op = OpId { lane, number: *number };
        *number += 1;
        if !self.began_synced && lane.ends().is_none() && !matches!(call.kind, Kind::Sync { .. }) {
            self.worked.insert(lane);
        }
        let size = self.size;
        let me = self.me.index();
        let entry = self.entries.entry(op).or_insert_with(|| Entry::new(op, size));
        entry.call = Some(call);
        let told = entry.told_revision().filter(|told| self.revisions.has(*told));
        entry.revision = told.or_else(|| self.revisions.of_a_new_call(op));
        let (outcome, given_up) = (entry.outcome, entry.votes[me].is_some());
        if given_up {
            self.in_engine(op, LedgerEffect::Cancel);
        }
        if let Some(outcome) = outcome {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
            self.in_engine(op, LedgerEffect::Retire);
        }
        Ok(op)
    }

    /// Replaces what a call asks for, before it is told to anybody.
    pub fn amend(&mut self, op: OpId, call: Call) {
        let me = self.me;
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| e.calls.of(me).is_none()) {
            entry.call = Some(call);
        }
    }

    /// Tells everybody that this member has begun `op`: its staging is ready. Not when it is
    /// decided by now; gives whether it does.
    pub fn describe(&mut self, op: OpId) -> bool {
        let call = self.entries.get(&op).and_then(|e| e.call);
        call.is_some_and(|call| self.tell_begun(op, None, call))
    }

    /// The same of one call of a step.
    pub fn describe_part(&mut self, part: OpId, call: Call) -> bool {
        part.step().is_some_and(|(op, index)| self.tell_begun(op, Some(index), call))
    }

    fn tell_begun(&mut self, op: OpId, part: Option<u8>, call: Call) -> bool {
        let (me, frozen) = (self.me, self.frozen);
        let Some(entry) = self
            .entries
            .get_mut(&op)
            .filter(|e| !frozen && e.call.is_some() && e.outcome.is_none())
        else {
            return false;
        };
        let name = part.map_or(op, |index| op.part(index));
        // One that is held is a sync, or the end of a step: their data moves later.
        let descriptor = Descriptor {
            op: name,
            call,
            plan_revision: entry.revision.unwrap_or(REVISION_UNKNOWN),
        };
        if entry.calls_of_mut(part).note(me, descriptor) != Some(true) {
            return false;
        }
        self.effects.push(LedgerEffect::Tell(OpBody::Describe(descriptor)));
        let others = entry.calls_of(part).into_iter().flat_map(Calls::said).map(|(rank, _)| rank);
        for rank in others.filter(|rank| *rank != me && entry.credits(part, *rank, &call)) {
            self.effects.push(LedgerEffect::Credit(name, rank));
        }
        self.compare(op);
        true
    }

    /// The engine has begun with a sync, whose data could not move before all descriptors were in.
    pub fn ready(&mut self, op: OpId) {
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| !e.ready && e.outcome.is_none()) {
            entry.ready = true;
            self.effects.push(LedgerEffect::Tell(OpBody::Ready(op)));
        }
    }

    /// Another member has begun with a sync.
    pub fn on_ready(&mut self, from: Rank, op: OpId) {
        if self.entries.get(&op).is_some_and(|e| e.outcome.is_none() && e.concerns(from)) {
            self.effects.push(LedgerEffect::Credit(op, from));
        }
    }

    /// The engine holds the full result; of a step, that of every call. Ignored when the View is
    /// frozen or the operation is given up.
    ///
    /// The vote waits until all have called: a root that has sent everything off may give up as
    /// long as somebody has not come.
    pub fn done(&mut self, op: OpId, digest: u128) {
        if let Some(entry) = self.entries.get_mut(&op).filter(|_| !self.frozen) {
            entry.held = Some(digest);
            self.count_result(op);
        }
    }

    /// A result counts from when all have called: it is voted for, or decides a call that nobody
    /// votes on.
    fn count_result(&mut self, op: OpId) {
        let Some(entry) = self.entries.get(&op).filter(|e| e.agreed) else { return };
        match entry.held {
            Some(digest) if !entry.is_best_effort() => self.vote(op, Vote::Done { digest }),
            _ => self.settle(op),
        }
    }

    /// Gives `op` up, if this member has not voted `Done` for it: then the decision must be waited
    /// for.
    pub fn abort(&mut self, op: OpId, reason: AbortReason) {
        let own = self.entries.get(&op).and_then(|e| e.votes[self.me.index()]);
        if own.is_none() {
            self.vote(op, Vote::Abort(AbortCause { reason, by: self.me }));
        }
    }

    /// The deadline of `op` has passed on this member. It gives `op` up if it has not voted. A vote
    /// `Done` stands, as others may have committed on it: then this member asks those that have not
    /// voted to give `op` up.
    pub fn expire(&mut self, op: OpId) {
        if self.has_voted_done(op) { self.hurry(op) } else { self.abort(op, AbortReason::Deadline) }
    }

    fn hurry(&mut self, op: OpId) {
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| !self.frozen && !e.overdue) {
            entry.overdue = true;
            self.effects.push(LedgerEffect::Tell(OpBody::Overdue(op)));
        }
    }

    /// The deadline of `op` has passed on another member. A member that has voted `Done` says so
    /// too: all of them then wait for the same votes from the same moment on.
    pub fn on_overdue(&mut self, from: Rank, op: OpId) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        if op.step().is_some() {
            return Err(Misbehaviour);
        }
        self.admit(from, op)?;
        if self.has_voted_done(op) {
            self.hurry(op);
        } else if self.entries.get(&op).is_some_and(|e| e.votes[self.me.index()].is_none()) {
            let cause = AbortCause { reason: AbortReason::Deadline, by: from };
            self.vote(op, Vote::Abort(cause));
        }
        Ok(())
    }

    /// The other members whose vote on an open `op` is missing, though every correct member gives
    /// it as soon as it has heard this one: `Abort` in answer to `Abort`, any vote in answer to
    /// [`Overdue`](OpBody::Overdue).
    pub fn unanswered(&self, op: OpId) -> Vec<Rank> {
        let open = self.entries.get(&op).filter(|e| !self.frozen && e.outcome.is_none());
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

    /// Whether this member has voted `Done` for an operation that is not decided.
    pub fn has_voted_done(&self, op: OpId) -> bool {
        let entry = self.entries.get(&op).filter(|e| e.outcome.is_none());
        entry.is_some_and(|e| matches!(e.votes[self.me.index()], Some(Vote::Done { .. })))
    }

    /// Another member has begun an operation. Gives whether it says so for the first time, and it
    /// is of interest still.
    pub fn on_descriptor(
        &mut self,
        from: Rank,
        descriptor: Descriptor,
    ) -> Result<bool, Misbehaviour> {
        if self.frozen {
            return Ok(false);
        }
        let (op, part) =
            descriptor.op.step().map_or((descriptor.op, None), |(op, index)| (op, Some(index)));
        if !is_honest(&descriptor, part) {
            return Err(Misbehaviour);
        }
        self.admit(from, op)?;
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else {
            self.refuse_finished(op);
            return Ok(false);
        };
        let is_first = entry.calls_of_mut(part).note(from, descriptor).ok_or(Misbehaviour)?;
        // A plan that this member has not got yet will come, and with it what is held.
        if entry.call.is_some()
            && entry.revision.is_none()
            && self.revisions.has(descriptor.plan_revision)
        {
            entry.revision = Some(descriptor.plan_revision);
        }
        let mine = entry.calls_of(part).and_then(|calls| calls.of(me));
        if is_first && mine.is_some_and(|call| entry.credits(part, from, &call)) {
            self.effects.push(LedgerEffect::Credit(descriptor.op, from));
        }
        self.compare(op);
        Ok(is_first)
    }

    /// Another member has voted.
    pub fn on_vote(&mut self, from: Rank, op: OpId, vote: Vote) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        if op.step().is_some() {
            return Err(Misbehaviour);
        }
        self.admit(from, op)?;
        let Some(entry) = self.entries.get_mut(&op) else { return Ok(()) };
        if entry.outcome == Some(Outcome::Committed) {
            return Ok(());
        }
        match (entry.votes[from.index()], vote) {
            (Some(Vote::Abort(_)), Vote::Done { .. }) => return Ok(()),
            (Some(Vote::Done { digest: a }), Vote::Done { digest: b }) if a != b => {
                return Err(Misbehaviour);
            }
            _ => entry.votes[from.index()] = Some(vote),
        }
        if let Vote::Abort(cause) = vote {
            self.vote(op, Vote::Abort(cause));
        }
        self.settle(op);
        Ok(())
    }

    /// No vote changes any more. Returns what this member has to report; the same at every later
    /// call.
    pub fn freeze(&mut self) -> Closing {
        self.frozen = true;
        Closing {
            ops: self
                .entries
                .iter()
                .filter_map(|(op, e)| e.listed(*op, self.me, self.seeded))
                .collect(),
            committed: self.committed,
        }
    }

    /// The next View was made of this one: these operations are committed, every other open one is
    /// aborted. Of a committed one whose result this member does not hold it knows no more than
    /// that others have gone on with it: that one stays unknown.
    pub fn decide(&mut self, committed: &[CommittedOp]) {
        let (me, seeded) = (self.me, self.seeded);
        self.close_with(|op, entry| entry.outcome_by(*op, committed, me, seeded));
    }

    /// This member was left out of the next View: what was open stays unknown.
    pub fn cut_off(&mut self) {
        self.close_with(|_, _| Outcome::Indeterminate);
    }

    /// The oldest operation that this member has begun and some ranks have not.
    pub fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        self.entries.iter().find_map(|(op, e)| {
            let missing: Vec<Rank> = e.calls.missing().collect();
            (e.outcome.is_none() && e.calls.of(self.me).is_some() && !missing.is_empty())
                .then_some((*op, missing))
        })
    }

    /// The View this ledger belongs to.
    pub fn view(&self) -> ViewDigest {
        self.view
    }

    /// Makes room for what `from` says about `op`, within what one member may have open.
    fn admit(&mut self, from: Rank, op: OpId) -> Result<(), Misbehaviour> {
        let concerns = |rank: Rank| op.lane.participants(self.size) >> rank.0 & 1 == 1;
        if !op.lane.fits(self.size) || !concerns(from) || !concerns(self.me) {
            return Err(Misbehaviour);
        }
        if self.entries.contains_key(&op)
            || op.number < self.numbers.get(&op.lane).copied().unwrap_or(0)
        {
            return Ok(());
        }
        // A member lists each of them until this one has reported it decided. What it gave up may
        // be open here for long, where a third member's word is late.
        let open = self
            .entries
            .values()
            .filter(|e| e.heard_from(from) && e.call.is_none() && e.outcome.is_none())
            .count();
        if open >= OPS_LISTED_MAX {
            return Err(Misbehaviour);
        }
        self.entries.insert(op, Entry::new(op, self.size));
        Ok(())
    }

    /// A descriptor for an operation that is over and forgotten here: it cannot have been committed
    /// without its sender.
    fn refuse_finished(&mut self, op: OpId) {
        let cause = AbortCause { reason: AbortReason::Dropped, by: self.me };
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, Vote::Abort(cause))));
    }

    fn vote(&mut self, op: OpId, vote: Vote) {
        if self.frozen {
            return;
        }
        let me = self.me.index();
        let Some(entry) = self.entries.get_mut(&op) else { return };
        let allowed = match (entry.votes[me], vote) {
            (None, _) | (Some(Vote::Done { .. }), Vote::Abort(_)) => true,
            (Some(_), _) => false,
        };
        if !allowed || entry.outcome.is_some() || self.seeded.has(Defect::WithholdsVotes) {
            return;
        }
        entry.votes[me] = Some(vote);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, vote)));
        if matches!(vote, Vote::Abort(_)) {
            self.in_engine(op, LedgerEffect::Cancel);
        }
        self.settle(op);
    }

    /// Compares the descriptors; a difference is voted down, naming the lowest pair.
    fn compare(&mut self, op: OpId) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.outcome.is_some() || entry.agreed {
            return;
        }
        if let Some(mismatch) = entry.mismatch() {
            self.vote(
                op,
                Vote::Abort(AbortCause { reason: AbortReason::Mismatch(mismatch), by: self.me }),
            );
        } else if entry.is_unanimous() {
            entry.agreed = true;
            let source = entry.sync_source(&self.sources);
            self.effects.push(LedgerEffect::Agreed(op, source));
            self.count_result(op);
            self.settle(op);
        }
    }

    /// Decides `op` when all votes are in.
    fn settle(&mut self, op: OpId) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.outcome.is_some() {
            return;
        }
        let Some(outcome) = entry.verdict(self.seeded) else { return };
        self.resolve(op, outcome);
    }

    fn resolve(&mut self, op: OpId, outcome: Outcome) {
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else { return };
        entry.outcome = Some(outcome);
        entry.resolved_by |= 1 << me.0;
        let (called, is_sync, alone, held) =
            (entry.call.is_some(), entry.is_sync(), entry.is_best_effort(), entry.held);
        if outcome == Outcome::Committed {
            if let (None, false, Some(digest)) = (op.lane.ends(), alone, held) {
                self.committed.insert(CommittedOp { op, digest });
            }
            self.synced |= is_sync;
        }
        if called {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
            // Who holds a result that nobody votes on may still have to hand it on.
            if !(alone && outcome == Outcome::Committed) {
                self.in_engine(op, LedgerEffect::Retire);
            }
        }
    }

    /// An effect on `op` as engines know it: by the names of all its calls, if it is a step.
    fn in_engine(&mut self, op: OpId, effect: fn(OpId) -> LedgerEffect) {
        let Some(entry) = self.entries.get(&op) else { return };
        if entry.is_step() {
            self.effects.extend(op.parts().map(effect));
        } else {
            self.effects.push(effect(op));
        }
    }

    fn close_with(&mut self, outcome_of: impl Fn(&OpId, &Entry) -> Outcome) {
        self.frozen = true;
        let open = self.entries.iter().filter(|(_, e)| e.outcome.is_none());
        let ends: Vec<(OpId, Outcome)> = open.map(|(op, e)| (*op, outcome_of(op, e))).collect();
        for (op, outcome) in ends {
            self.in_engine(op, LedgerEffect::Cancel);
            self.resolve(op, outcome);
        }
    }
}

/// Whether an honest member can have begun this, by its own name or as one call of a step.
fn is_honest(descriptor: &Descriptor, part: Option<u8>) -> bool {
    let call = &descriptor.call;
    let ends = if let Kind::Message { from, to, .. } = call.kind { Some((from, to)) } else { None };
    let in_step = call.mode == Mode::PerStep
        && !matches!(call.kind, Kind::Message { .. } | Kind::Step { .. } | Kind::Sync { .. });
    let alone = call.mode != Mode::PerStep && ends == descriptor.op.lane.ends();
    if part.is_some() { in_step && descriptor.op.lane.ends().is_none() } else { alone }
}

#[cfg(test)]
mod tests;
