//! A member without memory: its call fails, at whatever block that happens, and nothing else does.

use super::group::{Chance, Group, PATIENCE, bytes, op, plan};
use crate::collective::input::Input;
use crate::memory::{DType, Pool, bytes_of};
use crate::protocol::{
    Call, CodecId, EngineFault, Kind, Mode, OpId, Plan, Rank, ReduceOp, Schedule, Tree, TreeShare,
};
use std::sync::Arc;
use std::time::Instant;

const SIZE: usize = 3;
/// Divisible by the number of ranks; several chunks, all of which may be sent before credit.
const COUNT: usize = 5001;
const ROOT: Rank = Rank(0);

/// A group, and the pool of each rank.
struct Scarce {
    group: Group,
    pools: Vec<Pool>,
    inputs: Vec<Arc<Vec<f32>>>,
    ops: u64,
}

/// A call, its plan, and whether its buffer is lent.
#[derive(Clone)]
struct Way {
    kind: Kind,
    codec: CodecId,
    plan: Arc<Plan>,
    lent: bool,
}

impl Way {
    fn call(&self) -> Call {
        let (dtype, count) = match self.kind {
            Kind::Sync { .. } => (DType::U8, 4 * COUNT),
            _ => (DType::F32, COUNT),
        };
        Call { kind: self.kind, dtype, count: count as u64, codec: self.codec, mode: Mode::PerOp }
    }

    fn sync_root(&self) -> Option<(Rank, u64)> {
        matches!(self.kind, Kind::Sync { .. }).then_some((ROOT, 4 * COUNT as u64))
    }
}

impl Scarce {
    fn new() -> Scarce {
        let pools: Vec<Pool> = std::iter::repeat_with(Pool::new).take(SIZE).collect();
        let number = |me: usize, i: usize| (i % 100) as f32 + me as f32;
        let input = |me| Arc::new((0..COUNT).map(|i| number(me, i)).collect());
        let group = Group::with_pools(&pools);
        Scarce { group, pools, inputs: (0..SIZE).map(input).collect(), ops: 0 }
    }

    fn next(&mut self) -> OpId {
        self.ops += 1;
        op(0, self.ops)
    }

    fn begin(&self, me: Rank, op: OpId, way: &Way) {
        let given = &self.inputs[me.index()];
        let input =
            if way.lent { Input::lent(given) } else { Input::Borrowed(bytes_of(given.as_slice())) };
        self.group.begin(me, op, way.call(), way.sync_root(), &way.plan, input.model());
        self.group.backends[me.index()].feed(op, &input);
        self.group.credit_from(op, me);
    }

    /// One call, of which rank `poor` gets only so many blocks. Returns the results by rank, or
    /// `None` if it failed there.
    fn attempt(&mut self, way: &Way, poor: Rank, blocks: usize) -> Option<Vec<Vec<u8>>> {
        let op = self.next();
        self.pools[poor.index()].refuse_after(blocks);
        self.group.ranks().for_each(|me| self.begin(me, op, way));
        let (mut results, mut has_failed) = (vec![None; SIZE], false);
        for _ in 0..SIZE {
            let (me, of, result) =
                self.group.outcomes.recv_timeout(PATIENCE).expect("an outcome in time");
            assert_eq!(of, op);
            match result {
                Ok(finished) => results[me.index()] = Some(bytes(&finished)),
                Err(EngineFault::Memory { bytes }) if me == poor && bytes > 0 => {
                    has_failed = true;
                    // As the votes do.
                    self.group.backends.iter().for_each(|backend| backend.cancel(op));
                }
                Err(EngineFault::Cancelled) => {}
                Err(fault) => panic!("rank {me}: {fault}"),
            }
        }
        assert!(!has_failed || self.pools[poor.index()].is_used_up());
        self.pools[poor.index()].refuse_after(usize::MAX);
        self.group.backends.iter().for_each(|backend| backend.retire(op));
        results.into_iter().collect::<Option<Vec<_>>>().filter(|_| !has_failed)
    }
}

fn trees() -> Schedule {
    let chain = TreeShare { tree: Tree::chain((0..SIZE as u8).map(Rank), SIZE), ppm: 400_000 };
    let star = TreeShare { tree: Tree::star(Rank(2), SIZE), ppm: 600_000 };
    Schedule::Trees { trees: vec![chain, star] }
}

fn ways() -> Vec<Way> {
    let ring = Schedule::Ring { order: (0..SIZE as u8).map(Rank).collect() };
    let [ring, trees, one_shot] =
        [ring, trees(), Schedule::OneShot].map(|schedule| plan(2624, schedule));
    let sum = Kind::AllReduce(ReduceOp::Sum);
    let way =
        |kind, plan: &Arc<Plan>, codec, lent| Way { kind, codec, plan: Arc::clone(plan), lent };
    let plain = |kind, plan: &Arc<Plan>| way(kind, plan, CodecId::None, false);
    let mut ways = Vec::new();
    for plan in [&ring, &trees, &one_shot] {
        for lent in [false, true] {
            ways.push(way(sum, plan, CodecId::None, lent));
            ways.push(way(sum, plan, CodecId::Int8, lent));
        }
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
    ways.extend(others.map(|kind| plain(kind, &ring)));
    ways
}

/// Every block that an operation takes is once the one that there is no memory for.
#[test]
fn whichever_block_there_is_no_memory_for_the_call_fails_and_the_next_one_does_not() {
    let mut scarce = Scarce::new();
    for way in ways() {
        let whole = scarce.attempt(&way, ROOT, usize::MAX).expect("there is memory");
        for poor in [ROOT, Rank(1)] {
            let mut blocks = 0;
            let results = loop {
                match scarce.attempt(&way, poor, blocks) {
                    Some(results) => break results,
                    None => blocks += 1,
                }
                assert!(blocks < 1000, "{}: it never has enough", way.call());
                if blocks % 5 == 0 {
                    let next = scarce.attempt(&way, poor, usize::MAX);
                    assert!(next.as_ref() == Some(&whole), "{}: after it", way.call());
                }
            };
            assert!(blocks > 0, "{}: it takes no memory", way.call());
            assert!(results == whole, "{} with {blocks} blocks", way.call());
        }
    }
    let inputs = Scarce::new().inputs;
    assert!(scarce.inputs == inputs, "what is lent was changed");
}

/// Frames that arrive before the call, and for which there is no memory, fail the call when it is
/// made.
#[test]
fn an_early_frame_without_memory_fails_its_call_and_no_other() {
    let mut scarce = Scarce::new();
    let way = Way {
        kind: Kind::AllReduce(ReduceOp::Sum),
        codec: CodecId::None,
        plan: plan(2624, Schedule::OneShot),
        lent: false,
    };
    let (lacking, next) = (scarce.next(), scarce.next());
    let (poor, until) = (Rank(1), Instant::now() + PATIENCE);
    scarce.pools[1].refuse_after(0);
    scarce.begin(ROOT, lacking, &way);
    while scarce.group.backends[1].traffic().received_bytes < 4 * COUNT as u64 {
        assert!(Instant::now() < until, "its frames arrive");
        std::thread::yield_now();
    }
    scarce.pools[1].refuse_after(usize::MAX);
    scarce.begin(poor, lacking, &way);
    let (me, of, result) = scarce.group.outcomes.recv_timeout(PATIENCE).expect("an outcome");
    let lacks = matches!(result, Err(EngineFault::Memory { .. }));
    assert!(me == poor && of == lacking && lacks, "{me}: {result:?}");
    scarce.group.backends.iter().for_each(|backend| backend.retire(lacking));
    assert!(scarce.group.outcomes.recv_timeout(PATIENCE).is_ok_and(|(me, ..)| me == ROOT));
    let inputs: Vec<Vec<u8>> =
        scarce.inputs.iter().map(|input| bytes_of(input.as_slice()).to_vec()).collect();
    scarce.group.run(next, way.call(), None, &way.plan, &inputs, &mut Chance(3));
}
