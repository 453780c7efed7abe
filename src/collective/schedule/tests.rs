//! The senders and receivers of every frame, for every kind of call.

use super::*;
use crate::collective::suite::{plan, plan_with_small};
use crate::protocol::{Algorithm, CodecId, Tree, TreeShare, any_tree};
use proptest::prelude::*;
use std::sync::Arc;

fn ring(order: &[u8], chunk_bytes: u32) -> Plan {
    plan_of(chunk_bytes, Algorithm::Ring { order: order.iter().copied().map(Rank).collect() })
}

fn plan_of(chunk_bytes: u32, algorithm: Algorithm) -> Plan {
    Arc::unwrap_or_clone(plan(chunk_bytes, algorithm))
}

fn call(kind: CallKind, count: u64) -> Call {
    Call::new(kind, DType::F32, count)
}

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

#[test]
fn a_ring_adds_from_the_owners_successor_round_to_the_owner() {
    let schedule = Schedule::of(&call(SUM, 10), None, &ring(&[2, 0, 1], 1024), 3).expect("fits");
    assert_eq!(
        schedule.flows.iter().map(|f| f.elements.clone()).collect::<Vec<_>>(),
        [0..3, 3..6, 6..10]
    );
    // Flow 0 is owned by rank 2: 0 sends to 1, 1 to 2; then 2 forwards the result to 0, and 0 to 1.
    let role = |me| schedule.role(0, Rank(me));
    assert_eq!((role(0).contributors, role(0).then), (vec![Rank(0)], Then::Send(Rank(1))));
    assert_eq!((role(1).contributors, role(1).then), (vec![Rank(0), Rank(1)], Then::Send(Rank(2))));
    assert_eq!((role(2).contributors, role(2).then), (vec![Rank(1), Rank(2)], Then::HandOn));
    assert_eq!((role(2).down_from, role(2).down_to), (None, vec![Rank(0)]));
    assert_eq!((role(0).down_from, role(0).down_to), (Some(Rank(2)), vec![Rank(1)]));
    assert_eq!((role(1).down_from, role(1).down_to), (Some(Rank(0)), vec![]));
}

#[test]
fn on_a_ring_everybody_sends_to_its_successor_alone() {
    let order = [3, 1, 4, 0, 2];
    for kind in every_kind(Rank(4)) {
        let schedule = Schedule::of(&call(kind, 1000), None, &ring(&order, 1024), 5).expect("fits");
        for (place, me) in order.into_iter().enumerate() {
            let (next, before) = (Rank(order[(place + 1) % 5]), Rank(order[(place + 4) % 5]));
            for flow in 0..schedule.flows.len() {
                let role = schedule.role(flow, Rank(me));
                assert!(role.contributors.iter().all(|c| *c == Rank(me) || *c == before));
                assert!(!matches!(role.then, Then::Send(to) if to != next));
                assert!(
                    role.down_to.iter().all(|to| *to == next)
                        && role.down_from.is_none_or(|f| f == before)
                );
            }
        }
    }
}

#[test]
fn chunks_cover_the_result_once_and_in_order() {
    for size in 1..=8 {
        let order: Vec<u8> = (0..size as u8).rev().collect();
        for count in [0, 1, size - 1, size, 1000, 65_537] {
            for plan in [ring(&order, 1024), Plan::mesh(size)] {
                for kind in every_kind(Rank(0)) {
                    let count = if kind == CallKind::AllToAll { count * size } else { count };
                    let schedule =
                        Schedule::of(&call(kind, count as u64), None, &plan, size).expect("fits");
                    let mut end = 0;
                    for flow in 0..schedule.flows.len() {
                        for chunk in 0..schedule.chunks(flow) {
                            let elements = schedule.elements(flow, chunk);
                            assert!(elements.start == end && !elements.is_empty());
                            end = elements.end;
                        }
                    }
                    let each = [CallKind::AllGather, CallKind::AllToAll].contains(&kind)
                        || matches!(kind, CallKind::Gather { .. } | CallKind::Scatter { .. });
                    let expected = if each { count * size } else { count };
                    assert_eq!((end, schedule.count()), (expected, expected));
                    let given =
                        if matches!(kind, CallKind::Scatter { .. }) { count * size } else { count };
                    assert_eq!(schedule.input_bytes(Rank(0)), given * 4);
                }
            }
        }
    }
}

fn every_kind(root: Rank) -> [CallKind; 8] {
    let op = ReduceOp::Sum;
    let rooted = [
        CallKind::Broadcast { root },
        CallKind::Reduce { op, root },
        CallKind::Gather { root },
        CallKind::Scatter { root },
    ];
    let [a, b, c, d] = rooted;
    [SUM, CallKind::AllGather, CallKind::ReduceScatter(op), CallKind::AllToAll, a, b, c, d]
}

/// The number of elements that each rank keeps.
fn kept(kind: CallKind, count: u64, plan: &Plan, size: usize) -> Vec<usize> {
    let schedule = Schedule::of(&call(kind, count), None, plan, size).expect("fits");
    let of = |me: Rank| {
        let flows = (0..schedule.flows.len()).filter(|flow| schedule.role(*flow, me).keeps);
        flows.map(|flow| schedule.flows[flow].elements.len()).sum()
    };
    ranks(size).map(of).collect()
}

#[test]
fn what_is_for_one_rank_is_kept_by_it_alone() {
    for plan in [ring(&[2, 0, 1], 1024), Plan::mesh(3)] {
        let kept = |kind, count| kept(kind, count, &plan, 3);
        let (op, root) = (ReduceOp::Max, Rank(1));
        assert_eq!(kept(CallKind::Reduce { op, root }, 10), [0, 10, 0]);
        assert_eq!(kept(CallKind::ReduceScatter(op), 10), [3, 3, 4]);
        assert_eq!(kept(CallKind::Gather { root }, 10), [0, 30, 0]);
        assert_eq!(kept(CallKind::Scatter { root }, 10), [10, 10, 10]);
        assert_eq!(kept(CallKind::AllToAll, 9), [9, 9, 9]);
        assert_eq!(kept(SUM, 10), [10, 10, 10]);
    }
}

/// A plan of these trees, in shares as equal as possible.
fn over(trees: Vec<Tree>) -> Plan {
    let (each, rest) = (1_000_000 / trees.len() as u32, 1_000_000 % trees.len() as u32);
    let share = |(i, tree)| TreeShare { tree, ppm: if i == 0 { each + rest } else { each } };
    let algorithm = Algorithm::Trees { trees: trees.into_iter().enumerate().map(share).collect() };
    plan_of(1024, algorithm)
}

proptest! {
    /// If only neighbours reach each other, every frame goes to a neighbour, and every kept flow
    /// arrives.
    #[test]
    fn over_trees_everybody_sends_to_its_neighbours_alone(
        trees in (1usize..=6).prop_flat_map(|size| proptest::collection::vec(any_tree(size), 1..4)),
        root: proptest::sample::Index,
    ) {
        let (size, plan) = (trees[0].parents.len(), over(trees.clone()));
        let leads = |a: Rank, b: Rank| trees.iter().any(|t| t.parents[a.index()] == Some(b));
        let joined = |a: Rank, b: Rank| leads(a, b) || leads(b, a);
        for kind in every_kind(Rank(root.index(size) as u8)) {
            let schedule = Schedule::of(&call(kind, 60), None, &plan, size).expect("fits");
            for flow in 0..schedule.flows.len() {
                assert_flow(&schedule, flow);
                for me in ranks(size) {
                    let role = schedule.role(flow, me);
                    let parent = match role.then {
                        Then::Send(parent) => Some(parent),
                        _ => None,
                    };
                    let mut sends_to = role.down_to.into_iter().chain(parent);
                    prop_assert!(sends_to.all(|to| joined(me, to)), "{kind:?}");
                }
            }
        }
        let pairs = ranks(size).flat_map(|from| ranks(size).map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            // Whether there is a link for it depends on the View, and is checked before.
            let message = call(CallKind::Message { from, to, tag: 0 }, 60);
            let message = Schedule::of(&message, None, &plan, size).expect("fits");
            let role = message.role(0, from);
            prop_assert_eq!((message.flows.len(), role.down_to), (1, vec![to]));
        }
    }
}

/// Both ends of every frame expect it, and every rank that keeps a flow receives it.
#[test]
fn what_is_sent_is_expected_and_arrives() {
    for size in 1..=6usize {
        let order: Vec<u8> = (0..size as u8).rev().collect();
        for plan in [ring(&order, 1024), Plan::mesh(size)] {
            for kind in every_kind(Rank(size as u8 - 1)) {
                let schedule = Schedule::of(&call(kind, 60), None, &plan, size).expect("fits");
                for flow in 0..schedule.flows.len() {
                    assert_flow(&schedule, flow);
                }
            }
        }
    }
}

fn assert_flow(schedule: &Schedule, flow: usize) {
    let roles: Vec<FlowRole> = ranks(schedule.size).map(|me| schedule.role(flow, me)).collect();
    let mut has = Vec::new();
    for me in ranks(schedule.size) {
        let role = &roles[me.index()];
        let is_owner = role.then != Then::Keep || !role.contributors.is_empty();
        has.push(is_owner && !matches!(role.then, Then::Send(_)));
        if let Then::Send(parent) = role.then {
            assert!(roles[parent.index()].contributors.contains(&me));
        }
        for to in &role.down_to {
            assert_eq!(roles[to.index()].down_from, Some(me));
        }
        for from in role.contributors.iter().filter(|from| **from != me && role.then != Then::Keep)
        {
            assert_eq!(roles[from.index()].then, Then::Send(me));
        }
    }
    for me in ranks(schedule.size).filter(|me| roles[me.index()].keeps) {
        let mut at = me;
        while !has[at.index()] {
            at = roles[at.index()].down_from.expect("a way to the rank that keeps it");
        }
    }
}

#[test]
fn what_is_for_one_rank_goes_straight_where_all_reach_each_other() {
    let algorithm = Algorithm::Ring { order: ranks(4).collect() };
    let frames = |plan: &Plan| {
        let schedule = Schedule::of(&call(CallKind::AllToAll, 400), None, plan, 4).expect("fits");
        let of =
            |flow: usize| ranks(4).map(|me| schedule.role(flow, me).down_to.len()).sum::<usize>();
        (0..16).map(of).sum::<usize>()
    };
    assert_eq!(frames(&plan(1024, algorithm.clone())), 4 * (1 + 2 + 3));
    assert_eq!(frames(&plan_with_small(9, 1024, algorithm)), 12);
}

#[test]
fn a_sync_needs_its_root_and_takes_its_length() {
    let sync = Call::new(CallKind::Sync { version: 3 }, DType::U8, 5);
    assert_eq!(Schedule::of(&sync, None, &Plan::mesh(3), 3), Err(Unfit));
    let schedule = Schedule::of(&sync, Some((Rank(2), 70)), &Plan::mesh(3), 3).expect("fits");
    assert_eq!(
        (schedule.count(), schedule.input_bytes(Rank(2)), schedule.input_bytes(Rank(0))),
        (70, 70, 0)
    );
}

#[test]
fn what_makes_no_sense_is_unfit() {
    let plan = Plan::mesh(3);
    let of = |call: Call| Schedule::of(&call, None, &plan, 3).err();
    assert_eq!(of(call(SUM, u64::MAX)), Some(Unfit));
    assert_eq!(of(call(SUM, u64::MAX / 8)), Some(Unfit));
    assert_eq!(of(call(CallKind::AllGather, u64::MAX)), Some(Unfit));
    for kind in every_kind(Rank(3)).into_iter().skip(4) {
        assert_eq!(of(call(kind, 1)), Some(Unfit), "{kind:?}");
    }
    assert_eq!(of(call(CallKind::AllToAll, 4)), Some(Unfit));
    assert_eq!(of(call(CallKind::AllToAll, u64::MAX / 12 * 3)), Some(Unfit));
    assert_eq!(
        of(Call { dtype: DType::U8, ..call(CallKind::AllReduce(ReduceOp::Mean), 1) }),
        Some(Unfit)
    );
    assert_eq!(of(Call { codec: CodecId::Bf16, ..call(CallKind::AllGather, 1) }), Some(Unfit));
    assert_eq!(of(Call { codec: CodecId::Bf16, dtype: DType::F64, ..call(SUM, 1) }), Some(Unfit));
    assert_eq!(Schedule::of(&call(SUM, 1), None, &ring(&[0, 1], 1024), 3), Err(Unfit));
    assert_eq!(Schedule::of(&call(SUM, 1), None, &plan, MEMBERS_MAX + 1), Err(Unfit));
}
