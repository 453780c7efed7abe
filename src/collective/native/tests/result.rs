//! Results equal those of the sequential reference, bit for bit, on every rank.

use super::group::{Chance, Group, bytes, finished_digest, op, plan};
use crate::collective::arithmetic::Arithmetic;
use crate::collective::reference::reference;
use crate::memory::{DType, bytes_of};
use crate::protocol::{
    Call, CodecId, FoldOrder, FoldSegment, FoldTree, Kind, Mode, Plan, Rank, ReduceOp, Schedule,
};
use std::sync::Arc;

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

fn ring(size: usize, chance: &mut Chance) -> Vec<Rank> {
    chance.shuffled((0..size as u8).map(Rank).collect())
}

/// For a ring, from the owner's successor round to the owner; otherwise by rank.
fn fold_order(order: Option<&[Rank]>, count: usize, size: usize) -> FoldOrder {
    let sum =
        |ranks: &mut dyn Iterator<Item = Rank>| FoldTree::Sum(ranks.map(FoldTree::Leaf).collect());
    let Some(order) = order else {
        return FoldOrder {
            segments: vec![FoldSegment {
                elements: 0..count,
                tree: sum(&mut (0..size as u8).map(Rank)),
            }],
        };
    };
    let segment = |s: usize| FoldSegment {
        elements: s * count / size..(s + 1) * count / size,
        tree: sum(&mut (1..=size).map(|step| order[(s + step) % size])),
    };
    FoldOrder { segments: (0..size).map(segment).collect() }
}

fn schedules(
    size: usize,
    chunk_bytes: u32,
    chance: &mut Chance,
) -> Vec<(Option<Vec<Rank>>, Arc<Plan>)> {
    let order = ring(size, chance);
    let ring = plan(chunk_bytes, Schedule::Ring { order: order.clone() });
    vec![(Some(order), ring), (None, plan(chunk_bytes, Schedule::OneShot))]
}

fn f32s(count: usize, chance: &mut Chance) -> Vec<f32> {
    let special =
        [0x7fc0_0001, 0xff80_1234, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 0, 1, 0x8000_0007];
    (0..count)
        .map(|_| match chance.below(64) {
            n @ 0..8 => f32::from_bits(special[n as usize]),
            n => (chance.next() as i32 as f32) * 2f32.powi(n as i32 - 40),
        })
        .collect()
}

fn f64s(count: usize, chance: &mut Chance) -> Vec<f64> {
    f32s(count, chance).into_iter().map(|x| f64::from(x) / 3.0).collect()
}

fn call(kind: Kind, dtype: DType, count: usize) -> Call {
    Call { kind, dtype, count: count as u64, codec: CodecId::None, mode: Mode::PerOp }
}

fn assert_reduces<T: Arithmetic + PartialOrd>(
    group: &Group,
    number: u64,
    reduce: ReduceOp,
    (order, plan): &(Option<Vec<Rank>>, Arc<Plan>),
    inputs: &[Vec<T>],
    chance: &mut Chance,
) -> u128 {
    let (size, count) = (inputs.len(), inputs[0].len());
    let expected = reference(&fold_order(order.as_deref(), count, size), reduce, inputs);
    let raw: Vec<Vec<u8>> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    let call = call(Kind::AllReduce(reduce), T::DTYPE, count);
    let finished = group.run(op(0, number), call, None, plan, &raw, chance);
    for (rank, finished) in finished.iter().enumerate() {
        assert!(
            bytes(finished) == bytes_of(&expected),
            "{call} on rank {rank} of {size}, ring {order:?}"
        );
        assert_eq!(finished.digest, finished_digest(bytes_of(&expected)));
    }
    finished[0].digest
}

#[test]
fn small_reductions_of_every_size_and_kind() {
    let mut chance = Chance(1);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let (group, mut number) = (Group::new(size), 0);
        for count in [0, 1, size - 1, size, 1000] {
            for schedule in schedules(size, 1024, &mut chance) {
                for reduce in OPS {
                    let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
                    assert_reduces(&group, number, reduce, &schedule, &inputs, &mut chance);
                    let inputs: Vec<_> = (0..size).map(|_| f64s(count, &mut chance)).collect();
                    assert_reduces(&group, number + 1, reduce, &schedule, &inputs, &mut chance);
                    number += 2;
                }
            }
        }
    }
}

#[test]
fn large_reductions_give_the_same_bits_twice() {
    let mut chance = Chance(2);
    println!("seed {}", chance.0);
    for size in [1, 2, 3, 4, 5, 8] {
        let group = Group::new(size);
        for (number, count) in [65_537, 300_001].into_iter().enumerate() {
            for (i, schedule) in schedules(size, 16 * 1024, &mut chance).iter().enumerate() {
                let number = 10 * number as u64 + 4 * i as u64;
                let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
                let first =
                    assert_reduces(&group, number, ReduceOp::Sum, schedule, &inputs, &mut chance);
                let second = assert_reduces(
                    &group,
                    number + 1,
                    ReduceOp::Sum,
                    schedule,
                    &inputs,
                    &mut chance,
                );
                assert_eq!(first, second);
                if count < 100_000 {
                    let inputs: Vec<_> = (0..size).map(|_| f64s(count, &mut chance)).collect();
                    assert_reduces(
                        &group,
                        number + 2,
                        ReduceOp::Mean,
                        schedule,
                        &inputs,
                        &mut chance,
                    );
                }
            }
        }
    }
}

#[test]
fn chunks_as_large_as_digest_blocks_are_hashed_alike() {
    let mut chance = Chance(3);
    println!("seed {}", chance.0);
    let group = Group::new(2);
    for (number, schedule) in schedules(2, 256 * 1024, &mut chance).iter().enumerate() {
        let inputs: Vec<_> = (0..2).map(|_| f32s(4 * 65_536, &mut chance)).collect();
        assert_reduces(&group, number as u64, ReduceOp::Max, schedule, &inputs, &mut chance);
    }
}

#[test]
fn copies_keep_every_bit() {
    let mut chance = Chance(4);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let (group, mut number) = (Group::new(size), 0);
        for (_, plan) in schedules(size, 4096, &mut chance) {
            for count in [0, 1, 1000, 30_001] {
                let inputs: Vec<Vec<u8>> =
                    (0..size).map(|_| bytes_of(&f32s(count, &mut chance)).to_vec()).collect();
                for root in (0..size as u8).map(Rank) {
                    let broadcast = call(Kind::Broadcast { root }, DType::F32, count);
                    // Only the root's input counts.
                    for finished in
                        group.run(op(1, number), broadcast, None, &plan, &inputs, &mut chance)
                    {
                        assert_eq!(bytes(&finished), inputs[root.index()]);
                        assert_eq!(finished.digest, finished_digest(&inputs[root.index()]));
                    }
                    number += 1;
                }
                let gathered = inputs.concat();
                let call = call(Kind::AllGather, DType::F32, count);
                for finished in group.run(op(1, number), call, None, &plan, &inputs, &mut chance) {
                    assert_eq!(
                        (bytes(&finished), finished.digest),
                        (gathered.clone(), finished_digest(&gathered))
                    );
                }
                number += 1;
            }
        }
    }
}

#[test]
fn a_sync_hands_on_the_roots_state_whatever_the_others_counted() {
    let mut chance = Chance(5);
    println!("seed {}", chance.0);
    let group = Group::new(4);
    for (number, (_, plan)) in schedules(4, 1024, &mut chance).iter().enumerate() {
        let state: Vec<u8> = (0..70_001).map(|_| chance.next() as u8).collect();
        let inputs = [vec![1; 10], Vec::new(), state.clone(), vec![2; 99_999]];
        let sync = call(Kind::Sync { version: 1 }, DType::U8, 10);
        let root = Some((Rank(2), state.len() as u64));
        for finished in group.run(op(0, number as u64), sync, root, plan, &inputs, &mut chance) {
            assert!(bytes(&finished) == state);
        }
    }
}

#[test]
fn a_barrier_moves_nothing() {
    let mut chance = Chance(6);
    let group = Group::new(3);
    let barrier = call(Kind::Barrier, DType::U8, 0);
    let inputs = vec![Vec::new(); 3];
    for finished in
        group.run(op(0, 0), barrier, None, &plan(1024, Schedule::OneShot), &inputs, &mut chance)
    {
        assert_eq!(finished.output.len(), 0);
    }
}

#[test]
fn many_operations_at_once_in_any_order_with_credit_at_any_time() {
    for seed in 0..10 {
        let mut chance = Chance(seed);
        println!("seed {seed}");
        let size = 2 + chance.below(4) as usize;
        let group = Group::new(size);
        // Small whole numbers, whose sums are exact in any order.
        let input =
            |me: Rank, number: u64, count: usize| vec![f32::from(me.0) + number as f32; count];
        let sum = |number: u64| (0..size).map(|me| me as f32 + number as f32).sum::<f32>();
        let ops: Vec<(u64, usize, Arc<Plan>)> = (0..24)
            .map(|number| {
                let plans = schedules(size, 4096, &mut chance);
                (
                    number,
                    chance.below(60_000) as usize,
                    Arc::clone(&plans[chance.below(2) as usize].1),
                )
            })
            .collect();
        // Every rank starts the operations in its own order. Each start is announced to each peer
        // as a credit at some later time.
        let mut starts = chance
            .shuffled(group.ranks().flat_map(|me| ops.iter().map(move |op| (me, op))).collect());
        let mut words: Vec<(Rank, Rank, u64)> = Vec::new();
        while !starts.is_empty() || !words.is_empty() {
            let pick = chance.below((starts.len() + words.len()) as u64) as usize;
            if let Some((to, from, number)) =
                pick.checked_sub(starts.len()).map(|at| words.swap_remove(at))
            {
                group.backends[to.index()].credit(op(number % 3, number), from);
                continue;
            }
            let (me, (number, count, plan)) = starts.swap_remove(pick);
            let call = call(Kind::AllReduce(ReduceOp::Sum), DType::F32, *count);
            group.start(
                me,
                op(number % 3, *number),
                call,
                None,
                plan,
                bytes_of(&input(me, *number, *count)),
            );
            words.extend(group.ranks().filter(|to| *to != me).map(|to| (to, me, *number)));
        }
        for _ in 0..size * ops.len() {
            let (rank, of, result) =
                group.outcomes.recv_timeout(super::group::PATIENCE).expect("an outcome in time");
            let got = bytes(&result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}")));
            let (number, count, _) = ops[of.number as usize];
            assert!(got == bytes_of(&vec![sum(number); count]), "{of} on rank {rank}");
        }
    }
}
