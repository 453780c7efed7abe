//! Operations of sub-groups: only their ranks take part.

use super::super::*;
use super::group::Group;
use super::{SUM, aborted};
use crate::memory::DType;
use crate::protocol::{Descriptor, GroupRanks, Mismatch, OPS_LISTED_MAX, view_of};

/// The lane of the ranks 1, 2 and 4 of five.
fn lane() -> Lane {
    Lane::of_group(GroupRanks::of([1, 2, 4].map(Rank).into_iter().collect()), 6, 5)
}

const MEMBERS: [usize; 3] = [1, 2, 4];

/// Five members, three of which have begun an operation of their group.
fn begun() -> (Group, OpId) {
    let mut g = Group::of(5);
    let ops = MEMBERS.map(|i| begin(&mut g, i, SUM));
    (g, ops[0])
}

fn begin(g: &mut Group, i: usize, call: Call) -> OpId {
    let op = g.ledgers[i].call(lane(), call).expect("a number");
    g.ledgers[i].describe(op);
    op
}

fn assert_ends(g: &Group, op: OpId, outcome: Outcome) {
    for (i, resolved) in g.resolved.iter().enumerate() {
        let expected = if MEMBERS.contains(&i) { vec![(op, outcome)] } else { vec![] };
        assert_eq!(*resolved, expected, "on rank {i}");
    }
}

#[test]
fn a_group_decides_alone_and_it_is_no_part_of_a_history() {
    let (mut g, op) = begun();
    g.deliver_all();
    assert!(MEMBERS.iter().all(|i| g.credits[*i].len() == 2), "{:?}", g.credits);
    MEMBERS.iter().for_each(|i| g.ledgers[*i].done(op, 7));
    g.deliver_all();
    assert_ends(&g, op, Outcome::Committed);
    assert!(g.ledgers.iter().all(|ledger| ledger.committed() == 0));
    assert!(
        [0, 3].iter().all(|i| g.ledgers[*i].in_flight() == 0 && g.ledgers[*i].entries.is_empty())
    );
    (0..2).for_each(|_| g.pass_reports());
    assert!(g.ledgers.iter().all(|ledger| ledger.entries.is_empty()), "forgotten by all");
    assert_eq!(begin(&mut g, 1, SUM), OpId { number: 1, ..op }, "and its number is not");
}

#[test]
fn one_of_a_group_ends_it_for_the_group() {
    let (mut g, op) = begun();
    g.ledgers[4].abort(op, AbortReason::Deadline);
    g.deliver_all();
    assert_ends(&g, op, aborted(AbortReason::Deadline, 4));
}

#[test]
fn different_calls_name_ranks_of_the_group() {
    let mut g = Group::of(5);
    let root = |rank| Call { kind: CallKind::Broadcast { root: Rank(rank) }, ..SUM };
    let op = begin(&mut g, 1, root(0));
    begin(&mut g, 2, root(0));
    begin(&mut g, 4, root(2));
    g.deliver_all();
    let mismatch = Mismatch { lower: (Rank(1), root(0)), higher: (Rank(4), root(2)) };
    for i in MEMBERS {
        let [(id, Outcome::Aborted(cause))] = g.resolved[i][..] else { panic!("{:?}", g.resolved) };
        assert_eq!((id, cause.reason), (op, AbortReason::Mismatch(mismatch)));
    }
}

/// Neither a member outside of it, nor to one, nor of a group that this View cannot have.
#[test]
fn others_have_no_say_in_a_group() {
    let (mut g, op) = begun();
    let descriptor = Descriptor { op, call: SUM, plan_revision: 0 };
    assert_eq!(g.ledgers[1].on_descriptor(Rank(0), descriptor), Err(Misbehaviour));
    assert_eq!(g.ledgers[1].on_vote(Rank(3), op, Vote::Done { digest: 7 }), Err(Misbehaviour));
    assert_eq!(g.ledgers[0].on_descriptor(Rank(1), descriptor), Err(Misbehaviour));
    assert_eq!(g.ledgers[0].on_overdue(Rank(1), op), Err(Misbehaviour));
    let larger = GroupRanks::of([1, 2, 7].map(Rank).into_iter().collect());
    let none = OpId { lane: Lane::of_group(larger, 6, 16), number: 0 };
    let of_none = Descriptor { op: none, ..descriptor };
    assert_eq!(g.ledgers[1].on_descriptor(Rank(2), of_none), Err(Misbehaviour));
    let sync = Call::new(CallKind::Sync { version: 1 }, DType::U8, 0);
    let of_state = Descriptor { op: OpId { number: 5, ..op }, call: sync, ..descriptor };
    assert_eq!(g.ledgers[1].on_descriptor(Rank(2), of_state), Err(Misbehaviour));
}

#[test]
fn a_message_in_a_group_has_the_ends_of_its_lane() {
    let mut g = Group::of(5);
    // From rank 1 of the group to rank 2, which are 2 and 4 of the View.
    let call = |from, to| {
        Call::new(CallKind::Message { from: Rank(from), to: Rank(to), tag: 0 }, DType::U8, 3)
    };
    let op = OpId { lane: lane().messages(Rank(2), Rank(4)), number: 0 };
    for i in [2, 4] {
        assert_eq!(g.ledgers[i].call(op.lane, call(1, 2)), Ok(op));
        g.ledgers[i].describe(op);
    }
    g.deliver_all();
    [2, 4].iter().for_each(|i| g.ledgers[*i].done(op, 0));
    g.deliver_all();
    assert!([2, 4].iter().all(|i| g.resolved[*i] == [(op, Outcome::Committed)]));
    let of_view = Descriptor { op: OpId { number: 1, ..op }, call: call(2, 4), plan_revision: 0 };
    assert_eq!(g.ledgers[2].on_descriptor(Rank(4), of_view), Err(Misbehaviour));
}

/// A View has room for so many operations that not all members list.
#[test]
fn of_calls_of_groups_fewer_are_in_flight() {
    let mut g = Group::of(5);
    (0..OF_SOME_IN_FLIGHT_MAX).for_each(|_| _ = begin(&mut g, 1, SUM));
    assert_eq!(g.ledgers[1].call(lane(), SUM), Err(CallRefusal::TooManyInFlight));
    assert!(g.ledgers[1].call(Lane::MAIN, SUM).is_ok(), "of all members more are");
    const { assert!(OF_SOME_IN_FLIGHT_MAX < OPS_LISTED_MAX) };
}

/// A member makes no calls in a group without it, and keeps no plan for such calls.
#[test]
fn plans_are_forgotten_without_the_calls_of_other_groups() {
    let mut ledger = Ledger::new(&view_of(5), Rank(0));
    for revision in 1..=9 {
        assert_eq!(ledger.hold(revision), Ok(Some(Vec::new())));
        let first = [OpId { lane: lane(), number: 10 }];
        ledger.switch(revision, Some(&first)).expect("it was held");
        assert_eq!(ledger.revision(), revision);
    }
    assert_eq!((1..=9).filter(|revision| ledger.uses(*revision)).collect::<Vec<_>>(), [9]);
}
