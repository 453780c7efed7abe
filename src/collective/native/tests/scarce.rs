//! A member without memory for data that arrives before its call.

use super::door::DOOR;
use crate::collective::suite::{Chance, Scarce, Setup, f32_call, plan, until};
use crate::memory::bytes_of;
use crate::protocol::{Algorithm, CallKind, EngineFault, Rank, ReduceOp};

const ROOT: Rank = Rank(0);

/// Frames that arrive before the call, and for which there is no memory, fail the call when it is
/// made.
#[test]
fn an_early_frame_without_memory_fails_its_call_and_no_other() {
    let mut scarce = Scarce::new(&DOOR);
    let (count, chunk_bytes) = DOOR.scarce;
    let call = f32_call(CallKind::AllReduce(ReduceOp::Sum), count);
    let setup = Setup { call, plan: plan(chunk_bytes, Algorithm::OneShot), lent: false };
    let (lacking, next) = (scarce.next(), scarce.next());
    let poor = Rank(1);
    scarce.pools[1].refuse_after(0);
    scarce.begin(ROOT, lacking, &setup);
    until("its frames are there", || {
        scarce.group.backends[1].traffic().received_bytes >= 4 * count as u64
    });
    scarce.pools[1].refuse_after(usize::MAX);
    scarce.begin(poor, lacking, &setup);
    let (me, of, result) = scarce.group.outcome();
    let lacks = matches!(result, Err(EngineFault::Memory { .. }));
    assert!(me == poor && of == lacking && lacks, "{me}: {result:?}");
    scarce.group.retire(lacking);
    assert_eq!(scarce.group.outcome().0, ROOT);
    let inputs: Vec<Vec<u8>> =
        scarce.inputs.iter().map(|input| bytes_of(input.as_slice()).to_vec()).collect();
    scarce.group.run(next, call, None, &setup.plan, &inputs, &mut Chance(3));
}
