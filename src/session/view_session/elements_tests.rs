//! Bytes from other members that are no elements of their type.

use super::testing::Group;
use crate::collective::Input;
use crate::memory::DType;
use crate::protocol::{
    AbortCause, AbortReason, Call, CallKind, EngineFault, Outcome, Rank, ReduceOp, view_of,
};

#[test]
fn bytes_that_are_no_bool_abort_their_call_on_all_and_no_other() {
    let kinds = [
        CallKind::AllGather,
        CallKind::AllToAll,
        CallKind::Broadcast { root: Rank(1) },
        CallKind::AllReduce(ReduceOp::BitOr),
        CallKind::AllReduce(ReduceOp::BitXor),
    ];
    let mut group = Group::of(view_of(3));
    for (kind, len) in kinds.into_iter().flat_map(|kind| [(kind, 3), (kind, 60_000)]) {
        for liar in [None, Some(1)] {
            let call = Call::new(kind, DType::Bool, len);
            let ops = group.call_all(call);
            for (rank, (member, op)) in group.members.iter().zip(&ops).enumerate() {
                let mut input = vec![1; len as usize];
                if liar == Some(rank) {
                    input.fill(2);
                }
                let is_read = kind.root().is_none_or(|root| root.index() == rank);
                let input = if is_read { Input::Borrowed(&input) } else { Input::Nothing };
                member.begin(*op, call, &input);
            }
            for (rank, op) in ops.iter().enumerate() {
                let decided = group.decided(rank, *op);
                match (liar, decided.outcome) {
                    (None, Outcome::Committed) => {}
                    (Some(_), Outcome::Aborted(AbortCause { reason: AbortReason::Engine, .. })) => {
                        let fault = EngineFault::Bits(DType::Bool);
                        assert!(decided.fault.is_none_or(|found| found == fault), "{call}");
                    }
                    (_, outcome) => panic!("{call} with {liar:?} at {rank}: {outcome:?}"),
                }
            }
        }
    }
}
