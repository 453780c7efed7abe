//! Results equal those of the sequential reference in Gloo's order of folding, bit for bit, on
//! every rank.

use super::super::rails::HELPERS_MAX;
use super::group::{Cables, Chance, Group, PATIENCE, bytes, op, plan, plan_in};
use crate::collective::{Arithmetic, Finished, Input, reference};
use crate::compression::{Codec, codec, codec_of_sums};
use crate::memory::{DType, Pool, bytes_of};
use crate::protocol::{Call, CodecId, Kind, Mode, Plan, Rank, ReduceOp, Schedule, ring_segment};
use half::f16;
use std::sync::Arc;

const SUMS: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Mean];
const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max];
const SCHEDULES: [Schedule; 3] = [Schedule::GlooRing, Schedule::GlooBcube, Schedule::GlooExchange];

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

fn digest_of(bytes: &[u8]) -> u128 {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_128};
    let hashes: Vec<u8> =
        bytes.chunks(256 * 1024).flat_map(|block| xxh3_64(block).to_le_bytes()).collect();
    xxh3_128(&hashes)
}

fn assert_reduces<T: Arithmetic + PartialOrd>(
    group: &Group,
    number: u64,
    reduce: ReduceOp,
    plan: &Arc<Plan>,
    inputs: &[Vec<T>],
    chance: &mut Chance,
) {
    let (size, count) = (inputs.len(), inputs[0].len());
    let expected = reference(&plan.fold_order(size, count, T::DTYPE.bytes()), reduce, inputs);
    let raw: Vec<Vec<u8>> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    let call = call(Kind::AllReduce(reduce), T::DTYPE, count);
    for (rank, finished) in
        group.run(op(0, number), call, None, plan, &raw, chance).iter().enumerate()
    {
        assert_right(
            finished,
            &expected,
            &format!("{call} on rank {rank} of {size}, {:?}", plan.classes),
        );
    }
}

fn assert_right<T: Arithmetic>(finished: &Finished, expected: &[T], what: &str) {
    assert!(bytes(finished) == bytes_of(expected), "{what}");
    assert_eq!(finished.digest, digest_of(bytes_of(expected)), "{what}");
}

/// All schedules; the ring with segments of several lengths.
fn plans() -> Vec<Arc<Plan>> {
    let rings = [1024, 256 * 1024, 4 * 1024 * 1024]
        .map(|segment_bytes| plan_in(Schedule::GlooRing, segment_bytes));
    rings.into_iter().chain(SCHEDULES[1..].iter().cloned().map(plan)).collect()
}

#[test]
fn small_reductions_of_every_size_kind_and_algorithm() {
    let mut chance = Chance(1);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let (group, mut number) = (Group::new(size, Cables::Memory), 0);
        for count in [0, 1, 2, 3, 7, size - 1, size, 1000] {
            for plan in &plans() {
                for reduce in OPS {
                    let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
                    assert_reduces(&group, number, reduce, plan, &inputs, &mut chance);
                    let inputs: Vec<_> = (0..size).map(|_| f64s(count, &mut chance)).collect();
                    assert_reduces(&group, number + 1, reduce, plan, &inputs, &mut chance);
                    number += 2;
                }
            }
        }
    }
}

#[test]
fn large_reductions() {
    let mut chance = Chance(2);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let group = Group::new(size, Cables::Memory);
        for (i, plan) in plans().iter().enumerate() {
            let number = 10 * i as u64;
            for (i, reduce) in OPS.into_iter().enumerate() {
                let inputs: Vec<_> = (0..size).map(|_| f64s(65_537, &mut chance)).collect();
                assert_reduces(&group, number + i as u64, reduce, plan, &inputs, &mut chance);
            }
            // A thousand segments take long, so use fewer elements.
            let count = if plan.classes[0].chunk_bytes == 1024 { 200_003 } else { (1 << 20) + 3 };
            let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
            assert_reduces(&group, number + 4, OPS[size % 4], plan, &inputs, &mut chance);
        }
    }
}

#[test]
fn reductions_over_real_links() {
    let mut chance = Chance(3);
    println!("seed {}", chance.0);
    for cables in [Cables::Tcp, Cables::SealedTcp] {
        for size in [2, 3, 4] {
            let (group, mut number) = (Group::new(size, cables), 0);
            for count in [1, 1000, 300_001] {
                for plan in &plans() {
                    let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
                    assert_reduces(&group, number, ReduceOp::Mean, plan, &inputs, &mut chance);
                    number += 1;
                }
            }
        }
    }
}

/// The input is lent and the result is in another buffer; its pieces arrive message by message or
/// frame by frame.
#[test]
fn what_is_lent_is_added_where_it_lies() {
    fn assert_lent<T: Arithmetic + PartialOrd>(
        group: &Group,
        number: u64,
        reduce: ReduceOp,
        plan: &Arc<Plan>,
        inputs: &[Vec<T>],
    ) {
        let (size, count) = (inputs.len(), inputs[0].len());
        let expected = reference(&plan.fold_order(size, count, T::DTYPE.bytes()), reduce, inputs);
        let (call, of) = (call(Kind::AllReduce(reduce), T::DTYPE, count), op(0, number));
        let lent: Vec<Arc<Vec<T>>> = inputs.iter().cloned().map(Arc::new).collect();
        for me in group.ranks() {
            group.start_with(me, of, call, None, plan, &Input::lent(&lent[me.index()]));
            group.credit_from(of, me);
        }
        for _ in group.ranks() {
            let (rank, _, result) = group.outcome();
            let finished =
                result.unwrap_or_else(|fault| panic!("{call} on rank {rank} of {size}: {fault}"));
            assert_right(
                &finished,
                &expected,
                &format!("{call} on rank {rank} of {size}, {:?}", plan.classes),
            );
        }
        for (kept, input) in lent.iter().zip(inputs) {
            assert!(bytes_of(kept) == bytes_of(input), "what is lent was written to");
        }
    }
    let mut chance = Chance(9);
    println!("seed {}", chance.0);
    for size in [2, 3, 4] {
        let (group, mut number) = (Group::new(size, Cables::Memory), 0);
        for plan in plans() {
            // Messages of more than one frame, if the segments may be that long.
            let large =
                if plan.classes[0].chunk_bytes > 1 << 20 { 140_000 * size + 1 } else { 40_001 };
            for (count, reduce) in
                [(5, ReduceOp::Min), (9_999, ReduceOp::Mean), (large, ReduceOp::Sum)]
            {
                let wide: Vec<Vec<f32>> = (0..size).map(|_| f32s(count, &mut chance)).collect();
                let half: Vec<Vec<f16>> =
                    wide.iter().map(|x| x.iter().copied().map(f16::from_f32).collect()).collect();
                assert_lent(&group, number, reduce, &plan, &wide);
                assert_lent(&group, number + 1, reduce, &plan, &half);
                number += 2;
            }
            let double: Vec<_> = (0..size).map(|_| f64s(20_001, &mut chance)).collect();
            assert_lent(&group, number, ReduceOp::Max, &plan, &double);
            number += 1;
        }
    }
}

#[test]
fn copies_keep_every_bit() {
    let mut chance = Chance(4);
    println!("seed {}", chance.0);
    let plan = plan(Schedule::GlooRing);
    for size in 1..=5 {
        let (group, mut number) = (Group::new(size, Cables::Memory), 0);
        for count in [0, 1, 2, 3, 7, size - 1, size, 1000, 65_537, 300_000] {
            let inputs: Vec<Vec<u8>> =
                (0..size).map(|_| bytes_of(&f32s(count, &mut chance)).to_vec()).collect();
            for root in group.ranks() {
                let broadcast = call(Kind::Broadcast { root }, DType::F32, count);
                // Only the root's input is read.
                for finished in
                    group.run(op(1, number), broadcast, None, &plan, &inputs, &mut chance)
                {
                    assert!(bytes(&finished) == inputs[root.index()]);
                    assert_eq!(finished.digest, digest_of(&inputs[root.index()]));
                }
                number += 1;
            }
            let gathered = inputs.concat();
            let call = call(Kind::AllGather, DType::F32, count);
            for finished in group.run(op(1, number), call, None, &plan, &inputs, &mut chance) {
                assert!(
                    bytes(&finished) == gathered && finished.digest == digest_of(&gathered),
                    "{call} of {size}"
                );
            }
            number += 1;
        }
    }
}

#[test]
fn a_sync_hands_on_the_roots_state_whatever_the_others_counted() {
    let mut chance = Chance(5);
    println!("seed {}", chance.0);
    let (group, plan) = (Group::new(4, Cables::Memory), plan(Schedule::GlooRing));
    for (number, len) in [0, 1, 70_001, 2_000_000].into_iter().enumerate() {
        let state: Vec<u8> = (0..len).map(|_| chance.next() as u8).collect();
        let inputs = [vec![1; 10], Vec::new(), state.clone(), vec![2; 99_999]];
        let sync = call(Kind::Sync { version: 1 }, DType::U8, 10);
        let root = Some((Rank(2), state.len() as u64));
        for finished in group.run(op(0, number as u64), sync, root, &plan, &inputs, &mut chance) {
            assert!(bytes(&finished) == state);
        }
    }
}

/// The contribution of a call that waits for its plan is copied, into whole words.
#[test]
fn what_was_kept_of_a_contribution_has_its_length() {
    let mut chance = Chance(8);
    println!("seed {}", chance.0);
    for (size, count) in [(2, 5001), (3, 5001), (3, 1), (4, 300_001), (3, 300_000)] {
        let group = Group::new(size, Cables::Memory);
        for (number, schedule) in SCHEDULES.iter().enumerate() {
            let (plan, of) = (plan(schedule.clone()), op(0, number as u64));
            let inputs: Vec<Vec<f32>> = (0..size).map(|_| f32s(count, &mut chance)).collect();
            let expected = reference(&plan.fold_order(size, count, 4), ReduceOp::Sum, &inputs);
            for me in group.ranks() {
                let borrowed = Input::Borrowed(bytes_of(&inputs[me.index()]));
                let kept = borrowed.kept(&Pool::new()).expect("there is memory");
                let kept = Input::Lent(kept.expect("something is contributed"));
                let call = call(Kind::AllReduce(ReduceOp::Sum), DType::F32, count);
                // Only rank 1 did not have to wait.
                let input = if me.0 == 1 { &borrowed } else { &kept };
                group.start_with(me, of, call, None, &plan, input);
                group.credit_from(of, me);
            }
            for _ in group.ranks() {
                let (rank, _, result) = group.outcome();
                let finished = result.unwrap_or_else(|fault| {
                    panic!("{count} on rank {rank}, {schedule:?}: {fault}")
                });
                assert!(
                    bytes(&finished) == bytes_of(&expected),
                    "{count} on rank {rank}, {schedule:?}"
                );
            }
        }
    }
}

#[test]
fn a_barrier_moves_nothing() {
    let mut chance = Chance(6);
    for size in 1..=5 {
        let group = Group::new(size, Cables::Memory);
        let barrier = call(Kind::Barrier, DType::U8, 0);
        let inputs = vec![Vec::new(); size];
        for finished in
            group.run(op(0, 0), barrier, None, &plan(Schedule::GlooRing), &inputs, &mut chance)
        {
            assert_eq!(finished.output.len(), 0);
        }
        assert!(group.backends.iter().all(|backend| backend.traffic().sent_bytes == 0));
    }
}

/// Encodes all elements at once: the cuts for sending must not affect the result.
fn coded(codec: &dyn Codec, elements: &[f32]) -> Vec<f32> {
    let (mut encoded, mut decoded) =
        (vec![0; codec.encoded_len(elements.len())], vec![0.0; elements.len()]);
    codec.encode(elements, &mut encoded);
    codec.decode(&encoded, &mut decoded).expect("what it has written");
    decoded
}

/// Every rank encodes once, the decoded contributions are folded by rank, and the sum is encoded.
fn coded_reference(id: CodecId, reduce: ReduceOp, inputs: &[Vec<f32>]) -> Vec<f32> {
    let (own, of_sums) =
        (codec(id).expect("a codec"), codec_of_sums(id, inputs.len()).expect("a codec"));
    let decoded: Vec<Vec<f32>> = inputs.iter().map(|input| coded(own, input)).collect();
    let in_rank_order = Plan::mesh(inputs.len()).fold_order(inputs.len(), inputs[0].len(), 4);
    coded(of_sums, &reference(&in_rank_order, reduce, &decoded))
}

#[test]
fn what_travels_encoded_is_summed_in_f32_equal_on_every_rank_and_shorter() {
    let mut chance = Chance(7);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let group = Group::new(size, Cables::Memory);
        // The last count is sent in pieces.
        let counts = [0, 1, 2, size, 1000, 5003, 65_537, if size > 3 { 700_001 } else { 270_000 }];
        let codecs =
            [CodecId::Bf16, CodecId::F16, CodecId::Int8, CodecId::Int4, CodecId::TopK { kept: 3 }];
        for (number, (count, id)) in
            counts.into_iter().flat_map(|count| codecs.map(|id| (count, id))).enumerate()
        {
            let only_sums = matches!(id, CodecId::TopK { .. });
            let reduce = if only_sums { SUMS[number / 10 % 2] } else { OPS[number / 5 % 4] };
            let plan = plan(SCHEDULES[number % 2].clone());
            let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
            let expected = coded_reference(id, reduce, &inputs);
            let raw: Vec<_> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
            let call = Call { codec: id, ..call(Kind::AllReduce(reduce), DType::F32, count) };
            let before: u64 =
                group.backends.iter().map(|backend| backend.traffic().sent_bytes).sum();
            for finished in group.run(op(0, number as u64), call, None, &plan, &raw, &mut chance) {
                assert!(bytes(&finished) == bytes_of(&expected), "{call} of {size}");
                assert_eq!(finished.digest, digest_of(bytes_of(&expected)));
            }
            let sent: u64 = group.backends.iter().map(|backend| backend.traffic().sent_bytes).sum();
            // Every rank but its owner sends each shard, and the sum goes back to all of them.
            let there = codec(id).expect("a codec").encoded_len(count);
            let back = codec_of_sums(id, size).expect("a codec").encoded_len(count);
            assert_eq!(sent - before, ((size - 1) * (there + back)) as u64, "{call} of {size}");
        }
    }
}

/// Large calls that wait for the other rank have one thread each, and all of them together the
/// helpers of their View.
#[test]
fn many_encoded_calls_share_the_helpers_of_their_view() {
    const CALLS: usize = 16;
    let mut chance = Chance(11);
    println!("seed {}", chance.0);
    let group = Group::new(2, Cables::Memory);
    let (plan, count) = (plan(Schedule::GlooRing), 4 * 128 * 1024);
    let call =
        Call { codec: CodecId::Bf16, ..call(Kind::AllReduce(ReduceOp::Sum), DType::F32, count) };
    let input = |me: u64, number: u64| vec![(me + number) as f32; count];
    let start = |me: Rank, number: u64| {
        let input = input(u64::from(me.0), number);
        group.start(me, op(0, number), call, None, &plan, bytes_of(&input));
        group.credit_from(op(0, number), me);
    };
    // One call connects the contexts, and shows the threads of the links.
    group.ranks().for_each(|me| start(me, 0));
    (0..2).for_each(|_| assert!(group.outcome().2.is_ok()));
    let links = 2 * 2;
    let mut most = 0;
    let numbers: Vec<u64> = (1..=CALLS as u64).collect();
    for number in &numbers {
        start(Rank(0), *number);
        most = most.max(group.engine.threads());
    }
    for number in chance.shuffled(numbers) {
        start(Rank(1), number);
        most = most.max(group.engine.threads());
    }
    for _ in 0..2 * CALLS {
        let (rank, of, result) = group.outcome();
        most = most.max(group.engine.threads());
        let sum = 1.0 + 2.0 * of.number as f32;
        let result = result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}"));
        assert!(bytes(&result) == bytes_of(&vec![sum; count]), "{of} on rank {rank}");
    }
    println!("at most {most} threads, {links} of them for links");
    assert!(most <= links + 2 * (CALLS + HELPERS_MAX), "{most} threads");
    let engine = group.engine.clone();
    drop(group);
    assert_eq!((engine.wait_for_threads(PATIENCE), engine.panics()), (0, 0));
}

#[test]
fn shards_are_cut_as_the_ring_is() {
    assert_eq!(
        [ring_segment(0, 3, 10), ring_segment(1, 3, 10), ring_segment(2, 3, 10)],
        [0..3, 3..6, 6..10]
    );
}

#[test]
fn many_operations_at_once_in_any_order_with_every_word_at_any_time() {
    for seed in 0..10 {
        let mut chance = Chance(seed);
        println!("seed {seed}");
        let size = 2 + chance.below(4) as usize;
        let group = Group::new(size, Cables::Memory);
        // Small integers, whose sums are exact in any order.
        let input =
            |me: Rank, number: u64, count: usize| vec![f32::from(me.0) + number as f32; count];
        let sum = |number: u64| (0..size).map(|me| me as f32 + number as f32).sum::<f32>();
        let ops: Vec<(u64, usize, Arc<Plan>)> = (0..24)
            .map(|number| {
                (
                    number,
                    chance.below(60_000) as usize,
                    plan(SCHEDULES[chance.below(3) as usize].clone()),
                )
            })
            .collect();
        // Every rank starts the operations in its own order; the credit for each start reaches each
        // peer at some later time.
        let mut starts = chance
            .shuffled(group.ranks().flat_map(|me| ops.iter().map(move |op| (me, op))).collect());
        let mut words: Vec<(Rank, Rank, u64)> = Vec::new();
        while !starts.is_empty() || !words.is_empty() {
            let pick = chance.below((starts.len() + words.len()) as u64) as usize;
            match pick.checked_sub(starts.len()).map(|at| words.swap_remove(at)) {
                Some((to, from, number)) => {
                    group.backends[to.index()].credit(op(number % 3, number), from);
                }
                None => {
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
            }
        }
        for _ in 0..size * ops.len() {
            let (rank, of, result) = group.outcome();
            let got = bytes(&result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}")));
            let (number, count, _) = ops[of.number as usize];
            assert!(got == bytes_of(&vec![sum(number); count]), "{of} on rank {rank}");
        }
    }
}
