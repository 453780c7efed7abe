//! Jobs that end before they are done.

use super::super::backend::Backend;
use super::super::input::Input;
use super::{Door, Group, f32_call, op};
use crate::memory::{DType, bytes_of};
use crate::protocol::{
    Algorithm, Call, CallKind, CodecId, EngineFault, OpId, Plan, Rank, ReduceOp,
};
use std::sync::Arc;

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

pub fn a_job_may_end_before_it_is_fed(door: &Door) {
    let end: [fn(&dyn Backend); 3] =
        [|b| b.cancel(op(0, 0)), |b| b.retire(op(0, 0)), |b| b.close()];
    for end in end {
        let group = door.group(2);
        let plan = door.plans(2, 1024, &mut super::Chance(1)).swap_remove(0);
        group.begin(Rank(0), op(0, 0), f32_call(SUM, 1000), None, &plan, None);
        group.backends[0].credit(op(0, 0), Rank(1));
        end(group.backends[0].as_ref());
        assert!(group.outcome().2.is_err());
        let input = Arc::new(vec![1f32; 1000]);
        group.backends[0].feed(op(0, 0), &Input::lent(&input));
        group.backends[0].feed(op(7, 7), &Input::lent(&input));
        assert_eq!(Arc::strong_count(&input), 1, "it is fed to nobody");
        assert_eq!(group.sent_bytes(), 0);
        assert!(group.end().is_empty(), "done is called once");
    }
}

pub fn what_does_not_fit_is_refused(door: &Door) {
    let (group, chance, mut number) = (door.group(2), &mut super::Chance(1), 0);
    let own = door.plans(2, 1024, chance).swap_remove(0);
    let algorithms = (door.algorithms)(2, chance);
    let anothers = [Algorithm::OneShot, Algorithm::GlooRing].into_iter();
    let anothers = anothers.filter(|algorithm| !algorithms.contains(algorithm));
    let mut assert_unfit = |call: Call, plan: &Arc<Plan>, input: &Input<'_>| {
        let of = op(0, number);
        number += 1;
        group.start_with(Rank(0), of, call, None, plan, input);
        let (_, ended, result) = group.outcome();
        assert_eq!((ended, result.err()), (of, Some(EngineFault::Unfit)), "{call}");
    };
    for call in [
        Call { dtype: DType::U8, ..f32_call(CallKind::AllReduce(ReduceOp::Mean), 8) },
        Call { codec: CodecId::Bf16, ..f32_call(CallKind::AllGather, 1) },
        f32_call(SUM, usize::MAX / 2),
        f32_call(CallKind::Broadcast { root: Rank(2) }, 1),
    ] {
        assert_unfit(call, &own, &Input::Borrowed(&[]));
    }
    for algorithm in anothers {
        assert_unfit(f32_call(SUM, 1), &super::plan(1024, algorithm), &Input::Borrowed(&[0; 4]));
    }
    for bytes in [0, 3996, 4004] {
        assert_unfit(f32_call(SUM, 1000), &own, &Input::Borrowed(&vec![0; bytes]));
    }
    assert_unfit(f32_call(SUM, 1000), &own, &Input::Nothing);
}

pub fn every_job_is_told_once_that_the_backend_has_closed(door: &Door) {
    let group = door.group(2);
    let plan = door.plans(2, 1024, &mut super::Chance(1)).swap_remove(0);
    let start = |me: Rank, op: OpId| {
        group.start(me, op, f32_call(SUM, 1000), None, &plan, bytes_of(&[1f32; 1000]));
    };
    // Each rank waits for the other one, which calls other operations.
    for number in 0..20 {
        start(Rank(0), op(0, number));
        start(Rank(1), op(1, number));
    }
    group.backends.iter().for_each(|backend| backend.close());
    group.backends.iter().for_each(|backend| backend.close());
    start(Rank(0), op(0, 20));
    let told = Group::end(group).into_iter().map(|(rank, op, result)| {
        let fault = result.err();
        // Rank 0 closes first, and with it the link.
        let is_late = rank == Rank(1) && fault == Some(EngineFault::LinkLost(Rank(0)));
        assert!(is_late || fault == Some(EngineFault::Closed), "{op} on rank {rank}: {fault:?}");
        (rank, op)
    });
    let mut told: Vec<(Rank, OpId)> = told.collect();
    told.sort_unstable();
    let due = (0..=20)
        .map(|number| (Rank(0), op(0, number)))
        .chain((0..20).map(|number| (Rank(1), op(1, number))));
    assert_eq!(told, due.collect::<Vec<_>>());
}
