//! A member without memory: its call fails, at whatever block that happens, and nothing else does.

use super::super::input::Input;
use super::{Chance, Door, Group, bytes, call, f32_call, op};
use crate::link::tcp;
use crate::memory::{DType, Pool, bytes_of};
use crate::protocol::{Call, CallKind, CodecId, EngineFault, OpId, Plan, Rank, ReduceOp};
use std::sync::Arc;

const SIZE: usize = 3;
const ROOT: Rank = Rank(0);

/// A group of three, and the pool of each rank.
pub struct Scarce {
    pub group: Group,
    pub pools: Vec<Pool>,
    pub inputs: Vec<Arc<Vec<f32>>>,
    ops: u64,
}

/// A call, its plan, and whether its buffer is lent.
#[derive(Clone)]
pub struct Setup {
    pub call: Call,
    pub plan: Arc<Plan>,
    pub lent: bool,
}

impl Scarce {
    pub fn new(door: &Door) -> Scarce {
        let pools: Vec<Pool> = std::iter::repeat_with(Pool::new).take(SIZE).collect();
        let number = |me: usize, i: usize| (i % 100) as f32 + me as f32;
        let input = |me| Arc::new((0..door.scarce.0).map(|i| number(me, i)).collect());
        let group = door.with_pools(&pools).linked(tcp);
        Scarce { group, pools, inputs: (0..SIZE).map(input).collect(), ops: 0 }
    }

    pub fn next(&mut self) -> OpId {
        self.ops += 1;
        op(0, self.ops)
    }

    pub fn begin(&self, me: Rank, op: OpId, Setup { call, plan, lent }: &Setup) {
        let given = &self.inputs[me.index()];
        let input =
            if *lent { Input::lent(given) } else { Input::Borrowed(bytes_of(given.as_slice())) };
        let is_sync = matches!(call.kind, CallKind::Sync { .. });
        self.group.start_with(me, op, *call, is_sync.then_some((ROOT, call.count)), plan, &input);
        self.group.credit_from(op, me);
    }

    /// One call, of which rank `poor` gets only so many blocks. Returns the results by rank, or
    /// `None` if it failed there.
    fn attempt(&mut self, setup: &Setup, poor: Rank, blocks: usize) -> Option<Vec<Vec<u8>>> {
        let op = self.next();
        self.pools[poor.index()].refuse_after(blocks);
        self.group.ranks().for_each(|me| self.begin(me, op, setup));
        let (mut results, mut has_failed) = (vec![None; SIZE], false);
        for _ in 0..SIZE {
            let (me, of, result) = self.group.outcome();
            assert_eq!(of, op);
            match result {
                Ok(finished) => results[me.index()] = Some(bytes(&finished)),
                Err(EngineFault::Memory { bytes }) if me == poor && bytes > 0 => {
                    has_failed = true;
                    // As the votes do.
                    self.group.cancel(op);
                }
                Err(EngineFault::Cancelled) => {}
                Err(fault) => panic!("{}, rank {me}: {fault}", setup.call),
            }
        }
        assert!(!has_failed || self.pools[poor.index()].is_used_up());
        self.pools[poor.index()].refuse_after(usize::MAX);
        self.group.retire(op);
        results.into_iter().collect::<Option<Vec<_>>>().filter(|_| !has_failed)
    }
}

fn setups(door: &Door) -> Vec<Setup> {
    let (count, chunk_bytes) = door.scarce;
    let plan = |algorithm| super::plan(chunk_bytes, algorithm);
    let plans: Vec<_> = (door.algorithms)(SIZE, &mut Chance(1)).into_iter().map(plan).collect();
    let sum = f32_call(CallKind::AllReduce(ReduceOp::Sum), count);
    let mut setups = Vec::new();
    for plan in &plans {
        for (lent, codec) in
            [false, true].map(|lent| [(lent, CodecId::None), (lent, CodecId::Int8)]).concat()
        {
            setups.push(Setup { call: Call { codec, ..sum }, plan: Arc::clone(plan), lent });
        }
    }
    let others = [
        CallKind::Reduce { op: ReduceOp::Sum, root: ROOT },
        CallKind::ReduceScatter(ReduceOp::Sum),
        CallKind::Broadcast { root: ROOT },
        CallKind::AllGather,
        CallKind::Gather { root: ROOT },
        CallKind::AllToAll,
    ];
    let sync = call(CallKind::Sync { version: 1 }, DType::U8, 4 * count);
    let calls = others.map(|kind| f32_call(kind, count)).into_iter().chain([sync]);
    setups.extend(calls.map(|call| Setup { call, plan: Arc::clone(&plans[0]), lent: false }));
    setups
}

/// Every block that an operation takes is once the one that there is no memory for.
pub fn whichever_block_there_is_no_memory_for_the_call_fails_and_the_next_one_does_not(
    door: &Door,
) {
    let mut scarce = Scarce::new(door);
    for setup in setups(door) {
        let call = setup.call;
        let whole = scarce.attempt(&setup, ROOT, usize::MAX).expect("there is memory");
        for poor in [ROOT, Rank(1)] {
            let mut blocks = 0;
            let results = loop {
                match scarce.attempt(&setup, poor, blocks) {
                    Some(results) => break results,
                    None => blocks += 1,
                }
                assert!(blocks < 1000, "{call}: it never has enough");
                if blocks % 5 == 0 {
                    let next = scarce.attempt(&setup, poor, usize::MAX);
                    assert!(next.as_ref() == Some(&whole), "{call}: after it");
                }
            };
            assert!(blocks > 0, "{call}: it takes no memory");
            assert!(results == whole, "{call} with {blocks} blocks");
        }
    }
    assert!(scarce.inputs == Scarce::new(door).inputs, "lent memory was changed");
    assert_eq!(scarce.group.panics(), 0);
}
