//! Reductions with a codec.

use super::door::DOOR;
use crate::collective::arithmetic::Arithmetic;
use crate::collective::reference::reference;
use crate::collective::schedule::{Route, Schedule};
use crate::collective::suite::{self, Chance, assert_gives, bytes, coded, f32_call, op};
use crate::compression::{Codec, codec, codec_of_sums};
use crate::memory::{bytes_of, elements_of};
use crate::protocol::{
    Algorithm, Call, CallKind, CodecId, Coding, FoldOrder, FoldSegment, FoldTree, Plan, Rank,
    ReduceOp, Tree, TreeShare,
};
use std::sync::Arc;

const CODECS: [CodecId; 7] = [
    CodecId::Bf16,
    CodecId::F16,
    CodecId::Int8,
    CodecId::Int4,
    CodecId::OneBit,
    CodecId::TopK { kept: 3 },
    // With two or more members the sum is sent whole.
    CodecId::TopK { kept: 110 },
];

/// A plan that uses `algorithm` for every buffer but the empty one. The exchange for the empty
/// buffer declares that all ranks reach each other.
pub fn plan(chunk_bytes: u32, algorithm: Algorithm) -> Arc<Plan> {
    suite::plan_with_small(0, chunk_bytes, algorithm)
}

fn plans(size: usize, chance: &mut Chance) -> Vec<Arc<Plan>> {
    let ranks = || (0..size as u8).map(Rank);
    let ring = Algorithm::Ring { order: chance.shuffled(ranks().collect()) };
    let chain = TreeShare { tree: Tree::chain(ranks(), size), ppm: 400_000 };
    let star = TreeShare { tree: Tree::star(Rank(size as u8 - 1), size), ppm: 600_000 };
    // A chunk of 656 elements is not a whole number of blocks.
    [ring, Algorithm::Trees { trees: vec![chain, star] }, Algorithm::OneShot]
        .map(|algorithm| plan(2624, algorithm))
        .into()
}

pub fn call(codec: CodecId, op: ReduceOp, count: usize) -> Call {
    Call { codec, ..f32_call(CallKind::AllReduce(op), count) }
}

fn coded_once(id: CodecId, elements: &[f32]) -> Vec<f32> {
    coded(codec(id).expect("a codec"), elements)
}

/// The sum of the contributions to one chunk at a rank: its own and those below it. A partial sum
/// is encoded for its way up, unless its sender skips the codec. A single contribution is already
/// encoded once, or not at all, and goes on unchanged.
fn sum_at(rank: Rank, tree: &Tree, call: &Call, coding: Coding, parts: &[&[f32]]) -> Vec<f32> {
    let from = |child: Rank| {
        let sum = sum_at(child, tree, call, coding, parts);
        let goes_on = tree.children(child).is_empty() || coding.of(child) == CodecId::None;
        if goes_on { sum } else { coded(of_sums(coding.codec(), parts.len()), &sum) }
    };
    let mut below: Vec<(Rank, Vec<f32>)> =
        tree.children(rank).into_iter().map(|child| (child, from(child))).collect();
    below.push((rank, parts[rank.index()].to_vec()));
    below.sort_by_key(|(rank, _)| *rank);
    added(call, &below.into_iter().map(|(_, part)| part).collect::<Vec<_>>())
}

fn of_sums(id: CodecId, size: usize) -> &'static dyn Codec {
    codec_of_sums(id, size).expect("a codec")
}

fn added(call: &Call, parts: &[Vec<f32>]) -> Vec<f32> {
    let CallKind::AllReduce(op) = call.kind else { unreachable!() };
    let op = if op == ReduceOp::Mean { ReduceOp::Sum } else { op };
    let tree =
        FoldTree::Sum((0..parts.len() as u8).map(|rank| FoldTree::Leaf(Rank(rank))).collect());
    let order = FoldOrder { segments: vec![FoldSegment { elements: 0..parts[0].len(), tree }] };
    reference(&order, op, parts)
}

fn finished(call: &Call, sum: Vec<f32>, size: usize) -> Vec<f32> {
    let mean = call.kind == CallKind::AllReduce(ReduceOp::Mean);
    sum.into_iter()
        .map(|x| if mean { (x / size as f32).canonical() } else { x.canonical() })
        .collect()
}

/// The expected result. Each rank's whole buffer is encoded in one piece, however the plan cuts it.
/// Ranks that skip the codec contribute their exact values.
pub fn expected(call: &Call, plan: &Plan, inputs: &[Vec<f32>]) -> Vec<f32> {
    let (size, coding) = (inputs.len(), plan.coding(call));
    let of = |rank: u8| Some(coding.of(Rank(rank))).filter(|codec| *codec != CodecId::None);
    let contribution = |(rank, input): (u8, &Vec<f32>)| {
        of(rank).map_or_else(|| input.clone(), |codec| coded_once(codec, input))
    };
    let contributions: Vec<Vec<f32>> = (0..).zip(inputs).map(contribution).collect();
    let schedule = Schedule::of(call, None, plan, size).expect("it can be carried out");
    let mut result = vec![0.0; inputs[0].len()];
    for (index, flow) in schedule.flows.iter().enumerate() {
        for chunk in 0..schedule.chunks(index) {
            let elements = schedule.elements(index, chunk);
            let parts: Vec<&[f32]> =
                contributions.iter().map(|all| &all[elements.clone()]).collect();
            result[elements].copy_from_slice(&match &flow.route {
                Route::Exchange => {
                    let parts: Vec<Vec<f32>> = parts.iter().map(|part| part.to_vec()).collect();
                    finished(call, added(call, &parts), size)
                }
                Route::Paths { owner, up, .. } => {
                    let up = up.as_ref().expect("all contribute");
                    coded(
                        of_sums(coding.codec(), size),
                        &finished(call, sum_at(*owner, up, call, coding, &parts), size),
                    )
                }
            });
        }
    }
    result
}

pub fn some(count: usize, chance: &mut Chance) -> Vec<f32> {
    let special = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        -f32::MAX,
        f32::MIN_POSITIVE,
        1e-42,
        -0.0,
    ];
    (0..count)
        .map(|_| match chance.below(4000) {
            n @ 0..8 => special[n as usize],
            n => (chance.next() as i32 as f32) * 2f32.powi((n % 5) as i32 - 30),
        })
        .collect()
}

#[test]
fn every_codec_adds_what_was_decoded_and_gives_everybody_the_same() {
    let mut chance = Chance(11);
    println!("seed {}", chance.0);
    let mut number = 0;
    for size in 1..=5 {
        let group = DOOR.group(size);
        for plan in plans(size, &mut chance) {
            let ops = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Prod];
            let adds = |op: ReduceOp| matches!(op, ReduceOp::Sum | ReduceOp::Mean);
            let any_op = |id| !matches!(id, CodecId::TopK { .. } | CodecId::OneBit);
            let all = CODECS.into_iter().flat_map(|codec| ops.map(|op| (codec, op)));
            for (codec, op) in all.filter(|(codec, op)| adds(*op) || any_op(*codec)) {
                for count in [0, 1, size, 257, 5003] {
                    let inputs: Vec<_> = (0..size).map(|_| some(count, &mut chance)).collect();
                    let call = call(codec, op, count);
                    let expected =
                        if count == 0 { Vec::new() } else { expected(&call, &plan, &inputs) };
                    let of = suite::op(0, number);
                    assert_gives(&group, of, call, &plan, &inputs, &expected, &mut chance);
                    number += 1;
                }
            }
        }
    }
}

/// Student's t with four degrees of freedom: its tails are about as heavy as those of gradients.
fn student(chance: &mut Chance) -> f32 {
    let mut normal = || {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * unit(chance.next()).ln()).sqrt()
            * (std::f64::consts::TAU * unit(chance.next())).cos()
    };
    let (z, squares) = (normal(), (0..4).map(|_| normal().powi(2)).sum::<f64>());
    (z / (squares / 4.0).sqrt()) as f32
}

/// Eight members on a ring.
#[test]
fn the_sum_of_eight_is_as_near_as_the_codec_says_and_as_short() {
    let (size, count) = (8, 80_000);
    let mut chance = Chance(12);
    println!("seed {}", chance.0);
    let inputs: Vec<Vec<f32>> =
        (0..size).map(|_| (0..count).map(|_| student(&mut chance)).collect()).collect();
    let raw: Vec<_> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    let exact: Vec<f64> = (0..count)
        .map(|i| inputs.iter().map(|input| f64::from(input[i])).sum::<f64>() / size as f64)
        .collect();
    let plan = plan(256 * 1024, Algorithm::Ring { order: (0..size as u8).map(Rank).collect() });
    // Limits: fraction of the bytes of plain `f32` on the wire, and error relative to the norm of
    // the exact mean.
    for (number, (codec, of_bytes, off_by)) in [
        (CodecId::Bf16, 0.505, 0.003),
        (CodecId::F16, 0.505, 0.001),
        (CodecId::Int8, 0.260, 0.02),
        // Two roundings, each by an eighth of its numbers.
        (CodecId::Int4, 0.135, 0.18),
        // The mean of 0.035 for contributions and 0.129 for sums.
        (CodecId::OneBit, 0.084, 0.9),
    ]
    .into_iter()
    .enumerate()
    {
        let group = DOOR.group(size);
        let results = group.run(
            op(0, number as u64),
            call(codec, ReduceOp::Mean, count),
            None,
            &plan,
            &raw,
            &mut chance,
        );
        let ratio = group.sent_bytes() as f64 / (2 * (size - 1) * count * 4) as f64;
        let result = bytes(&results[0]);
        assert!(results.iter().all(|other| bytes(other) == result), "ranks differ with {codec}");
        let result = elements_of::<f32>(&result).expect("f32");
        let length = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>().sqrt();
        let off = length(&mut result.iter().zip(&exact).map(|(a, b)| f64::from(*a) - b))
            / length(&mut exact.iter().copied());
        println!("{codec}: {ratio:.4} of the bytes, off by {:.2} %", off * 100.0);
        assert!(ratio <= of_bytes, "{codec}: {ratio} of the bytes");
        assert!(off > 0.0 && off < off_by, "{codec}: off by {off}");
    }
}

/// Elements are left out only once: the sum contains everything that was sent, and is no longer
/// than needed.
#[test]
fn sums_of_the_largest_are_exact_and_short() {
    let (size, count) = (4, 80_000);
    let mut chance = Chance(13);
    println!("seed {}", chance.0);
    let id = CodecId::TopK { kept: 3 };
    let inputs: Vec<Vec<f32>> =
        (0..size).map(|_| (0..count).map(|_| student(&mut chance).round()).collect()).collect();
    let raw: Vec<_> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    let sent: Vec<Vec<f32>> = inputs.iter().map(|input| coded_once(id, input)).collect();
    // Whole numbers, whose sums are exact in any order.
    let exact: Vec<f32> =
        (0..count).map(|i| sent.iter().map(|part| part[i]).sum::<f32>() + 0.0).collect();
    let ring = plan(256 * 1024, Algorithm::Ring { order: (0..size as u8).map(Rank).collect() });
    let group = DOOR.group(size);
    let results =
        group.run(op(0, 0), call(id, ReduceOp::Sum, count), None, &ring, &raw, &mut chance);
    assert!(results.iter().all(|result| bytes(result) == bytes_of(&exact)));
    let ratio = group.sent_bytes() as f64 / (2 * (size - 1) * count * 4) as f64;
    println!("{ratio:.4} of the bytes");
    assert!(ratio < 0.0368, "3 of 256 there and 12 of them back, in 5 bytes each: {ratio}");
}

#[test]
fn what_is_left_out_or_has_no_magnitude_is_only_for_sums() {
    let ring = plan(2624, Algorithm::Ring { order: vec![Rank(0), Rank(1)] });
    for codec in [CodecId::TopK { kept: 3 }, CodecId::OneBit] {
        for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
            assert!(Schedule::of(&call(codec, op, 100), None, &ring, 2).is_err(), "{codec} {op}");
        }
        for op in [ReduceOp::Sum, ReduceOp::Mean] {
            assert!(Schedule::of(&call(codec, op, 100), None, &ring, 2).is_ok(), "{codec} {op}");
        }
    }
}
