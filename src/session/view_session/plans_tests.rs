//! Calls during the agreement on another plan, on the native engine over in-memory links.

use super::testing::{Group, numbers};
use crate::collective::suite::{f32_call, plan};
use crate::collective::{Input, reference};
use crate::memory::bytes_of;
use crate::os::lock;
use crate::protocol::{
    AbortCause, AbortReason, Algorithm, Call, CallKind, CallMode, GroupRanks, Lane, OpId, Outcome,
    Plan, PlanStep, Rank, ReduceOp, Switch, Tree, TreeShare, view_of,
};
use crate::topology::plan_of_group;
use std::sync::Arc;

const SIZE: usize = 3;
/// Not a multiple of 8 bytes.
const LEN: usize = 50_001;

fn sum(mode: CallMode) -> Call {
    Call { mode, ..f32_call(CallKind::AllReduce(ReduceOp::Sum), LEN) }
}

/// Numbers whose sum depends on the order of addition.
fn inputs() -> Vec<Vec<f32>> {
    let number = |rank: usize, i: usize| [1e8, 1.25, -1e8][(rank + i) % 3] + i as f32;
    (0..SIZE).map(|rank| (0..LEN).map(|i| number(rank, i)).collect()).collect()
}

/// 2 under 1 under 0: an order other than the rank order.
fn chain() -> Plan {
    let tree = Tree { parents: vec![None, Some(Rank(0)), Some(Rank(1))] };
    let algorithm = Algorithm::Trees { trees: vec![TreeShare { tree, ppm: 1_000_000 }] };
    Plan { revision: 1, ..Arc::unwrap_or_clone(plan(16 * 1024, algorithm)) }
}

fn expected(plan: &Plan) -> Vec<f32> {
    reference(&plan.fold_order(SIZE, LEN, 4), ReduceOp::Sum, &inputs())
}

/// The revision under which each reduction ran, by which rank 0 judges plans.
fn served_under(group: &Group) -> Vec<u32> {
    group.members[0].take_served().iter().map(|served| served.revision).collect()
}

#[test]
fn what_is_called_while_a_plan_is_agreed_on_waits_and_runs_under_that_plan_everywhere() {
    let mut group = Group::of(view_of(SIZE as u8));
    let (first, next) = (Plan::mesh(SIZE), chain());
    assert!(expected(&first) != expected(&next), "the plans must be told apart");
    let before = group.call_all(sum(CallMode::PerOp));

    let held = group.hold_all();
    let first_new = vec![OpId { lane: Lane::MAIN, number: 1 }];
    assert!(
        held.iter()
            .all(|step| *step == PlanStep::Held { revision: 1, next: Some(first_new.clone()) }),
        "{held:?}"
    );
    let whole = group.call_all(sum(CallMode::PerOp));
    let step_call = Call { kind: CallKind::Step { parts: 1 }, ..sum(CallMode::PerOp) };
    let steps = group.call_all(step_call);
    group.begin_all(&whole, sum(CallMode::PerOp), &inputs());
    for (member, (step, input)) in group.members.iter().zip(steps.iter().zip(inputs())) {
        member.begin_part(*step, 0, sum(CallMode::PerStep), &Input::Borrowed(bytes_of(&input)));
        member.end_step(*step, step_call, 1);
    }
    group.carry();
    let sent = |group: &Group| {
        group.members.iter().map(|member| member.backend().traffic().sent_bytes).sum::<u64>()
    };
    assert_eq!(sent(&group), 0, "no held call has begun");

    // Calls made before the hold do not wait, although they begin only now.
    group.begin_all(&before, sum(CallMode::PerOp), &inputs());
    group.assert_results(&before, &expected(&first));

    let switch = Switch { plan: next.clone(), first: first_new };
    for member in &group.members {
        assert_eq!(member.switch(1, Some(&switch)), Ok(PlanStep::Switched { revision: 1 }));
        assert_eq!(
            member.switch(1, Some(&switch)),
            Ok(PlanStep::Switched { revision: 1 }),
            "said again"
        );
    }
    group.assert_results(&whole, &expected(&next));
    for (rank, step) in steps.iter().enumerate() {
        let decided = group.decided(rank, *step);
        assert_eq!(decided.outcome, Outcome::Committed);
        assert!(numbers(&decided.parts[0].output) == expected(&next), "rank {rank}, in a step");
    }
    assert!(group.members.iter().all(|member| *member.plan() == next));
    assert_eq!(served_under(&group), [0, 1]);
}

/// A held call keeps a copy of its input. Without memory for it the call fails, everywhere alike,
/// and others that are held do not.
#[test]
fn a_call_whose_input_cannot_be_held_fails_and_no_other() {
    let mut group = Group::of(view_of(SIZE as u8));
    let PlanStep::Held { next: Some(first), .. } = group.hold_all().swap_remove(0) else {
        panic!("the next plan is not held for")
    };
    let lacking = group.call_all(sum(CallMode::PerOp));
    let copy_bytes = 8 * (4 * LEN).div_ceil(8);
    group.pools[1].refuse_above(copy_bytes - 1);
    group.begin_all(&lacking, sum(CallMode::PerOp), &inputs());
    group.pools[1].refuse_above(usize::MAX);
    let held = group.call_all(sum(CallMode::PerOp));
    group.begin_all(&held, sum(CallMode::PerOp), &inputs());
    let reason = AbortReason::Memory { bytes: copy_bytes as u64 };
    let cause = AbortCause { reason, by: Rank(1) };
    for (rank, op) in lacking.iter().enumerate() {
        assert_eq!(group.decided(rank, *op).outcome, Outcome::Aborted(cause));
    }
    let inputs_kept = |rank: usize| lock(&group.members[rank].state).plans.held_now();
    assert_eq!([0, 1, 2].map(inputs_kept), [1; 3], "what has failed is kept no longer");
    let switch = Switch { plan: chain(), first };
    for member in &group.members {
        assert_eq!(member.switch(1, Some(&switch)), Ok(PlanStep::Switched { revision: 1 }));
    }
    group.assert_results(&held, &expected(&chain()));
}

#[test]
fn what_is_held_ends_with_its_view_and_can_be_given_up() {
    let mut group = Group::of(view_of(SIZE as u8));
    group.hold_all();
    let dropped = group.call_all(sum(CallMode::PerOp));
    let open = group.call_all(sum(CallMode::PerOp));
    for ops in [&dropped, &open] {
        group.begin_all(ops, sum(CallMode::PerOp), &inputs());
    }
    group.members[1].abandon(dropped[1]);
    assert!(matches!(group.decided(0, dropped[0]).outcome, Outcome::Aborted(_)));
    for member in &group.members {
        member.freeze();
        member.decide(&view_of(SIZE as u8));
    }
    for (rank, op) in open.iter().enumerate() {
        assert!(matches!(group.decided(rank, *op).outcome, Outcome::Aborted(_)), "rank {rank}");
    }
}

#[test]
fn what_somebody_has_begun_before_is_not_waited_for() {
    let mut group = Group::of(view_of(SIZE as u8));
    let early: Vec<OpId> = group.members[1..]
        .iter()
        .map(|member| member.call(Lane::MAIN, sum(CallMode::PerOp)).expect("a number"))
        .collect();
    group.members[1].begin(
        early[0],
        sum(CallMode::PerOp),
        &Input::Borrowed(bytes_of(&inputs()[1])),
    );
    group.hold_all();
    let late = group.members[0].call(Lane::MAIN, sum(CallMode::PerOp)).expect("a number");
    group.members[0].begin(late, sum(CallMode::PerOp), &Input::Borrowed(bytes_of(&inputs()[0])));
    group.members[2].begin(
        early[1],
        sum(CallMode::PerOp),
        &Input::Borrowed(bytes_of(&inputs()[2])),
    );
    // The next plan never gets a starting point.
    group.assert_results(&[late; SIZE], &expected(&Plan::mesh(SIZE)));
}

#[test]
fn a_member_that_is_behind_is_told_the_plan_of_its_own_next_call() {
    let mut group = Group::of(view_of(SIZE as u8));
    let early: Vec<OpId> = group.members[1..]
        .iter()
        .map(|member| member.call(Lane::MAIN, sum(CallMode::PerOp)).expect("a number"))
        .collect();
    group.hold_all();
    let first = vec![OpId { lane: Lane::MAIN, number: 1 }];
    let switch = Switch { plan: chain(), first };
    for member in &group.members {
        assert_eq!(member.switch(1, Some(&switch)), Ok(PlanStep::Switched { revision: 1 }));
    }
    assert_eq!(*group.members[0].plan(), chain());
    assert_eq!(*group.members[0].plan_in(Lane::MAIN), Plan::mesh(SIZE));
    assert_eq!(*group.members[0].plan_in(Lane::MAIN.with_tag(1)), chain(), "it is behind in one");
    let late = group.members[0].call(Lane::MAIN, sum(CallMode::PerOp)).expect("a number");
    group.begin_all(&[late, early[0], early[1]], sum(CallMode::PerOp), &inputs());
    group.assert_results(&[late; SIZE], &expected(&Plan::mesh(SIZE)));
    assert_eq!(served_under(&group), [0], "it ended under the new plan and does not count for it");
    for member in &group.members {
        assert_eq!(*member.plan_in(Lane::MAIN), chain());
    }
}

/// Calls of the ranks 0 and 2 before, during and after the agreement, in which rank 1 takes part.
#[test]
fn the_calls_of_a_group_run_under_one_plan_each_on_all_its_ranks() {
    let mut group = Group::of(view_of(SIZE as u8));
    let ranks = GroupRanks::of([0, 2].map(Rank).into_iter().collect());
    let lane = Lane::of_group(ranks, 3, SIZE);
    let call_all = |group: &Group| -> Vec<OpId> {
        [0, 2]
            .map(|i: usize| group.members[i].call(lane, sum(CallMode::PerOp)).expect("a number"))
            .into()
    };
    let begin_all = |group: &Group, ops: &[OpId]| {
        for (i, op) in [0, 2].into_iter().zip(ops) {
            let input = &inputs()[i];
            group.members[i].begin(*op, sum(CallMode::PerOp), &Input::Borrowed(bytes_of(input)));
        }
    };
    let expected = |plan: &Plan| {
        let plan = plan_of_group(plan, ranks, &[]).expect("a mesh");
        let inputs = [0, 2].map(|i: usize| inputs()[i].clone());
        reference(&plan.fold_order(2, LEN, 4), ReduceOp::Sum, &inputs)
    };
    // Of rank 2, only one call is made before the hold; of rank 0 two are.
    let before = call_all(&group);
    let ahead = group.members[0].call(lane, sum(CallMode::PerOp)).expect("a number");
    let first = vec![OpId { lane, number: 2 }];
    let held = group.hold_all();
    let next = |step: &PlanStep| match step {
        PlanStep::Held { next: Some(next), .. } => next.clone(),
        other => panic!("{other:?}"),
    };
    let of_behind = vec![OpId { lane, number: 1 }];
    assert_eq!(held.iter().map(next).collect::<Vec<_>>(), [first.clone(), vec![], of_behind]);
    let behind = group.members[2].call(lane, sum(CallMode::PerOp)).expect("a number");
    let after = call_all(&group);
    for ops in [&before, &vec![ahead, behind], &after] {
        begin_all(&group, ops);
    }
    let switch = Switch { plan: chain(), first };
    for member in &group.members {
        assert_eq!(member.switch(1, Some(&switch)), Ok(PlanStep::Switched { revision: 1 }));
    }
    for (ops, plan) in
        [(before, Plan::mesh(SIZE)), (vec![ahead, behind], Plan::mesh(SIZE)), (after, chain())]
    {
        for (i, op) in [0, 2].into_iter().zip(ops) {
            group.assert_result(i, op, &expected(&plan));
        }
    }
    for i in [0, 2] {
        assert_eq!(
            *group.members[i].plan_in(lane),
            plan_of_group(&chain(), ranks, &[]).expect("a mesh")
        );
    }
}

#[test]
fn a_plan_for_another_group_or_engine_is_refused() {
    let group = Group::of(view_of(SIZE as u8));
    let mut gloo = Plan { revision: 1, ..Plan::mesh(SIZE) };
    gloo.classes[0].algorithm = Algorithm::GlooRing;
    let mut larger = chain();
    larger.classes[0].algorithm = Algorithm::Ring { order: (0..4).map(Rank).collect() };
    let switch = |plan| Switch { plan, first: Vec::new() };
    assert!(group.members[0].switch(1, Some(&switch(chain()))).is_err(), "nothing is held");
    group.hold_all();
    for plan in [gloo, larger] {
        assert!(group.members[0].switch(1, Some(&switch(plan.clone()))).is_err(), "{plan:?}");
    }
    assert!(group.members[0].switch(1, Some(&switch(chain()))).is_ok());
}
