//! A member without memory: its call fails, at whatever block that happens, and nothing else does.

use super::group::{Cables, Group, bytes, op, plan_in};
use crate::collective::Input;
use crate::memory::{DType, Pool, bytes_of};
use crate::protocol::{Call, CodecId, EngineFault, Kind, Mode, Plan, Rank, ReduceOp, Schedule};
use std::sync::Arc;

const SIZE: usize = 3;
/// Divisible by the number of ranks.
const COUNT: usize = 30_000;
const ROOT: Rank = Rank(0);

struct Scarce {
    group: Group,
    pools: Vec<Pool>,
    inputs: Vec<Arc<Vec<f32>>>,
    ops: u64,
}

impl Scarce {
    fn new() -> Scarce {
        let pools: Vec<Pool> = std::iter::repeat_with(Pool::new).take(SIZE).collect();
        let number = |me: usize, i: usize| (i % 100) as f32 + me as f32;
        let input = |me| Arc::new((0..COUNT).map(|i| number(me, i)).collect());
        let group = Group::with_pools(&pools, Cables::Tcp);
        Scarce { group, pools, inputs: (0..SIZE).map(input).collect(), ops: 0 }
    }

    /// One call, of which rank `poor` gets only so many blocks. Returns the results by rank, or
    /// `None` if it failed there.
    fn attempt(
        &mut self,
        (call, plan, lent): (Call, &Arc<Plan>, bool),
        poor: Rank,
        blocks: usize,
    ) -> Option<Vec<Vec<u8>>> {
        self.ops += 1;
        let op = op(0, self.ops);
        let sync_root = matches!(call.kind, Kind::Sync { .. }).then_some((ROOT, 4 * COUNT as u64));
        self.pools[poor.index()].refuse_after(blocks);
        for me in self.group.ranks() {
            let given = &self.inputs[me.index()];
            let input =
                if lent { Input::lent(given) } else { Input::Borrowed(bytes_of(given.as_slice())) };
            self.group.start_with(me, op, call, sync_root, plan, &input);
            self.group.credit_from(op, me);
        }
        let (mut results, mut has_failed) = (vec![None; SIZE], false);
        for _ in 0..SIZE {
            let (me, of, result) = self.group.outcome();
            assert_eq!(of, op);
            match result {
                Ok(finished) => results[me.index()] = Some(bytes(&finished)),
                Err(EngineFault::Memory { bytes }) if me == poor && bytes > 0 => {
                    has_failed = true;
                    // As the votes do.
                    self.group.backends.iter().for_each(|backend| backend.cancel(op));
                }
                Err(EngineFault::Cancelled) => {}
                Err(fault) => panic!("{call}, rank {me}: {fault}"),
            }
        }
        assert!(!has_failed || self.pools[poor.index()].is_used_up());
        self.pools[poor.index()].refuse_after(usize::MAX);
        self.group.backends.iter().for_each(|backend| backend.retire(op));
        results.into_iter().collect::<Option<Vec<_>>>().filter(|_| !has_failed)
    }
}

fn ways() -> Vec<(Call, Arc<Plan>, bool)> {
    let [ring, bcube, exchange] = [Schedule::GlooRing, Schedule::GlooBcube, Schedule::GlooExchange]
        .map(|schedule| plan_in(schedule, 16 * 1024));
    let call = |kind, codec| {
        let (dtype, count) = match kind {
            Kind::Sync { .. } => (DType::U8, 4 * COUNT),
            _ => (DType::F32, COUNT),
        };
        Call { kind, dtype, count: count as u64, codec, mode: Mode::PerOp }
    };
    let sum = Kind::AllReduce(ReduceOp::Sum);
    let mut ways = Vec::new();
    for lent in [false, true] {
        for plan in [&ring, &bcube, &exchange] {
            ways.push((call(sum, CodecId::None), Arc::clone(plan), lent));
        }
        ways.push((call(sum, CodecId::Int8), Arc::clone(&ring), lent));
    }
    let others = [
        Kind::Reduce { op: ReduceOp::Sum, root: ROOT },
        Kind::ReduceScatter(ReduceOp::Sum),
        Kind::Broadcast { root: ROOT },
        Kind::AllGather,
        Kind::Gather { root: ROOT },
        Kind::AllToAll,
        Kind::Sync { version: 1 },
    ];
    ways.extend(others.map(|kind| (call(kind, CodecId::None), Arc::clone(&ring), false)));
    ways
}

#[test]
fn whichever_block_there_is_no_memory_for_the_call_fails_and_the_next_one_does_not() {
    let mut scarce = Scarce::new();
    for (call, plan, lent) in ways() {
        let way = (call, &plan, lent);
        let whole = scarce.attempt(way, ROOT, usize::MAX).expect("there is memory");
        for poor in [ROOT, Rank(1)] {
            let mut blocks = 0;
            let results = loop {
                match scarce.attempt(way, poor, blocks) {
                    Some(results) => break results,
                    None => blocks += 1,
                }
                assert!(blocks < 1000, "{call}: it never has enough");
                if blocks % 5 == 0 {
                    let next = scarce.attempt(way, poor, usize::MAX);
                    assert!(next.as_ref() == Some(&whole), "{call}: after it");
                }
            };
            assert!(blocks > 0, "{call}: it takes no memory");
            assert!(results == whole, "{call} with {blocks} blocks");
        }
    }
    assert!(scarce.inputs == Scarce::new().inputs, "what is lent was changed");
    assert_eq!(scarce.group.engine.panics(), 0);
}
