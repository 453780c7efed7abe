//! Operations cancelled half way, broken links, boards without all entries, and closing.

use super::door::{DOOR, TestBoard, with_boards};
use crate::collective::Board;
use crate::collective::suite::{self, Chance, Group, bytes, f32_call, op};
use crate::link::{Ends, memory, sealed_tcp};
use crate::memory::bytes_of;
use crate::protocol::{
    Algorithm, Call, CallKind, EngineFault, OPS_IN_FLIGHT_MAX, OpId, Plan, Rank, ReduceOp,
};
use std::sync::Arc;
use std::time::Duration;

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

fn plan(algorithm: Algorithm) -> Arc<Plan> {
    suite::plan(256 * 1024, algorithm)
}

fn start_all(group: &Group, op: OpId, call: Call, plan: &Arc<Plan>) {
    let input = vec![1.0f32; call.count as usize];
    group.ranks().for_each(|me| group.start(me, op, call, None, plan, bytes_of(&input)));
}

fn assert_sums(group: &Group, op: OpId, count: usize, plan: &Arc<Plan>) {
    start_all(group, op, f32_call(SUM, count), plan);
    group.ranks().for_each(|me| group.credit_from(op, me));
    for finished in group.results(op) {
        assert!(bytes(&finished) == bytes_of(&vec![group.backends.len() as f32; count]));
    }
    group.retire(op);
}

/// More calls than operations may be in flight, as two steps have, which each rank begins in an
/// order of its own.
#[test]
fn ranks_that_begin_lanes_in_other_orders_do_not_wait_for_each_other() {
    const CALLS: u64 = 2 * OPS_IN_FLIGHT_MAX as u64;
    let (group, plan, input) = (DOOR.linked(2, memory), plan(Algorithm::GlooRing), [1f32; 100]);
    for (me, lanes) in [(Rank(0), [1, 2]), (Rank(1), [2, 1])] {
        for call in lanes.into_iter().flat_map(|lane| (0..CALLS).map(move |n| op(lane, n))) {
            group.start(me, call, f32_call(SUM, input.len()), None, &plan, bytes_of(&input));
            group.credit_from(call, me);
        }
    }
    for _ in 0..4 * CALLS {
        let (rank, of, result) = group.outcome();
        let finished = result.unwrap_or_else(|fault| panic!("{of} on rank {rank}: {fault}"));
        assert!(bytes(&finished) == bytes_of(&[2f32; 100]));
    }
    assert!(group.end().is_empty());
}

#[test]
fn an_operation_given_up_inside_gloo_leaves_the_context_as_it_was() {
    let mut chance = Chance(1);
    println!("seed {}", chance.0);
    for ends in [memory as fn() -> Ends, sealed_tcp] {
        let group = DOOR.linked(3, ends);
        assert_sums(&group, op(0, 0), 10, &plan(Algorithm::GlooRing));
        let threads = group.running();
        for round in 0..50 {
            let plan =
                plan(if round % 2 == 0 { Algorithm::GlooRing } else { Algorithm::GlooBcube });
            let count = [1, 1000, 300_000][chance.below(3) as usize];
            let given_up = op(1, round);
            // Rank 2 does not call. The others begin, and wait inside Gloo for its messages.
            for me in [Rank(0), Rank(1)] {
                group.start(
                    me,
                    given_up,
                    f32_call(SUM, count),
                    None,
                    &plan,
                    bytes_of(&vec![1f32; count]),
                );
            }
            chance
                .shuffled(group.ranks().collect())
                .iter()
                .for_each(|me| group.backends[me.index()].cancel(given_up));
            for _ in 0..2 {
                let (_, of, result) = group.outcome();
                assert_eq!((of, result.err()), (given_up, Some(EngineFault::Cancelled)));
            }
            if chance.below(2) == 0 {
                group.retire(given_up);
            }
            assert_sums(&group, op(2, round), count, &plan);
        }
        // Cancelled operations unwind while the next one begins, so a member has a few threads, but
        // not one for each of fifty operations.
        let now = group.running();
        assert!(now <= threads + 5 * group.backends.len(), "{threads} became {now}");
        assert_eq!(group.panics(), 0);
    }
}

#[test]
fn an_operation_given_up_at_any_moment_ends_once_everywhere() {
    let mut chance = Chance(2);
    println!("seed {}", chance.0);
    let (group, plan) = (DOOR.group(3), plan(Algorithm::GlooRing));
    for round in 0..50 {
        let given_up = op(1, round);
        start_all(&group, given_up, f32_call(SUM, 200_000), &plan);
        group.ranks().for_each(|me| group.credit_from(given_up, me));
        // Cancel at a random point of its progress.
        (0..chance.below(2000)).for_each(|_| std::hint::spin_loop());
        group.cancel(given_up);
        for _ in 0..3 {
            let (rank, of, result) = group.outcome();
            assert_eq!(of, given_up);
            assert!(
                result.is_ok() || result.as_ref().err() == Some(&EngineFault::Cancelled),
                "rank {rank}: {result:?}"
            );
        }
        assert_sums(&group, op(2, round), 1000, &plan);
    }
    assert!(group.outcomes.try_recv().is_err());
}

/// The machine has no thread left for a while. Once it has, each operation gets one.
#[test]
fn a_thread_that_could_not_be_started_is_missed_and_started_later() {
    let (group, plan) = (DOOR.group(2), plan(Algorithm::GlooRing));
    assert_sums(&group, op(0, 0), 10, &plan);
    let start = |me: Rank, op: OpId| {
        group.start(me, op, f32_call(SUM, 10), None, &plan, bytes_of(&[1f32; 10]));
        group.credit_from(op, me);
    };
    // The first thread of rank 0 waits in this one for rank 1.
    start(Rank(0), op(1, 0));
    // More address space than a process has.
    group.threads[0].set_stack_bytes(1 << 60);
    start(Rank(0), op(1, 1));
    group.threads[0].set_stack_bytes(0);
    // Two threads are missing now, and both are started.
    start(Rank(0), op(1, 2));
    start(Rank(1), op(1, 2));
    for _ in 0..2 {
        let (rank, of, result) = group.outcome();
        assert_eq!(
            (of, result.map(|finished| bytes(&finished)).ok()),
            (op(1, 2), Some(bytes_of(&[2f32; 10]).to_vec())),
            "rank {rank}"
        );
    }
    [op(1, 0), op(1, 1)].into_iter().for_each(|op| start(Rank(1), op));
    (0..4).for_each(|_| assert!(group.outcome().2.is_ok()));
    assert_eq!(group.panics(), 0);
}

#[test]
fn what_was_given_up_before_it_began_holds_nothing_up() {
    let (group, plan) = (DOOR.group(2), plan(Algorithm::GlooRing));
    group.start(Rank(1), op(1, 0), f32_call(SUM, 1), None, &plan, &[0; 4]);
    group.cancel(op(1, 0));
    assert_eq!(group.outcome().2.err(), Some(EngineFault::Cancelled));
    assert_sums(&group, op(0, 0), 1000, &plan);
    group.start(Rank(0), op(1, 0), f32_call(SUM, 1), None, &plan, &[0; 4]);
    assert_eq!(
        group.outcome().2.err(),
        Some(EngineFault::Cancelled),
        "an ended operation stays ended"
    );
}

#[test]
fn a_link_that_breaks_fails_what_waits_for_it_by_name() {
    let plan = plan(Algorithm::GlooRing);
    let group = DOOR.group(2);
    assert_sums(&group, op(0, 0), 1000, &plan);
    // Rank 1 does not call, so rank 0 waits for it inside Gloo.
    group.start(Rank(0), op(0, 1), f32_call(SUM, 1000), None, &plan, bytes_of(&[1f32; 1000]));
    group.backends[1].close();
    let (rank, _, lost) = group.outcome();
    assert_eq!((rank, lost.err()), (Rank(0), Some(EngineFault::LinkLost(Rank(1)))));
}

#[test]
fn an_odd_message_is_nobodys_fault_until_its_sender_has_said_what_it_calls() {
    let (group, plan) = (DOOR.group(2), plan(Algorithm::GlooExchange));
    let differ = |op| {
        for (me, count) in [(Rank(0), 1000), (Rank(1), 2000)] {
            group.start(me, op, f32_call(SUM, count), None, &plan, bytes_of(&vec![1f32; count]));
        }
    };
    // The calls differ: the descriptors show it, and the operation is given up.
    differ(op(0, 0));
    assert!(group.outcomes.recv_timeout(Duration::from_millis(100)).is_err(), "told too early");
    group.cancel(op(0, 0));
    let faults = [group.outcome(), group.outcome()].map(|(_, _, result)| result.err());
    assert_eq!(faults, [Some(EngineFault::Cancelled); 2]);
    // The descriptors are alike, but one rank sends other data than its descriptor states.
    differ(op(0, 1));
    group.ranks().for_each(|me| group.credit_from(op(0, 1), me));
    let (rank, _, result) = group.outcome();
    assert_eq!(result.err(), Some(EngineFault::Protocol(Rank(1 - rank.0))));
    group.cancel(op(0, 1));
    assert!(group.outcome().2.is_err());
    assert_sums(&group, op(0, 2), 1000, &plan);
}

#[test]
fn a_board_that_never_fills_is_left_when_the_backend_closes() {
    // Rank 1 never connects.
    let group = with_boards(&TestBoard::shared(2), 1);
    let start = |number| {
        let (call, plan) = (f32_call(CallKind::Barrier, 0), plan(Algorithm::GlooRing));
        group.begin(Rank(0), op(0, number), call, None, &plan, None);
    };
    start(0);
    group.backends[0].close();
    assert_eq!(group.outcome().2.err(), Some(EngineFault::Closed));
    start(1);
    assert_eq!(group.outcome().2.err(), Some(EngineFault::Closed));
    assert!(group.end().is_empty());
}

#[test]
fn members_that_cannot_be_connected_fail_every_operation() {
    type Spoil = fn(&[Arc<TestBoard>]);
    let spoiled: [(&str, Spoil); 3] = [
        ("an address of somebody else", |boards| boards[1].set("1", &[0; 8]).expect("free")),
        ("no address", |boards| boards[1].set("1", &[]).expect("free")),
        ("a board that takes nothing", |boards| boards[0].refuse()),
    ];
    for (what, spoil) in spoiled {
        let boards = TestBoard::shared(2);
        spoil(&boards);
        let group = with_boards(&boards, 2);
        for number in 0..3 {
            group.start(
                Rank(0),
                op(0, number),
                f32_call(SUM, 1),
                None,
                &plan(Algorithm::GlooRing),
                &[0; 4],
            );
            assert_eq!(group.outcome().2.err(), Some(EngineFault::Gloo), "{what}");
        }
        assert!(group.end().is_empty(), "{what}");
    }
}

#[test]
fn two_hundred_backends_leave_nothing_behind() {
    let plan = plan(Algorithm::GlooRing);
    let open_files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = open_files();
    for round in 0..100 {
        let group = DOOR.linked(2, sealed_tcp);
        // Close some groups before they are connected.
        if round % 4 != 0 {
            assert_sums(&group, op(0, 0), 1000, &plan);
        }
        group.end();
    }
    // Other tests of this process have files open; a leak here would be of 200 and more.
    let grown = open_files().saturating_sub(before);
    assert!(grown < 100, "{grown} files more than before");
}
