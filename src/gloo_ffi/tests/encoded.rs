//! Calls that travel encoded.

use super::super::rails::HELPERS_MAX;
use super::door::{DOOR, SCHEDULES};
use crate::collective::reference;
use crate::collective::suite::{Chance, assert_gives, bytes, coded, f32_call, f32s, op, plan};
use crate::compression::{codec, codec_of_sums};
use crate::memory::bytes_of;
use crate::protocol::{Algorithm, Call, CallKind, CodecId, Plan, Rank, ReduceOp, ring_segment};

const SUMS: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Mean];

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
        let group = DOOR.group(size);
        // The last count is sent in pieces.
        let counts = [0, 1, 2, size, 1000, 5003, 65_537, if size > 3 { 700_001 } else { 270_000 }];
        let codecs = [
            CodecId::Bf16,
            CodecId::F16,
            CodecId::Int8,
            CodecId::Int4,
            CodecId::OneBit,
            CodecId::TopK { kept: 3 },
        ];
        for (number, (count, id)) in
            counts.into_iter().flat_map(|count| codecs.map(|id| (count, id))).enumerate()
        {
            let only_sums = matches!(id, CodecId::TopK { .. } | CodecId::OneBit);
            let reduce =
                if only_sums { SUMS[number / 10 % 2] } else { DOOR.reductions[number / 5 % 4] };
            let plan = plan(256 * 1024, SCHEDULES[number % 2].clone());
            let inputs: Vec<_> = (0..size).map(|_| f32s(count, &mut chance)).collect();
            let expected = coded_reference(id, reduce, &inputs);
            let call = Call { codec: id, ..f32_call(CallKind::AllReduce(reduce), count) };
            let before = group.sent_bytes();
            let of = op(0, number as u64);
            assert_gives(&group, of, call, &plan, &inputs, &expected, &mut chance);
            let sent = group.sent_bytes();
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
    let group = DOOR.group(2);
    let (plan, count) = (plan(256 * 1024, Algorithm::GlooRing), 4 * 128 * 1024);
    let call = Call { codec: CodecId::Bf16, ..f32_call(CallKind::AllReduce(ReduceOp::Sum), count) };
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
        most = most.max(group.running());
    }
    for number in chance.shuffled(numbers) {
        start(Rank(1), number);
        most = most.max(group.running());
    }
    for _ in 0..2 * CALLS {
        let (rank, of, result) = group.outcome();
        most = most.max(group.running());
        let sum = 1.0 + 2.0 * of.number as f32;
        let result = result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}"));
        assert!(bytes(&result) == bytes_of(&vec![sum; count]), "{of} on rank {rank}");
    }
    println!("at most {most} threads, {links} of them for links");
    assert!(most <= links + 2 * (CALLS + HELPERS_MAX), "{most} threads");
    group.end();
}

#[test]
fn shards_are_cut_as_the_ring_is() {
    assert_eq!(
        [ring_segment(0, 3, 10), ring_segment(1, 3, 10), ring_segment(2, 3, 10)],
        [0..3, 3..6, 6..10]
    );
}
