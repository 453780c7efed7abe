//! Layer: Core.
//!
//! Every vote and status of one View, on one member.
//!
//! One ledger sits behind one lock. Engines report results to it, the control plane feeds it the other members'
//! messages, and a promise to leave the View is a snapshot of it: [`Ledger::freeze`]. After that no vote changes
//! any more; the next View decides what is open.
//!
//! Rules. Every member votes once per operation, to all members, and `Done` only when all have called it. `Committed` needs `Done` from all, `Aborted` needs
//! `Abort` from all; until then the call waits. An `Abort` is answered with an `Abort` by everybody, also by a member
//! that voted `Done` and has not committed, and by one whose program has not called the operation yet. A member lists
//! an operation from its own call until every member has reported it decided.

mod entry;

use super::{AbortCause, AbortReason, Call, Closing, Descriptor, Kind, OpBody, Outcome, Vote};
use crate::view::{Lane, OPS_IN_FLIGHT_MAX, OPS_LISTED_MAX, OpId, Rank, View, ViewDigest};
use entry::Entry;
use std::collections::BTreeMap;

/// Most operations remembered that others gave up before this member's program called them.
const UNCALLED_MAX: usize = 1024;

/// The votes and statuses of one View on one member.
#[derive(Clone, Debug)]
pub struct Ledger {
    view: ViewDigest,
    me: Rank,
    size: usize,
    /// The plan revision that this member's descriptors name.
    plan_revision: u32,
    /// By rank: whose state a sync may take, because its history is the View's.
    sources: Vec<bool>,
    frozen: bool,
    /// The members share one history, from the start or since a sync was committed.
    synced: bool,
    committed: u64,
    numbers: BTreeMap<Lane, u64>,
    entries: BTreeMap<OpId, Entry>,
    effects: Vec<LedgerEffect>,
}

/// What the ledger wants done; in order.
#[derive(Clone, Debug, PartialEq)]
pub enum LedgerEffect {
    /// Send to every other member.
    Tell(OpBody),
    /// This member's descriptor and that of the rank are both known: bulk data may flow to it.
    Credit(OpId, Rank),
    /// All descriptors are in and agree. For a sync: from whom, and how many bytes.
    Agreed(OpId, Option<(Rank, u64)>),
    /// The engine need not go on with it.
    Cancel(OpId),
    /// It is decided here.
    Resolved(OpId, Outcome),
}

/// Why a call took no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The View is being replaced.
    Frozen,
    /// The members do not share one history yet.
    NeedsSync,
    /// 64 operations are in flight, or 256 are listed.
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
            plan_revision: view.plan.revision,
            sources: view.members.iter().map(|m| m.in_sync).collect(),
            frozen: false,
            synced: view.in_sync(),
            committed: 0,
            numbers: BTreeMap::new(),
            entries: BTreeMap::new(),
            effects: Vec::new(),
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

    /// Operations committed here so far.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Operations that this member or another one has begun and that are not decided.
    ///
    /// Those of others count too: a member that is about to call may finish them, unless it leaves its View at once.
    pub fn in_flight(&self) -> usize {
        let begun = |e: &&Entry| e.call.is_some() || e.descriptors.iter().any(Option::is_some);
        self.entries.values().filter(|e| e.outcome.is_none()).filter(begun).count()
    }

    /// Takes the lane's next number for a call of this member.
    pub fn call(&mut self, lane: Lane, call: Call) -> Result<OpId, CallRefusal> {
        if self.frozen {
            return Err(CallRefusal::Frozen);
        }
        if !self.synced && !matches!(call.kind, Kind::Sync { .. }) {
            return Err(CallRefusal::NeedsSync);
        }
        let listed = self.entries.values().filter(|e| e.call.is_some()).count();
        if self.in_flight() >= OPS_IN_FLIGHT_MAX || listed >= OPS_LISTED_MAX {
            return Err(CallRefusal::TooManyInFlight);
        }
        let number = self.numbers.entry(lane).or_insert(0);
        let op = OpId { lane, number: *number };
        *number += 1;
        let size = self.size;
        let entry = self.entries.entry(op).or_insert_with(|| Entry::new(size));
        entry.call = Some(call);
        if let Some(outcome) = entry.outcome {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
        }
        Ok(op)
    }

    /// Replaces what a call asks for, before it is told to anybody.
    pub fn amend(&mut self, op: OpId, call: Call) {
        let me = self.me.index();
        if let Some(entry) = self.entries.get_mut(&op).filter(|e| e.descriptors[me].is_none()) {
            entry.call = Some(call);
        }
    }

    /// Tells everybody that this member has begun `op`: its staging is ready.
    pub fn describe(&mut self, op: OpId) {
        let (me, plan_revision, frozen) = (self.me, self.plan_revision, self.frozen);
        let Some(entry) = self.entries.get_mut(&op) else { return };
        let Some(call) = entry.call else { return };
        if frozen || entry.outcome.is_some() || entry.descriptors[me.index()].is_some() {
            return;
        }
        let descriptor = Descriptor { op, call, plan_revision };
        entry.descriptors[me.index()] = Some(descriptor);
        self.effects.push(LedgerEffect::Tell(OpBody::Describe(descriptor)));
        for rank in entry.described().filter(|r| *r != me && entry.credits(*r, &call)) {
            self.effects.push(LedgerEffect::Credit(op, rank));
        }
        self.compare(op);
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
        if self.entries.get(&op).is_some_and(|e| e.outcome.is_none()) {
            self.effects.push(LedgerEffect::Credit(op, from));
        }
    }

    /// The engine holds the full result. Ignored when the View is frozen or the operation is given up.
    ///
    /// The vote waits until all have called: a root that has sent everything off may give up as long as somebody has not come.
    pub fn done(&mut self, op: OpId, digest: u128) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.agreed {
            self.vote(op, Vote::Done { digest });
        } else {
            entry.held = Some(digest);
        }
    }

    /// Gives `op` up, if this member has not voted `Done` for it: then the decision must be waited for.
    pub fn abort(&mut self, op: OpId, reason: AbortReason) {
        let own = self.entries.get(&op).and_then(|e| e.votes[self.me.index()]);
        if own.is_none() {
            self.vote(op, Vote::Abort(AbortCause { reason, by: self.me }));
        }
    }

    /// Whether this member has voted `Done` for an operation that is not decided.
    pub fn has_voted_done(&self, op: OpId) -> bool {
        let entry = self.entries.get(&op).filter(|e| e.outcome.is_none());
        entry.is_some_and(|e| matches!(e.votes[self.me.index()], Some(Vote::Done { .. })))
    }

    /// Another member has begun an operation.
    pub fn on_descriptor(&mut self, from: Rank, descriptor: Descriptor) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        let op = descriptor.op;
        self.admit(from, op)?;
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else {
            self.refuse_finished(op);
            return Ok(());
        };
        if entry.descriptors[from.index()].is_some_and(|known| known != descriptor) {
            return Err(Misbehaviour);
        }
        let is_first = entry.descriptors[from.index()].replace(descriptor).is_none();
        let mine = entry.descriptors[me.index()].map(|d| d.call);
        if is_first && mine.is_some_and(|call| entry.credits(from, &call)) {
            self.effects.push(LedgerEffect::Credit(op, from));
        }
        self.compare(op);
        Ok(())
    }

    /// Another member has voted.
    pub fn on_vote(&mut self, from: Rank, op: OpId, vote: Vote) -> Result<(), Misbehaviour> {
        if self.frozen {
            return Ok(());
        }
        self.admit(from, op)?;
        let Some(entry) = self.entries.get_mut(&op) else { return Ok(()) };
        if entry.outcome == Some(Outcome::Committed) {
            return Ok(());
        }
        match (entry.votes[from.index()], vote) {
            (Some(Vote::Abort(_)), Vote::Done { .. }) => return Ok(()),
            (Some(Vote::Done { digest: a }), Vote::Done { digest: b }) if a != b => return Err(Misbehaviour),
            _ => entry.votes[from.index()] = Some(vote),
        }
        if let Vote::Abort(cause) = vote {
            self.vote(op, Vote::Abort(cause));
        }
        self.settle(op);
        Ok(())
    }

    /// Another member has decided these operations.
    pub fn on_resolved(&mut self, from: Rank, ops: &[OpId]) {
        for op in ops {
            if let Some(entry) = self.entries.get_mut(op) {
                entry.resolved_by |= 1 << from.0;
            }
        }
        self.forget_finished();
    }

    /// Another member has decided every operation of the lane below this number; its reports may have been lost.
    pub fn on_settled(&mut self, from: Rank, below: OpId) {
        for (op, entry) in &mut self.entries {
            if op.lane == below.lane && op.number < below.number {
                entry.resolved_by |= 1 << from.0;
            }
        }
        self.forget_finished();
    }

    /// No vote changes any more. Returns what this member has to report; the same at every later call.
    pub fn freeze(&mut self) -> Closing {
        self.frozen = true;
        Closing { ops: self.entries.iter().filter_map(|(op, e)| e.listed(*op, self.me)).collect(), committed: self.committed }
    }

    /// The next View was made of this one: these operations are committed, every other open one is aborted.
    pub fn decide(&mut self, committed: &[OpId]) {
        let cause = AbortCause { reason: AbortReason::ViewChange, by: self.me };
        self.close_with(|op| if committed.contains(op) { Outcome::Committed } else { Outcome::Aborted(cause) });
    }

    /// This member was left out of the next View: what was open stays unknown.
    pub fn cut_off(&mut self) {
        self.close_with(|_| Outcome::Indeterminate);
    }

    /// Everything another member may have missed while its link was down.
    pub fn replay(&self) -> Vec<OpBody> {
        let me = self.me.index();
        let mut bodies = Vec::new();
        for (op, entry) in &self.entries {
            bodies.extend(entry.descriptors[me].map(OpBody::Describe));
            bodies.extend(entry.ready.then_some(OpBody::Ready(*op)));
            bodies.extend(entry.votes[me].map(|vote| OpBody::Vote(*op, vote)));
        }
        bodies.extend(self.numbers.iter().map(|(lane, next)| {
            let open = self.entries.iter().filter(|(op, e)| op.lane == *lane && e.call.is_some() && e.outcome.is_none());
            let number = open.map(|(op, _)| op.number).min().unwrap_or(*next);
            OpBody::Settled(OpId { lane: *lane, number })
        }));
        bodies
    }

    /// Decided operations that are still listed: what every message about operations carries.
    pub fn resolved(&self) -> Vec<OpId> {
        self.entries.iter().filter(|(_, e)| e.outcome.is_some()).map(|(op, _)| *op).take(OPS_LISTED_MAX).collect()
    }

    /// The same for a message that goes to all other members, after which this member need not list them for their sake.
    pub fn report_resolved(&mut self) -> Vec<OpId> {
        let resolved = self.resolved();
        for op in &resolved {
            if let Some(entry) = self.entries.get_mut(op) {
                entry.reported = true;
            }
        }
        self.forget_finished();
        resolved
    }

    /// The oldest operation that this member has begun and some ranks have not.
    pub fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        let me = self.me.index();
        self.entries.iter().find_map(|(op, e)| {
            let missing: Vec<Rank> = e.missing().collect();
            (e.outcome.is_none() && e.descriptors[me].is_some() && !missing.is_empty()).then_some((*op, missing))
        })
    }

    /// The View this ledger belongs to.
    pub fn view(&self) -> ViewDigest {
        self.view
    }

    /// Makes room for what `from` says about `op`, within what one member may have open.
    fn admit(&mut self, from: Rank, op: OpId) -> Result<(), Misbehaviour> {
        if self.entries.contains_key(&op) || op.number < self.numbers.get(&op.lane).copied().unwrap_or(0) {
            return Ok(());
        }
        // A member has at most 64 operations in flight; twice that covers reports that are still on their way.
        let open = self.entries.values().filter(|e| e.heard_from(from) && e.call.is_none() && e.outcome.is_none()).count();
        if open >= 2 * OPS_IN_FLIGHT_MAX {
            return Err(Misbehaviour);
        }
        self.entries.insert(op, Entry::new(self.size));
        Ok(())
    }

    /// A descriptor for an operation that is over and forgotten here: it cannot have been committed without its sender.
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
        if !allowed || entry.outcome.is_some() {
            return;
        }
        entry.votes[me] = Some(vote);
        self.effects.push(LedgerEffect::Tell(OpBody::Vote(op, vote)));
        if matches!(vote, Vote::Abort(_)) {
            self.effects.push(LedgerEffect::Cancel(op));
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
            self.vote(op, Vote::Abort(AbortCause { reason: AbortReason::Mismatch(mismatch), by: self.me }));
        } else if entry.missing().next().is_none() {
            entry.agreed = true;
            let (source, held) = (entry.sync_source(&self.sources), entry.held.take());
            self.effects.push(LedgerEffect::Agreed(op, source));
            if let Some(digest) = held {
                self.vote(op, Vote::Done { digest });
            }
            self.settle(op);
        }
    }

    /// Decides `op` when all votes are in.
    fn settle(&mut self, op: OpId) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.outcome.is_some() {
            return;
        }
        let Some(outcome) = entry.unanimous() else { return };
        self.resolve(op, outcome);
    }

    fn resolve(&mut self, op: OpId, outcome: Outcome) {
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else { return };
        entry.outcome = Some(outcome);
        entry.resolved_by |= 1 << me.0;
        let called = entry.call.is_some();
        let is_sync = entry.is_sync();
        if outcome == Outcome::Committed {
            self.committed += 1;
            self.synced |= is_sync;
        }
        if called {
            self.effects.push(LedgerEffect::Resolved(op, outcome));
        }
    }

    fn close_with(&mut self, outcome_of: impl Fn(&OpId) -> Outcome) {
        self.frozen = true;
        let open: Vec<OpId> = self.entries.iter().filter(|(_, e)| e.outcome.is_none()).map(|(op, _)| *op).collect();
        for op in open {
            self.effects.push(LedgerEffect::Cancel(op));
            self.resolve(op, outcome_of(&op));
        }
    }

    /// Operations that every member has decided are forgotten, unless this member's program is still to call them, or
    /// the others have not been told yet: who forgot without a word would stay on their lists for ever.
    fn forget_finished(&mut self) {
        let everybody = (1u32 << self.size) - 1;
        self.entries.retain(|_, e| e.resolved_by != everybody || e.call.is_none() || !e.reported);
        // Aborted before this member's program called it. When it does after this is forgotten, the others abort it again.
        let uncalled: Vec<OpId> =
            self.entries.iter().filter(|(_, e)| e.call.is_none() && e.outcome.is_some()).map(|(op, _)| *op).collect();
        for op in uncalled.iter().rev().skip(UNCALLED_MAX) {
            self.entries.remove(op);
        }
    }
}

#[cfg(test)]
mod tests;
