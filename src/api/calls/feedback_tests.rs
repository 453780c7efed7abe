//! Error feedback if the plan chooses the codec and exempts some members.

use super::codec::Codec;
use super::pending_op::PendingOp;
use crate::memory::{DType, bytes_of, bytes_of_mut};
use crate::protocol::{
    Algorithm, AutoCodecs, Call, CallKind, Coarsest, Coding, Lane, Plan, PlanStep, Rank, ReduceOp,
    Switch, Tree, TreeShare, View, view_of,
};
use crate::session::Group;
use std::task::{Context as Task, Waker};

const LEN: usize = 700;

/// A star of three with root 0; the `plain` ranks contribute without encoding.
fn plan(plain: &[u8]) -> Plan {
    let mut plan = Plan::mesh(3);
    plan.classes[0].algorithm = Algorithm::Trees {
        trees: vec![TreeShare { tree: Tree::star(Rank(0), 3), ppm: 1_000_000 }],
    };
    plan.classes[0].auto = AutoCodecs::new(|coarsest| {
        Coding::but_for(coarsest.id(), plain.iter().copied().map(Rank).collect())
    });
    plan
}

fn group(plan: Plan) -> Group {
    Group::of(View { plan, ..view_of(3) })
}

fn codecs() -> [Codec; 3] {
    [(); 3].map(|()| Codec::auto_up_to(Coarsest::Bf16).with_feedback())
}

/// The sum of each member's number, as all members get it. `between` runs after all have called.
fn sum_of(
    group: &mut Group,
    codecs: &[Codec; 3],
    numbers: [f32; 3],
    between: impl FnOnce(&mut Group),
) -> f32 {
    let kind = CallKind::AllReduce(ReduceOp::Sum);
    let call = Call::new(kind, DType::F32, LEN as u64);
    let inputs = numbers.map(|number| vec![number; LEN]);
    let mut pending_ops: Vec<PendingOp> = Vec::new();
    for ((member, codec), input) in group.members.iter().zip(codecs).zip(&inputs) {
        let mut pending = PendingOp::numbered(member, Lane::MAIN, call);
        pending.encoded_by(codec);
        assert!(
            pending.poll(&mut Task::from_waker(Waker::noop()), Some(bytes_of(input))).is_pending()
        );
        pending_ops.push(pending);
    }
    between(group);
    let mut sums: Vec<f32> = Vec::new();
    for (pending, input) in pending_ops.iter_mut().zip(&inputs) {
        let result = group.ready(|task| pending.poll(task, Some(bytes_of(input)))).expect("a sum");
        let mut own = vec![0f32; LEN];
        result.copy_to(bytes_of_mut(&mut own));
        sums.extend(own);
    }
    assert!(sums.len() == 3 * LEN && sums.iter().all(|sum| *sum == sums[0]), "ranks differ");
    sums[0]
}

fn residual(codecs: &[Codec; 3]) -> [Option<f32>; 3] {
    [0, 1, 2].map(|rank| codecs[rank].residual().first().copied())
}

/// Numbers that bf16 cannot represent, whose sums it can.
const NUMBERS: [f32; 3] = [0.125, -256.25, 257.0];

#[test]
fn a_member_without_a_codec_has_no_residual_and_nothing_is_lost() {
    let (mut group, codecs) = (group(plan(&[0, 1])), codecs());
    let (mut arrived, mut fed) = (0.0, 0.0);
    for _ in 0..9 {
        arrived += sum_of(&mut group, &codecs, NUMBERS, |_| ());
        fed += NUMBERS.iter().sum::<f32>();
        let residual = residual(&codecs);
        assert_eq!((residual[0], residual[1]), (None, None));
        assert_eq!(arrived + residual[2].expect("a residual"), fed);
    }
    assert!(residual(&codecs)[2] != Some(0.0), "something is rounded away");
}

#[test]
fn an_earlier_residual_is_handed_in_whole() {
    let codecs = codecs();
    assert_eq!(sum_of(&mut group(plan(&[])), &codecs, [0.0, 257.0, -257.0], |_| ()), 0.0);
    assert_eq!(residual(&codecs), [Some(0.0), Some(1.0), Some(-1.0)]);
    // In the next View another plan exempts rank 1.
    let mut next = group(plan(&[0, 1]));
    assert_eq!(sum_of(&mut next, &codecs, [0.0, 256.25, -256.0], |_| ()), 257.25 - 256.0);
    assert_eq!(residual(&codecs), [None, None, Some(-1.0)]);
    assert_eq!(sum_of(&mut next, &codecs, [0.0, 0.0, 0.0], |_| ()), -1.0);
    assert_eq!(residual(&codecs), [None, None, Some(0.0)]);
}

/// When the residual is added, it is not known yet which members are exempt.
#[test]
fn a_call_that_was_held_for_its_plan_has_the_residual_of_that_plan() {
    let (mut group, codecs) = (group(plan(&[])), codecs());
    assert_eq!(sum_of(&mut group, &codecs, [0.0, 257.0, -257.0], |_| ()), 0.0);
    let held = group.hold_all();
    let Some(PlanStep::Held { next: Some(first), .. }) = held.first().cloned() else {
        panic!("{held:?}")
    };
    let switch = Switch { plan: Plan { revision: 1, ..plan(&[0, 1]) }, first };
    let sum = sum_of(&mut group, &codecs, [0.0, 256.25, -256.0], |group| {
        group.carry();
        group
            .members
            .iter()
            .for_each(|member| drop(member.switch(1, Some(&switch)).expect("the next plan")));
    });
    assert_eq!((sum, residual(&codecs)), (1.25, [None, None, Some(-1.0)]));
}

/// A call that was held for a plan keeps the residual of its codec.
#[test]
fn a_call_with_its_own_codec_that_was_held_has_a_residual_as_any_other() {
    let codecs = [(); 3].map(|()| Codec::bf16().with_feedback());
    let numbers = [0.125, 257.0, -256.25];
    let at_once = codecs.clone();
    sum_of(&mut group(plan(&[])), &at_once, numbers, |_| ());
    assert_eq!(residual(&at_once), [Some(0.0), Some(1.0), Some(-0.25)]);

    let mut group = group(plan(&[]));
    let held = group.hold_all();
    let Some(PlanStep::Held { next: Some(first), .. }) = held.first().cloned() else {
        panic!("{held:?}")
    };
    let switch = Switch { plan: Plan { revision: 1, ..plan(&[]) }, first };
    sum_of(&mut group, &codecs, numbers, |group| {
        group.carry();
        for member in &group.members {
            drop(member.switch(1, Some(&switch)).expect("the next plan"));
        }
    });
    assert_eq!(residual(&codecs), residual(&at_once));
}
