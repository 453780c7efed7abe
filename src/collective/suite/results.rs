//! Results equal those of the sequential reference in the plan's order of folding, bit for bit, on
//! every rank.

use super::super::arithmetic::Arithmetic;
use super::super::backend::Finished;
use super::super::input::Input;
use super::super::reference::reference;
use super::{Chance, Door, Group, bytes, call, f32_call, f32s, memory, op};
use crate::compression::Codec;
use crate::link::{sealed_tcp, tcp};
use crate::memory::{DType, Element, Pool, bytes_of};
use crate::protocol::{Call, CallKind, OpId, Plan, Rank, ReduceOp};
use half::f16;
use std::sync::Arc;

fn f64s(count: usize, chance: &mut Chance) -> Vec<f64> {
    f32s(count, chance).into_iter().map(|x| f64::from(x) / 3.0).collect()
}

/// One contribution for each of `size` ranks.
fn of_all<T>(size: usize, mut make: impl FnMut() -> Vec<T>) -> Vec<Vec<T>> {
    (0..size).map(|_| make()).collect()
}

/// The expected digest of a result with these bytes.
pub fn digest(bytes: &[u8]) -> u128 {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_128};
    let hashes: Vec<u8> =
        bytes.chunks(256 * 1024).flat_map(|block| xxh3_64(block).to_le_bytes()).collect();
    xxh3_128(&hashes)
}

fn assert_all(finished: &[Finished], expected: &[u8], what: &str) {
    let digest = digest(expected);
    for (rank, finished) in finished.iter().enumerate() {
        assert!(bytes(finished) == expected, "{what}, rank {rank} of the View");
        assert_eq!(finished.digest, digest, "{what}, rank {rank} of the View");
    }
}

fn expected<T: Arithmetic + PartialOrd>(
    plan: &Plan,
    reduce: ReduceOp,
    inputs: &[Vec<T>],
) -> Vec<T> {
    let (size, count) = (inputs.len(), inputs[0].len());
    reference(&plan.fold_order(size, count, T::DTYPE.bytes()), reduce, inputs)
}

fn assert_reduces<T: Arithmetic + PartialOrd>(
    group: &Group,
    of: OpId,
    reduce: ReduceOp,
    plan: &Arc<Plan>,
    inputs: &[Vec<T>],
    chance: &mut Chance,
) {
    let expected = expected(plan, reduce, inputs);
    let call = call(CallKind::AllReduce(reduce), T::DTYPE, expected.len());
    assert_gives(group, of, call, plan, inputs, &expected, chance);
}

/// Runs a call on all ranks: each gets this result.
pub fn assert_gives<T: Element>(
    group: &Group,
    of: OpId,
    call: Call,
    plan: &Arc<Plan>,
    inputs: &[Vec<T>],
    expected: &[T],
    chance: &mut Chance,
) {
    let raw: Vec<Vec<u8>> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    let finished = group.run(of, call, None, plan, &raw, chance);
    assert_all(&finished, bytes_of(expected), &format!("{call} of {}, {plan:?}", inputs.len()));
}

/// Encodes and decodes these elements as one block. A result must be the same when the engine cuts
/// the elements into chunks.
pub fn coded(codec: &dyn Codec, elements: &[f32]) -> Vec<f32> {
    let (mut encoded, mut decoded) =
        (vec![0; codec.encoded_len(elements.len())], vec![0.0; elements.len()]);
    codec.encode(elements, &mut encoded);
    codec.decode(&encoded, &mut decoded).expect("what it has written");
    decoded
}

/// Operations with the numbers 0, 1, 2 and so on of one lane.
fn numbered(lane: u64) -> impl FnMut() -> OpId {
    let mut numbers = 0..;
    move || op(lane, numbers.next().expect("there are more"))
}

pub fn small_reductions_of_every_size_and_kind(door: &Door) {
    let chance = &mut Chance(1);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let (group, mut next) = (door.group(size), numbered(0));
        for count in [0, 1, 2, 3, 7, size - 1, size, 1000] {
            for plan in &door.plans(size, 1024, chance) {
                for reduce in door.reductions.iter().copied() {
                    let inputs = of_all(size, || f32s(count, chance));
                    assert_reduces(&group, next(), reduce, plan, &inputs, chance);
                    let inputs = of_all(size, || f64s(count, chance));
                    assert_reduces(&group, next(), reduce, plan, &inputs, chance);
                }
            }
        }
    }
}

pub fn large_reductions_give_the_same_bits_twice(door: &Door) {
    let chance = &mut Chance(2);
    println!("seed {}", chance.0);
    for size in [1, 2, 3, 4, 5, 8] {
        let (group, mut next) = (door.group(size), numbered(0));
        for plan in &door.plans(size, 16 * 1024, chance) {
            for reduce in door.reductions.iter().copied() {
                let inputs = of_all(size, || f64s(65_537, chance));
                assert_reduces(&group, next(), reduce, plan, &inputs, chance);
            }
            // A thousand segments take long.
            let is_small = plan.classes[0].chunk_bytes < 16 * 1024;
            let count = if is_small { 200_003 } else { (1 << 20) + 3 };
            let inputs = of_all(size, || f32s(count, chance));
            let another = door.reductions[size % door.reductions.len()];
            for reduce in [ReduceOp::Sum, ReduceOp::Sum, another] {
                assert_reduces(&group, next(), reduce, plan, &inputs, chance);
            }
        }
    }
}

pub fn chunks_as_large_as_digest_blocks_are_hashed_alike(door: &Door) {
    let chance = &mut Chance(3);
    println!("seed {}", chance.0);
    let (group, mut next) = (door.group(2), numbered(0));
    for plan in &door.plans(2, 256 * 1024, chance) {
        let inputs = of_all(2, || f32s(4 * 65_536, chance));
        assert_reduces(&group, next(), ReduceOp::Max, plan, &inputs, chance);
    }
}

pub fn reductions_over_real_links(door: &Door) {
    let chance = &mut Chance(3);
    println!("seed {}", chance.0);
    for ends in [memory, tcp, sealed_tcp] {
        for size in [2, 3, 4] {
            let (group, mut next) = (door.linked(size, ends), numbered(0));
            for count in [1, 1000, 300_001] {
                for plan in &door.plans(size, 1024, chance) {
                    let inputs = of_all(size, || f32s(count, chance));
                    assert_reduces(&group, next(), ReduceOp::Mean, plan, &inputs, chance);
                }
            }
        }
    }
}

/// The result is in another buffer. A plan's chunks arrive message by message or frame by frame.
pub fn what_is_lent_is_only_read(door: &Door) {
    fn assert_lent<T: Arithmetic + PartialOrd>(
        group: &Group,
        of: OpId,
        reduce: ReduceOp,
        plan: &Arc<Plan>,
        inputs: &[Vec<T>],
    ) {
        let expected = expected(plan, reduce, inputs);
        let call = call(CallKind::AllReduce(reduce), T::DTYPE, expected.len());
        let lent: Vec<Arc<Vec<T>>> = inputs.iter().cloned().map(Arc::new).collect();
        for me in group.ranks() {
            group.start_with(me, of, call, None, plan, &Input::lent(&lent[me.index()]));
            group.credit_from(of, me);
        }
        let finished = group.results(of);
        assert_all(&finished, bytes_of(&expected), &format!("{call} of {}, {plan:?}", lent.len()));
        for (kept, input) in lent.iter().zip(inputs) {
            assert!(bytes_of(kept) == bytes_of(input), "lent memory was written to");
        }
    }
    let chance = &mut Chance(9);
    println!("seed {}", chance.0);
    for size in [2, 3, 4] {
        let (group, mut next) = (door.group(size), numbered(0));
        for plan in &door.plans(size, 1024, chance) {
            // Messages of more than one frame, if the segments may be that long.
            let is_long = plan.classes[0].chunk_bytes > 1 << 20;
            let large = if is_long { 140_000 * size + 1 } else { 40_001 };
            for (count, reduce) in
                [(5, ReduceOp::Min), (9_999, ReduceOp::Mean), (large, ReduceOp::Sum)]
            {
                let wide = of_all(size, || f32s(count, chance));
                let half: Vec<Vec<f16>> =
                    wide.iter().map(|x| x.iter().copied().map(f16::from_f32).collect()).collect();
                assert_lent(&group, next(), reduce, plan, &wide);
                assert_lent(&group, next(), reduce, plan, &half);
            }
            let double = of_all(size, || f64s(20_001, chance));
            assert_lent(&group, next(), ReduceOp::Max, plan, &double);
        }
    }
}

pub fn copies_keep_every_bit(door: &Door) {
    let chance = &mut Chance(4);
    println!("seed {}", chance.0);
    for size in 1..=5 {
        let (group, mut next) = (door.group(size), numbered(1));
        for plan in &door.plans(size, 4096, chance) {
            for count in [0, 1, 2, 3, 7, size - 1, size, 1000, 65_537, 300_000] {
                let inputs = of_all(size, || bytes_of(&f32s(count, chance)).to_vec());
                for root in group.ranks() {
                    let call = f32_call(CallKind::Broadcast { root }, count);
                    // Only the root's input is read.
                    let finished = group.run(next(), call, None, plan, &inputs, chance);
                    assert_all(&finished, &inputs[root.index()], &format!("{call}, {plan:?}"));
                }
                let call = f32_call(CallKind::AllGather, count);
                let finished = group.run(next(), call, None, plan, &inputs, chance);
                assert_all(&finished, &inputs.concat(), &format!("{call}, {plan:?}"));
            }
        }
    }
}

pub fn a_sync_hands_on_the_roots_state_whatever_the_others_counted(door: &Door) {
    let chance = &mut Chance(5);
    println!("seed {}", chance.0);
    let (group, mut next) = (door.group(4), numbered(0));
    for plan in &door.plans(4, 1024, chance) {
        for len in [0, 1, 70_001, 2_000_000] {
            let state: Vec<u8> = (0..len).map(|_| chance.next() as u8).collect();
            let inputs = [vec![1; 10], Vec::new(), state.clone(), vec![2; 99_999]];
            let sync = call(CallKind::Sync { version: 1 }, DType::U8, 10);
            let root = Some((Rank(2), state.len() as u64));
            for finished in group.run(next(), sync, root, plan, &inputs, chance) {
                assert!(bytes(&finished) == state);
            }
        }
    }
}

/// The contribution of a call that waits for its plan is copied, into whole words.
pub fn what_was_kept_of_a_contribution_has_its_length(door: &Door) {
    let chance = &mut Chance(8);
    println!("seed {}", chance.0);
    for (size, count) in [(2, 5001), (3, 5001), (3, 1), (4, 300_001), (3, 300_000)] {
        let (group, mut next) = (door.group(size), numbered(0));
        for plan in &door.plans(size, 256 * 1024, chance) {
            let (of, inputs) = (next(), of_all(size, || f32s(count, chance)));
            for me in group.ranks() {
                let borrowed = Input::Borrowed(bytes_of(&inputs[me.index()]));
                let kept = borrowed.kept(&Pool::new()).expect("there is memory");
                let kept = Input::Lent(kept.expect("something is contributed"));
                let call = f32_call(CallKind::AllReduce(ReduceOp::Sum), count);
                // Only rank 1 did not have to wait.
                let input = if me.0 == 1 { &borrowed } else { &kept };
                group.start_with(me, of, call, None, plan, input);
                group.credit_from(of, me);
            }
            let expected = expected(plan, ReduceOp::Sum, &inputs);
            assert_all(&group.results(of), bytes_of(&expected), &format!("{count}, {plan:?}"));
        }
    }
}

pub fn a_barrier_moves_nothing(door: &Door) {
    let chance = &mut Chance(6);
    for size in 1..=5 {
        let (group, mut next) = (door.group(size), numbered(0));
        for plan in &door.plans(size, 1024, chance) {
            let barrier = call(CallKind::Barrier, DType::U8, 0);
            let inputs = vec![Vec::new(); size];
            let finished = group.run(next(), barrier, None, plan, &inputs, chance);
            assert!(finished.iter().all(|finished| finished.output.len() == 0));
        }
        assert_eq!(group.sent_bytes(), 0);
    }
}
