//! Phase-1 merge: derives from the promises the value to propose, which is the newest installed
//! View, the outcome of its operations, and the members that share its history.

use crate::identity::MemberId;
use crate::protocol::{
    Accepted, Ballot, Closing, CommittedOp, FailedOp, Failure, History, LaneSet, Listed,
    MEMBERS_MAX, Mutant, Mutation, OPS_DECIDED_MAX, OpId, OpSet, Promise, Rank, RankSet, Status,
    ViewId,
};
use crate::wire::Encode;
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The result of the merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// The newest View that any member has installed, as far as the promises show.
    pub(super) tip: Option<ViewId>,
    /// The committed operations of the tip, in order.
    pub(super) committed: Vec<CommittedOp>,
    /// The operations of the tip that fail although members hold results of them, in order.
    pub(super) failed: Vec<FailedOp>,
    /// The ranks of the tip by whose reports this is decided, see [`View::decided_by`].
    ///
    /// [`View::decided_by`]: crate::protocol::View::decided_by
    pub(super) decided_by: RankSet,
    /// The winning history.
    pub(super) history: Option<History>,
    /// The members that are on this history.
    pub(super) in_sync: BTreeSet<MemberId>,
}

/// Merges the promises of all members of a proposal.
///
/// The parent of an accepted View counts as installed. Without that rule, two parts of a split
/// group could decide one operation differently once an acceptor's older record was overwritten.
pub(super) fn read(promises: &BTreeMap<MemberId, Promise>, mutation: Mutation) -> Recovery {
    let installed = promises.values().filter_map(|p| p.prev);
    let implied = promises.values().filter_map(|p| p.accepted.as_ref()?.parent);
    let tip = installed.chain(implied.filter(|_| !mutation.has(Mutant::TipOfInstalled))).max();
    let Decision { committed, failed, decided_by } =
        tip.map_or_else(Decision::default, |tip| decide(tip, promises, mutation));
    let effective: BTreeMap<MemberId, Option<History>> = promises
        .iter()
        .map(|(id, p)| (*id, history_after(*id, p, (tip, &committed, &failed), mutation)))
        .collect();
    let history = winner(&effective, mutation);
    let mut in_sync: BTreeSet<MemberId> =
        effective.into_iter().filter(|(_, h)| *h == history).map(|(id, _)| id).collect();
    let mut stateful = LaneSet::default();
    promises.values().for_each(|p| stateful.extend(&p.closing.lanes.stateful));
    let is_whole = |id: &MemberId| {
        promises.get(id).is_some_and(|promise| !lacks_a_state(promise, &committed, &stateful))
    };
    if in_sync.iter().any(is_whole) {
        in_sync.retain(is_whole);
    } else if let Some(source) = in_sync.iter().max_by_key(|id| {
        // No member has all states: take one of those that have the most.
        (promises.get(id).map_or(0, |p| p.closing.lanes.caught_up.len()), Reverse(**id))
    }) {
        in_sync = BTreeSet::from([*source]);
    }
    Recovery { tip, committed, failed, decided_by, history, in_sync }
}

/// Whether a member came into its View without the common history and has not synced all of these
/// lanes, see [`LaneStates`](crate::protocol::LaneStates).
pub(super) fn lacks_a_state(
    promise: &Promise,
    committed: &[CommittedOp],
    stateful: &LaneSet,
) -> bool {
    let mut caught_up = promise.closing.lanes.caught_up.clone();
    let is_synced = |c: &&CommittedOp| {
        let listed = listed(promise, c.op);
        listed.is_some_and(|l| l.is_sync && l.status == Status::Done(c.digest))
    };
    committed.iter().filter(is_synced).for_each(|c| caught_up.insert(c.op.lane));
    promise.is_behind && !promise.stateless && !stateful.is_within(&caught_up)
}

/// The decision about the tip's open operations. One that has a participant in `decided_by` and is
/// in neither list is aborted.
#[derive(Default)]
struct Decision {
    committed: Vec<CommittedOp>,
    failed: Vec<FailedOp>,
    decided_by: RankSet,
}

/// Decides each operation as the newest accepted successor of the tip does that had a report of one
/// of its participants, else anew; see [`verdict`]. An operation that one member knows as committed
/// is committed in both cases.
///
/// A successor without a report of any participant has not ended the operation: all of them may be
/// in the tip still, and commit it by their votes. One that had reports of other participants than
/// those here, and does not name an operation of some members, has aborted it or left it out
/// because all of those know it as committed, see [`verdict`]. If all participants here hold its
/// result it is indeterminate.
fn decide(tip: ViewId, promises: &BTreeMap<MemberId, Promise>, mutation: Mutation) -> Decision {
    let witnesses = witnesses(tip, promises, mutation);
    let accepted = promises.values().filter_map(|p| p.accepted.as_ref());
    let successors = accepted.filter(|a| succeeds(a, tip) && !mutation.has(Mutant::NoAdoption));
    let mut adopted: Vec<Adopted> = successors.map(Adopted::of).collect();
    adopted.sort_unstable_by_key(|adopted| Reverse(adopted.ballot));
    let heard = witnesses.iter().map(Witness::ranks);
    let decided_by =
        heard.chain(adopted.iter().map(|a| a.decided_by)).fold(RankSet::EMPTY, RankSet::union);
    let mut decision = Decision { decided_by, ..Decision::default() };
    let reported = witnesses.iter().filter_map(|w| w.closing).flat_map(|c| &c.ops).map(|l| l.op);
    let ops: BTreeSet<OpId> =
        reported.chain(adopted.iter().flat_map(|a| a.ends.keys().copied())).collect();
    let mut known = BTreeSet::new();
    for op in ops {
        let verdict = verdict(op, &witnesses, mutation);
        let participants = participants(op, mutation);
        let decides =
            |a: &&Adopted| a.decided_by.overlaps(participants) || mutation.has(Mutant::AdoptsAll);
        let end = match (verdict, adopted.iter().find(decides)) {
            (Some(Verdict::Known(digest)), _) => {
                known.insert(CommittedOp { op, digest });
                continue;
            }
            (verdict, Some(adopted)) => adopted.end_of(op, verdict, &witnesses, mutation),
            (verdict, None) => verdict,
        };
        match end {
            Some(Verdict::Committed(digest)) => decision.committed.push(CommittedOp { op, digest }),
            Some(Verdict::Failed(failure)) => decision.failed.push(FailedOp { op, failure }),
            Some(Verdict::Known(_)) | None => {}
        }
    }
    decision.with_known(&known)
}

/// The decision of an accepted successor of the tip.
struct Adopted {
    ballot: Ballot,
    /// The ranks of the tip by whose reports it was made.
    decided_by: RankSet,
    /// How operations end, if not as aborted.
    ends: BTreeMap<OpId, Verdict>,
}

impl Adopted {
    fn of(accepted: &Accepted) -> Adopted {
        let failed = accepted.failed.iter().map(|f| (f.op, Verdict::Failed(f.failure)));
        let committed = accepted.committed.iter().map(|c| (c.op, Verdict::Committed(c.digest)));
        Adopted {
            ballot: accepted.id.ballot,
            decided_by: accepted.decided_by,
            ends: failed.chain(committed).collect(),
        }
    }

    /// How it ends an operation for these witnesses, of which a participant had reported to its
    /// proposer. `anew` is the verdict by the witnesses alone.
    fn end_of(
        &self,
        op: OpId,
        anew: Option<Verdict>,
        witnesses: &[Witness<'_>],
        mutation: Mutation,
    ) -> Option<Verdict> {
        let named = self.ends.get(&op).copied();
        let participants = participants(op, mutation);
        let has_reported = |w: &Witness<'_>| w.ranks().both(participants).overlaps(self.decided_by);
        let is_unsaid = named.is_none()
            && !op.lane.is_of_all()
            && matches!(anew, Some(Verdict::Committed(_)))
            && !witnesses.iter().any(has_reported);
        let aborts = mutation.has(Mutant::SilenceAborts) || mutation.has(Mutant::AdoptsAll);
        if is_unsaid && !aborts {
            return Some(Verdict::Failed(Failure::Indeterminate));
        }
        named
    }
}

impl Decision {
    /// The same with the operations that some member knows as committed. Honest members never list
    /// more than a View has room for.
    fn with_known(self, known: &BTreeSet<CommittedOp>) -> Decision {
        let is_open = |op: OpId| !known.iter().any(|c| c.op == op);
        let decided_by = self.decided_by;
        let others = self.committed.into_iter().filter(|c| is_open(c.op));
        let committed = known.iter().copied().chain(others).take(OPS_DECIDED_MAX);
        let mut committed: Vec<CommittedOp> = committed.collect();
        committed.sort_unstable();
        let room = OPS_DECIDED_MAX - committed.len();
        let failed = self.failed.into_iter().filter(|f| is_open(f.op)).take(room);
        Decision { failed: failed.collect(), committed, decided_by }
    }
}

/// Whether a decision omits an operation that a member with this report knows as committed. No
/// honest proposer makes such a decision: see [`verdict`]. Those of some members may be omitted.
pub(super) fn omits_committed(committed: &[CommittedOp], closing: &Closing) -> bool {
    let named: BTreeSet<&CommittedOp> = committed.iter().collect();
    closing.ops.iter().any(|listed| match listed.status {
        Status::Committed(digest) if listed.op.lane.is_of_all() => {
            !named.contains(&CommittedOp { op: listed.op, digest })
        }
        _ => false,
    })
}

/// Testimony of one member of the tip about its operations there.
struct Witness<'a> {
    /// Its rank in the tip; without one it counts as a participant in every operation.
    rank: Option<Rank>,
    /// Its report, if it has installed the tip.
    closing: Option<&'a Closing>,
}

impl Witness<'_> {
    /// Its rank; without one, all.
    fn ranks(&self) -> RankSet {
        self.rank.map_or(RankSet::ALL, |rank| RankSet::EMPTY.with(rank))
    }
}

fn witnesses(
    tip: ViewId,
    promises: &BTreeMap<MemberId, Promise>,
    mutation: Mutation,
) -> Vec<Witness<'_>> {
    let installed = promises
        .values()
        .filter(|p| p.prev == Some(tip))
        .map(|p| Witness { rank: p.rank, closing: Some(&p.closing) });
    // A member that accepted the tip in this boot and has not installed it has begun none of its
    // operations. A restarted acceptor is no witness: its results are lost.
    let not_installed =
        |p: &&Promise| p.prev != Some(tip) && p.accepted.as_ref().is_some_and(|a| a.id == tip);
    let behind = promises
        .values()
        .filter(not_installed)
        .filter(|p| p.accepted_here.is_some() || mutation.has(Mutant::RestartedCounts));
    let behind = behind.map(|p| Witness { rank: p.accepted_here, closing: None });
    installed.chain(behind).collect()
}

fn succeeds(accepted: &Accepted, tip: ViewId) -> bool {
    accepted.parent == Some(tip) && accepted.id.ballot > tip.ballot
}

/// How an open operation ends, if not as aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A member says that it is committed.
    Known(u128),
    /// All hold the same result.
    Committed(u128),
    /// It fails for all that have not committed it.
    Failed(Failure),
}

/// How an operation ends for all, by the statuses that its participating witnesses report.
///
/// | statuses | verdict |
/// | --- | --- |
/// | one says `Committed` | known, as that one has it |
/// | the same, not all members take part, and no participant lists it as open | none |
/// | one does not list it | none |
/// | all hold it, with one digest | committed |
/// | all hold it, with different digests | disputed |
/// | any other | none |
///
/// An operation on no list was never begun, or is decided on every member. A member that says
/// `Committed` may have returned it to its program, so no View may abort it any more, not even if a
/// member says that it has accepted a View which aborts it. Among honest members all others hold
/// the same result. If one has voted differently to different members, another one may lack that
/// result: it ends there as indeterminate.
///
/// Messages and calls of sub-groups that all participating witnesses know as committed are left
/// out: a View has no room for all of them.
fn verdict(op: OpId, witnesses: &[Witness<'_>], mutation: Mutation) -> Option<Verdict> {
    let participants = participants(op, mutation);
    let takes_part = |w: &&Witness<'_>| w.ranks().overlaps(participants);
    let status = |w: &Witness<'_>| Some(w.closing?.ops.iter().find(|l| l.op == op)?.status);
    let said: Vec<(Option<Rank>, Option<Status>)> =
        witnesses.iter().filter(takes_part).map(|w| (w.rank, status(w))).collect();
    let listed: Vec<Status> = said.iter().filter_map(|(_, status)| *status).collect();
    let is_committed = |status: &Status| matches!(status, Status::Committed(_));
    if let Some(digest) = most_held(listed.iter().filter(|s| is_committed(s)), &listed) {
        let is_omitted = !op.lane.is_of_all() && listed.iter().all(is_committed);
        return Some(Verdict::Known(digest)).filter(|_| !is_omitted);
    }
    if listed.len() < said.len() || mutation.has(Mutant::AnyoneCommitted) {
        return None;
    }
    let digests: Vec<u128> = listed.iter().map(digest_of).collect::<Option<_>>()?;
    let common = most_held(listed.iter(), &listed)?;
    if digests.iter().all(|digest| *digest == common) {
        return Some(Verdict::Committed(common));
    }
    let odd = || said.iter().zip(&digests).filter(|(_, digest)| **digest != common);
    let has_majority = 2 * odd().count() < digests.len();
    let odd = odd().filter_map(|((rank, _), _)| *rank).min().filter(|_| has_majority);
    Some(Verdict::Failed(Failure::Disputed(odd)))
}

/// The ranks that take part in an operation.
fn participants(op: OpId, mutation: Mutation) -> RankSet {
    if mutation.has(Mutant::AllDecideGroups) {
        return RankSet::ALL;
    }
    op.lane.participants(MEMBERS_MAX)
}

/// Of the results that some report, the one that most of `all` hold; among equals the lowest.
fn most_held<'a>(some: impl Iterator<Item = &'a Status>, all: &[Status]) -> Option<u128> {
    let holders = |digest| all.iter().filter(|status| digest_of(status) == Some(digest)).count();
    some.filter_map(digest_of).max_by_key(|digest| (holders(*digest), Reverse(*digest)))
}

fn digest_of(status: &Status) -> Option<u128> {
    if let Status::Done(digest) | Status::Committed(digest) = status { Some(*digest) } else { None }
}

fn listed(promise: &Promise, op: OpId) -> Option<&Listed> {
    promise.closing.ops.iter().find(|l| l.op == op)
}

/// A member's history once the operations of the tip are decided. `tip` is the newest View,
/// `committed` and `failed` are its operations that end so.
///
/// | the member | its history |
/// | --- | --- |
/// | has accepted the tip and will install it late | `if_installed` |
/// | has installed no View | its base |
/// | was cut off | its own, which no other member shares |
/// | is left behind by the tip with open operations | its own, which no other member shares |
/// | lacks a committed message or call of a sub-group | its own, which no other member shares |
/// | holds an operation of the tip that is indeterminate | its own, which no other member shares |
/// | has seen no operation commit in its View | its base |
/// | else | the View's common history, advanced by the operations that it has seen commit |
pub(super) fn history_after(
    id: MemberId,
    promise: &Promise,
    (tip, committed, failed): (Option<ViewId>, &[CommittedOp], &[FailedOp]),
    mutation: Mutation,
) -> Option<History> {
    let comes_late =
        promise.is_late && promise.accepted.as_ref().is_some_and(|a| Some(a.id) == tip);
    if comes_late && !mutation.has(Mutant::LateIsBehind) {
        return promise.if_installed;
    }
    let Some(prev) = promise.prev else { return promise.base };
    if promise.cut_off {
        return Some(cut_off(id, prev, promise));
    }
    let open = |l: &&Listed| matches!(l.status, Status::Done(_) | Status::NotDone);
    let moved_on = Some(prev) == tip;
    if !moved_on && promise.closing.ops.iter().any(|l| open(&l)) {
        return Some(cut_off(id, prev, promise));
    }
    let mut total = promise.closing.committed;
    if moved_on {
        let lacks_one = committed.iter().any(|c| !c.op.lane.is_of_all() && lacks(promise, c));
        if lacks_one || failed.iter().any(|f| is_in_doubt(promise, f)) {
            return Some(cut_off(id, prev, promise));
        }
        total.extend(newly_committed(promise, committed, mutation));
    }
    let base = if mutation.has(Mutant::OwnBase) { promise.base } else { promise.common };
    if total.is_empty() { promise.base } else { Some(advance(base, prev, total)) }
}

/// The operations of the tip that are committed now and that this member holds as `Done`. It has
/// already counted a committed operation that it does not list: no member drops an operation from
/// its list before all have decided it.
fn newly_committed(
    promise: &Promise,
    committed: &[CommittedOp],
    mutation: Mutation,
) -> impl Iterator<Item = CommittedOp> {
    // Operations that only some members see are not part of a history: messages, and calls of
    // sub-groups.
    let common = committed.iter().filter(|c| c.op.lane.is_of_all());
    let has_now =
        |c: &CommittedOp| listed(promise, c.op).is_some_and(|l| l.status == Status::Done(c.digest));
    common
        .filter(move |c| has_now(c) || lacks(promise, c) && mutation.has(Mutant::AdoptedCounts))
        .copied()
}

/// Whether a member does not hold a committed result. This happens when an accepted successor that
/// did not include the member has committed it.
fn lacks(promise: &Promise, committed: &CommittedOp) -> bool {
    listed(promise, committed.op).is_some_and(|l| match l.status {
        Status::Done(digest) => digest != committed.digest,
        Status::NotDone | Status::Aborted => true,
        Status::Committed(_) => false,
    })
}

/// Whether an operation that this member has not ended is indeterminate.
fn is_in_doubt(promise: &Promise, failed: &FailedOp) -> bool {
    let is_open = |l: &Listed| matches!(l.status, Status::Done(_) | Status::NotDone);
    failed.failure == Failure::Indeterminate && listed(promise, failed.op).is_some_and(is_open)
}

/// The history after `ops` were committed in `view`.
///
/// Operations committed by votes are committed in every part of a split View. Of the open ones, two
/// parts may commit different subsets, so the hash covers which operations they are. It also covers
/// the base, because members of one View may come from different histories.
pub(super) fn advance(base: Option<History>, view: ViewId, ops: OpSet) -> History {
    let mut hash = Sha256::new();
    hash.update(b"potluck/1/lineage");
    hash.update(view.digest.0);
    let mut more = Vec::new();
    base.encode(&mut more);
    ops.encode(&mut more);
    hash.update(more);
    History {
        ops: base.map_or(0, |h| h.ops).saturating_add(ops.len()),
        lineage: hash.finalize().into(),
    }
}

/// The history of a member whose operations stay indeterminate: a lineage of its own, which no
/// other member shares.
fn cut_off(id: MemberId, view: ViewId, promise: &Promise) -> History {
    let mut hash = Sha256::new();
    hash.update(b"potluck/1/cut off");
    hash.update(view.digest.0);
    hash.update(id.node.0);
    hash.update(id.boot.0.to_le_bytes());
    let committed = promise.closing.committed;
    let base = if committed.is_empty() { promise.base } else { promise.common };
    let ops = base.map_or(0, |h| h.ops).saturating_add(committed.len());
    History { ops, lineage: hash.finalize().into() }
}

/// The longest history wins, then the one with more members, then the smaller lineage.
fn winner(effective: &BTreeMap<MemberId, Option<History>>, mutation: Mutation) -> Option<History> {
    let mut followers: BTreeMap<Option<History>, usize> = BTreeMap::new();
    for history in effective.values() {
        *followers.entry(*history).or_default() += 1;
    }
    let length = |h: &Option<History>| {
        h.map_or(0, |h| if mutation.has(Mutant::MostMembersWin) { 0 } else { h.ops })
    };
    let best =
        followers.into_iter().max_by_key(|(h, n)| (length(h), *n, Reverse(h.map(|h| h.lineage))));
    best.and_then(|(history, _)| history)
}

#[cfg(test)]
pub(super) mod tests;
