//! The value that promises lead to: which operations are committed, which fail, and which members
//! share a history.

use super::*;
use crate::identity::Name;
use crate::protocol::{
    Ballot, Engines, GroupRanks, Lane, LaneStates, Sizes, View, member_id, view_of,
};

const OP: OpId = OpId { lane: Lane::MAIN, number: 0 };

fn read(promises: &BTreeMap<MemberId, Promise>) -> Recovery {
    super::read(promises, Mutation::NONE)
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
    let decided_by = RankSet::ALL;
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
    assert_eq!(read(&all([done, in_view(&view, Some(Status::Committed(1)))])).committed, [with(1)]);
}

/// The decision about three members of one View that report these statuses.
fn decided(statuses: [Status; 3]) -> (Vec<CommittedOp>, Vec<FailedOp>) {
    let view = view_of(3);
    let of = |(rank, status)| Promise { rank: Some(Rank(rank)), ..in_view(&view, Some(status)) };
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
        |number| CommittedOp { op: OpId { lane: Lane::of_view(u64::MAX), number }, digest: 9 };
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
        let recovery = read(&all([acceptor.clone(), done.clone(), in_view(&view, Some(lacking))]));
        assert_eq!(recovery.committed, [with(1)], "{lacking:?}");
        assert_eq!(recovery.in_sync, BTreeSet::from([member_id(1), member_id(2)]), "{lacking:?}");
    }
}

/// A message from rank 0 to rank 2.
fn message() -> OpId {
    OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 }
}

/// The promise of this rank about the message.
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
    assert_eq!((recovery.history, recovery.in_sync.len()), (None, 3), "it is no part of a history");
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
    // An operation of all is over, whichever members have reported.
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
        (0..count).map(|number| CommittedOp { op: OpId { lane: Lane::MAIN, number }, digest: 1 }),
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
    let history = |promises: &[&Promise]| read(&all(promises.iter().map(|p| (*p).clone()))).history;
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
