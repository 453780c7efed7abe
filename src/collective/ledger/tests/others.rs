//! Operations other than one vote of all members on one call: messages between two, steps of
//! several calls, best-effort calls.

use super::*;
use crate::protocol::{OpMessage, RankSet};

const ENDS: (Rank, Rank) = (Rank(0), Rank(2));
const LANE: Lane = Lane::MAIN;

fn message() -> Call {
    Call { kind: CallKind::Message { from: ENDS.0, to: ENDS.1, tag: 5 }, ..SUM }
}

fn in_step(count: u64) -> Call {
    Call { mode: CallMode::PerStep, count, ..SUM }
}

fn end(parts: u8) -> Call {
    Call { kind: CallKind::Step { parts }, ..SUM }
}

/// Both ends of a message begin it.
fn begin_message(g: &mut Group) -> OpId {
    let lane = LANE.messages(ENDS.0, ENDS.1);
    let ops = [0, 2].map(|i| {
        let op = g.ledgers[i].call(lane, message()).expect("it takes a number");
        g.ledgers[i].describe(op);
        op
    });
    ops[0]
}

/// A member makes the calls of a step without ending it.
fn make_step(g: &mut Group, i: usize, counts: &[u64]) -> OpId {
    let op = g.ledgers[i].call(LANE, end(0)).expect("it takes a number");
    for (index, count) in counts.iter().enumerate() {
        g.ledgers[i].describe_part(op.part(index as u8), in_step(*count));
    }
    op
}

fn end_step(g: &mut Group, i: usize, op: OpId, parts: u8) {
    g.ledgers[i].amend(op, end(parts));
    g.ledgers[i].describe(op);
}

/// Rank 0 aborts a call of `lane` that rank 1 never makes.
fn give_up_alone(g: &mut Group, lane: Lane) -> Result<(), CallRefusal> {
    let op = g.ledgers[0].call(lane, SUM)?;
    g.ledgers[0].describe(op);
    g.ledgers[0].abort(op, AbortReason::Deadline);
    g.deliver_all();
    g.pass_reports();
    Ok(())
}

#[test]
fn a_lane_that_one_member_has_left_holds_up_nobody() {
    let mut g = Group::of(2);
    for n in 0..3 * OPS_LISTED_MAX {
        assert_eq!(give_up_alone(&mut g, Lane::tagged(7)), Ok(()), "question {n}");
    }
    // The same if the lane of these calls comes first in the ledger.
    let mut g = Group::of(2);
    for n in 0..OPS_LISTED_MAX {
        assert_eq!(give_up_alone(&mut g, Lane::MAIN), Ok(()), "question {n}");
    }
    for n in 0..3 * OPS_LISTED_MAX {
        let calls: Vec<_> =
            g.ledgers.iter_mut().map(|ledger| ledger.call(Lane::tagged(5), SUM)).collect();
        assert!(calls[0].is_ok() && calls[0] == calls[1], "call {n}: {calls:?}");
        for (ledger, op) in g.ledgers.iter_mut().zip(calls) {
            ledger.describe(op.expect("a number"));
        }
        g.deliver_all();
        g.done(0..2, OpId { lane: Lane::tagged(5), number: n as u64 });
        g.deliver_all();
        g.pass_reports();
    }
    let committed = |ends: &Vec<(OpId, Outcome)>| {
        ends.iter().filter(|(_, end)| *end == Outcome::Committed).count()
    };
    assert!(g.resolved.iter().map(committed).all(|count| count == 3 * OPS_LISTED_MAX));
}

/// Rank 0 gives up operation 0 of the main lane, and all have told each other so.
fn given_up_by_rank_0(n: u8) -> (Group, OpId) {
    let mut g = Group::of(n);
    assert_eq!(give_up_alone(&mut g, LANE), Ok(()));
    g.pass_reports();
    assert!(g.ledgers.iter().all(|ledger| ledger.entries.is_empty()), "nobody lists it");
    (g, OpId { lane: LANE, number: 0 })
}

#[test]
fn what_was_given_up_before_it_was_called_stays_known_in_little_memory() {
    let mut g = Group::of(2);
    let count = 20 * OPS_LISTED_MAX as u64;
    for n in 0..count {
        assert_eq!(give_up_alone(&mut g, LANE), Ok(()), "call {n}");
    }
    assert_eq!((g.ledgers[1].entries.len(), g.ledgers[1].given_up.runs()), (0, 1));
    for n in 0..count {
        assert!(g.ledgers[1].call(LANE, SUM).is_ok(), "call {n}");
    }
    g.drain(1);
    let end = aborted(AbortReason::Deadline, 0);
    assert!(g.resolved[1].len() == count as usize && g.resolved[1].iter().all(|(_, e)| *e == end));
    assert!(g.wires.iter().flatten().all(Vec::is_empty), "all know it");
    assert_eq!(g.ledgers[1].given_up.runs(), 0);
}

#[test]
fn what_was_given_up_before_it_was_called_is_told_again_to_who_missed_it() {
    let mut g = Group::of(3);
    let op = g.begin(0, SUM);
    g.ledgers[0].abort(op, AbortReason::Deadline);
    g.deliver(0, 1);
    g.deliver(0, 2);
    // Ranks 0 and 2 do not hear rank 1.
    let lose = |g: &mut Group| g.wires[1] = vec![Vec::new(); 3];
    lose(&mut g);
    g.deliver(2, 1);
    g.deliver(2, 0);
    assert_eq!(g.ledgers[1].report_resolved(RankSet::ALL), [op]);
    assert!(g.ledgers[1].entries.is_empty() && g.resolved[0].is_empty());
    for from in [0, 2] {
        g.wires[from][1] = g.ledgers[from].replay(Rank(1));
        g.deliver(from, 1);
    }
    assert_eq!(g.wires[1][0].len(), 2, "a vote for each message of a caller");
    assert_eq!(g.ledgers[1].report_resolved(RankSet::ALL), [op]);
    assert!(g.ledgers[1].report_resolved(RankSet::ALL).is_empty(), "it is told once");
    g.deliver(1, 0);
    assert_eq!(g.resolved[0], [(op, aborted(AbortReason::Deadline, 0))]);
    // For who has not called it a report is enough.
    g.ledgers[2].on_resolved(Rank(1), &[op]);
    assert_eq!(g.ledgers[2].report_resolved(RankSet::ALL), [op]);
    assert!(g.ledgers[2].entries.is_empty() && g.ledgers[2].in_flight() == 0);
}

#[test]
fn messages_that_were_given_up_keep_their_tags() {
    let mut g = Group::of(2);
    let lane = LANE.messages(Rank(0), Rank(1));
    let send = |tag| Call { kind: CallKind::Message { from: Rank(0), to: Rank(1), tag }, ..SUM };
    for (tag, is_described) in [(5, true), (6, false)] {
        let op = g.ledgers[0].call(lane, send(tag)).expect("it takes a number");
        if is_described {
            g.ledgers[0].describe(op);
        }
        g.ledgers[0].abort(op, AbortReason::Deadline);
        g.deliver_all();
        g.pass_reports();
        g.pass_reports();
    }
    let ledger = &mut g.ledgers[1];
    assert!(ledger.entries.is_empty() && ledger.given_up.runs() == 2);
    assert!(ledger.next_has_tag(lane, 5) && !ledger.next_has_tag(lane, 6));
    assert!(ledger.call(lane, send(5)).is_ok());
    assert!(ledger.next_has_tag(lane, 5) && ledger.next_has_tag(lane, 6), "its tag is unknown");
}

#[test]
fn a_view_ends_before_what_others_have_given_up_fills_the_memory() {
    let mut ledger = Ledger::new(&view_of(2), Rank(1));
    let cause = |by| AbortCause { reason: AbortReason::Dropped, by: Rank(by) };
    for number in 0..=RUNS_MAX as u64 {
        assert!(!ledger.must_end());
        let op = OpId { lane: LANE, number: 2 * number };
        let heard = ledger.on_vote(Rank(0), op, Vote::Abort(cause(0)));
        assert_eq!(heard, Ok(()));
        assert_eq!(ledger.report_resolved(RankSet::ALL), [op]);
    }
    assert!(ledger.must_end());
}

#[test]
fn a_vote_that_was_forgotten_is_cast_again_and_ends_the_call() {
    let (mut g, op) = given_up_by_rank_0(2);
    // Like after a report that was lost with a link.
    g.ledgers[1].given_up.remove(op);
    assert_eq!(g.ledgers[1].call(LANE, SUM), Ok(op));
    g.ledgers[1].abort(op, AbortReason::Dropped);
    g.deliver_all();
    assert_eq!(g.resolved[1], [(op, aborted(AbortReason::Dropped, 1))]);
    g.pass_reports();
    assert!(g.ledgers[1].entries.is_empty(), "all have reported it");
}

#[test]
fn an_operation_is_reported_again_though_an_earlier_one_is_open() {
    let mut g = Group::of(2);
    let first = g.begin(0, SUM);
    let op = g.begin(0, SUM);
    g.ledgers[0].abort(op, AbortReason::Dropped);
    g.deliver_all();
    g.pass_reports();
    g.ledgers[1].given_up.remove(op);
    assert!(!g.ledgers[0].entries.contains_key(&op));
    assert_eq!([g.begin(1, SUM), g.begin(1, SUM)], [first, op]);
    g.deliver_all();
    assert_eq!(g.resolved[1].len(), 1);
    g.pass_reports();
    assert!(!g.ledgers[1].entries.contains_key(&op), "all have reported it");
    assert!(g.ledgers[1].entries.contains_key(&first), "it is open");
}

#[test]
fn calls_that_wait_for_a_third_members_word_are_no_misbehaviour() {
    let mut ledger = Ledger::new(&view_of(3), Rank(1));
    let given_up = Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: Rank(0) });
    // The sender lists at most this many before this member has decided them; rank 2's votes are
    // missing.
    for number in 0..OPS_LISTED_MAX as u64 {
        let op = OpId { lane: Lane::MAIN, number };
        let said = ledger.on_descriptor(Rank(0), Descriptor { op, call: SUM, plan_revision: 0 });
        assert!(said.is_ok() && ledger.on_vote(Rank(0), op, given_up).is_ok(), "call {number}");
    }
}

#[test]
fn answers_to_calls_that_a_third_member_has_given_up_are_no_misbehaviour() {
    let mut ledger = Ledger::new(&view_of(3), Rank(1));
    let given_up = Vote::Abort(AbortCause { reason: AbortReason::Deadline, by: Rank(2) });
    let op = |lane, number| OpId { lane, number };
    // Rank 2 lists as many, rank 0 has answered them all, and rank 2's own votes are late.
    for number in 0..OPS_LISTED_MAX as u64 {
        let heard = ledger.on_vote(Rank(0), op(Lane::tagged(7), number), given_up);
        assert!(heard.is_ok(), "answer {number}");
    }
    for number in 0..OPS_LISTED_MAX as u64 {
        let begun = Descriptor { op: op(Lane::MAIN, number), call: SUM, plan_revision: 0 };
        assert!(ledger.on_descriptor(Rank(0), begun).is_ok(), "call {number}");
    }
}

/// Votes that `from` has given up these operations itself, as it says.
fn given_up_by(from: Rank, ops: impl Iterator<Item = OpId>) -> Vec<OpBody> {
    let cause = AbortCause { reason: AbortReason::Dropped, by: from };
    ops.map(|op| OpBody::Vote(op, Vote::Abort(cause))).collect()
}

#[test]
fn who_is_told_by_a_third_member_alone_waits_for_the_callers_own_word() {
    let mut g = Group::of(3);
    let op = OpId { lane: Lane::MAIN, number: 0 };
    g.wires[2][0] = given_up_by(Rank(2), [op].into_iter());
    g.deliver(2, 0);
    g.deliver(0, 1);
    g.drain(1);
    assert!(g.wires[1].iter().all(Vec::is_empty), "rank 2 has told it nothing");
    // Its own call needs no other reason.
    assert_eq!(g.begin(1, SUM), op);
    g.drain(1);
    let votes = |g: &Group| g.wires[1][0].iter().filter(|b| matches!(b, OpBody::Vote(..))).count();
    assert_eq!(votes(&g), 1);
    // Nor is there one to wait for when the caller tells it.
    let next = OpId { lane: Lane::tagged(1), number: 0 };
    for to in [0, 1] {
        g.wires[2][to] = given_up_by(Rank(2), [next].into_iter());
        g.deliver(2, to);
    }
    assert_eq!(votes(&g), 2);
    // A member that has not called it cannot say that others owe a vote.
    assert_eq!(g.ledgers[0].unanswered(next), [Rank(0); 0]);
}

#[test]
fn operations_that_a_member_invents_for_each_other_one_put_no_blame_on_these() {
    const LIAR: usize = 4;
    let mut g = Group::of(5);
    let invented = |to: usize, n: usize| OpId { lane: Lane::tagged(to as u32), number: n as u64 };
    for to in 0..LIAR {
        let ops = (0..OPS_LISTED_MAX).map(|n| invented(to, n));
        g.wires[LIAR][to] = given_up_by(Rank(LIAR as u8), ops);
        g.deliver(LIAR, to);
    }
    // Each delivery expects that its sender is no liar.
    for _ in 0..2 {
        let pairs = (0..LIAR).flat_map(|i| (0..LIAR).map(move |j| (i, j)));
        pairs.filter(|(i, j)| i != j).for_each(|(i, j)| g.deliver(i, j));
    }
    // The honest members' own calls end as usual.
    let ops: Vec<OpId> = (0..LIAR).map(|i| g.begin(i, SUM)).collect();
    g.wires[LIAR] = vec![given_up_by(Rank(LIAR as u8), ops[..1].iter().copied()); 5];
    (0..LIAR).for_each(|to| g.deliver(LIAR, to));
    g.deliver_all();
    assert!(g.resolved[..LIAR].iter().all(|resolved| resolved.len() == 1), "{:?}", g.resolved);
    // The liar has told them of as many calls as it may.
    let one_more = given_up_by(Rank(LIAR as u8), [invented(0, OPS_LISTED_MAX)].into_iter());
    let [OpBody::Vote(op, vote)] = one_more[..] else { unreachable!("one vote") };
    assert_eq!(g.ledgers[0].on_vote(Rank(LIAR as u8), op, vote), Err(Misbehaviour));
}

/// A liar has told another member of best-effort calls, each of which that member decides at once.
#[test]
fn answers_without_end_take_no_memory_and_blame_nobody() {
    let mut ledger = Ledger::new(&view_of(3), Rank(1));
    let by = |by| Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: Rank(by) });
    let op = |lane, number| OpId { lane, number };
    for number in 0..10 * OPS_LISTED_MAX as u64 {
        let of = op(Lane::tagged(7), number);
        // Another cause does not make it a new one.
        for cause in [by(2), by(1)] {
            assert_eq!(ledger.on_vote(Rank(0), of, cause), Ok(()));
        }
        assert_eq!(ledger.entries[&of].votes[0], Some(by(2)), "an `Abort` is final");
    }
    assert_eq!(ledger.entries.len(), 4 * OPS_LISTED_MAX);
    assert_eq!(ledger.on_vote(Rank(0), op(LANE, 0), by(3)), Err(Misbehaviour), "no such rank");
    // An answer that comes before the caller's word counts, as before.
    assert_eq!(ledger.on_vote(Rank(0), op(LANE, 0), by(2)), Ok(()));
    assert_eq!(ledger.on_vote(Rank(2), op(LANE, 0), by(2)), Ok(()));
    assert_eq!(ledger.report_resolved(RankSet::ALL), [op(LANE, 0)]);
}

/// What a caller hears in a message to it alone, it need not list any more.
#[test]
fn who_was_told_alone_may_call_on() {
    let mut ledger = Ledger::new(&view_of(3), Rank(2));
    let given_up = |by| Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: Rank(by) });
    for number in 0..4 * OPS_LISTED_MAX as u64 {
        let op = OpId { lane: LANE, number };
        for from in [0, 1] {
            assert_eq!(ledger.on_vote(Rank(from), op, given_up(0)), Ok(()), "call {number}");
        }
        assert!(ledger.report_resolved(RankSet::EMPTY.with(Rank(0))).contains(&op));
        if ledger.entries.len() == OPS_LISTED_MAX {
            ledger.report_resolved(RankSet::EMPTY.with(Rank(1)));
            assert!(ledger.entries.is_empty());
        }
    }
}

/// It has called an operation and told nobody, and a liar has told nobody else.
#[test]
fn who_has_told_nobody_of_its_call_blames_nobody() {
    let mut g = Group::of(3);
    let op = g.ledgers[0].call(LANE, SUM).expect("it takes a number");
    g.wires[2][0] = given_up_by(Rank(2), [op].into_iter());
    g.deliver(2, 0);
    assert!(g.ledgers[0].has_called(op) && g.ledgers[0].unanswered(op).is_empty());
    g.ledgers[0].describe(op);
    assert_eq!(g.ledgers[0].unanswered(op), [Rank(1)]);
}

/// A member whose list is full of own calls, because another one never reports anything.
fn with_a_full_list() -> Group {
    let mut g = Group::of(3);
    for n in 0..OPS_LISTED_MAX {
        let ops: Vec<OpId> = (0..3).map(|i| g.begin(i, SUM)).collect();
        g.deliver_all();
        g.done(0..3, ops[0]);
        g.deliver_all();
        assert_eq!(g.resolved[1].len(), n + 1);
    }
    assert_eq!(g.ledgers[1].call(LANE, SUM), Err(CallRefusal::TooManyInFlight));
    g
}

#[test]
fn what_was_not_called_is_reported_though_own_calls_fill_the_list() {
    let mut g = with_a_full_list();
    let given_up = Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: Rank(0) });
    for number in 0..2 * OPS_LISTED_MAX as u64 {
        let op = OpId { lane: Lane::tagged(7), number };
        for from in [0, 2] {
            assert_eq!(g.ledgers[1].on_vote(Rank(from), op, given_up), Ok(()));
        }
        assert!(g.ledgers[1].report_resolved(RankSet::ALL).contains(&op));
    }
    assert_eq!(g.ledgers[1].entries.len(), OPS_LISTED_MAX);
}

#[test]
fn who_calls_on_without_a_report_breaks_the_protocol_even_if_all_is_decided() {
    let mut g = with_a_full_list();
    let cause = AbortCause { reason: AbortReason::Dropped, by: Rank(0) };
    let heard = (0..).take_while(|number| {
        let op = OpId { lane: Lane::tagged(7), number: *number };
        let heard = g.ledgers[1].on_vote(Rank(0), op, Vote::Abort(cause));
        heard.is_ok() && g.ledgers[1].on_vote(Rank(2), op, Vote::Abort(cause)).is_ok()
    });
    assert_eq!(heard.count(), OPS_LISTED_MAX);
}

/// One asks for reports without end; another one has lost one report.
#[test]
fn reports_that_are_asked_for_again_leave_room_for_others() {
    let (mut g, op) = given_up_by_rank_0(3);
    let lane = Lane::tagged(7);
    for _ in 0..4 * OPS_LISTED_MAX {
        assert_eq!(give_up_alone(&mut g, lane), Ok(()));
    }
    let ask = |g: &mut Group| {
        for number in 0..4 * OPS_LISTED_MAX as u64 {
            let op = OpId { lane, number };
            let cause = AbortCause { reason: AbortReason::Dropped, by: Rank(1) };
            assert_eq!(g.ledgers[1].on_vote(Rank(2), op, Vote::Abort(cause)), Ok(()));
        }
    };
    ask(&mut g);
    assert_eq!(g.ledgers[1].again[2].len(), 3 * OPS_LISTED_MAX);
    let cause = AbortCause { reason: AbortReason::Dropped, by: Rank(0) };
    assert_eq!(g.ledgers[1].on_vote(Rank(0), op, Vote::Abort(cause)), Ok(()));
    let told = g.ledgers[1].report_resolved(RankSet::ALL);
    assert!(told.contains(&op) && told.len() < OPS_LISTED_MAX, "{told:?}");
}

#[test]
fn who_answers_first_and_calls_later_may_call_no_more_than_others() {
    let mut ledger = Ledger::new(&view_of(4), Rank(1));
    let op = |number| OpId { lane: Lane::MAIN, number };
    let answer = Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: Rank(2) });
    let begun = |number| Descriptor { op: op(number), call: SUM, plan_revision: 0 };
    for number in 0..2 * OPS_LISTED_MAX as u64 {
        assert_eq!(ledger.on_vote(Rank(0), op(number), answer), Ok(()));
    }
    let called =
        (0..).take_while(|number| ledger.on_descriptor(Rank(0), begun(*number)).is_ok()).count();
    assert_eq!(called, OPS_LISTED_MAX);
}

#[test]
fn a_message_concerns_its_two_ends() {
    let mut g = Group::of(3);
    let op = begin_message(&mut g);
    g.deliver_all();
    assert!(g.wires[0][1].is_empty() && g.wires[2][1].is_empty());
    assert_eq!((g.agreed[0].clone(), g.credits[0].clone()), (vec![(op, None)], vec![(op, ENDS.1)]));
    for end in [0, 2] {
        g.ledgers[end].done(op, 0);
    }
    g.deliver_all();
    for end in [0, 2] {
        assert_eq!(g.resolved[end], [(op, Outcome::Committed)]);
        assert_eq!(g.ledgers[end].committed(), 0, "it is no part of the group's history");
    }
    assert!(g.resolved[1].is_empty() && g.ledgers[1].in_flight() == 0);
    g.pass_reports();
    assert!(
        g.ledgers.iter_mut().all(|l| l.resolved().is_empty()),
        "a rank without a part in it is not waited for"
    );
}

#[test]
fn messages_leave_the_numbers_of_the_lane_alone() {
    let mut g = Group::of(3);
    let message = begin_message(&mut g);
    let sum = g.begin_all(SUM);
    assert_eq!((message.number, sum.number), (0, 0));
    assert_eq!(begin_message(&mut g).number, 1);
}

#[test]
fn a_third_member_has_no_say_in_a_message() {
    let mut g = Group::of(3);
    let op = begin_message(&mut g);
    let descriptor = Descriptor { op, call: message(), plan_revision: 0 };
    assert_eq!(g.ledgers[0].on_descriptor(Rank(1), descriptor), Err(Misbehaviour));
    assert_eq!(g.ledgers[0].on_vote(Rank(1), op, Vote::Done { digest: 0 }), Err(Misbehaviour));
    assert_eq!(
        g.ledgers[1].on_descriptor(Rank(0), descriptor),
        Err(Misbehaviour),
        "it is not for this member"
    );
    g.ledgers[0].on_resolved(Rank(1), &[op]);
    g.ledgers[0].on_ready(Rank(1), op, 0);
    g.drain(0);
    assert!(g.credits[0].is_empty());
}

#[test]
fn what_no_honest_member_describes_is_misbehaviour() {
    let lane = LANE.messages(ENDS.0, ENDS.1);
    let (plain, of_two) = (OpId { lane: LANE, number: 0 }, OpId { lane, number: 0 });
    let other_way = Call { kind: CallKind::Message { from: ENDS.1, to: ENDS.0, tag: 5 }, ..SUM };
    let wrong = [
        (plain, message()),
        (of_two, SUM),
        (of_two, other_way),
        (plain, in_step(1)),
        (plain.part(0), SUM),
        (plain.part(0), Call { mode: CallMode::PerStep, ..end(1) }),
        (plain.part(0), Call { mode: CallMode::PerStep, ..message() }),
        (of_two.part(0), in_step(1)),
        (OpId { lane: LANE.messages(Rank(2), Rank(9)), number: 0 }, SUM),
    ];
    for (op, call) in wrong {
        let mut g = Group::of(3);
        let descriptor = Descriptor { op, call, plan_revision: 0 };
        assert_eq!(
            g.ledgers[0].on_descriptor(Rank(2), descriptor),
            Err(Misbehaviour),
            "{op}: {call}"
        );
        assert_eq!(g.ledgers[0].in_flight(), 0, "{op}");
    }
    let vote = Vote::Done { digest: 0 };
    assert_eq!(Group::of(3).ledgers[0].on_vote(Rank(2), plain.part(3), vote), Err(Misbehaviour));
}

#[test]
fn no_more_than_32_messages_are_in_flight() {
    let mut g = Group::of(3);
    for _ in 0..32 {
        begin_message(&mut g);
    }
    let lane = LANE.messages(ENDS.1, ENDS.0);
    assert_eq!(g.ledgers[0].call(lane, message()), Err(CallRefusal::TooManyInFlight));
    assert!(g.ledgers[0].call(LANE, SUM).is_ok());
}

#[test]
fn a_replay_tells_each_member_what_concerns_it() {
    let mut g = Group::of(3);
    let op = begin_message(&mut g);
    assert!(matches!(g.ledgers[0].replay(Rank(2))[..], [OpBody::Describe(d)] if d.op == op));
    assert_eq!(g.ledgers[0].replay(Rank(1)), []);
}

#[test]
fn a_step_is_voted_on_once() {
    let mut g = Group::of(3);
    let ops: Vec<OpId> = (0..3).map(|i| make_step(&mut g, i, &[4, 9])).collect();
    let op = ops[0];
    g.deliver_all();
    assert_eq!(g.credits[0].len(), 4, "each call is credited by itself: {:?}", g.credits[0]);
    (0..3).for_each(|i| end_step(&mut g, i, op, 2));
    g.deliver_all();
    assert!(g.agreed.iter().all(|agreed| *agreed == [(op, None)]));
    (0..3).for_each(|i| g.ledgers[i].done(op, 8));
    g.deliver_all();
    for i in 0..3 {
        assert_eq!(g.resolved[i], [(op, Outcome::Committed)]);
        assert_eq!(g.ledgers[i].committed(), 1);
        let names: Vec<OpId> = [op].into_iter().chain(op.parts()).collect();
        assert_eq!(g.retired[i], names, "engines know its calls");
    }
}

/// A member that has missed the report of a step repeats it, call for call, to one that has
/// forgotten it. With an answer to each call, the answers to a long step filled the queue of the
/// new link and ended it, and over the next link came the same.
#[test]
fn a_step_that_is_repeated_is_answered_as_one() {
    let (mut g, counts) = (Group::of(2), [4; 64]);
    let op = make_step(&mut g, 0, &counts);
    make_step(&mut g, 1, &counts);
    (0..2).for_each(|i| end_step(&mut g, i, op, 64));
    g.deliver_all();
    g.done(0..2, op);
    g.deliver_all();
    g.assert_ends(op, Outcome::Committed);
    g.ledgers[1].on_resolved(Rank(0), &[op]);
    let lost = g.ledgers[1].report_resolved(RankSet::ALL);
    assert!(lost == [op] && g.ledgers[1].entries.is_empty(), "it is not forgotten");
    let repeated = g.ledgers[0].replay(Rank(1));
    assert!(repeated.len() > 64, "{repeated:?}");
    for body in repeated {
        let message =
            OpMessage { view: g.ledgers[1].view(), body, resolved: Vec::new(), enclosed: None };
        g.ledgers[1].hear(Rank(0), &message).unwrap();
    }
    let answers = g.ledgers[1].take_effects();
    assert!(answers.len() <= 8, "{} answers", answers.len());
    assert_eq!(g.ledgers[1].report_resolved(RankSet::ALL), [op]);
    assert!(g.ledgers[1].report_resolved(RankSet::ALL).is_empty(), "it is told once");
}

#[test]
fn nobody_votes_for_a_step_that_others_have_not_ended() {
    let mut g = Group::of(2);
    let op = make_step(&mut g, 0, &[4]);
    make_step(&mut g, 1, &[4]);
    end_step(&mut g, 0, op, 1);
    g.ledgers[0].done(op, 1);
    g.deliver_all();
    assert!(!g.ledgers[0].has_voted_done(op));
    end_step(&mut g, 1, op, 1);
    g.deliver_all();
    assert!(g.ledgers[0].has_voted_done(op));
}

/// The mismatch between a step of the calls 4 and 9 on rank 0 and `second` on rank 1.
fn mismatch_with(second: impl FnOnce(&mut Group)) -> Mismatch {
    let mut g = Group::of(2);
    let op = make_step(&mut g, 0, &[4, 9]);
    end_step(&mut g, 0, op, 2);
    second(&mut g);
    g.deliver_all();
    let [(_, Outcome::Aborted(cause))] = g.resolved[0][..] else { panic!("{:?}", g.resolved) };
    assert_eq!(g.resolved[0], g.resolved[1]);
    let AbortReason::Mismatch(mismatch) = cause.reason else { panic!("{cause:?}") };
    mismatch
}

#[test]
fn steps_that_differ_are_a_mismatch_before_all_have_ended_them() {
    let another = mismatch_with(|g| _ = make_step(g, 1, &[4, 8]));
    assert_eq!((another.lower.1, another.higher.1), (in_step(9), in_step(8)));
    let none = mismatch_with(|g| _ = g.begin(1, SUM));
    assert_eq!(none.higher.1, SUM);
    let longer = mismatch_with(|g| _ = make_step(g, 1, &[4, 9, 1]));
    assert_eq!((longer.lower.1, longer.higher.1), (end(2), in_step(1)));
    let shorter = mismatch_with(|g| {
        let op = make_step(g, 1, &[4]);
        end_step(g, 1, op, 1);
    });
    assert_eq!((shorter.lower.1, shorter.higher.1), (in_step(9), end(1)));
}

#[test]
fn a_step_given_up_elsewhere_has_no_call_carried_out() {
    let mut g = Group::of(2);
    let op = make_step(&mut g, 0, &[4]);
    g.ledgers[0].abort(op, AbortReason::Dropped);
    g.deliver_all();
    make_step(&mut g, 1, &[4]);
    g.drain(1);
    assert!(
        op.parts().all(|part| g.cancelled[1].contains(&part)),
        "engines hear of it before the calls begin"
    );
    assert_eq!(g.resolved[1].len(), 1);
}

#[test]
fn best_effort_counts_on_each_member_by_itself() {
    let effort = Call { mode: CallMode::BestEffort, ..SUM };
    let mut g = Group::of(2);
    let op = g.begin_all(effort);
    g.ledgers[0].done(op, 1);
    assert!(g.resolved[0].is_empty(), "it is not known yet what the other one calls");
    g.deliver_all();
    assert_eq!(g.resolved[0], [(op, Outcome::Committed)]);
    assert!(
        g.resolved[1].is_empty() && g.retired[0].is_empty(),
        "the other one may still need data"
    );
    assert_eq!((g.ledgers[0].committed(), g.ledgers[0].clone().freeze().ops), (0, vec![]));
    g.ledgers[1].done(op, 2);
    g.drain(1);
    assert_eq!(g.resolved[1], [(op, Outcome::Committed)]);
    g.pass_reports();
    assert_eq!(g.retired, [[op], [op]]);
}

#[test]
fn best_effort_given_up_is_over_at_once_but_not_where_it_is_done() {
    let effort = Call { mode: CallMode::BestEffort, ..SUM };
    let mut g = Group::of(3);
    let op = g.begin_all(effort);
    g.deliver_all();
    g.ledgers[0].done(op, 1);
    g.ledgers[1].abort(op, AbortReason::Dropped);
    g.drain(0);
    g.drain(1);
    g.deliver(1, 2);
    let aborted = aborted(AbortReason::Dropped, 1);
    assert_eq!(g.resolved, [[(op, Outcome::Committed)], [(op, aborted)], [(op, aborted)]]);
    g.deliver_all();
    assert!(g.resolved.iter().all(|r| r.len() == 1), "an outcome is final");
}

/// Each of two members has given up a call that the other one has never made, and a link that broke
/// has lost both reports. Their own calls fill their lists.
#[test]
fn two_who_wait_for_each_others_reports_both_get_them() {
    let mut g = Group::of(2);
    let small = LedgerBounds { in_flight: 1, listed: 1 };
    g.ledgers = g.ledgers.into_iter().map(|ledger| ledger.within(small)).collect();
    for (i, lane) in [Lane::MAIN, Lane::tagged(7)].into_iter().enumerate() {
        let op = g.ledgers[i].call(lane, SUM).expect("it may be called");
        g.ledgers[i].describe(op);
        g.ledgers[i].abort(op, AbortReason::Deadline);
        g.deliver_all();
    }
    g.ledgers.iter_mut().for_each(|ledger| _ = ledger.report_resolved(RankSet::ALL));
    for (i, to) in [(0, 1), (1, 0)] {
        g.wires[i][to] = g.ledgers[i].replay(Rank(to as u8));
    }
    g.deliver_all();
    g.pass_reports();
    g.pass_reports();
    for (i, lane) in [Lane::MAIN, Lane::tagged(7)].into_iter().enumerate() {
        assert!(g.ledgers[i].call(lane, SUM).is_ok(), "{i} is refused for ever");
    }
}
