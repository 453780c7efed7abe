//! Contributions enclosed with their descriptors, on the native engine.

use super::testing::{Group, numbers};
use crate::collective::Input;
use crate::collective::suite::f32_call;
use crate::memory::{DType, bytes_of};
use crate::protocol::{
    AbortReason, Call, CallKind, CallMode, ENCLOSED_BYTES_MAX, Enclosed, Lane, OpId, OpMessage,
    Outcome, PlanStep, Rank, ReduceOp, view_of,
};
use std::sync::Arc;

const SIZE: usize = 3;

fn sum(count: usize) -> Call {
    f32_call(CallKind::AllReduce(ReduceOp::Sum), count)
}

fn inputs(len: usize) -> Vec<Vec<f32>> {
    (0..SIZE).map(|rank| (0..len).map(|i| (rank * 1000 + i) as f32).collect()).collect()
}

fn summed(len: usize) -> Vec<f32> {
    inputs(len)
        .into_iter()
        .reduce(|sum, next| sum.iter().zip(next).map(|(a, b)| a + b).collect())
        .expect("some members")
}

/// The messages of a member that makes this call.
fn begun(group: &mut Group, member: usize, call: Call, input: &[f32]) -> (OpId, Vec<OpMessage>) {
    let op = group.members[member].call(Lane::MAIN, call).expect("a number");
    group.members[member].begin(op, call, &Input::Borrowed(bytes_of(input)));
    (op, group.take_said(member))
}

/// A member hears again all that rank 1 has said.
fn hear_again(group: &Group, to: u8) {
    for message in group.members[1].replay(Rank(to), |all| all) {
        group.members[usize::from(to)].on_message(Rank(1), &message).expect("an honest member");
    }
}

#[test]
fn what_all_get_alike_needs_no_data_link_if_it_is_small() {
    let mut group = Group::without_data_links(view_of(SIZE as u8));
    let most = ENCLOSED_BYTES_MAX / 4;
    for len in [1, 7, most] {
        let op = group.call_all(sum(len));
        group.begin_all(&op, sum(len), &inputs(len));
        group.assert_results(&op, &summed(len));
        let gather = f32_call(CallKind::AllGather, len);
        let op = group.call_all(gather);
        group.begin_all(&op, gather, &inputs(len));
        group.assert_results(&op, &inputs(len).concat());
        let hand_on = f32_call(CallKind::Broadcast { root: Rank(1) }, len);
        let op = group.call_all(hand_on);
        for (rank, (member, op)) in group.members.iter().zip(&op).enumerate() {
            let roots = inputs(len);
            let input =
                if rank == 1 { Input::Borrowed(bytes_of(&roots[1])) } else { Input::Nothing };
            member.begin(*op, hand_on, &input);
        }
        group.assert_results(&op, &inputs(len)[1]);
    }
    let traffic = group.members[0].backend().traffic_with(Rank(1));
    let each = 4 * (1 + 7 + most) as u64;
    assert_eq!(
        (traffic.sent_bytes, traffic.received_bytes),
        (2 * each, 3 * each),
        "it counts as what data links carry"
    );
}

#[test]
fn larger_ones_and_those_beyond_sixteen_at_once_go_over_the_data_links() {
    let mut group = Group::of(view_of(SIZE as u8));
    let larger = ENCLOSED_BYTES_MAX / 4 + 1;
    let (_, said) = begun(&mut group, 0, sum(larger), &inputs(larger)[0]);
    assert!(said.iter().all(|message| message.enclosed.is_none()), "{said:?}");
    let mut enclosed = 0;
    for _ in 0..40 {
        let (_, said) = begun(&mut group, 0, sum(1), &inputs(1)[0]);
        enclosed += said.iter().filter(|message| message.enclosed.is_some()).count();
    }
    assert_eq!(enclosed, 16);
    // All operations end, with or without enclosed contributions.
    let mut group = Group::of(view_of(SIZE as u8));
    let ops: Vec<Vec<OpId>> = (0..40).map(|_| group.call_all(sum(1))).collect();
    ops.iter().for_each(|op| group.begin_all(op, sum(1), &inputs(1)));
    ops.iter().for_each(|op| group.assert_results(op, &summed(1)));
}

#[test]
fn a_link_that_broke_says_it_again_and_it_counts_once() {
    let mut group = Group::without_data_links(view_of(SIZE as u8));
    let op = group.call_all(sum(5));
    group.begin_all(&op, sum(5), &inputs(5));
    // The first copies of rank 1's messages are lost. It repeats them twice to rank 2, then once to
    // rank 0.
    let lost = group.take_said(1);
    assert!(lost.iter().any(|message| message.enclosed.is_some()), "{lost:?}");
    [2, 2, 0].into_iter().for_each(|to| hear_again(&group, to));
    group.assert_results(&op, &summed(5));
    let again = group.members[1].replay(Rank(2), |all| all);
    assert!(
        again.iter().all(|message| message.enclosed.is_none()),
        "a decided one is not kept: {again:?}"
    );
}

#[test]
fn what_does_not_fit_its_call_fails_it() {
    let wrong: [fn(&mut Enclosed); 4] = [
        |enclosed| enclosed.bytes = enclosed.bytes[1..].into(),
        |enclosed| enclosed.flow = 1,
        |enclosed| enclosed.chunk = u32::MAX,
        |enclosed| enclosed.is_result = true,
    ];
    for (case, spoil) in wrong.into_iter().enumerate() {
        for (is_early, has_links) in [(false, false), (true, false), (false, true), (true, true)] {
            let view = view_of(2);
            let mut group =
                if has_links { Group::of(view) } else { Group::without_data_links(view) };
            let (theirs, mut said) = begun(&mut group, 1, sum(5), &inputs(5)[1]);
            said.iter_mut()
                .filter_map(|message| message.enclosed.as_mut())
                .for_each(|enclosed| spoil(Arc::make_mut(enclosed)));
            let hear = |group: &Group| {
                for message in &said {
                    group.members[0]
                        .on_message(Rank(1), message)
                        .expect("a descriptor like any other");
                }
            };
            if is_early {
                hear(&group);
            }
            let ours = group.members[0].call(Lane::MAIN, sum(5)).expect("a number");
            group.members[0].begin(ours, sum(5), &Input::Borrowed(bytes_of(&inputs(5)[0])));
            if !is_early {
                hear(&group);
            }
            for (rank, op) in [(0, ours), (1, theirs)] {
                let outcome = group.decided(rank, op).outcome;
                let is_the_engines = matches!(
                    outcome,
                    Outcome::Aborted(cause) if cause.reason == AbortReason::Engine
                );
                assert!(
                    is_the_engines,
                    "case {case}, early: {is_early}, links: {has_links}, rank {rank}: {outcome:?}"
                );
            }
        }
    }
}

#[test]
fn one_whose_call_differs_is_a_mismatch() {
    let mut group = Group::of(view_of(2));
    for (ours, theirs) in
        [(sum(5), sum(6)), (sum(6), sum(5)), (sum(5), f32_call(CallKind::AllGather, 5))]
    {
        for first in [0, 1] {
            let mut ops = [None; 2];
            for rank in [first, 1 - first] {
                let call = [ours, theirs][rank];
                let op = group.members[rank].call(Lane::MAIN, call).expect("a number");
                group.members[rank].begin(
                    op,
                    call,
                    &Input::Borrowed(bytes_of(&inputs(call.count as usize)[rank])),
                );
                group.carry();
                ops[rank] = Some(op);
            }
            for (rank, op) in ops.into_iter().enumerate() {
                let outcome = group.decided(rank, op.expect("begun")).outcome;
                let is_mismatch = matches!(
                    outcome,
                    Outcome::Aborted(cause) if matches!(cause.reason, AbortReason::Mismatch(_))
                );
                assert!(is_mismatch, "{ours} and {theirs}: {outcome:?}");
            }
        }
    }
    // The links work.
    let larger = ENCLOSED_BYTES_MAX;
    let op = group.call_all(sum(larger));
    group.begin_all(&op, sum(larger), &inputs(larger)[..2]);
    assert_eq!(group.decided(0, op[0]).outcome, Outcome::Committed);
}

#[test]
fn the_calls_of_a_step_are_enclosed_each_and_more_than_sixteen_are_not() {
    const CALLS: u8 = 20;
    let mut group = Group::of(view_of(SIZE as u8));
    let end = Call::new(CallKind::Step { parts: CALLS }, DType::U8, 0);
    let part = Call { mode: CallMode::PerStep, ..sum(1) };
    let steps = group.call_all(end);
    for (member, (step, input)) in group.members.iter().zip(steps.iter().zip(inputs(1))) {
        (0..CALLS).for_each(|index| {
            member.begin_part(*step, index, part, &Input::Borrowed(bytes_of(&input)));
        });
        member.end_step(*step, end, CALLS);
    }
    // Deliver the messages twice, as after a link was down: the first time only some of them.
    let said = group.take_said(1);
    assert_eq!(said.iter().filter(|message| message.enclosed.is_some()).count(), 16);
    for message in said[5..].iter().chain(&group.members[1].replay(Rank(0), |all| all)) {
        group.members[0].on_message(Rank(1), message).expect("an honest member");
    }
    hear_again(&group, 2);
    for (rank, step) in steps.iter().enumerate() {
        let decided = group.decided(rank, *step);
        assert_eq!(decided.outcome, Outcome::Committed);
        assert_eq!(decided.parts.len(), usize::from(CALLS));
        decided
            .parts
            .into_iter()
            .for_each(|output| assert!(numbers(&output.output) == summed(1), "rank {rank}"));
    }
}

#[test]
fn a_call_by_best_effort_is_said_again_as_long_as_somebody_may_lack_it() {
    let mut group = Group::without_data_links(view_of(SIZE as u8));
    let call = Call { mode: CallMode::BestEffort, ..sum(5) };
    let op = group.call_all(call);
    group.begin_all(&op, call, &inputs(5));
    // Rank 2 gets nothing from rank 1, which completes with the messages of the others.
    let said = group.take_said(1);
    for message in &said {
        group.members[0].on_message(Rank(1), message).expect("an honest member");
    }
    for rank in [0, 1] {
        group.assert_result(rank, op[rank], &summed(5));
    }
    hear_again(&group, 2);
    group.assert_result(2, op[2], &summed(5));
}

#[test]
fn what_is_held_for_another_plan_is_enclosed_when_it_begins() {
    let mut group = Group::without_data_links(view_of(SIZE as u8));
    group.hold_all();
    let op = group.call_all(sum(5));
    group.begin_all(&op, sum(5), &inputs(5));
    for member in &group.members {
        assert_eq!(member.switch(1, None), Ok(PlanStep::Switched { revision: 1 }));
    }
    group.assert_results(&op, &summed(5));
}

#[test]
fn what_is_given_up_makes_room_for_others() {
    let mut group = Group::without_data_links(view_of(SIZE as u8));
    for _ in 0..3 {
        let begun: Vec<(OpId, Vec<OpMessage>)> =
            (0..16).map(|_| begun(&mut group, 0, sum(1), &[1.0])).collect();
        assert!(begun.iter().flat_map(|(_, said)| said).all(|message| message.enclosed.is_some()));
        begun.iter().for_each(|(op, _)| _ = group.members[0].abandon(*op));
        group.take_said(0);
    }
}
