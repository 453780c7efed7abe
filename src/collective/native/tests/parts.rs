//! Results that differ by rank: each rank gets its own, bit for bit, under every kind of plan.

use super::door::{DOOR, trees};
use crate::collective::reference::reference;
use crate::collective::suite::{Chance, Group, bytes, f32_call, op, plan, plan_with_small};
use crate::memory::{Element, bytes_of};
use crate::protocol::{Algorithm, CallKind, Plan, Rank, ReduceOp, ring_segment};
use std::sync::Arc;

/// Plans: direct; a ring; a ring for reductions with direct copies; random trees.
fn plans(size: usize, chunk_bytes: u32, chance: &mut Chance) -> Vec<Arc<Plan>> {
    let order = chance.shuffled((0..size as u8).map(Rank).collect());
    let ring = Algorithm::Ring { order };
    let both = plan_with_small(1, chunk_bytes, ring.clone());
    let trees = Algorithm::Trees { trees: trees(size, chance) };
    vec![
        plan(chunk_bytes, Algorithm::OneShot),
        plan(chunk_bytes, ring),
        both,
        plan(chunk_bytes, trees),
    ]
}

/// Numbers whose sum depends on the order.
fn numbers(count: usize, chance: &mut Chance) -> Vec<f32> {
    (0..count)
        .map(|_| (chance.next() as i32 as f32) * 2f32.powi(chance.below(40) as i32 - 20))
        .collect()
}

/// Runs a call of `f32` with these inputs; returns every rank's result.
fn results(
    group: &Group,
    number: &mut u64,
    kind: CallKind,
    count: usize,
    plan: &Arc<Plan>,
    inputs: &[Vec<f32>],
    chance: &mut Chance,
) -> Vec<Vec<u8>> {
    *number += 1;
    let call = f32_call(kind, count);
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    group.run(op(0, *number), call, None, plan, &inputs, chance).iter().map(bytes).collect()
}

/// Runs `test` for every size, plan and length; it receives the length of one rank's input.
fn everywhere(
    seed: u64,
    lens: &[usize],
    mut test: impl FnMut(&Group, &mut u64, usize, &Arc<Plan>, &mut Chance),
) {
    let mut chance = Chance(seed);
    println!("seed {seed}");
    for size in [1, 2, 3, 4, 5, 8] {
        let (group, mut number) = (DOOR.group(size), 0);
        for plan in plans(size, 1024, &mut chance) {
            for len in lens {
                test(&group, &mut number, *len, &plan, &mut chance);
            }
        }
    }
}

#[test]
fn a_reduction_is_the_roots_alone() {
    everywhere(11, &[0, 1, 7, 1000, 20_001], |group, number, len, plan, chance| {
        let size = group.backends.len();
        let inputs: Vec<Vec<f32>> = (0..size).map(|_| numbers(len, chance)).collect();
        for root in group.ranks() {
            for reduce in [ReduceOp::Sum, ReduceOp::Mean] {
                let results = results(
                    group,
                    number,
                    CallKind::Reduce { op: reduce, root },
                    len,
                    plan,
                    &inputs,
                    chance,
                );
                let order = plan.reduce_order(size, root, len, f32::DTYPE.bytes());
                let expected = reference(&order, reduce, &inputs);
                for (rank, result) in results.iter().enumerate() {
                    let wanted = if rank == root.index() { bytes_of(&expected) } else { &[] };
                    assert!(result == wanted, "{len} at {rank} of {size} for {root}, {plan:?}");
                }
            }
        }
    });
}

#[test]
fn each_rank_gets_its_shard_of_a_sum() {
    everywhere(12, &[0, 1, 2, 7, 1000, 65_537], |group, number, len, plan, chance| {
        let size = group.backends.len();
        let inputs: Vec<Vec<f32>> = (0..size).map(|_| numbers(len, chance)).collect();
        let results = results(
            group,
            number,
            CallKind::ReduceScatter(ReduceOp::Sum),
            len,
            plan,
            &inputs,
            chance,
        );
        let expected = reference(
            &plan.reduce_scatter_order(size, len, f32::DTYPE.bytes()),
            ReduceOp::Sum,
            &inputs,
        );
        for (rank, result) in results.iter().enumerate() {
            assert!(
                result == bytes_of(&expected[ring_segment(rank, size, len)]),
                "{len} at {rank} of {size}, {plan:?}"
            );
        }
    });
}

#[test]
fn the_root_gathers_and_scatters() {
    everywhere(13, &[0, 1, 7, 1000, 20_001], |group, number, len, plan, chance| {
        let size = group.backends.len();
        for root in group.ranks() {
            let inputs: Vec<Vec<f32>> = (0..size).map(|_| numbers(len, chance)).collect();
            let all = inputs.concat();
            let gathered =
                results(group, number, CallKind::Gather { root }, len, plan, &inputs, chance);
            let mut parts = vec![vec![1.0; 9]; size];
            parts[root.index()] = all.clone();
            let scattered =
                results(group, number, CallKind::Scatter { root }, len, plan, &parts, chance);
            for rank in 0..size {
                let wanted = if rank == root.index() { bytes_of(&all) } else { &[] };
                assert!(
                    gathered[rank] == wanted,
                    "gather of {len} at {rank} of {size} for {root}, {plan:?}"
                );
                assert!(
                    scattered[rank] == bytes_of(&inputs[rank]),
                    "scatter of {len} at {rank} of {size} by {root}, {plan:?}"
                );
            }
        }
    });
}

#[test]
fn everybody_has_a_part_for_everybody() {
    everywhere(14, &[0, 1, 7, 500, 10_001], |group, number, len, plan, chance| {
        let size = group.backends.len();
        let parts: Vec<Vec<Vec<f32>>> =
            (0..size).map(|_| (0..size).map(|_| numbers(len, chance)).collect()).collect();
        let inputs: Vec<Vec<f32>> = parts.iter().map(|row| row.concat()).collect();
        let results = results(group, number, CallKind::AllToAll, size * len, plan, &inputs, chance);
        for (rank, result) in results.iter().enumerate() {
            let column: Vec<f32> = parts.iter().flat_map(|row| row[rank].iter().copied()).collect();
            assert!(result == bytes_of(&column), "{len} at {rank} of {size}, {plan:?}");
        }
    });
}
