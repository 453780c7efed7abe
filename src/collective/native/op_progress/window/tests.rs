//! Ranks of trees with windows, in one thread. Frames of one link keep their order; links take
//! turns by chance.

use super::super::{OpProgress, OutgoingFrame, Progress};
use crate::collective::input::Input;
use crate::collective::reference::reference;
use crate::collective::schedule::Schedule;
use crate::collective::suite::{Chance, f32_call, op, plan};
use crate::link::{DataHeader, Phase};
use crate::memory::{Block, Pool, bytes_of, bytes_of_mut};
use crate::protocol::{Algorithm, CallKind, Plan, Rank, ReduceOp, Tree, ranks};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const CHUNK_BYTES: u32 = 1024;
const CHUNKS: usize = 12;
const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

fn elements() -> usize {
    CHUNKS * CHUNK_BYTES as usize / 4
}

/// A plan of one tree.
fn plan_of(tree: Tree, window_chunks: u32) -> Plan {
    let mut plan = Arc::unwrap_or_clone(plan(CHUNK_BYTES, Algorithm::tree(tree)));
    plan.classes[0].window_chunks = window_chunks;
    plan
}

fn progress(plan: &Plan, size: usize, me: Rank) -> OpProgress {
    let (op, call) = (op(0, 1), f32_call(SUM, elements()));
    let schedule = Schedule::of(&call, None, plan, size).expect("they fit");
    OpProgress::new(op, (op.lane.group(size), me), schedule, &Pool::new(), None).expect("memory")
}

fn contribute(progress: &OpProgress, input: &[f32]) -> Vec<OutgoingFrame> {
    let mut out = Vec::new();
    for chunk in progress.feed_order() {
        progress.contribute(chunk, &Input::Borrowed(bytes_of(input)), &mut out).expect("memory");
    }
    out
}

fn block(bytes: &[u8]) -> Block {
    let mut block = Pool::new().block(bytes.len()).expect("memory");
    block.bytes_mut().copy_from_slice(bytes);
    block
}

fn chunks(out: &[OutgoingFrame]) -> Vec<u32> {
    out.iter().map(|outgoing| outgoing.header.chunk).collect()
}

#[test]
fn a_leaf_sends_a_window_ahead_of_the_results() {
    for (window, first) in [(3, 3), (1, 1), (0, CHUNKS), (CHUNKS as u32, CHUNKS)] {
        let leaf = progress(&plan_of(Tree::star(Rank(0), 3), window), 3, Rank(1));
        let sent = contribute(&leaf, &vec![1.0; elements()]);
        assert_eq!(chunks(&sent), (0..first as u32).collect::<Vec<u32>>(), "window {window}");
        if first == CHUNKS {
            continue;
        }
        for chunk in 0..CHUNKS as u32 {
            let DataHeader { op, flow, len, .. } = sent[0].header;
            let header = DataHeader { op, flow, chunk, phase: Phase::Gather, len };
            let mut out = Vec::new();
            let sum = block(&[0; CHUNK_BYTES as usize]);
            let progress = leaf.receive(Rank(0), &header, sum, &mut out).expect("it is awaited");
            let next: Vec<u32> = (chunk + window..CHUNKS as u32).take(1).collect();
            assert_eq!(chunks(&out), next, "after the result of chunk {chunk}");
            assert_eq!(progress == Progress::Complete, chunk + 1 == CHUNKS as u32);
        }
    }
}

/// The sums of all ranks, whose frames come in an order by chance. `None` if they wait for each
/// other for ever.
fn sums(plan: &Plan, inputs: &[Vec<f32>], chance: &mut Chance) -> Option<Vec<Vec<f32>>> {
    let size = inputs.len();
    let all: Vec<OpProgress> = ranks(size).map(|me| progress(plan, size, me)).collect();
    let mut links: BTreeMap<(Rank, Rank), VecDeque<OutgoingFrame>> = BTreeMap::new();
    let mut results: Vec<Option<Vec<f32>>> = vec![None; size];
    let mut fed: Vec<Rank> = ranks(size).collect();
    loop {
        let waiting: Vec<(Rank, Rank)> =
            links.iter().filter(|(_, queue)| !queue.is_empty()).map(|(ends, _)| *ends).collect();
        let number = chance.below((waiting.len() + fed.len()).max(1) as u64) as usize;
        let (me, out) = if let Some((from, to)) = waiting.get(number) {
            let frame = links.get_mut(&(*from, *to)).and_then(VecDeque::pop_front)?;
            let (mut out, own) = (Vec::new(), &all[to.index()]);
            all[from.index()].sent(&frame);
            let sum = block(frame.payload.bytes());
            let progress = own.receive(*from, &frame.header, sum, &mut out).expect("it is awaited");
            if progress == Progress::Complete {
                let output = own.output().expect("it is complete").output;
                let mut result = vec![0.0; elements()];
                output.copy_to(bytes_of_mut(&mut result));
                results[to.index()] = Some(result);
            }
            (*to, out)
        } else if fed.is_empty() {
            return results.into_iter().collect();
        } else {
            let me = fed.swap_remove(number - waiting.len());
            (me, contribute(&all[me.index()], &inputs[me.index()]))
        };
        for frame in out {
            links.entry((me, frame.to)).or_default().push_back(frame);
        }
    }
}

#[test]
fn windows_change_no_bit_and_nobody_waits_for_ever() {
    let mut chance = Chance(7);
    let row = |size: u8| Tree::chain((0..size).map(Rank), size.into());
    let binary = Tree {
        parents: [None, Some(0), Some(0), Some(1), Some(1)].map(|up| up.map(Rank)).to_vec(),
    };
    for tree in [Tree::star(Rank(2), 4), row(4), binary] {
        for window in [1, 2, 5, 0] {
            let (plan, size) = (plan_of(tree.clone(), window), tree.parents.len());
            let mut input = |_| -> Vec<f32> {
                (0..elements()).map(|_| chance.below(1 << 20) as f32 / 7.0).collect()
            };
            let inputs: Vec<Vec<f32>> = (0..size).map(&mut input).collect();
            let expected = reference(&plan.fold_order(size, elements(), 4), ReduceOp::Sum, &inputs);
            let sums = sums(&plan, &inputs, &mut chance).expect("nobody waits for ever");
            assert!(sums.iter().all(|sum| *sum == expected), "{tree:?}, window {window}");
        }
    }
}
