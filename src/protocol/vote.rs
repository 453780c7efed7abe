//! Messages between members about operations, and the outcome of an operation.

use super::call::{Call, CallKind, Descriptor};
use super::enclosed::Enclosed;
use super::failed_op::Failure;
use super::fault::EngineFault;
use super::lane_set::LaneSet;
use super::op_id::{Lane, OpId};
use super::op_set::OpSet;
use super::rank::Rank;
use super::rank_set::RankSet;
use super::view::OPS_LISTED_MAX;
use super::view_id::ViewDigest;
use crate::memory::OutOfMemory;
use crate::wire::layout::{List, layout};
use std::sync::Arc;

/// A member's vote on one operation, sent to all participants.
///
/// `Done` may become `Abort` when another member's `Abort` arrives; `Abort` is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// This member holds the full result.
    Done {
        /// XXH3-128 over the XXH3-64 hashes of the result's 256 KiB blocks, or, for a step, over
        /// the digests of its calls. 0 for collectives whose results differ by rank.
        digest: u128,
    },
    /// This member will not take part in a commit.
    Abort(AbortCause),
}

layout!(enum Vote { 1 => Done { digest }, 2 => Abort(cause) });

/// Why an operation was aborted, and the member that did so first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortCause {
    /// The reason. Causes are ordered: if members give different ones, all report the least.
    pub reason: AbortReason,
    /// The rank that gave up.
    pub by: Rank,
}

layout!(AbortCause { by, reason });

/// Why an operation was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// Two ranks made different calls.
    Mismatch(Mismatch),
    /// A contribution or a result holds a NaN or an infinity, and that member accepts finite values
    /// only.
    NonFinite,
    /// The sum of the weights of a weighted mean is 0 or not finite.
    Weights,
    /// A deadline passed.
    Deadline,
    /// The call was dropped before it was done.
    Dropped,
    /// There is no memory for the operation on a member; the View continues.
    Memory {
        /// The bytes that could not be allocated there.
        bytes: u64,
    },
    /// The engine of a member failed; the View continues.
    Engine,
    /// A member was lost, and the next View has not committed the operation.
    ViewChange,
}

layout! {
    enum AbortReason {
        1 => Mismatch(mismatch),
        2 => Deadline,
        3 => Dropped,
        4 => Engine,
        5 => ViewChange,
        6 => NonFinite,
        7 => Memory { bytes },
        8 => Weights,
    }
}

impl AbortReason {
    /// The reason to give up for an operation that the engine could not finish.
    pub fn of(fault: EngineFault) -> AbortReason {
        match fault {
            EngineFault::Memory { bytes } => AbortReason::Memory { bytes },
            _ => AbortReason::Engine,
        }
    }
}

impl From<OutOfMemory> for AbortReason {
    fn from(lack: OutOfMemory) -> AbortReason {
        AbortReason::of(lack.into())
    }
}

/// Two calls under one number that do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mismatch {
    /// The lower rank and its call.
    pub lower: (Rank, Call),
    /// The higher rank and its call.
    pub higher: (Rank, Call),
}

layout!(Mismatch { lower, higher } if Mismatch::is_consistent);

impl Mismatch {
    fn is_consistent(&self) -> bool {
        self.lower.0 < self.higher.0 && !self.lower.1.agrees(&self.higher.1)
    }
}

/// How an operation ended on this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The result counts.
    Committed,
    /// The operation has no effect, for all members that continue together.
    Aborted(AbortCause),
    /// This member was left behind, or the members that decided have gone: it cannot know the
    /// outcome.
    Indeterminate,
    /// The members hold different results, so it has no effect.
    DigestMismatch {
        /// The lowest rank whose result is not that of the majority, if there is a majority.
        odd: Option<Rank>,
    },
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        match failure {
            Failure::Disputed(odd) => Outcome::DigestMismatch { odd },
            Failure::Indeterminate => Outcome::Indeterminate,
        }
    }
}

/// The status of an operation in a promise to leave the View.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The operation's number.
    pub op: OpId,
    /// Its status.
    pub status: Status,
    /// Whether it is a sync, which brings the members to one history.
    pub is_sync: bool,
}

layout!(Listed { op, is_sync, status });

/// A member's report about its operations in a promise to leave the View.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Closing {
    /// The listed operations.
    pub ops: Vec<Listed>,
    /// The operations of all members committed here, without best-effort calls.
    pub committed: OpSet,
    /// The states of its lanes.
    pub lanes: LaneStates,
}

layout!(Closing { ops: List(OPS_LISTED_MAX), committed, lanes });

/// A member's report about the states that its program keeps, one for each lane in which it syncs.
///
/// A sync brings the state of its own lane only. A member that came into its View without the
/// common history, and that has not synced every lane which has a state, is on that history and
/// does not hold all that it should. The next View counts it as not in sync, so that all lanes sync
/// again, if any other member holds everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LaneStates {
    /// Lanes in which this program, or that of another member of the View, has called a sync.
    pub stateful: LaneSet,
    /// Lanes whose sync has committed here.
    pub caught_up: LaneSet,
}

layout!(LaneStates { stateful, caught_up });

/// The status of an operation on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Called, but not voted on.
    NotDone,
    /// Voted `Done`: the full result is held, with this digest.
    Done(u128),
    /// Voted `Abort`, or ended without a commit.
    Aborted,
    /// Committed here, with this digest.
    Committed(u128),
}

layout!(enum Status { 1 => NotDone, 2 => Done(digest), 3 => Aborted, 4 => Committed(digest) });

/// A message about operations, on the control link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpMessage {
    /// The View of the operation; messages of another View are dropped.
    pub view: ViewDigest,
    /// The message's content.
    pub body: OpBody,
    /// Operations that are decided on the sender, and that some receiver may still list.
    pub resolved: Vec<OpId>,
    /// Only with a [`Describe`](OpBody::Describe): the sender's contribution, if it is small.
    pub enclosed: Option<Arc<Enclosed>>,
}

layout! {
    OpMessage { view, body, resolved: List(OPS_LISTED_MAX), enclosed }
    if |message| message.enclosed.is_none() || message.body.may_enclose()
}

/// The body of an [`OpMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpBody {
    /// The sender has begun an operation.
    Describe(Descriptor),
    /// The sender's vote.
    Vote(OpId, Vote),
    /// The sender's engine has begun a sync, which could not start with its descriptor. The state
    /// has this many bytes; the source of the state is the first to say so.
    Ready(OpId, u64),
    /// The deadline of an operation has passed on the sender, which has voted `Done`. A member that
    /// has not voted votes `Abort`.
    Overdue(OpId),
    /// An empty message that only carries the list of resolved operations.
    Resolved,
}

layout! {
    enum OpBody {
        1 => Describe(descriptor),
        2 => Vote(op, vote),
        3 => Resolved,
        4 => Ready(op, bytes),
        5 => Overdue(op),
    }
}

impl OpBody {
    /// The receivers: all participants of the operation; all members if the message concerns no
    /// operation.
    pub fn audience(&self, size: usize) -> RankSet {
        let op = match self {
            OpBody::Describe(descriptor) => Some(descriptor.op),
            OpBody::Vote(op, _) | OpBody::Ready(op, _) | OpBody::Overdue(op) => Some(*op),
            OpBody::Resolved => None,
        };
        op.map_or(Lane::MAIN, |op| op.lane).participants(size)
    }

    /// Whether a contribution may be enclosed: the body is the descriptor of a call that has one
    /// and that may begin before the other descriptors are in.
    fn may_enclose(&self) -> bool {
        let OpBody::Describe(descriptor) = self else { return false };
        descriptor.call.parts().is_none()
            && !matches!(descriptor.call.kind, CallKind::Barrier | CallKind::Sync { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DType;
    use crate::protocol::reduce_op::ReduceOp;
    use crate::wire::{Decode, Encode, Malformed, assert_codec};

    fn message(body: OpBody) -> OpMessage {
        OpMessage { view: ViewDigest([3; 32]), body, resolved: vec![], enclosed: None }
    }

    fn enclosed() -> Arc<Enclosed> {
        Arc::new(Enclosed { flow: 0, chunk: 0, is_result: false, bytes: [1, 2, 3].into() })
    }

    #[test]
    fn every_vote_survives_the_wire() {
        let call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 5);
        let mismatch =
            Mismatch { lower: (Rank(0), call), higher: (Rank(2), Call { count: 6, ..call }) };
        let op = OpId { lane: Lane::MAIN, number: 3 };
        let reasons = [
            AbortReason::Mismatch(mismatch),
            AbortReason::NonFinite,
            AbortReason::Weights,
            AbortReason::Deadline,
            AbortReason::Dropped,
            AbortReason::Memory { bytes: u64::MAX - 1 },
            AbortReason::Engine,
            AbortReason::ViewChange,
        ];
        let aborts = reasons.map(|reason| Vote::Abort(AbortCause { reason, by: Rank(1) }));
        for vote in aborts.into_iter().chain([Vote::Done { digest: u128::MAX }]) {
            assert_codec(&OpMessage { resolved: vec![op], ..message(OpBody::Vote(op, vote)) });
        }
        for body in [OpBody::Resolved, OpBody::Ready(op, u64::MAX - 1), OpBody::Overdue(op)] {
            assert_codec(&message(body));
            let with = OpMessage { enclosed: Some(enclosed()), ..message(body) };
            assert_eq!(
                OpMessage::from_bytes(&with.to_bytes()),
                Err(Malformed::Inconsistent),
                "it goes with a descriptor"
            );
        }
        let descriptor = Descriptor { op, call, plan_revision: 1 };
        for enclosed in [None, Some(enclosed())] {
            let bare = message(OpBody::Describe(descriptor));
            assert_codec(&OpMessage { resolved: vec![op, op], enclosed, ..bare });
        }
        for kind in [CallKind::Barrier, CallKind::Sync { version: 1 }, CallKind::Step { parts: 1 }]
        {
            let body = OpBody::Describe(Descriptor {
                call: Call { kind, dtype: DType::U8, count: 0, ..call },
                ..descriptor
            });
            assert_codec(&message(body));
            let with = OpMessage { enclosed: Some(enclosed()), ..message(body) };
            assert_eq!(
                OpMessage::from_bytes(&with.to_bytes()),
                Err(Malformed::Inconsistent),
                "{kind:?} has nothing to enclose"
            );
        }
    }

    #[test]
    fn every_status_survives_the_wire() {
        let op = OpId { lane: Lane::tagged(9), number: 3 };
        for status in [Status::NotDone, Status::Done(7), Status::Aborted, Status::Committed(8)] {
            assert_codec(&Listed { op, status, is_sync: true });
        }
    }

    #[test]
    fn a_mismatch_of_equal_calls_is_refused() {
        let call = Call::new(CallKind::Barrier, DType::U8, 0);
        let bad = Mismatch { lower: (Rank(0), call), higher: (Rank(2), call) };
        assert_eq!(Mismatch::from_bytes(&bad.to_bytes()), Err(Malformed::Inconsistent));
    }
}
