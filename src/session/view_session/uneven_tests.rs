//! Uneven calls on the native engine, among members that are honest and some that are not.

use super::testing::Group;
use super::uneven::UnevenStep;
use crate::collective::Input;
use crate::memory::DType;
use crate::protocol::{
    AbortReason, Call, CallKind, CallMode, Descriptor, Lane, Lengths, OpBody, OpId, OpMessage,
    Outcome, Rank, view_of,
};

const SIZE: usize = 3;

fn whole(kind: CallKind, count: usize) -> Call {
    Call::new(kind, DType::U8, count as u64)
}

/// All members begin the call with these rows; returns their operations.
fn begun(group: &Group, kind: CallKind, rows: &[[u64; SIZE]; SIZE]) -> Vec<OpId> {
    let member = |(member, row): (&std::sync::Arc<super::ViewSession>, &[u64; SIZE])| {
        let call = whole(kind, row[0] as usize);
        let op = member.call(Lane::MAIN, call).expect("a number");
        member.begin_uneven(op, call, row);
        op
    };
    group.members.iter().zip(rows).map(member).collect()
}

fn lengths(group: &mut Group, member: usize, op: OpId) -> Option<Lengths> {
    let session = std::sync::Arc::clone(&group.members[member]);
    match group.ready(|task| session.poll_lengths(op, task)) {
        UnevenStep::Known(lengths) => lengths,
        UnevenStep::Decided(decided) => panic!("{decided:?}"),
    }
}

#[test]
fn each_rank_gets_the_parts_that_are_for_it() {
    let rows = [[2, 0, 5], [1, 1, 70_000], [0, 0, 9]];
    let mut group = Group::of(view_of(SIZE as u8));
    for kind in [CallKind::AllToAllUneven, CallKind::AllGatherUneven] {
        let rows = match kind {
            CallKind::AllToAllUneven => rows,
            _ => rows.map(|row| [row[2]; SIZE]),
        };
        let ops = begun(&group, kind, &rows);
        for (rank, op) in ops.iter().enumerate() {
            let lengths = lengths(&mut group, rank, *op).expect("they fit");
            let sent = match kind {
                CallKind::AllToAllUneven => rows[rank].iter().sum(),
                _ => rows[rank][0],
            };
            let input = vec![rank as u8 + 1; sent as usize];
            let call = whole(kind, input.len());
            group.members[rank].begin_data(*op, &call, lengths, &Input::Borrowed(&input));
        }
        for (rank, op) in ops.iter().enumerate() {
            let decided = group.decided(rank, *op);
            assert_eq!(decided.outcome, Outcome::Committed);
            let mut out = vec![0; decided.bytes().expect("a result")];
            decided.copy_to(&mut out[..]);
            let part = |from: usize| vec![from as u8 + 1; rows[from][rank] as usize];
            assert!(out == (0..SIZE).flat_map(part).collect::<Vec<u8>>(), "{kind:?} at {rank}");
        }
    }
}

#[test]
fn what_no_machine_could_hold_is_known_to_be_too_much() {
    let mut group = Group::of(view_of(SIZE as u8));
    let rows = [[1; SIZE], [u64::MAX; SIZE], [1; SIZE]];
    let ops = begun(&group, CallKind::AllGatherUneven, &rows);
    for (rank, op) in ops.iter().enumerate() {
        assert_eq!(lengths(&mut group, rank, *op), None);
    }
    let lack = AbortReason::Memory { bytes: 7 };
    group.members[0].give_up(ops[0], lack);
    for (rank, op) in ops.iter().enumerate() {
        match group.decided(rank, *op).outcome {
            Outcome::Aborted(cause) => assert_eq!((cause.reason, cause.by), (lack, Rank(0))),
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_mismatch_names_the_call_of_the_program() {
    let mut group = Group::of(view_of(SIZE as u8));
    let mine = whole(CallKind::AllGatherUneven, 4);
    let others = [
        Call { dtype: DType::I8, ..mine },
        whole(CallKind::AllToAllUneven, 4),
        whole(CallKind::Barrier, 0),
    ];
    for other in others {
        let ops: Vec<OpId> = (0..SIZE)
            .map(|rank| {
                let (member, call) = (&group.members[rank], if rank == 1 { other } else { mine });
                let op = member.call(Lane::MAIN, call).expect("a number");
                match call.kind {
                    CallKind::Barrier => drop(member.begin(op, call, &Input::Nothing)),
                    _ => member.begin_uneven(op, call, &[4; SIZE]),
                }
                op
            })
            .collect();
        for (rank, op) in ops.iter().enumerate() {
            let outcome = group.decided(rank, *op).outcome;
            let Outcome::Aborted(cause) = outcome else { panic!("{outcome:?}") };
            let AbortReason::Mismatch(mismatch) = cause.reason else { panic!("{cause:?}") };
            let named = [mismatch.lower, mismatch.higher];
            assert!(named.contains(&(Rank(1), other)), "{mismatch:?}");
        }
    }
    // A step, whose end is not announced yet.
    let (op, step) = {
        let call = whole(CallKind::Step { parts: 0 }, 0);
        (group.members[1].call(Lane::MAIN, call).expect("a number"), call)
    };
    let part = Call { mode: CallMode::PerStep, ..whole(CallKind::AllGather, 4) };
    group.members[1].begin_part(op, 0, part, &Input::Borrowed(&[0; 4]));
    for rank in [0, 2] {
        let member = &group.members[rank];
        let op = member.call(Lane::MAIN, mine).expect("a number");
        member.begin_uneven(op, mine, &[4; SIZE]);
    }
    let outcome = group.decided(0, op).outcome;
    let Outcome::Aborted(cause) = outcome else { panic!("{outcome:?} of {step}") };
    let AbortReason::Mismatch(mismatch) = cause.reason else { panic!("{cause:?}") };
    assert_eq!((mismatch.lower, mismatch.higher), ((Rank(0), mine), (Rank(1), part)));
}

#[test]
fn an_uneven_call_by_best_effort_is_a_lie() {
    let group = Group::of(view_of(SIZE as u8));
    let call = Call { mode: CallMode::BestEffort, ..whole(CallKind::AllToAllUneven, 1) };
    let op = OpId { lane: Lane::MAIN, number: 0 };
    let body = OpBody::Describe(Descriptor { op, call, plan_revision: 0 });
    let view = group.members[0].digest();
    let message = OpMessage { view, body, resolved: vec![], enclosed: None };
    assert!(group.members[0].on_message(Rank(1), &message).is_err());
}
