//! Phase-1 merge: derives from the promises the value to propose, which is the newest installed
//! View, the outcome of its operations, and the members that share its history.

use crate::identity::MemberId;
use crate::protocol::{
    Accepted, Ballot, Closing, CommittedOp, Defect, FailedOp, Failure, History, LaneSet, Listed,
    MEMBERS_MAX, OPS_DECIDED_MAX, OpId, OpSet, Promise, Rank, RankSet, Seeded, Status, ViewId,
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
pub(super) fn read(promises: &BTreeMap<MemberId, Promise>, seeded: Seeded) -> Recovery {
    let installed = promises.values().filter_map(|p| p.prev);
    let implied = promises.values().filter_map(|p| p.accepted.as_ref()?.parent);
    let tip = installed.chain(implied.filter(|_| !seeded.has(Defect::TipOfInstalled))).max();
    let Decision { committed, failed, decided_by } =
        tip.map_or_else(Decision::default, |tip| decide(tip, promises, seeded));
    let effective: BTreeMap<MemberId, Option<History>> = promises
        .iter()
        .map(|(id, p)| (*id, history_after(*id, p, (tip, &committed, &failed), seeded)))
        .collect();
    let history = winner(&effective, seeded);
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

/// The decision about the tip's open operations. One that is in neither list is aborted.
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
fn decide(tip: ViewId, promises: &BTreeMap<MemberId, Promise>, seeded: Seeded) -> Decision {
    let witnesses = witnesses(tip, promises, seeded);
    let accepted = promises.values().filter_map(|p| p.accepted.as_ref());
    let successors = accepted.filter(|a| succeeds(a, tip) && !seeded.has(Defect::NoAdoption));
    let mut adopted: Vec<Adopted> = successors.map(Adopted::of).collect();
    adopted.sort_unstable_by_key(|adopted| Reverse(adopted.ballot));
    let heard = witnesses.iter().map(Witness::ranks);
    let decided_by =
        heard.chain(adopted.iter().map(|a| a.decided_by)).fold(0, |all, one| all | one);
    let mut decision = Decision { decided_by: RankSet::of_bits(decided_by), ..Decision::default() };
    let reported = witnesses.iter().filter_map(|w| w.closing).flat_map(|c| &c.ops).map(|l| l.op);
    let ops: BTreeSet<OpId> =
        reported.chain(adopted.iter().flat_map(|a| a.ends.keys().copied())).collect();
    let mut known = BTreeSet::new();
    for op in ops {
        let verdict = verdict(op, &witnesses, seeded);
        let participants = participants(op, seeded);
        let decides =
            |a: &&Adopted| a.decided_by & participants != 0 || seeded.has(Defect::AdoptsAll);
        let end = match (verdict, adopted.iter().find(decides)) {
            (Some(Verdict::Known(digest)), _) => {
                known.insert(CommittedOp { op, digest });
                continue;
            }
            (verdict, Some(adopted)) => adopted.end_of(op, verdict, &witnesses, seeded),
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
    decided_by: u16,
    /// How operations end, if not as aborted.
    ends: BTreeMap<OpId, Verdict>,
}

impl Adopted {
    fn of(accepted: &Accepted) -> Adopted {
        let failed = accepted.failed.iter().map(|f| (f.op, Verdict::Failed(f.failure)));
        let committed = accepted.committed.iter().map(|c| (c.op, Verdict::Committed(c.digest)));
        Adopted {
            ballot: accepted.id.ballot,
            decided_by: accepted.decided_by.bits(),
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
        seeded: Seeded,
    ) -> Option<Verdict> {
        let named = self.ends.get(&op).copied();
        let participants = participants(op, seeded);
        let has_reported = |w: &Witness<'_>| w.ranks() & participants & self.decided_by != 0;
        let is_unsaid = named.is_none()
            && !op.lane.is_of_all()
            && matches!(anew, Some(Verdict::Committed(_)))
            && !witnesses.iter().any(has_reported);
        let aborts = seeded.has(Defect::SilenceAborts) || seeded.has(Defect::AdoptsAll);
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
    /// Its rank as bits.
    fn ranks(&self) -> u16 {
        self.rank.map_or(u16::MAX, |rank| RankSet::EMPTY.with(rank).bits())
    }
}

fn witnesses(
    tip: ViewId,
    promises: &BTreeMap<MemberId, Promise>,
    seeded: Seeded,
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
        .filter(|p| p.accepted_here.is_some() || seeded.has(Defect::RestartedCounts));
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
fn verdict(op: OpId, witnesses: &[Witness<'_>], seeded: Seeded) -> Option<Verdict> {
    let participants = participants(op, seeded);
    let takes_part = |w: &&Witness<'_>| w.ranks() & participants != 0;
    let status = |w: &Witness<'_>| Some(w.closing?.ops.iter().find(|l| l.op == op)?.status);
    let said: Vec<(Option<Rank>, Option<Status>)> =
        witnesses.iter().filter(takes_part).map(|w| (w.rank, status(w))).collect();
    let listed: Vec<Status> = said.iter().filter_map(|(_, status)| *status).collect();
    let is_committed = |status: &Status| matches!(status, Status::Committed(_));
    if let Some(digest) = most_held(listed.iter().filter(|s| is_committed(s)), &listed) {
        let is_omitted = !op.lane.is_of_all() && listed.iter().all(is_committed);
        return Some(Verdict::Known(digest)).filter(|_| !is_omitted);
    }
    if listed.len() < said.len() || seeded.has(Defect::AnyoneCommitted) {
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

/// The ranks that take part in an operation, as bits.
fn participants(op: OpId, seeded: Seeded) -> u16 {
    if seeded.has(Defect::AllDecideGroups) {
        return u16::MAX;
    }
    // No View has more ranks than bits.
    op.lane.participants(MEMBERS_MAX) as u16
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
/// | lacks what some members have committed in the tip | its own, which no other member shares |
/// | holds an operation of the tip that is indeterminate | its own, which no other member shares |
/// | has seen no operation commit in its View | its base |
/// | else | the View's common history, advanced by what it has seen commit |
pub(super) fn history_after(
    id: MemberId,
    promise: &Promise,
    (tip, committed, failed): (Option<ViewId>, &[CommittedOp], &[FailedOp]),
    seeded: Seeded,
) -> Option<History> {
    let comes_late =
        promise.is_late && promise.accepted.as_ref().is_some_and(|a| Some(a.id) == tip);
    if comes_late && !seeded.has(Defect::LateIsBehind) {
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
        total.extend(newly_committed(promise, committed, seeded));
    }
    let base = if seeded.has(Defect::OwnBase) { promise.base } else { promise.common };
    if total.is_empty() { promise.base } else { Some(advance(base, prev, total)) }
}

/// The operations of the tip that are committed now and that this member holds as `Done`. It has
/// already counted a committed operation that it does not list: no member drops an operation from
/// its list before all have decided it.
fn newly_committed(
    promise: &Promise,
    committed: &[CommittedOp],
    seeded: Seeded,
) -> impl Iterator<Item = CommittedOp> {
    // What only some members see is not part of a history: messages, and calls of sub-groups.
    let common = committed.iter().filter(|c| c.op.lane.is_of_all());
    let has_now =
        |c: &CommittedOp| listed(promise, c.op).is_some_and(|l| l.status == Status::Done(c.digest));
    common
        .filter(move |c| has_now(c) || lacks(promise, c) && seeded.has(Defect::AdoptedCounts))
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
fn winner(effective: &BTreeMap<MemberId, Option<History>>, seeded: Seeded) -> Option<History> {
    let mut followers: BTreeMap<Option<History>, usize> = BTreeMap::new();
    for history in effective.values() {
        *followers.entry(*history).or_default() += 1;
    }
    let length = |h: &Option<History>| {
        h.map_or(0, |h| if seeded.has(Defect::MostMembersWin) { 0 } else { h.ops })
    };
    let best =
        followers.into_iter().max_by_key(|(h, n)| (length(h), *n, Reverse(h.map(|h| h.lineage))));
    best.and_then(|(history, _)| history)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::identity::Name;
    use crate::protocol::{
        Ballot, Engines, GroupRanks, Lane, LaneStates, Sizes, View, member_id, view_of,
    };

    const OP: OpId = OpId { lane: Lane::MAIN, number: 0 };

    fn read(promises: &BTreeMap<MemberId, Promise>) -> Recovery {
        super::read(promises, Seeded::NONE)
    }

    fn with(digest: u128) -> CommittedOp {
        CommittedOp { op: OP, digest }
    }

    /// The promise of a node without a past.
    pub(in super::super) fn fresh() -> Promise {
        Promise {
            cut_off: false,
            prev: None,
            rank: None,
            base: None,
            common: None,
            closing: Closing::default(),
            accepted: None,
            accepted_here: None,
            is_late: false,
            if_installed: None,
            is_behind: false,
            name: Name::from_lossy("x"),
            stateless: false,
            engines: Engines::NATIVE,
            begun: false,
            sizes: Sizes::default(),
        }
    }

    fn in_view(view: &View, status: Option<Status>) -> Promise {
        lists(view, status.map(|status| (OP, status)))
    }

    /// A member of the View that lists these operations.
    fn lists(view: &View, ops: impl IntoIterator<Item = (OpId, Status)>) -> Promise {
        let listed = |(op, status)| Listed { op, status, is_sync: false };
        let ops = ops.into_iter().map(listed).collect();
        Promise { prev: Some(view.id()), closing: Closing { ops, ..Closing::default() }, ..fresh() }
    }

    /// The acceptance of a successor of this View, which has committed these operations.
    fn successor(view: &View, committed: Vec<CommittedOp>) -> Accepted {
        let later = Ballot { round: 5, ..view.ballot };
        let id = ViewId { ballot: later, digest: view.digest() };
        let decided_by = RankSet::of_bits(u16::MAX);
        Accepted { id, parent: Some(view.id()), committed, failed: vec![], decided_by }
    }

    fn all(promises: impl IntoIterator<Item = Promise>) -> BTreeMap<MemberId, Promise> {
        promises.into_iter().enumerate().map(|(i, p)| (member_id(i as u8 + 1), p)).collect()
    }

    #[test]
    fn members_without_a_past_agree() {
        let recovery = read(&all([fresh(), fresh()]));
        assert_eq!((recovery.tip, recovery.history, recovery.in_sync.len()), (None, None, 2));
    }

    #[test]
    fn what_all_hold_is_committed_and_what_one_lacks_is_not() {
        let view = view_of(3);
        let done = in_view(&view, Some(Status::Done(1)));
        assert_eq!(read(&all([done.clone(), done.clone()])).committed, [with(1)]);
        for lacking in [None, Some(Status::NotDone), Some(Status::Aborted), Some(Status::Done(2))] {
            assert!(
                read(&all([done.clone(), in_view(&view, lacking)])).committed.is_empty(),
                "{lacking:?}"
            );
        }
        assert_eq!(
            read(&all([done, in_view(&view, Some(Status::Committed(1)))])).committed,
            [with(1)]
        );
    }

    /// The decision about three members of one View that report these statuses.
    fn decided(statuses: [Status; 3]) -> (Vec<CommittedOp>, Vec<FailedOp>) {
        let view = view_of(3);
        let of =
            |(rank, status)| Promise { rank: Some(Rank(rank)), ..in_view(&view, Some(status)) };
        let Recovery { committed, failed, .. } = read(&all((0..).zip(statuses).map(of)));
        (committed, failed)
    }

    #[test]
    fn different_results_fail_for_all_and_a_majority_names_the_odd_one() {
        let disputed = |odd: Option<u8>| {
            let failure = Failure::Disputed(odd.map(Rank));
            (vec![], vec![FailedOp { op: OP, failure }])
        };
        let [a, b, c] = [1, 2, 3].map(Status::Done);
        assert_eq!(decided([a, a, b]), disputed(Some(2)));
        assert_eq!(decided([b, a, a]), disputed(Some(0)));
        assert_eq!(decided([a, b, c]), disputed(None));
        // A member without a result disputes none.
        for lacks in [Status::NotDone, Status::Aborted] {
            assert_eq!(decided([a, b, lacks]), (vec![], vec![]));
        }
    }

    #[test]
    fn what_one_member_has_committed_stays_committed_whatever_the_others_say() {
        let committed = |digest| (vec![with(digest)], vec![]);
        let (known, done) = (Status::Committed(1), Status::Done(1));
        for other in [Status::NotDone, Status::Aborted, done, Status::Done(2)] {
            assert_eq!(decided([known, done, other]), committed(1));
            assert_eq!(decided([other, known, Status::Done(2)]), committed(1));
        }
        // Of members that contradict each other the majority is right.
        let other = Status::Committed(2);
        assert_eq!(decided([known, other, Status::NotDone]), committed(1));
        assert_eq!(decided([known, other, Status::Done(2)]), committed(2));
        assert_eq!(decided([known, other, other]), committed(2));
    }

    #[test]
    fn an_accepted_successor_has_already_decided() {
        let view = view_of(3);
        let accepted = Some(successor(&view, vec![]));
        let done = in_view(&view, Some(Status::Done(1)));
        let acceptor = Promise { accepted, accepted_here: Some(Rank(1)), ..done.clone() };
        assert!(read(&all([done, acceptor.clone()])).committed.is_empty());
        // The acceptor lies: a member has returned the result already.
        let known = in_view(&view, Some(Status::Committed(1)));
        assert_eq!(read(&all([known, acceptor])).committed, [with(1)]);
    }

    #[test]
    fn a_view_has_room_for_what_an_honest_member_knows_beside_a_list_that_a_member_invented() {
        let view = view_of(3);
        let invented =
            |number| CommittedOp { op: OpId { lane: Lane(u64::MAX), number }, digest: 9 };
        let accepted = successor(&view, (0..OPS_DECIDED_MAX as u64).map(invented).collect());
        let liar = Promise { accepted: Some(accepted), ..in_view(&view, None) };
        let recovery = read(&all([in_view(&view, Some(Status::Committed(1))), liar]));
        assert_eq!(recovery.committed.len(), OPS_DECIDED_MAX);
        assert!(recovery.committed.contains(&with(1)));
    }

    /// Two of three members were about to go on with a result that both held. The third, which
    /// lacked it, comes back before they have.
    #[test]
    fn who_was_not_there_does_not_share_what_a_successor_has_committed() {
        let view = view_of(3);
        let accepted = Some(successor(&view, vec![with(1)]));
        let done = in_view(&view, Some(Status::Done(1)));
        let acceptor = Promise { accepted, accepted_here: Some(Rank(0)), ..done.clone() };
        for lacking in [Status::NotDone, Status::Aborted, Status::Done(2)] {
            let recovery =
                read(&all([acceptor.clone(), done.clone(), in_view(&view, Some(lacking))]));
            assert_eq!(recovery.committed, [with(1)], "{lacking:?}");
            assert_eq!(
                recovery.in_sync,
                BTreeSet::from([member_id(1), member_id(2)]),
                "{lacking:?}"
            );
        }
    }

    /// A message from rank 0 to rank 2.
    fn message() -> OpId {
        OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 }
    }

    /// What this rank promises about the message.
    fn end(view: &View, rank: u8, status: Option<Status>) -> Promise {
        Promise { rank: Some(Rank(rank)), ..lists(view, status.map(|status| (message(), status))) }
    }

    /// Merges the promises of three members about the message; rank 1 takes no part in it.
    fn of_a_message(view: &View, from: Option<Status>, to: Option<Status>) -> Recovery {
        read(&all((0..).zip([from, None, to]).map(|(rank, status)| end(view, rank, status))))
    }

    #[test]
    fn a_message_is_decided_by_its_ends() {
        let view = view_of(3);
        let done = Some(Status::Done(0));
        let recovery = of_a_message(&view, done, done);
        assert_eq!(recovery.committed.len(), 1);
        assert_eq!(
            (recovery.history, recovery.in_sync.len()),
            (None, 3),
            "it is no part of a history"
        );
        for lacking in [None, Some(Status::NotDone), Some(Status::Aborted)] {
            assert!(of_a_message(&view, done, lacking).committed.is_empty(), "{lacking:?}");
        }
        assert_eq!(of_a_message(&view, done, Some(Status::Committed(0))).committed.len(), 1);
        // Both ends know it already, and a View has no room for all such messages.
        assert!(
            of_a_message(&view, Some(Status::Committed(1)), Some(Status::Committed(1)))
                .committed
                .is_empty()
        );
    }

    /// The sender committed it by the receiver's vote and was then about to go on without the
    /// receiver.
    #[test]
    fn a_message_that_one_end_has_committed_is_not_aborted_at_the_other() {
        let view = view_of(3);
        let sender = Promise {
            accepted: Some(successor(&view, vec![])),
            accepted_here: Some(Rank(0)),
            ..end(&view, 0, Some(Status::Committed(0)))
        };
        let recovery = read(&all([sender, end(&view, 2, Some(Status::Done(0)))]));
        assert_eq!(
            (recovery.committed, recovery.in_sync.len()),
            (vec![CommittedOp { op: message(), digest: 0 }], 2)
        );
    }

    /// The successor commits the message. The receiver lacks it and needs a `sync`.
    #[test]
    fn the_end_that_lacks_a_message_is_out_of_sync() {
        let view = view_of(3);
        let committed = vec![CommittedOp { op: message(), digest: 0 }];
        let other = Promise {
            accepted: Some(successor(&view, committed)),
            accepted_here: Some(Rank(1)),
            ..end(&view, 1, None)
        };
        let recovery = read(&all([other, end(&view, 2, Some(Status::NotDone))]));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(1)]));
    }

    /// Rank 1 has accepted a next View of members of which none takes part in the message. Its ends
    /// were in this View still, and may have committed it.
    #[test]
    fn a_successor_without_its_participants_decides_no_operation_of_some() {
        let view = view_of(3);
        let accepted = |ranks: &[u8]| {
            let decided_by = ranks.iter().copied().map(Rank).collect();
            Some(Accepted { decided_by, ..successor(&view, vec![]) })
        };
        let rest = |ranks: &[u8]| Promise { accepted: accepted(ranks), ..end(&view, 1, None) };
        let receiver = |status| end(&view, 2, Some(status));
        let committed = |recovery: Recovery| recovery.committed.len();
        let done = Status::Done(0);
        let open = read(&all([receiver(done), rest(&[1])]));
        assert_eq!(open.decided_by.iter().collect::<Vec<_>>(), [Rank(1), Rank(2)]);
        assert_eq!(committed(open), 1);
        // The sender has reported to the successor, or the receiver has: it is not decided anew.
        for ranks in [&[0, 1][..], &[1, 2], &[2]] {
            assert_eq!(committed(read(&all([receiver(done), rest(ranks)]))), 0, "{ranks:?}");
        }
        assert_eq!(committed(read(&all([receiver(Status::NotDone), rest(&[1])]))), 0);
        // An operation of all is over, whoever has reported.
        let with_op = |promise: Promise| {
            let listed = Listed { op: OP, status: done, is_sync: false };
            let ops = [promise.closing.ops, vec![listed]].concat();
            Promise { closing: Closing { ops, ..Closing::default() }, ..promise }
        };
        let both = read(&all([with_op(receiver(done)), with_op(rest(&[1]))]));
        assert_eq!(both.committed, [CommittedOp { op: message(), digest: 0 }]);
        // Of two successors the newest that decides it counts, not the newest of all.
        let newer = accepted(&[1]).map(|newest| {
            let ballot = Ballot { round: 6, ..newest.id.ballot };
            Accepted { id: ViewId { ballot, ..newest.id }, ..newest }
        });
        let newer = Promise { accepted: newer, ..end(&view, 1, None) };
        let older = Promise { accepted: accepted(&[0]), ..receiver(done) };
        assert_eq!(committed(read(&all([newer, older]))), 0);
    }

    /// Rank 1 has accepted a next View of itself and the sender, which says nothing of the message:
    /// the sender lacked it, or knew that it is committed.
    #[test]
    fn a_result_is_indeterminate_if_the_other_end_has_reported_and_gone() {
        let view = view_of(3);
        let done = Status::Done(0);
        let receiver = |status| end(&view, 2, Some(status));
        let rest = |accepted: &Accepted| Promise {
            accepted: Some(accepted.clone()),
            accepted_here: Some(Rank(1)),
            ..end(&view, 1, None)
        };
        let of = |ranks: &[u8]| Accepted {
            decided_by: ranks.iter().copied().map(Rank).collect(),
            ..successor(&view, vec![])
        };
        let failure = Failure::Indeterminate;
        let in_doubt = vec![FailedOp { op: message(), failure }];
        let doubted = read(&all([rest(&of(&[0, 1])), receiver(done)]));
        assert_eq!((doubted.committed, doubted.failed), (vec![], in_doubt.clone()));
        assert_eq!(doubted.in_sync, BTreeSet::from([member_id(1)]), "the receiver needs a sync");
        // A View adopts that, too.
        let next = Accepted { failed: in_doubt.clone(), ..of(&[0, 1, 2]) };
        for status in [done, Status::NotDone] {
            assert_eq!(read(&all([rest(&next), receiver(status)])).failed, in_doubt, "{status:?}");
        }
        // Without a result there is no doubt.
        for status in [Status::NotDone, Status::Aborted] {
            assert_eq!(read(&all([rest(&of(&[0, 1])), receiver(status)])).failed, vec![]);
        }
        // The receiver has reported as well: its result would have been named.
        assert_eq!(read(&all([rest(&of(&[0, 1, 2])), receiver(done)])).failed, vec![]);
        // The sender is there, and knows it or lacks it.
        for (status, is_committed) in [(Status::Committed(0), true), (Status::NotDone, false)] {
            let sender = end(&view, 0, Some(status));
            let known = read(&all([rest(&of(&[0, 1])), receiver(done), sender]));
            assert_eq!((known.committed.len() == 1, known.failed), (is_committed, vec![]));
        }
    }

    /// An operation of the ranks 0, 2 and 3 of four.
    fn of_group() -> OpId {
        let group = [0, 2, 3].map(Rank).into_iter().collect();
        OpId { lane: Lane::of_group(GroupRanks::of(group), 5, 4), number: 0 }
    }

    /// Merges the promises of these ranks of four about the operation of the group; rank 1 takes no
    /// part in it.
    fn of_a_group(said: &[(u8, Option<Status>)]) -> Recovery {
        let view = view_of(4);
        let promises = said.iter().map(|(rank, status)| Promise {
            rank: Some(Rank(*rank)),
            ..lists(&view, status.map(|status| (of_group(), status)))
        });
        read(&said.iter().map(|(rank, _)| member_id(rank + 1)).zip(promises).collect())
    }

    #[test]
    fn an_operation_of_a_group_is_decided_by_its_survivors() {
        let (done, committed) = (Some(Status::Done(7)), Some(Status::Committed(7)));
        let recovery = of_a_group(&[(0, done), (1, None), (2, done), (3, done)]);
        assert_eq!(recovery.committed, [CommittedOp { op: of_group(), digest: 7 }]);
        assert_eq!((recovery.history, recovery.in_sync.len()), (None, 4), "no part of a history");
        // Rank 3 is gone, with or without rank 1.
        for others in [&[(1, None)][..], &[]] {
            let said = [others, &[(0, done), (2, done)]].concat();
            assert_eq!(of_a_group(&said).committed.len(), 1, "{others:?}");
        }
        for lacking in [None, Some(Status::NotDone), Some(Status::Aborted)] {
            let recovery = of_a_group(&[(0, done), (1, None), (2, lacking)]);
            assert!(recovery.committed.is_empty(), "{lacking:?}");
        }
        let disputed = of_a_group(&[(0, done), (1, None), (2, Some(Status::Done(8))), (3, done)]);
        let failure = Failure::Disputed(Some(Rank(2)));
        assert_eq!(disputed.failed, [FailedOp { op: of_group(), failure }]);
        // A member that has committed it decides for the others; if all have, nothing is said.
        let known = of_a_group(&[(0, committed), (1, None), (2, done)]);
        assert_eq!((known.committed.len(), known.in_sync.len()), (1, 3));
        assert!(of_a_group(&[(0, committed), (1, None), (2, committed)]).committed.is_empty());
        // One that lacks it is out of sync.
        let lacks = of_a_group(&[(0, committed), (1, None), (2, Some(Status::NotDone))]);
        assert_eq!(lacks.in_sync, BTreeSet::from([member_id(1), member_id(2)]));
    }

    /// A member that has accepted the View as this rank, and has not installed it.
    fn behind(view: &View, rank: u8) -> Promise {
        let accepted = Accepted { parent: None, id: view.id(), ..successor(view, vec![]) };
        Promise { accepted: Some(accepted), accepted_here: Some(Rank(rank)), ..fresh() }
    }

    #[test]
    fn a_message_to_a_member_that_has_not_installed_the_view_has_not_arrived() {
        let view = view_of(3);
        let sender = end(&view, 0, Some(Status::Done(0)));
        assert!(read(&all([sender.clone(), behind(&view, 2)])).committed.is_empty());
        assert_eq!(
            read(&all([sender, behind(&view, 1)])).committed,
            [CommittedOp { op: message(), digest: 0 }],
            "the other end is gone, and this one is not it"
        );
    }

    #[test]
    fn a_member_that_accepted_the_tip_and_never_installed_it_holds_nothing() {
        let view = view_of(3);
        let done = in_view(&view, Some(Status::Done(1)));
        let behind = behind(&view, 1);
        assert!(read(&all([done.clone(), behind.clone()])).committed.is_empty());
        let restarted = Promise { accepted_here: None, ..behind };
        assert_eq!(read(&all([done, restarted])).committed, [with(1)]);
    }

    #[test]
    fn the_parent_of_an_accepted_view_was_installed() {
        let old = view_of(3);
        let mut newer = view_of(3);
        newer.ballot.round = 4;
        let last = ViewId { ballot: Ballot { round: 9, ..newer.ballot }, digest: newer.digest() };
        let accepted = Accepted { id: last, parent: Some(newer.id()), ..successor(&newer, vec![]) };
        let acceptor = Promise { accepted: Some(accepted), ..in_view(&old, None) };
        assert_eq!(read(&all([in_view(&old, None), acceptor])).tip, Some(newer.id()));
    }

    #[test]
    fn a_joiner_does_not_share_the_history_of_veterans() {
        let view = view_of(2);
        let veteran = Promise {
            closing: Closing { committed: ops(4), ..Closing::default() },
            ..in_view(&view, None)
        };
        let recovery = read(&all([veteran.clone(), veteran, fresh()]));
        assert_eq!(recovery.history.map(|h| h.ops), Some(4));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(1), member_id(2)]));
    }

    /// All remaining members joined out of sync, and a `sync` from a lost member has brought them
    /// the state.
    #[test]
    fn whoever_was_brought_in_step_is_on_the_history_of_the_view() {
        let view = view_of(3);
        let common = History { ops: 36, lineage: [1; 32] };
        let mut brought = in_view(&view, Some(Status::Done(1)));
        brought.common = Some(common);
        let came_with = [None, Some(History { ops: 33, lineage: [2; 32] })];
        let recovery = read(&all(came_with.map(|base| Promise { base, ..brought.clone() })));
        assert_eq!((recovery.history.map(|h| h.ops), recovery.in_sync.len()), (Some(37), 2));
        // Without that sync each has the state it joined with.
        brought.closing.ops[0].status = Status::NotDone;
        let recovery = read(&all(came_with.map(|base| Promise { base, ..brought.clone() })));
        assert_eq!((recovery.history.map(|h| h.ops), recovery.in_sync.len()), (Some(33), 1));
    }

    #[test]
    fn members_that_move_on_together_agree_though_one_knew_less() {
        let view = view_of(2);
        let knows = Promise {
            closing: Closing {
                ops: vec![Listed { op: OP, status: Status::Committed(1), is_sync: false }],
                committed: ops(1),
                ..Closing::default()
            },
            ..in_view(&view, None)
        };
        let recovery = read(&all([knows, in_view(&view, Some(Status::Done(1)))]));
        assert_eq!((recovery.committed.len(), recovery.in_sync.len()), (1, 2));
        assert_eq!(recovery.history.map(|h| h.ops), Some(1));
    }

    /// The first `count` operations of the main lane.
    fn ops(count: u64) -> OpSet {
        let mut set = OpSet::default();
        set.extend(
            (0..count)
                .map(|number| CommittedOp { op: OpId { lane: Lane::MAIN, number }, digest: 1 }),
        );
        set
    }

    /// Both lanes had an operation open when the group was split.
    #[test]
    fn parts_that_committed_different_operations_do_not_share_a_history() {
        let view = view_of(4);
        let other = OpId { lane: Lane::tagged(7), number: 0 };
        let half = |done: OpId, open: OpId| {
            let mut ops = [(done, Status::Done(1)), (open, Status::NotDone)];
            ops.sort_by_key(|(op, _)| *op);
            let promise = lists(&view, ops);
            read(&all([promise.clone(), promise]))
        };
        let (one, two) = (half(OP, other), half(other, OP));
        assert_eq!(
            (one.committed, two.committed),
            (vec![with(1)], vec![CommittedOp { op: other, digest: 1 }])
        );
        assert_eq!(one.history.map(|h| h.ops), two.history.map(|h| h.ops));
        assert_ne!(one.history, two.history);
    }

    #[test]
    fn parts_that_committed_the_same_share_a_history() {
        let view = view_of(4);
        let done = in_view(&view, Some(Status::Done(1)));
        let mut knows = in_view(&view, Some(Status::Committed(1)));
        knows.closing.committed = ops(1);
        let history =
            |promises: &[&Promise]| read(&all(promises.iter().map(|p| (*p).clone()))).history;
        let parts = [vec![&done, &done], vec![&done, &knows], vec![&knows]];
        assert_eq!(parts.map(|part| history(&part)), [history(&[&knows, &knows]); 3]);
    }

    /// The members joined the View with histories of different lengths and committed different
    /// numbers of operations in it.
    #[test]
    fn members_of_different_past_do_not_meet_by_chance() {
        let view = view_of(2).id();
        let long = History { ops: 1, lineage: [1; 32] };
        let short = History { ops: 0, lineage: [2; 32] };
        assert_ne!(advance(Some(long), view, ops(1)), advance(Some(short), view, ops(2)));
    }

    /// The member installs the newest View before the next one, so its history is the one that View
    /// gives it.
    #[test]
    fn a_member_that_installs_late_has_the_history_of_what_it_installs() {
        let old = view_of(3);
        let mut new = view_of(2);
        new.ballot.round = 7;
        let theirs = Some(History { ops: 641, lineage: [1; 32] });
        let late = Promise {
            accepted: Some(Accepted { id: new.id(), ..successor(&old, vec![with(1)]) }),
            accepted_here: Some(Rank(0)),
            is_late: true,
            if_installed: theirs,
            ..in_view(&old, Some(Status::Done(1)))
        };
        let recovery = read(&all([in_view(&new, None), late]));
        assert_eq!((recovery.tip, recovery.history), (Some(new.id()), theirs));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(2)]));
    }

    #[test]
    fn a_member_left_behind_in_doubt_shares_with_nobody() {
        let old = view_of(3);
        let mut new = view_of(2);
        new.ballot.round = 7;
        let behind = in_view(&old, Some(Status::Done(1)));
        let moved = Promise {
            closing: Closing { committed: ops(3), ..Closing::default() },
            ..in_view(&new, None)
        };
        let recovery = read(&all([behind, moved.clone(), moved]));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(2), member_id(3)]));
    }

    #[test]
    fn who_has_not_synced_every_lane_is_not_in_sync_while_another_member_has_all() {
        let view = view_of(3);
        let lanes = |tags: std::ops::Range<u32>| {
            let mut set = LaneSet::default();
            tags.for_each(|tag| set.insert(Lane::tagged(tag)));
            set
        };
        let with = |stateful, caught_up: Option<LaneSet>| {
            let is_behind = caught_up.is_some();
            let lanes = LaneStates { stateful, caught_up: caught_up.unwrap_or_default() };
            let closing = Closing { committed: ops(4), lanes, ..Closing::default() };
            Promise { closing, is_behind, ..in_view(&view, None) }
        };
        let came_with_it = with(lanes(0..2), None);
        let [one, both] = [1, 2].map(|to| with(lanes(0..1), Some(lanes(0..to))));
        let recovery = read(&all([came_with_it, one.clone(), both]));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(1), member_id(3)]));
        // If no member is left that has all states, the others take the state of one.
        let has_two_states = with(lanes(0..2), Some(lanes(0..1)));
        let recovery = read(&all([with(lanes(0..2), Some(lanes(0..0))), has_two_states.clone()]));
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(2)]));
        // A state that it synced last is there when the next View commits that.
        let op = OpId { lane: Lane::tagged(1), number: 0 };
        let ops = vec![Listed { op, status: Status::Done(7), is_sync: true }];
        let closing = Closing { ops: ops.clone(), ..has_two_states.closing };
        let synced_last = Promise { closing, ..has_two_states };
        let source = with(lanes(0..2), None);
        let source = Promise { closing: Closing { ops, ..source.closing }, ..source };
        assert_eq!(read(&all([source, synced_last])).in_sync.len(), 2);
        // A member that keeps no state lacks none.
        let stateless = Promise { stateless: true, ..one };
        assert_eq!(read(&all([with(lanes(0..2), None), stateless])).in_sync.len(), 2);
    }
}
