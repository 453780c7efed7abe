//! The ledger's rules, tested with a few members whose messages the test delivers.

mod group;
mod groups;
mod others;
mod walks;

use super::*;
use crate::memory::DType;
use crate::protocol::{
    CallMode, Descriptor, Failure, Mismatch, OPS_IN_FLIGHT_MAX, OPS_LISTED_MAX, RankSet, ReduceOp,
    Status, view_of,
};
use group::Group;

const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 10);

const STEP: Call = Call::new(CallKind::Step { parts: 0 }, DType::U8, 0);

/// A sum that all members have begun, as all know.
fn begun_by_all(n: u8) -> (Group, OpId) {
    let mut g = Group::of(n);
    let op = g.begin_all(SUM);
    g.deliver_all();
    (g, op)
}

fn aborted(reason: AbortReason, by: u8) -> Outcome {
    Outcome::Aborted(AbortCause { reason, by: Rank(by) })
}

#[test]
fn a_result_counts_when_all_hold_it() {
    let (mut g, op) = begun_by_all(3);
    g.done(0..2, op);
    g.deliver_all();
    assert!(g.resolved.iter().all(Vec::is_empty));
    g.ledgers[2].done(op, 7);
    g.deliver_all();
    g.assert_ends(op, Outcome::Committed);
}

#[test]
fn one_abort_ends_it_for_all_even_after_done() {
    let (mut g, op) = begun_by_all(3);
    g.done(0..2, op);
    g.deliver_all();
    g.ledgers[2].abort(op, AbortReason::Deadline);
    g.deliver_all();
    let aborted = aborted(AbortReason::Deadline, 2);
    g.assert_ends(op, aborted);
}

#[test]
fn a_deadline_after_done_ends_what_another_member_has_not_voted_on() {
    let (mut g, op) = begun_by_all(3);
    g.done(0..2, op);
    g.deliver_all();
    g.ledgers[0].expire(op);
    assert_eq!(g.ledgers[0].unanswered(op), [Rank(2)]);
    g.deliver_all();
    let aborted = aborted(AbortReason::Deadline, 0);
    g.assert_ends(op, aborted);
    assert!(g.ledgers.iter().all(|ledger| ledger.unanswered(op).is_empty()));
}

#[test]
fn a_deadline_after_done_ends_nothing_that_all_have_voted_for() {
    let (mut g, op) = begun_by_all(3);
    g.done(0..3, op);
    g.ledgers[0].expire(op);
    g.deliver_all();
    g.assert_ends(op, Outcome::Committed);
}

#[test]
fn a_deadline_after_done_is_said_again_over_a_new_link() {
    let (mut g, op) = begun_by_all(2);
    g.ledgers[0].done(op, 7);
    g.ledgers[0].expire(op);
    g.ledgers[0].expire(op);
    let said = g.ledgers[0].replay(Rank(1));
    assert_eq!(said.iter().filter(|body| **body == OpBody::Overdue(op)).count(), 1);
}

#[test]
fn members_that_have_all_voted_done_wait_for_the_same_votes() {
    let (mut g, op) = begun_by_all(3);
    g.done(0..2, op);
    g.deliver(0, 1);
    g.deliver(1, 0);
    g.ledgers[0].expire(op);
    g.deliver(0, 1);
    assert_eq!(g.ledgers[1].unanswered(op), [Rank(2)]);
}

/// A member that is far ahead does not block the calls of the others for which it waits.
#[test]
fn what_others_have_begun_takes_no_room_from_own_calls() {
    let mut g = Group::of(2);
    let ahead: Vec<OpId> = (0..OPS_IN_FLIGHT_MAX).map(|_| g.begin(0, SUM)).collect();
    assert_eq!(g.ledgers[0].call(Lane::MAIN, SUM), Err(CallRefusal::TooManyInFlight));
    g.deliver_all();
    for op in ahead {
        assert_eq!(g.ledgers[1].call(Lane::MAIN, SUM), Ok(op));
    }
}

#[test]
fn who_has_not_answered_is_known_by_rank() {
    let (mut g, op) = begun_by_all(3);
    assert!(g.ledgers[0].unanswered(op).is_empty(), "nobody has been asked");
    g.ledgers[0].expire(op);
    assert_eq!(g.ledgers[0].unanswered(op), [Rank(1), Rank(2)]);
    g.deliver(0, 1);
    g.deliver(1, 0);
    assert_eq!(g.ledgers[0].unanswered(op), [Rank(2)]);
}

#[test]
fn nobody_returns_aborted_before_all_have_voted_so() {
    let (mut g, op) = begun_by_all(3);
    g.ledgers[0].abort(op, AbortReason::Dropped);
    g.deliver(0, 1);
    g.deliver(1, 0);
    assert!(g.resolved[0].is_empty(), "rank 2 has not voted");
}

#[test]
fn after_done_this_member_cannot_give_up_alone() {
    let (mut g, op) = begun_by_all(2);
    g.ledgers[0].done(op, 1);
    g.drain(0);
    g.ledgers[0].abort(op, AbortReason::Deadline);
    assert!(g.ledgers[0].take_effects().is_empty());
}

#[test]
fn a_root_that_has_done_its_part_may_give_up_until_all_have_called() {
    let broadcast = Call { kind: CallKind::Broadcast { root: Rank(0) }, ..SUM };
    let mut g = Group::of(2);
    let op = g.begin(0, broadcast);
    g.ledgers[0].done(op, 1);
    assert!(!g.ledgers[0].has_voted_done(op));
    g.ledgers[0].abort(op, AbortReason::Deadline);
    g.deliver_all();
    let aborted = aborted(AbortReason::Deadline, 0);
    assert_eq!(g.resolved[0], [(op, aborted)]);

    let next = g.begin(0, broadcast);
    g.ledgers[0].done(next, 1);
    assert_eq!(g.ledgers[1].call(Lane::MAIN, broadcast), Ok(op));
    g.begin(1, broadcast);
    g.deliver_all();
    assert!(g.ledgers[0].has_voted_done(next), "all have called it now");
    g.ledgers[1].done(next, 1);
    g.deliver_all();
    assert!(g.resolved.iter().all(|r| r.contains(&(next, Outcome::Committed))));
}

#[test]
fn an_operation_given_up_elsewhere_is_aborted_when_it_is_called() {
    let mut g = Group::of(2);
    let op = g.begin(0, SUM);
    g.ledgers[0].abort(op, AbortReason::Deadline);
    g.deliver_all();
    assert_eq!(g.resolved[0].len(), 1);
    assert!(g.resolved[1].is_empty());
    assert_eq!(g.ledgers[1].call(Lane::MAIN, SUM), Ok(op));
    g.drain(1);
    assert_eq!(g.resolved[1], g.resolved[0]);
}

/// Data for it may have arrived, and nothing else would drop them before the View ends.
#[test]
fn what_others_gave_up_is_over_in_the_engine_without_a_call_here() {
    let mut g = Group::of(3);
    let op = g.begin(0, SUM);
    g.ledgers[0].abort(op, AbortReason::Deadline);
    let step = g.ledgers[0].call(Lane::MAIN, STEP).unwrap();
    g.ledgers[0].describe_part(step.part(0), Call { mode: CallMode::PerStep, ..SUM });
    g.ledgers[0].abort(step, AbortReason::Deadline);
    g.deliver_all();
    for retired in &g.retired[1..] {
        assert!(retired.contains(&op) && retired.contains(&step.part(0)), "{retired:?}");
    }
}

/// The other members may have called anything under the same number.
#[test]
fn a_call_that_differs_from_a_step_is_over_in_the_engine() {
    let mut g = Group::of(2);
    let op = g.begin(0, SUM);
    assert_eq!(g.ledgers[1].call(Lane::MAIN, STEP), Ok(op));
    g.ledgers[1].describe_part(op.part(0), Call { mode: CallMode::PerStep, ..SUM });
    g.ledgers[1].describe(op);
    g.deliver_all();
    assert!(g.resolved.iter().all(|ends| ends.len() == 1), "{:?}", g.resolved);
    assert!(g.retired[0].contains(&op) && g.retired[1].contains(&op.part(0)), "{:?}", g.retired);
}

#[test]
fn different_calls_end_in_one_mismatch_for_all() {
    let mut g = Group::of(3);
    let op = g.begin(0, SUM);
    g.begin(1, SUM);
    g.begin(2, Call { count: 11, ..SUM });
    g.deliver_all();
    let mismatch = Mismatch { lower: (Rank(0), SUM), higher: (Rank(2), Call { count: 11, ..SUM }) };
    for resolved in &g.resolved {
        let [(id, Outcome::Aborted(cause))] = resolved[..] else { panic!("{resolved:?}") };
        assert_eq!((id, cause.reason), (op, AbortReason::Mismatch(mismatch)));
    }
}

#[test]
fn different_bits_are_a_digest_mismatch_for_all_when_the_next_view_says_so() {
    let (mut g, op) = begun_by_all(3);
    (0..3).for_each(|i| g.ledgers[i].done(op, if i == 2 { 8 } else { 7 }));
    g.deliver(2, 0);
    assert!(!g.ledgers[0].must_end(), "a vote is missing");
    g.deliver_all();
    assert!(g.resolved.iter().all(Vec::is_empty), "another member may have heard other votes");
    assert!(g.ledgers.iter().all(Ledger::must_end));
    for (i, digest) in [7, 7, 8].into_iter().enumerate() {
        assert_eq!(g.ledgers[i].freeze().ops[0].status, Status::Done(digest));
        let failure = Failure::Disputed(Some(Rank(2)));
        g.ledgers[i].decide(&[], &[FailedOp { op, failure }]);
        g.drain(i);
    }
    g.assert_ends(op, Outcome::DigestMismatch { odd: Some(Rank(2)) });
    assert!(g.ledgers.iter().all(|ledger| ledger.committed() == 0));
}

/// An operation that is decided here keeps its outcome, whatever the next View says about it.
#[test]
fn a_dispute_changes_no_outcome() {
    let (mut g, op) = begun_by_all(2);
    g.done(0..2, op);
    g.deliver_all();
    g.ledgers[0].freeze();
    g.ledgers[0].decide(&[], &[FailedOp { op, failure: Failure::Disputed(None) }]);
    g.drain(0);
    assert_eq!(g.resolved[0], [(op, Outcome::Committed)]);
}

/// A member that has gone may have committed it, and the others hold its result.
#[test]
fn what_no_member_of_the_next_view_can_know_is_indeterminate() {
    let (mut g, op) = begun_by_all(3);
    (0..3).for_each(|i| g.ledgers[i].done(op, 7));
    for i in 1..3 {
        assert_eq!(g.ledgers[i].freeze().ops[0].status, Status::Done(7));
        g.ledgers[i].decide(&[], &[FailedOp { op, failure: Failure::Indeterminate }]);
        g.drain(i);
        assert_eq!(g.resolved[i], [(op, Outcome::Indeterminate)]);
    }
}

/// A call of all members in this lane, until no member lists it any more.
fn call_once(g: &mut Group, lane: Lane) -> OpId {
    let ops: Vec<OpId> =
        g.ledgers.iter_mut().map(|ledger| ledger.call(lane, SUM).expect("a number")).collect();
    let op = ops[0];
    g.ledgers.iter_mut().for_each(|ledger| _ = ledger.describe(op));
    g.deliver_all();
    g.ledgers.iter_mut().for_each(|ledger| ledger.done(op, 7));
    g.deliver_all();
    (0..2).for_each(|_| g.pass_reports());
    op
}

/// More lanes than a message about a plan may name.
const MANY_LANES: u32 = 2 * crate::protocol::LANES_TOLD_MAX as u32 + 10;

#[test]
fn a_program_that_uses_each_lane_once_takes_no_more_memory_and_its_plan_can_change() {
    let mut g = Group::of(2);
    (0..MANY_LANES).for_each(|tag| _ = call_once(&mut g, Lane::tagged(tag)));
    for ledger in &mut g.ledgers {
        assert_eq!((ledger.numbers.runs(), ledger.entries.len()), (1, 0));
        assert!(!ledger.must_end());
        assert_eq!(ledger.hold(1), Ok(Some(Vec::new())), "no lane is to be told of");
        ledger.switch(1, Some(&[])).expect("it was held");
        assert_eq!(ledger.revision(), 1);
    }
    // A lane that is used again goes on where it was.
    assert_eq!(call_once(&mut g, Lane::tagged(3)), OpId { lane: Lane::tagged(3), number: 1 });
    assert_eq!(g.ledgers[0].replay(Rank(1)), [], "nothing of the past is said again");
}

#[test]
fn a_view_ends_before_lanes_in_no_order_fill_the_memory() {
    let mut ledger = Ledger::new(&view_of(2), Rank(0));
    // Every second lane, so that none is beside another one. Each call is given up by all at once.
    for tag in 0..=RUNS_MAX as u32 {
        assert!(!ledger.must_end(), "after {tag} lanes");
        let op = ledger.call(Lane::tagged(2 * tag), SUM).expect("a number");
        ledger.abort(op, AbortReason::Dropped);
        let cause = AbortCause { reason: AbortReason::Dropped, by: Rank(0) };
        ledger.on_vote(Rank(1), op, Vote::Abort(cause)).expect("an honest member");
        ledger.report_resolved(RankSet::ALL);
        ledger.on_resolved(Rank(1), &[op]);
        ledger.take_effects();
    }
    assert!(ledger.must_end());
}

#[test]
fn a_frozen_ledger_never_changes_its_mind() {
    let (mut g, op) = begun_by_all(2);
    g.ledgers[0].done(op, 1);
    let closing = g.ledgers[0].freeze();
    assert_eq!(closing.ops[0].status, Status::Done(1));
    g.ledgers[1].done(op, 1);
    g.deliver_all();
    assert!(g.resolved[0].is_empty());
    assert_eq!(g.ledgers[0].freeze(), closing);
    g.ledgers[0].decide(&[CommittedOp { op, digest: 1 }], &[]);
    g.drain(0);
    assert_eq!(g.resolved[0], [(op, Outcome::Committed)]);
}

#[test]
fn what_others_have_committed_is_not_ok_without_that_result() {
    let (mut g, op) = begun_by_all(3);
    g.ledgers[0].done(op, 7);
    g.ledgers[1].done(op, 8);
    for rank in 0..3 {
        g.ledgers[rank].freeze();
        g.ledgers[rank].decide(&[CommittedOp { op, digest: 7 }], &[]);
        g.drain(rank);
    }
    let ends = [Outcome::Committed, Outcome::Indeterminate, Outcome::Indeterminate];
    assert_eq!(g.resolved, ends.map(|end| vec![(op, end)]));
    assert_eq!([0, 1, 2].map(|rank| g.ledgers[rank].committed()), [1, 0, 0]);
}

#[test]
fn an_operation_stays_listed_until_everybody_has_decided_it() {
    let (mut g, op) = begun_by_all(2);
    g.done(0..2, op);
    g.deliver_all();
    assert_eq!(g.ledgers[0].clone().freeze().ops[0].status, Status::Committed(7));
    assert_eq!(g.ledgers[0].report_resolved(RankSet::ALL), [op]);
    g.ledgers[0].on_resolved(Rank(1), &[op]);
    assert!(g.ledgers[0].resolved().is_empty());
    assert!(g.ledgers[0].freeze().ops.is_empty());
}

#[test]
fn what_a_frozen_ledger_reports_does_not_change() {
    let (mut g, op) = begun_by_all(2);
    g.done(0..2, op);
    g.deliver_all();
    let resolved = g.ledgers[0].report_resolved([Rank(0), Rank(1)].into_iter().collect());
    let closing = g.ledgers[0].freeze();
    assert_eq!(closing.ops.len(), 1);
    g.ledgers[0].on_resolved(Rank(1), &resolved);
    assert_eq!(g.ledgers[0].freeze(), closing);
}

#[test]
fn who_decides_last_still_tells_the_others() {
    let (mut g, op) = begun_by_all(2);
    g.done(0..2, op);
    g.deliver_all();
    // Member 1 reports first. Member 0 has reported nothing since and must not forget before it
    // has.
    let reported = g.ledgers[1].report_resolved(RankSet::ALL);
    g.ledgers[0].on_resolved(Rank(1), &reported);
    let reported = g.ledgers[0].report_resolved(RankSet::ALL);
    assert_eq!(reported, [op]);
    g.ledgers[1].on_resolved(Rank(0), &reported);
    for ledger in &mut g.ledgers {
        assert!(ledger.freeze().ops.is_empty());
    }
}

#[test]
fn the_sixty_fifth_call_takes_no_number() {
    let mut g = Group::of(2);
    for _ in 0..OPS_IN_FLIGHT_MAX {
        g.begin(0, SUM);
    }
    assert_eq!(g.ledgers[0].call(Lane::MAIN, SUM), Err(CallRefusal::TooManyInFlight));
}

#[test]
fn a_member_cannot_fill_the_memory_of_another() {
    let mut ledger = Ledger::new(&view_of(2), Rank(0));
    let describe = |number| Descriptor {
        op: OpId { lane: Lane::of_view(5), number },
        call: SUM,
        plan_revision: 0,
    };
    let accepted =
        (0..10_000).take_while(|n| ledger.on_descriptor(Rank(1), describe(*n)).is_ok()).count();
    assert_eq!(accepted, OPS_LISTED_MAX);
}

#[test]
fn a_view_that_is_not_in_sync_takes_only_a_sync_from_its_history() {
    let mut view = view_of(3);
    view.members[0].in_sync = false;
    let mut g = Group::of(3);
    g.ledgers = (0..3).map(|i| Ledger::new(&view, Rank(i))).collect();
    assert_eq!(g.ledgers[0].call(Lane::MAIN, SUM), Err(CallRefusal::NeedsSync));
    let sync = |version, count| Call::new(CallKind::Sync { version }, DType::U8, count);
    let op = g.begin(0, sync(99, 1));
    g.begin(1, sync(5, 30));
    g.begin(2, sync(5, 0));
    g.deliver_all();
    let source = |bytes, lacks| Some(SyncSource { rank: Rank(1), bytes, lacks });
    for (rank, lacks) in [(0, true), (1, false), (2, false)] {
        assert_eq!(g.agreed[rank], [(op, source(None, lacks))], "on rank {rank}");
    }
    // The source names the length of its state; the lengths that others name do not count.
    g.ledgers[0].on_ready(Rank(2), op, 7);
    g.ledgers[1].ready(op, 31);
    g.ledgers[1].ready(op, 32);
    g.deliver_all();
    for (rank, lacks) in [(0, true), (2, false)] {
        let agreed = [(op, source(None, lacks)), (op, source(Some(31), lacks))];
        assert_eq!(g.agreed[rank], agreed, "on rank {rank}");
    }
    // A link that was down repeats it.
    let again = g.ledgers[1].replay(Rank(0));
    assert!(again.contains(&OpBody::Ready(op, 31)), "{again:?}");
}

#[test]
fn a_member_behind_the_source_lacks_its_state() {
    let mut view = view_of(3);
    view.members[2].in_sync = false;
    let mut g = Group::of(3);
    g.ledgers = (0..3).map(|i| Ledger::new(&view, Rank(i))).collect();
    for (rank, version) in [(0, 4), (1, 6), (2, 6)] {
        g.begin(rank, Call::new(CallKind::Sync { version }, DType::U8, 0));
    }
    // The length is there before all have called it on rank 0.
    let op = OpId { lane: Lane::MAIN, number: 0 };
    g.deliver(1, 0);
    g.ledgers[1].ready(op, 9);
    g.deliver(1, 0);
    assert_eq!(g.agreed[0], []);
    g.deliver_all();
    let lacks: Vec<_> = g.agreed.iter().map(|agreed| agreed[0].1.map(|s| s.lacks)).collect();
    assert_eq!(lacks, [Some(true), Some(false), Some(true)]);
    assert_eq!(g.agreed[0].len(), 1, "it is known at once: {:?}", g.agreed[0]);
}

/// The calls of a step that replaces another call are cancelled, too.
#[test]
fn a_call_that_was_given_up_before_it_becomes_a_step_is_given_up_in_the_engine() {
    for is_reported in [false, true] {
        let mut g = Group::of(2);
        let op = g.begin(0, SUM);
        g.ledgers[0].abort(op, AbortReason::Deadline);
        g.deliver_all();
        if is_reported {
            g.pass_reports();
        }
        assert_eq!(g.ledgers[1].call(Lane::MAIN, SUM), Ok(op));
        g.ledgers[1].becomes_step(op, STEP);
        g.drain(1);
        assert!(op.parts().all(|part| g.cancelled[1].contains(&part)), "{:?}", g.cancelled[1]);
        assert!(op.parts().all(|part| g.retired[1].contains(&part)), "{:?}", g.retired[1]);
    }
}

/// A replay over a new link lists the parts of an operation before the operation itself.
#[test]
fn an_uneven_call_that_is_said_again_is_no_mismatch() {
    let mut g = Group::of(2);
    let op = g.begin_all(Call::new(CallKind::AllGatherUneven, DType::F32, 4));
    let lengths = Call::new(CallKind::AllGather, DType::U64, 2);
    let lengths = Call { mode: CallMode::PerStep, ..lengths };
    assert!(g.ledgers.iter_mut().all(|ledger| ledger.describe_part(op.part(0), lengths)));
    (0..2).for_each(|i| g.drain(i));
    for (from, to) in [(0, 1), (1, 0)] {
        g.wires[from][to].clear();
        for body in g.ledgers[from].replay(Rank(to as u8)) {
            g.wires[from][to].push(body);
            g.deliver(from, to);
        }
    }
    g.deliver_all();
    assert!(g.ledgers.iter().all(|ledger| ledger.unanswered(op).is_empty()));
    g.ledgers.iter_mut().for_each(|ledger| ledger.abort(op, AbortReason::Deadline));
    g.deliver_all();
    g.assert_ends(op, aborted(AbortReason::Deadline, 0));
}

#[test]
fn a_report_that_was_lost_with_a_link_is_made_good_by_the_next_one() {
    let mut g = Group::of(2);
    let op = g.begin_all(SUM);
    g.ledgers[0].done(op, 1);
    g.ledgers[1].done(op, 1);
    g.deliver_all();
    // Rank 1 learns that all have decided and forgets; its own report is lost.
    g.ledgers[1].report_resolved(RankSet::ALL);
    g.ledgers[1].on_resolved(Rank(0), &[op]);
    assert_eq!(g.ledgers[0].resolved(), [op]);
    g.ledgers[0].report_resolved(RankSet::ALL);
    // Over the next link both repeat the operations that they list, and rank 1 reports once more.
    assert_eq!(g.ledgers[1].replay(Rank(0)), []);
    for body in g.ledgers[0].replay(Rank(1)) {
        g.wires[0][1].push(body);
    }
    g.deliver(0, 1);
    g.deliver(1, 0);
    g.pass_reports();
    assert!(g.ledgers[0].resolved().is_empty());
    assert_eq!(g.resolved[0], [(op, Outcome::Committed)]);
}
