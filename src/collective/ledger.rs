//! The votes and statuses of all operations of one View, on one member.
//!
//! The ledger sits behind one lock. Engines report results to it, and the control plane delivers
//! the other members' messages. [`Ledger::freeze`] takes the snapshot that goes into a promise to
//! leave the View. After that no vote changes; the next View decides the open operations.
//!
//! Rules. Every member votes `Done` or `Abort` on each operation and sends the vote to all
//! participants: all members, those of a sub-group, or the two ends of a message. It votes `Done`
//! only after all of them have called the operation. `Committed` needs `Done` from all, `Aborted`
//! needs `Abort` from all; until then the call waits. Every member answers an `Abort` with an
//! `Abort`, even if it has voted `Done` and not committed. If its program has not called the
//! operation yet, it answers as soon as a caller has told it of the operation. A member lists an
//! operation from its own call until every participant has reported it decided. A vote may be lost
//! with a link. Then a report that the operation is decided counts as `Abort` of its sender, as
//! long as this member cannot have voted `Done`.
//!
//! ```text
//! own vote:  none --> Done --> Abort       Done: result held, all descriptors agree
//!            none -----------> Abort       an Abort is final
//! all Done, equal digests   -> Committed   all Done, digests differ -> disputed, and open
//! all Abort                 -> Aborted     anything else            -> open
//! ```
//!
//! A disputed operation is not decided by votes: another member may have heard other ones. The View
//! must be replaced, and the next one decides it by the results that its members report.
//!
//! A step is one operation of several calls. Each call has its own descriptor, but only the step is
//! voted on. A best-effort call has no votes for `Done`: each member commits it as soon as it holds
//! the result, and it is not listed.

mod admission;
mod bounds;
mod calls;
mod deadlines;
mod descriptors;
mod entry;
mod given_up;
#[cfg(test)]
mod inspection;
mod replanning;
mod reports;
mod revisions;
mod sync_source;
mod syncs;
#[cfg(test)]
mod tests;

use super::runs::{Lanes, Runs};
use crate::protocol::{
    AbortCause, AbortReason, Call, CallKind, Closing, CommittedOp, FailedOp, Lane, LaneStates,
    Mutant, Mutation, OF_SOME_IN_FLIGHT_MAX, OpBody, OpId, OpSet, Outcome, Rank, View, ViewDigest,
    Vote,
};
pub(crate) use bounds::LedgerBounds;
use entry::Entry;
use given_up::GivenUp;
use revisions::Revisions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use sync_source::SyncSource;

/// The votes and statuses of one View on one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    view: ViewDigest,
    me: Rank,
    size: usize,
    revisions: Revisions,
    /// By rank: whether a sync may take this member's state, because its history is the View's.
    sources: Vec<bool>,
    frozen: bool,
    /// The members share one history, from the start or since a sync committed.
    synced: bool,
    /// The members shared one history from the start.
    began_synced: bool,
    /// If they did not: lanes in which this member has called anything but a sync.
    worked: Lanes<()>,
    states: LaneStates,
    committed: OpSet,
    /// The next number of each lane that this member has used.
    numbers: Lanes<u64>,
    entries: BTreeMap<OpId, Entry>,
    /// Operations that were aborted before this member called them, as it has told the others.
    given_up: Runs<OpId, GivenUp>,
    /// By rank: operations of which its answer was the first word here, oldest first.
    answered: Vec<VecDeque<OpId>>,
    /// By rank: operations forgotten here that are to be reported to it again.
    again: Vec<BTreeSet<OpId>>,
    effects: Vec<LedgerEffect>,
    /// An operation is disputed.
    disputed: bool,
    bounds: LedgerBounds,
    mutation: Mutation,
}

/// A request of the ledger; requests are executed in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LedgerEffect {
    /// Send to every other member that takes part.
    Tell(OpBody),
    /// Bulk data may flow to this rank: its descriptor agrees with this member's, or its `Ready`
    /// for a sync is in.
    Credit(OpId, Rank),
    /// All descriptors are in and agree. For a sync: the source of the state. For a sync this comes
    /// again when the source has named the length of the state.
    Agreed(OpId, Option<SyncSource>),
    /// The engine can stop working on it.
    Cancel(OpId),
    /// The operation is decided here.
    Resolved(OpId, Outcome),
    /// No member needs data of it from this engine any more.
    Retire(OpId),
}

/// Why a call took no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The View is being replaced.
    Frozen,
    /// The members do not share one history yet.
    NeedsSync,
    /// Of the operations that this member has called, 64 are undecided, or 256 are listed; or the
    /// call is one of some members, and 32 such calls are undecided.
    TooManyInFlight,
}

/// Most runs of lanes, about 4 MiB, and of operations given up, about 10 MiB; see [`Runs`]. With
/// more the View must be replaced.
const RUNS_MAX: usize = 64 * 1024;

/// No honest member sends this message: its sender broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misbehaviour;

impl Ledger {
    /// The empty ledger of a View in which this member has rank `me`.
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
            worked: Lanes::default(),
            states: LaneStates::default(),
            committed: OpSet::default(),
            numbers: Lanes::default(),
            entries: BTreeMap::new(),
            given_up: Runs::default(),
            answered: vec![VecDeque::new(); view.size()],
            again: vec![BTreeSet::new(); view.size()],
            effects: Vec::new(),
            disputed: false,
            bounds: LedgerBounds::default(),
            mutation: Mutation::NONE,
        }
    }

    /// Breaks one of its rules, as a test wants it.
    pub(crate) fn break_rule(&mut self, mutation: Mutation) {
        self.mutation = mutation;
    }

    /// The rule that a test has broken.
    pub(crate) fn mutation(&self) -> Mutation {
        self.mutation
    }

    /// Takes the effects since the last call of this method.
    pub fn take_effects(&mut self) -> Vec<LedgerEffect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the View must be replaced by one of the same members: an operation is disputed, or
    /// this member has to forget something, because it has used so many lanes here in no order, or
    /// others have given up so many operations that it has not called.
    pub fn must_end(&self) -> bool {
        self.disputed || self.numbers.runs() > RUNS_MAX || self.given_up.runs() > RUNS_MAX
    }

    /// Whether the View is being replaced.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether the members share one history now.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The number of operations of all members committed here so far, without best-effort calls.
    pub fn committed(&self) -> u64 {
        self.committed.len()
    }

    /// The number of undecided operations that this member or another one has begun.
    ///
    /// Operations begun only elsewhere count too: this member's program may be about to call them,
    /// and they can complete unless the member leaves its View at once.
    pub fn in_flight(&self) -> usize {
        self.open().count()
    }

    fn open(&self) -> impl Iterator<Item = &OpId> {
        self.entries.iter().filter(|(_, e)| e.outcome.is_none() && e.is_begun()).map(|(op, _)| op)
    }

    /// Takes the lane's next number for a call of this member.
    pub fn call(&mut self, lane: Lane, call: Call) -> Result<OpId, CallRefusal> {
        if let Some(refusal) = self.refusal(&call) {
            return Err(refusal);
        }
        // Only own calls count: the calls of others may wait for this very call.
        let own = || self.entries.iter().filter(|(_, e)| e.call.is_some());
        let in_flight = || own().filter(|(_, e)| e.outcome.is_none());
        let of_some = || in_flight().filter(|(op, _)| !op.lane.is_of_all()).count();
        let too_many_of_some = !lane.is_of_all() && of_some() >= OF_SOME_IN_FLIGHT_MAX;
        if in_flight().count() >= self.bounds.in_flight
            || own().count() >= self.bounds.listed
            || too_many_of_some
        {
            return Err(CallRefusal::TooManyInFlight);
        }
        let op = OpId { lane, number: self.next_in(lane) };
        self.numbers.set(lane, op.number + 1);
        if matches!(call.kind, CallKind::Sync { .. }) {
            self.note_state(lane);
        }
        if !self.began_synced && lane.is_of_all() && !matches!(call.kind, CallKind::Sync { .. }) {
            self.worked.set(lane, ());
        }
        let remembered = self.given_up.get(op).copied();
        self.given_up.remove(op);
        let (size, me) = (self.size, self.me);
        let entry = self.entries.entry(op).or_insert_with(|| Entry::new(op, size));
        remembered.into_iter().for_each(|given_up| given_up.restore(me, entry));
        entry.call = Some(call);
        let told = self.revisions.told_revision(entry);
        let in_a_hold = || self.mutation.has(Mutant::CallsInAHold);
        entry.revision = told
            .or_else(|| self.revisions.of_a_new_call(op))
            .or_else(|| in_a_hold().then(|| self.revisions.agreed_for(op)));
        let (outcome, given_up) = (entry.outcome, entry.votes[me.index()].is_some());
        if given_up {
            self.in_engine(op, LedgerEffect::Cancel);
        }
        self.answer(op);
        if let Some(outcome) = outcome {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
            self.in_engine(op, LedgerEffect::Retire);
            // The others need not hear of it again.
            self.forget_finished();
        }
        Ok(op)
    }

    /// Why no call of this kind can be made now, however few there are.
    pub fn refusal(&self, call: &Call) -> Option<CallRefusal> {
        let needs_sync = !self.synced && !matches!(call.kind, CallKind::Sync { .. });
        let frozen = self.frozen.then_some(CallRefusal::Frozen);
        frozen.or(needs_sync.then_some(CallRefusal::NeedsSync))
    }

    /// Whether the next message that this member would receive in this lane of messages is sent
    /// with this tag, or was given up. Of a message that was given up the tag may be unknown.
    pub fn next_has_tag(&self, lane: Lane, tag: u32) -> bool {
        let next = OpId { lane, number: self.next_in(lane) };
        if let Some(given_up) = self.given_up.get(next) {
            return given_up.tag.is_none_or(|sent| sent == tag);
        }
        let Some((entry, (from, _))) = self.entries.get(&next).zip(lane.ends()) else {
            return false;
        };
        match entry.calls.of(from).map(|call| call.kind) {
            Some(CallKind::Message { tag: sent, .. }) => sent == tag,
            Some(_) => false,
            None => matches!(entry.votes[from.index()], Some(Vote::Abort(_))),
        }
    }

    /// The number of the next call in a lane.
    fn next_in(&self, lane: Lane) -> u64 {
        self.numbers.get(lane).copied().unwrap_or(0)
    }

    /// Replaces the arguments of a call, before its descriptor is sent.
    pub fn amend(&mut self, op: OpId, call: Call) {
        let me = self.me;
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| e.calls.of(me).is_none()) {
            entry.call = Some(call);
        }
    }

    /// Makes a step of a call, before anything is sent of it. If it is given up or decided already,
    /// the engine hears so of the calls of the step too.
    pub fn becomes_step(&mut self, op: OpId, step: Call) {
        self.amend(op, step);
        let entry = self.entries.get(&op);
        let is_given_up = entry.is_none_or(|e| e.votes[self.me.index()].is_some());
        let is_decided = entry.is_none_or(|e| e.outcome.is_some());
        for (is_over, effect) in [
            (is_given_up, LedgerEffect::Cancel as fn(OpId) -> LedgerEffect),
            (is_decided, LedgerEffect::Retire),
        ] {
            if is_over {
                self.effects.push(effect(op));
                self.effects.extend(op.parts().map(effect));
            }
        }
    }

    /// The engine holds the full result; for a step, the results of all its calls. Ignored if the
    /// View is frozen or this member has voted `Abort`.
    ///
    /// The vote waits until all members have called the operation: a root that has sent everything
    /// may still give up while a member is missing.
    pub fn done(&mut self, op: OpId, digest: u128) {
        if let Some(entry) = self.entries.get_mut(&op).filter(|_| !self.frozen) {
            entry.held = Some(digest ^ u128::from(self.mutation.has(Mutant::HoldsOtherBits)));
            self.count_result(op);
        }
    }

    /// The engine's result, or that of a call of a step, cannot count for this reason. Votes
    /// `Abort` once all members have called the operation alike: if one has called something else,
    /// that is the reason.
    pub fn spoiled(&mut self, op: OpId, reason: AbortReason) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        entry.spoiled.get_or_insert(reason);
        if entry.agreed {
            self.abort(op, reason);
        }
    }

    /// Uses a result once all members have called the operation: votes `Done`, or decides a
    /// best-effort call.
    fn count_result(&mut self, op: OpId) {
        let Some(entry) = self.entries.get(&op).filter(|e| e.agreed) else { return };
        match entry.held {
            Some(digest) if !entry.is_best_effort() => self.vote(op, Vote::Done { digest }),
            _ => self.resolve_by_votes(op),
        }
    }

    /// Gives `op` up, unless this member has voted. After `Done` the caller must wait for the
    /// decision.
    pub fn abort(&mut self, op: OpId, reason: AbortReason) {
        let own = self.entries.get(&op).and_then(|e| e.votes[self.me.index()]);
        if own.is_none() {
            self.vote(op, Vote::Abort(AbortCause { reason, by: self.me }));
        }
    }

    /// Whether this member has voted `Done` for an operation that is undecided.
    pub fn has_voted_done(&self, op: OpId) -> bool {
        let entry = self.entries.get(&op).filter(|e| e.outcome.is_none());
        entry.is_some_and(|e| matches!(e.votes[self.me.index()], Some(Vote::Done { .. })))
    }

    /// Another member has voted.
    pub fn on_vote(&mut self, from: Rank, op: OpId, vote: Vote) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        if op.step().is_some() {
            return Err(Misbehaviour);
        }
        match vote {
            Vote::Abort(cause) if !is_of_a_caller(from, vote) => {
                self.admit_answer(from, op, cause.by)?;
            }
            _ => self.admit_caller(from, op)?,
        }
        let Some(entry) = self.entries.get_mut(&op) else {
            match vote {
                Vote::Abort(cause) if is_of_a_caller(from, vote) => {
                    self.refuse_finished(from, op, cause);
                }
                _ => self.report_again(from, op),
            }
            return Ok(());
        };
        if entry.outcome == Some(Outcome::Committed) {
            return Ok(());
        }
        match (entry.votes[from.index()], vote) {
            // It is final.
            (Some(Vote::Abort(_)), _) => {}
            (Some(Vote::Done { digest: a }), Vote::Done { digest: b }) if a != b => {
                return Err(Misbehaviour);
            }
            _ => entry.votes[from.index()] = Some(vote),
        }
        self.answer(op);
        self.resolve_by_votes(op);
        Ok(())
    }

    /// Votes `Abort` if another member has and this one must answer.
    fn answer(&mut self, op: OpId) {
        if let Some(cause) = self.entries.get(&op).and_then(Entry::cause_to_answer) {
            self.vote(op, Vote::Abort(cause));
        }
    }

    /// No vote changes any more. Returns this member's report; later calls return the same until
    /// the ledger is decided or cut off.
    pub fn freeze(&mut self) -> Closing {
        self.frozen = true;
        Closing {
            ops: self
                .entries
                .iter()
                .filter_map(|(op, e)| e.listed(*op, self.me, self.mutation))
                .collect(),
            committed: self.committed,
            lanes: self.states.clone(),
        }
    }

    /// The next View follows this one: these operations are committed, these fail, and every other
    /// open one is aborted. A committed operation for which this member has not voted `Done` ends
    /// as `Indeterminate`.
    pub fn decide(&mut self, committed: &[CommittedOp], failed: &[FailedOp]) {
        let (me, mutation) = (self.me, self.mutation);
        self.close_with(|op, entry| match failed.iter().find(|failed| failed.op == *op) {
            Some(failed) => failed.failure.into(),
            None => entry.outcome_by(*op, committed, me, mutation),
        });
    }

    /// This member was left out of the next View: open operations end as `Indeterminate`.
    pub fn cut_off(&mut self) {
        self.close_with(|_, _| Outcome::Indeterminate);
    }

    /// The first operation, in order of lane and number, that this member has begun and some ranks
    /// have not; with these ranks.
    pub fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        self.entries.iter().find_map(|(op, e)| {
            let missing = e.missing(self.me);
            (e.outcome.is_none() && e.calls.of(self.me).is_some() && !missing.is_empty())
                .then_some((*op, missing))
        })
    }

    /// The View this ledger belongs to.
    pub fn view(&self) -> ViewDigest {
        self.view
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
        if !allowed || entry.outcome.is_some() || self.mutation.has(Mutant::WithholdsVotes) {
            return;
        }
        entry.votes[me] = Some(vote);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, vote)));
        if let (Vote::Done { digest }, true) = (vote, self.mutation.has(Mutant::VotesTwice)) {
            let other = Vote::Done { digest: !digest };
            self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, other)));
        }
        if matches!(vote, Vote::Abort(_)) {
            self.in_engine(op, LedgerEffect::Cancel);
        }
        self.resolve_by_votes(op);
    }

    /// Decides `op` if the votes do.
    fn resolve_by_votes(&mut self, op: OpId) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.outcome.is_some() {
            return;
        }
        match entry.outcome_by_votes(self.mutation) {
            Some(outcome) => self.resolve(op, outcome),
            None => self.disputed |= entry.is_disputed(),
        }
    }

    fn resolve(&mut self, op: OpId, outcome: Outcome) {
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else { return };
        entry.outcome = Some(outcome);
        entry.resolved_by.insert(me);
        let (called, is_sync, alone, held) =
            (entry.call.is_some(), entry.is_sync(), entry.is_best_effort(), entry.held);
        if outcome == Outcome::Committed {
            if let (true, false, Some(digest)) = (op.lane.is_of_all(), alone, held) {
                self.committed.insert(CommittedOp { op, digest });
            }
            self.synced |= is_sync;
            if is_sync && held.is_some() {
                self.states.caught_up.insert(op.lane);
            }
        }
        if called {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
        }
        // A member that holds a best-effort result may still have to forward data.
        if !(alone && outcome == Outcome::Committed) {
            self.in_engine(op, LedgerEffect::Retire);
        }
    }

    /// Applies an effect to `op` under all names that the engine may know it by: its own and, if
    /// anybody has called a step, those of the step's calls.
    fn in_engine(&mut self, op: OpId, effect: fn(OpId) -> LedgerEffect) {
        let Some(entry) = self.entries.get(&op) else { return };
        let is_step = entry.is_step();
        self.effects.push(effect(op));
        if is_step {
            self.effects.extend(op.parts().map(effect));
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

/// Whether an honest member casts this vote only if it has called the operation. A member that
/// finds a difference between the calls of others need not have called it.
fn is_of_a_caller(from: Rank, vote: Vote) -> bool {
    match vote {
        Vote::Done { .. } => true,
        Vote::Abort(cause) => cause.by == from && !matches!(cause.reason, AbortReason::Mismatch(_)),
    }
}
