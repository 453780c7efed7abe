//! The ledger's record of one operation: descriptors, votes and the reports that it is decided.

use super::calls::Calls;
use super::sync_source::SyncSource;
use crate::protocol::{
    AbortCause, AbortReason, Call, CallKind, CallMode, CommittedOp, Listed, Mismatch, Mutant,
    Mutation, OpId, Outcome, REVISION_UNKNOWN, Rank, RankSet, Status, Vote,
};
use std::collections::BTreeMap;

/// The record of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// The ranks whose votes count: see [`Lane`](crate::protocol::Lane).
    pub(super) participants: RankSet,
    /// This member's own call, from the moment it took the number.
    pub(super) call: Option<Call>,
    /// The plan revision under which it runs; `None` before this member's call and while that call
    /// is held.
    pub(super) revision: Option<u32>,
    /// The descriptors by rank. This member's own is added when it is sent.
    pub(super) calls: Calls,
    /// The descriptors of each call of a step, by index; they arrive before that of the step's end.
    parts: BTreeMap<u8, Calls>,
    pub(super) votes: Vec<Option<Vote>>,
    /// The other ranks that have called it, by their own statements.
    pub(super) callers: RankSet,
    pub(super) outcome: Option<Outcome>,
    /// The ranks that have reported it decided.
    pub(super) resolved_by: RankSet,
    /// The ranks that this member has told that it is decided here.
    pub(super) reported_to: RankSet,
    /// All descriptors are in and agree.
    pub(super) agreed: bool,
    /// The digest of the result that the engine holds.
    pub(super) held: Option<u128>,
    /// Why the engine's result cannot count.
    pub(super) spoiled: Option<AbortReason>,
    /// The engine has begun the transfer of a sync, whose state has this many bytes.
    pub(super) ready: Option<u64>,
    /// For a sync: the length of the state that other ranks have named with their `Ready`. The
    /// length named by the source counts.
    pub(super) lengths: BTreeMap<Rank, u64>,
    /// This member's deadline passed after its vote `Done`.
    pub(super) overdue: bool,
}

impl Entry {
    /// The record of an operation in a View of `size` members.
    pub(super) fn new(op: OpId, size: usize) -> Entry {
        let participants = op.lane.participants(size);
        Entry {
            participants,
            call: None,
            revision: None,
            calls: Calls::new(participants, size),
            parts: BTreeMap::new(),
            votes: vec![None; size],
            callers: RankSet::EMPTY,
            outcome: None,
            resolved_by: RankSet::EMPTY,
            reported_to: RankSet::EMPTY,
            agreed: false,
            held: None,
            spoiled: None,
            ready: None,
            lengths: BTreeMap::new(),
            overdue: false,
        }
    }

    pub(super) fn concerns(&self, rank: Rank) -> bool {
        self.participants.contains(rank)
    }

    /// The descriptors under the operation's own name, or of one call of a step.
    pub(super) fn calls_of(&self, part: Option<u8>) -> Option<&Calls> {
        part.map_or(Some(&self.calls), |index| self.parts.get(&index))
    }

    /// Like `calls_of`, mutable; creates the record of a step's call.
    pub(super) fn calls_of_mut(&mut self, part: Option<u8>) -> &mut Calls {
        let (participants, size) = (self.participants, self.votes.len());
        match part {
            None => &mut self.calls,
            Some(index) => {
                self.parts.entry(index).or_insert_with(|| Calls::new(participants, size))
            }
        }
    }

    /// All descriptors of `rank`, in order: the calls of a step before its end.
    pub(super) fn begun_by(&self, rank: Rank) -> impl Iterator<Item = crate::protocol::Descriptor> {
        self.parts.values().chain([&self.calls]).filter_map(move |calls| calls.descriptor(rank))
    }

    /// The revision under which another member has begun it, or one of its calls.
    pub(super) fn told_revision(&self) -> Option<u32> {
        let told = (0..self.votes.len()).flat_map(|rank| self.begun_by(Rank(rank as u8)));
        told.map(|descriptor| descriptor.plan_revision)
            .find(|revision| *revision != REVISION_UNKNOWN)
    }

    pub(super) fn is_begun(&self) -> bool {
        self.call.is_some()
            || self.parts.values().chain([&self.calls]).any(|calls| calls.said().next().is_some())
    }

    pub(super) fn is_called_by(&self, rank: Rank) -> bool {
        self.callers.contains(rank)
    }

    /// Whether this member has told all other participants that it is decided here.
    pub(super) fn is_reported(&self, me: Rank) -> bool {
        self.participants.without(me).is_within(self.reported_to)
    }

    /// The cause for which this member must vote `Abort`: another one has, and a member that has
    /// called it has said so to this member. That others have answered is no reason: a member that
    /// invents an operation for each other member would have every one answered by all.
    pub(super) fn cause_to_answer(&self) -> Option<AbortCause> {
        let mut votes = self.votes.iter().flatten();
        let cause =
            votes.find_map(|v| if let Vote::Abort(cause) = v { Some(*cause) } else { None });
        cause.filter(|_| self.call.is_some() || !self.callers.is_empty())
    }

    /// Whether the call of `rank` agrees with `mine` and runs under the same plan, so that data may
    /// flow. A sync is credited only by `Ready`; a step and an uneven call never, but their calls.
    pub(super) fn credits(&self, part: Option<u8>, rank: Rank, mine: &Call) -> bool {
        let theirs = self.calls_of(part).and_then(|calls| calls.descriptor(rank));
        theirs.is_some_and(|theirs| {
            theirs.call.agrees(mine) && Some(theirs.plan_revision) == self.revision
        }) && mine.parts().is_none()
            && !matches!(mine.kind, CallKind::Sync { .. })
    }

    pub(super) fn is_sync(&self) -> bool {
        self.call.is_some_and(|c| matches!(c.kind, CallKind::Sync { .. }))
    }

    pub(super) fn is_step(&self) -> bool {
        !self.parts.is_empty() || self.call.is_some_and(|call| call.parts().is_some())
    }

    /// Whether each member decides it alone, without votes for `Done`.
    pub(super) fn is_best_effort(&self) -> bool {
        let told = self.calls.said().map(|(_, call)| call).next();
        self.call.or(told).is_some_and(|call| call.mode == CallMode::BestEffort)
    }

    /// The other participants that have not sent a descriptor which this member has sent.
    pub(super) fn missing(&self, me: Rank) -> Vec<Rank> {
        let all = self.parts.values().chain([&self.calls]);
        let mut missing: Vec<Rank> =
            all.filter(|calls| calls.of(me).is_some()).flat_map(Calls::missing).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Two ranks whose descriptors contradict each other, the lower one first.
    pub(super) fn mismatch(&self) -> Option<Mismatch> {
        let uneven = self.uneven_mismatch();
        if uneven.is_some() {
            return uneven;
        }
        let same_name = self.parts.values().chain([&self.calls]).find_map(Calls::mismatch);
        same_name.or_else(|| self.calls.said().find_map(|end| self.unforeseen(end)))
    }

    /// An uneven call and another rank's call that contradicts it. After a replay the parts of a
    /// rank's call arrive before the call itself. A part that an uneven call cannot have belongs to
    /// a step, and the mismatch names it.
    fn uneven_mismatch(&self) -> Option<Mismatch> {
        let (rank, call) = self.calls.said().find(|(_, call)| call.is_uneven())?;
        let other = self.calls.said().find(|(_, theirs)| !theirs.agrees(&call));
        let of_step = |(index, (other, part)): &(u8, (Rank, Call))| {
            self.calls.of(*other).is_none() && !call.has_part(*index, part)
        };
        let parts = self.parts.iter();
        let mut parts = parts.flat_map(|(index, calls)| calls.said().map(|said| (*index, said)));
        let other = other.or_else(|| Some(parts.find(of_step)?.1))?;
        Some(between((rank, call), other))
    }

    /// A call of a step that another rank has begun, although this rank has ended the step before
    /// it, or has called something that is not a step.
    fn unforeseen(&self, (rank, call): (Rank, Call)) -> Option<Mismatch> {
        let foreseen = call.parts().unwrap_or(0);
        let mut beyond = self.parts.range(foreseen..).flat_map(|(_, calls)| calls.said());
        let other = beyond.find(|(other, _)| *other != rank)?;
        Some(between((rank, call), other))
    }

    /// Whether all participants have sent the same descriptors for it and, in a step, for all its
    /// calls.
    pub(super) fn is_unanimous(&self) -> bool {
        let parts = self.calls.said().next().and_then(|(_, call)| call.parts());
        let foreseen = usize::from(parts.unwrap_or(0));
        let complete = self.calls.are_complete() && self.parts.values().all(Calls::are_complete);
        complete && self.parts.len() == foreseen && self.mismatch().is_none()
    }

    /// For a sync, once all descriptors are in: the rank with the highest version among the members
    /// on the View's history, the lowest rank on a tie.
    pub(super) fn sync_source(&self, me: Rank, sources: &[bool]) -> Option<SyncSource> {
        let versions = || {
            self.calls.said().filter_map(|(rank, call)| {
                let CallKind::Sync { version } = call.kind else { return None };
                Some((version, std::cmp::Reverse(rank)))
            })
        };
        let on_history = |rank: Rank| sources[rank.index()];
        let (version, std::cmp::Reverse(rank)) =
            versions().filter(|(_, rank)| on_history(rank.0)).max()?;
        let is_mine = |(own, rank): (u64, std::cmp::Reverse<Rank>)| rank.0 == me && own == version;
        let lacks = !on_history(me) || !versions().any(is_mine);
        Some(SyncSource { rank, bytes: self.lengths.get(&rank).copied(), lacks })
    }

    /// The outcome, if it is known.
    pub(super) fn outcome_by_votes(&self, mutation: Mutation) -> Option<Outcome> {
        let votes: Vec<Option<Vote>> =
            self.participants.iter().map(|rank| self.votes[rank.index()]).collect();
        let causes: Vec<AbortCause> = votes
            .iter()
            .flatten()
            .filter_map(|v| if let Vote::Abort(c) = v { Some(*c) } else { None })
            .collect();
        let least = causes.iter().min().copied();
        // If the calls differ, no member gets a result, so all members vote `Abort` and this one
        // can wait for them. Otherwise a member may have committed already, and sends no vote.
        let differ = least.is_some_and(|cause| matches!(cause.reason, AbortReason::Mismatch(_)));
        if self.is_best_effort() && !differ {
            let held = self.held.is_some() && self.agreed;
            return least.map(Outcome::Aborted).or(held.then_some(Outcome::Committed));
        }
        if let Some(least) = least.filter(|_| mutation.has(Mutant::EarlyAbort)) {
            return Some(Outcome::Aborted(least));
        }
        if least.is_none()
            && self.agreed
            && self.held.is_some()
            && mutation.has(Mutant::CommitsAlone)
        {
            return Some(Outcome::Committed);
        }
        if let Some(least) = least {
            // What a member reports as decided is aborted if this one cannot have voted `Done`. Its
            // vote was lost with a link.
            let is_out = |rank: Rank| match self.votes[rank.index()] {
                Some(vote) => matches!(vote, Vote::Abort(_)),
                None => !self.agreed && self.resolved_by.contains(rank),
            };
            return self.participants.iter().all(is_out).then_some(Outcome::Aborted(least));
        }
        let votes: Vec<Vote> = votes.into_iter().collect::<Option<_>>()?;
        let same = votes.windows(2).all(|w| w[0] == w[1]);
        (self.agreed && same).then_some(Outcome::Committed)
    }

    /// Whether all participants have voted `Done` and not with the same digest.
    pub(super) fn is_disputed(&self) -> bool {
        let votes: Option<Vec<Vote>> =
            self.participants.iter().map(|rank| self.votes[rank.index()]).collect();
        votes.is_some_and(|votes| {
            let all_done = votes.iter().all(|vote| matches!(vote, Vote::Done { .. }));
            all_done && votes.windows(2).any(|two| two[0] != two[1])
        })
    }

    /// The outcome when the View has ended and these operations are committed.
    pub(super) fn outcome_by(
        &self,
        op: OpId,
        committed: &[CommittedOp],
        me: Rank,
        mutation: Mutation,
    ) -> Outcome {
        let Some(committed) = committed.iter().find(|c| c.op == op) else {
            return Outcome::Aborted(AbortCause { reason: AbortReason::ViewChange, by: me });
        };
        let holds =
            self.vote_that_counts(me, mutation) == Some(Vote::Done { digest: committed.digest });
        // Other members have committed a result that this member does not hold.
        if holds || mutation.has(Mutant::OkWithoutResult) {
            Outcome::Committed
        } else {
            Outcome::Indeterminate
        }
    }

    /// The status for a promise; `None` if this member has not called it or if it is a best-effort
    /// call.
    pub(super) fn listed(&self, op: OpId, me: Rank, mutation: Mutation) -> Option<Listed> {
        self.call.filter(|call| call.mode != CallMode::BestEffort)?;
        let status = match (self.outcome, self.vote_that_counts(me, mutation)) {
            (Some(Outcome::Committed), Some(Vote::Done { digest })) => Status::Committed(digest),
            (None, Some(Vote::Done { digest })) => Status::Done(digest),
            (None, None) => Status::NotDone,
            (Some(_), _) | (None, Some(Vote::Abort(_))) => Status::Aborted,
        };
        Some(Listed { op, status, is_sync: self.is_sync() })
    }

    /// This member's vote, as the promise reports it.
    fn vote_that_counts(&self, me: Rank, mutation: Mutation) -> Option<Vote> {
        let kept = self
            .held
            .filter(|_| self.agreed && self.outcome.is_none() && mutation.has(Mutant::KeepsDone));
        kept.map(|digest| Vote::Done { digest }).or(self.votes[me.index()])
    }
}

/// The mismatch of two calls, the lower rank first.
fn between(one: (Rank, Call), other: (Rank, Call)) -> Mismatch {
    let (lower, higher) = if one.0 < other.0 { (one, other) } else { (other, one) };
    Mismatch { lower, higher }
}
