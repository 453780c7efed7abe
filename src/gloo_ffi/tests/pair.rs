//! Gloo and the native engine in one View, over the same links.

use super::door::both;
use crate::collective::suite::{Chance, bytes, f32_call, op, plan, until};
use crate::collective::{EARLY_OPS_MAX, reference};
use crate::link::{DataHeader, Phase, memory, sealed_tcp, tcp};
use crate::memory::{Pool, bytes_of};
use crate::protocol::{
    Algorithm, Call, CallKind, EngineFault, OpId, Plan, Rank, ReduceOp, Tree, TreeShare,
};
use crate::report::Traffic;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plans for Gloo, and for the native engine.
fn plans(size: usize) -> Vec<Arc<Plan>> {
    let star = |root| TreeShare { tree: Tree::star(Rank(root), size), ppm: 500_000 };
    let ring = (0..size as u8).map(Rank).collect();
    let algorithms = [
        Algorithm::GlooRing,
        Algorithm::OneShot,
        Algorithm::GlooBcube,
        Algorithm::Trees { trees: vec![star(0), star(1)] },
        Algorithm::GlooExchange,
        Algorithm::Ring { order: ring },
    ];
    algorithms.into_iter().map(|algorithm| plan(256 * 1024, algorithm)).collect()
}

fn sum(count: usize) -> Call {
    f32_call(CallKind::AllReduce(ReduceOp::Sum), count)
}

fn inputs(size: usize, count: usize, chance: &mut Chance) -> Vec<Vec<f32>> {
    (0..size).map(|_| (0..count).map(|_| (chance.next() as i32 as f32) * 1e-3).collect()).collect()
}

/// Six concurrent calls, each under another plan, made and credited in a random order on each rank.
#[test]
fn calls_of_both_run_beside_each_other_and_are_exact() {
    let mut chance = Chance(7);
    println!("seed {}", chance.0);
    for ends in [memory, tcp, sealed_tcp] {
        for size in [3, 4] {
            let (group, plans) = (both(size).linked(ends), plans(size));
            for round in 0..12 {
                let call_of = |number: usize| op(round, number as u64);
                let mut expected: BTreeMap<OpId, Vec<f32>> = BTreeMap::new();
                let mut calls = Vec::new();
                for (number, plan) in plans.iter().enumerate() {
                    let count = [1, 1000, 20_000, 200_001][chance.below(4) as usize];
                    let contributions = inputs(size, count, &mut chance);
                    expected.insert(
                        call_of(number),
                        reference(&plan.fold_order(size, count, 4), ReduceOp::Sum, &contributions),
                    );
                    calls.extend(
                        group.ranks().map(|me| (number, me, contributions[me.index()].clone())),
                    );
                }
                for (number, me, input) in chance.shuffled(calls) {
                    group.start(
                        me,
                        call_of(number),
                        sum(input.len()),
                        None,
                        &plans[number],
                        bytes_of(&input),
                    );
                    group.credit_from(call_of(number), me);
                }
                for _ in 0..plans.len() * size {
                    let (rank, of, result) = group.outcome();
                    let finished = result
                        .unwrap_or_else(|fault| panic!("{of} on rank {rank} of {size}: {fault}"));
                    assert!(
                        bytes(&finished) == bytes_of(&expected[&of]),
                        "{of} on rank {rank} of {size}"
                    );
                }
                expected.keys().for_each(|of| group.retire(*of));
            }
            // A writer counts a frame after writing it; the peer may have received it by then, and
            // the call may be over.
            let traffic = || {
                group
                    .backends
                    .iter()
                    .fold(Traffic::default(), |sum, backend| sum.and(backend.traffic()))
            };
            let what = "all that is sent has been received";
            until(what, || {
                traffic().sent_bytes > 0 && traffic().sent_bytes == traffic().received_bytes
            });
            group.end();
        }
    }
}

/// An operation cancelled at one engine leaves nothing that disturbs the other.
#[test]
fn a_call_given_up_of_one_leaves_the_others_alone() {
    let mut chance = Chance(8);
    println!("seed {}", chance.0);
    let size = 3;
    let (group, plans) = (both(size).linked(sealed_tcp), plans(size));
    // More operations than either engine keeps of those it knows only from peers.
    for round in 0..3 * EARLY_OPS_MAX as u64 {
        let [given_up, whole] = [op(1, round), op(2, round)];
        let (odd, even) = (&plans[round as usize % 6], &plans[(round as usize + 1) % 6]);
        let count = [100, 1000, 15_000][chance.below(3) as usize];
        let contributions = inputs(size, count, &mut chance);
        // The last rank never makes this call.
        for me in [Rank(0), Rank(1)] {
            group.start(me, given_up, sum(count), None, odd, bytes_of(&contributions[me.index()]));
            group.credit_from(given_up, me);
        }
        for me in chance.shuffled(group.ranks().collect()) {
            group.start(me, whole, sum(count), None, even, bytes_of(&contributions[me.index()]));
            group.credit_from(whole, me);
            if chance.below(2) == 0 {
                group.backends[me.index()].cancel(given_up);
            }
        }
        group.cancel(given_up);
        let expected = reference(&even.fold_order(size, count, 4), ReduceOp::Sum, &contributions);
        for _ in 0..2 + size {
            match group.outcome() {
                (_, of, result) if of == given_up => {
                    assert_eq!(result.err(), Some(EngineFault::Cancelled));
                }
                (rank, of, result) => {
                    let finished =
                        result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}"));
                    assert!(bytes(&finished) == bytes_of(&expected), "{of} on rank {rank}");
                }
            }
        }
        [given_up, whole].into_iter().for_each(|of| group.retire(of));
    }
    group.end();
}

#[test]
fn the_end_of_a_member_is_told_by_both() {
    let (group, plans) = (both(3).linked(tcp), plans(3));
    let input = vec![1f32; 300_000];
    for (number, plan) in plans.iter().take(2).enumerate() {
        for me in [Rank(0), Rank(1)] {
            group.start(me, op(0, number as u64), sum(input.len()), None, plan, bytes_of(&input));
        }
    }
    group.backends[2].close();
    // The two waiting ranks fail; the rest of each operation fails when its session gives it up.
    let mut failed = 0;
    while failed < 4 {
        let (rank, of, result) = group.outcome();
        assert!(
            matches!(result, Err(EngineFault::LinkLost(Rank(2)))),
            "{of} on rank {rank}: {:?}",
            result.err()
        );
        failed += 1;
    }
}

/// A frame that breaks the rules of one engine costs its sender the link, and with it the
/// operations that wait at the other one.
#[test]
fn a_violation_at_one_ends_the_link_of_both() {
    for (guilty, phase) in [(0, Phase::Posted), (1, Phase::Gather)] {
        let (group, plans) = (both(3), plans(3));
        let (near, far) = memory();
        group.backends[0].attach(Rank(1), near);
        let (mut sender, mut receiver, _end) = far.split();
        // Each rank sends to all others.
        for (number, plan) in [(0, &plans[4]), (1, &plans[1])] {
            let input = [1f32; 1000];
            group.start(Rank(0), op(0, number), sum(1000), None, plan, bytes_of(&input));
            group.backends[0].credit(op(0, number), Rank(1));
        }
        // Gloo's first message shows that it waits for the answer.
        let mut next = || receiver.recv(&Pool::new()).expect("a frame").0.phase;
        while next() != Phase::Message {}
        let header = DataHeader { op: op(0, guilty), flow: 9, chunk: 9, phase, len: 4 };
        sender.send(&header, &[0; 4]).expect("sent");
        let faults = [group.outcome(), group.outcome()].map(|(_, of, result)| (of, result.err()));
        let fault_of =
            |number| faults.iter().find(|(of, _)| *of == op(0, number)).expect("one for each").1;
        assert_eq!(fault_of(guilty), Some(EngineFault::Protocol(Rank(1))));
        assert_eq!(fault_of(1 - guilty), Some(EngineFault::LinkLost(Rank(1))));
        assert!(group.end().is_empty());
    }
}
