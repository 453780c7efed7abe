//! The arguments of a collective call, which all members must agree on.

use super::codec_id::CodecId;
use super::op_id::{OpId, PARTS_MAX};
use super::rank::Rank;
use super::reduce_op::ReduceOp;
use super::rejection::Rejection;
use crate::memory::DType;
use crate::wire::layout::layout;
use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// Every rank gets the reduction of all contributions.
    AllReduce(ReduceOp),
    /// Every rank gets the root's buffer.
    Broadcast {
        /// The rank that sends its buffer.
        root: Rank,
    },
    /// Every rank gets all contributions in rank order.
    AllGather,
    /// The root gets the reduction of all contributions.
    Reduce {
        /// The operator.
        op: ReduceOp,
        /// The rank that gets the result.
        root: Rank,
    },
    /// Every rank gets its shard of the reduction of all contributions.
    ReduceScatter(ReduceOp),
    /// The root gets all contributions in rank order.
    Gather {
        /// The rank that gets the result.
        root: Rank,
    },
    /// Every rank gets its part of the root's buffer.
    Scatter {
        /// The rank that sends its buffer.
        root: Rank,
    },
    /// Every rank sends one part of its buffer to each rank.
    AllToAll,
    /// Every rank gets all contributions in rank order, which may have any lengths.
    AllGatherUneven,
    /// Every rank sends one part of its buffer, of any length, to each rank.
    AllToAllUneven,
    /// No rank returns before all ranks have called it.
    Barrier,
    /// One rank sends its buffer to another; only these two call it.
    Message {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// The tag, which must be the same on both ends.
        tag: u32,
    },
    /// The end of a step of `parts` calls, which commit together or not at all.
    Step {
        /// The number of calls, at most 64.
        parts: u8,
    },
    /// Every rank gets the state with the highest version among the members that share the View's
    /// history; the lowest rank wins a tie.
    Sync {
        /// The version of this member's state, counted by the caller, for example in training
        /// steps.
        version: u64,
    },
}

/// One call. It is the same on every rank, except for the version and the count of a `Sync`, and
/// the count of an uneven call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Call {
    /// Which collective.
    pub kind: CallKind,
    /// The type of the elements.
    pub dtype: DType,
    /// Elements of this member's contribution; for a scatter, of each member's part; for the data
    /// of an uneven call, of all members together; for a sync, the bytes of this member's state,
    /// and 0 if that state is made only when it is sent.
    pub count: u64,
    /// The encoding of contributions on the wire.
    pub codec: CodecId,
    /// When the result counts.
    pub mode: CallMode,
}

layout!(Call { kind, dtype, count, codec, mode });

/// When the result of a call counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallMode {
    /// When all members have voted that they hold it.
    #[default]
    PerOp,
    /// When its step commits.
    PerStep,
    /// On each member as soon as that member holds it. If a member is lost meanwhile, some of the
    /// others may have the result and some not.
    BestEffort,
}

layout!(tags CallMode { 0 => PerOp, 1 => PerStep, 2 => BestEffort });

/// A member's announcement to the other participants that it begins an operation. It also is their
/// credit to send it bulk data, unless the call is a sync, a step or an uneven call as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// The operation's number in the View.
    pub op: OpId,
    /// The call that this member makes.
    pub call: Call,
    /// The plan revision under which it runs; no data flows between members whose revisions differ.
    pub plan_revision: u32,
}

layout!(Descriptor { op, call, plan_revision });

/// The calls of an uneven call: one exchanges lengths, one moves data.
pub(crate) const UNEVEN_PARTS: u8 = 2;

impl CallKind {
    /// The reduction operator, if the collective has one.
    pub(crate) fn reduce_op(self) -> Option<ReduceOp> {
        match self {
            CallKind::AllReduce(op) | CallKind::Reduce { op, .. } | CallKind::ReduceScatter(op) => {
                Some(op)
            }
            _ => None,
        }
    }

    /// The root, if the collective has one that the caller names.
    pub(crate) fn root(self) -> Option<Rank> {
        match self {
            CallKind::Broadcast { root }
            | CallKind::Reduce { root, .. }
            | CallKind::Gather { root }
            | CallKind::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// Whether each rank has lengths of its own, which all others must know before data moves.
    pub(crate) fn has_lengths(self) -> bool {
        matches!(self, CallKind::AllGatherUneven | CallKind::AllToAllUneven)
    }

    /// Whether every rank gets the same result; the votes then compare the digests.
    pub(crate) fn has_common_result(self) -> bool {
        !matches!(
            self,
            CallKind::Reduce { .. }
                | CallKind::ReduceScatter(_)
                | CallKind::Gather { .. }
                | CallKind::Scatter { .. }
                | CallKind::AllToAll
                | CallKind::AllToAllUneven
                | CallKind::Message { .. }
        )
    }
}

impl Call {
    /// A call without a codec, with its own vote.
    pub(crate) const fn new(kind: CallKind, dtype: DType, count: u64) -> Call {
        Call { kind, dtype, count, codec: CodecId::None, mode: CallMode::PerOp }
    }

    /// Uncompressed bytes of an all-reduce without a codec, for which plans predict the duration;
    /// `None` for any other call.
    pub(crate) fn reduced_by_all(&self) -> Option<u64> {
        match self.kind {
            CallKind::AllReduce(_) if self.codec == CodecId::None => {
                Some(self.count.saturating_mul(self.dtype.bytes() as u64))
            }
            _ => None,
        }
    }

    /// Elements of the buffer that selects the plan's size class, among `size` members: the largest
    /// one that any member has, or, for the data of an `all_to_all_uneven`, the average one.
    pub fn output_count(&self, size: usize) -> u64 {
        match self.kind {
            CallKind::AllGather | CallKind::Gather { .. } | CallKind::Scatter { .. } => {
                self.count.saturating_mul(size as u64)
            }
            CallKind::AllToAllUneven => self.count / size.max(1) as u64,
            _ => self.count,
        }
    }

    /// The number of calls that it consists of, if it is a step or an uneven call: the first call
    /// of an uneven one exchanges the lengths, the second one moves the data.
    pub(crate) fn parts(&self) -> Option<u8> {
        match self.kind {
            CallKind::Step { parts } => Some(parts),
            _ => self.is_uneven().then_some(UNEVEN_PARTS),
        }
    }

    /// Whether it is an uneven call as a whole, and not the part of it that moves the data.
    pub(crate) fn is_uneven(&self) -> bool {
        self.kind.has_lengths() && self.mode != CallMode::PerStep
    }

    /// Whether this uneven call may have `part` as its call of this index. Counts are not compared.
    pub(crate) fn has_part(&self, index: u8, part: &Call) -> bool {
        let (kind, dtype) = match index {
            0 => (CallKind::AllGather, DType::U64),
            _ => (self.kind, self.dtype),
        };
        index < UNEVEN_PARTS
            && (part.kind, part.dtype, part.mode) == (kind, dtype, CallMode::PerStep)
    }

    /// Why the call is invalid in a View of `size` members; `None` if it is valid.
    pub(crate) fn rejection(&self, size: usize) -> Option<Rejection> {
        if let Some(rejection) = self.kind.reduce_op().and_then(|op| unfit_op(op, self.dtype)) {
            return Some(rejection);
        }
        if let Some(root) = self.kind.root().filter(|root| root.index() >= size) {
            return Some(Rejection::NoRoot { root, size });
        }
        if let CallKind::Message { from, to, .. } = self.kind
            && (from == to || from.index() >= size || to.index() >= size)
        {
            return Some(Rejection::NoPeer { size });
        }
        if self.codec != CodecId::None && !matches!(self.kind, CallKind::AllReduce(_)) {
            return Some(Rejection::NotEncoded);
        }
        if let Some(op) =
            self.kind.reduce_op().filter(|op| !matches!(op, ReduceOp::Sum | ReduceOp::Mean))
        {
            match self.codec {
                CodecId::TopK { .. } => return Some(Rejection::TopK(op)),
                CodecId::OneBit => return Some(Rejection::OneBit(op)),
                _ => {}
            }
        }
        let uneven = self.kind == CallKind::AllToAll && !self.count.is_multiple_of(size as u64);
        uneven.then_some(Rejection::Uneven { count: self.count, size })
    }

    /// Whether two members make the same call. Syncs may differ in version and count, uneven calls
    /// in count.
    pub fn agrees(&self, other: &Call) -> bool {
        match (self.kind, other.kind) {
            (CallKind::Sync { .. }, CallKind::Sync { .. }) => {
                (self.dtype, self.codec, self.mode) == (other.dtype, other.codec, other.mode)
            }
            _ if self.is_uneven() => Call { count: other.count, ..*self } == *other,
            _ => self == other,
        }
    }
}

/// Why elements of this type have no such reduction; `None` if they have it.
fn unfit_op(op: ReduceOp, dtype: DType) -> Option<Rejection> {
    match (op, dtype) {
        (ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod, DType::Bool) => {
            Some(Rejection::ArithmeticOfBools(op))
        }
        (ReduceOp::Mean, _) if !dtype.is_float() => Some(Rejection::MeanOfIntegers(dtype)),
        (ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor, _) if dtype.is_float() => {
            Some(Rejection::BitsOfFloats { op, dtype })
        }
        _ => None,
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            CallKind::AllReduce(op) => {
                write!(f, "all_reduce({op}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::Broadcast { root } => {
                write!(f, "broadcast(root {root}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::AllGather => write!(f, "all_gather({} x {}", self.count, self.dtype)?,
            CallKind::Reduce { op, root } => {
                write!(f, "reduce(root {root}, {op}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::ReduceScatter(op) => {
                write!(f, "reduce_scatter({op}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::Gather { root } => {
                write!(f, "gather(root {root}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::Scatter { root } => {
                write!(f, "scatter(root {root}, {} x {} each", self.count, self.dtype)?;
            }
            CallKind::AllToAll => write!(f, "all_to_all({} x {}", self.count, self.dtype)?,
            CallKind::AllGatherUneven => {
                write!(f, "all_gather_uneven({} x {}", self.count, self.dtype)?;
            }
            CallKind::AllToAllUneven => {
                write!(f, "all_to_all_uneven({} x {}", self.count, self.dtype)?;
            }
            CallKind::Message { from, to, tag } => {
                write!(f, "send({from} to {to}, tag {tag}, {} x {}", self.count, self.dtype)?;
            }
            CallKind::Barrier => f.write_str("barrier(")?,
            CallKind::Step { parts } => write!(f, "step of {parts} calls(")?,
            CallKind::Sync { version } => {
                write!(f, "sync(version {version}")?;
            }
        }
        match self.codec {
            CodecId::None => f.write_str(")")?,
            codec => write!(f, ", {codec})")?,
        }
        match self.mode {
            CallMode::PerOp => Ok(()),
            CallMode::PerStep => f.write_str(" in a step"),
            CallMode::BestEffort => f.write_str(" by best effort"),
        }
    }
}

/// By hand: an argument of eight bytes follows each tag, and each operator of an `AllReduce` has a
/// tag of its own.
impl Encode for CallKind {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, argument): (u8, u64) = match *self {
            CallKind::AllReduce(ReduceOp::Sum) => (1, 0),
            CallKind::AllReduce(ReduceOp::Mean) => (2, 0),
            CallKind::AllReduce(ReduceOp::Min) => (3, 0),
            CallKind::AllReduce(ReduceOp::Max) => (4, 0),
            CallKind::Broadcast { root } => (5, u64::from(root.0)),
            CallKind::AllGather => (6, 0),
            CallKind::Barrier => (7, 0),
            CallKind::Sync { version } => (8, version),
            CallKind::AllReduce(ReduceOp::Prod) => (9, 0),
            CallKind::Reduce { op, root } => (10, u64::from(op.tag()) << 8 | u64::from(root.0)),
            CallKind::ReduceScatter(op) => (11, u64::from(op.tag())),
            CallKind::Gather { root } => (12, u64::from(root.0)),
            CallKind::Scatter { root } => (13, u64::from(root.0)),
            CallKind::AllToAll => (14, 0),
            CallKind::Message { from, to, tag } => {
                (15, u64::from(tag) << 16 | u64::from(from.0) << 8 | u64::from(to.0))
            }
            CallKind::Step { parts } => (16, u64::from(parts)),
            CallKind::AllReduce(ReduceOp::BitAnd) => (17, 0),
            CallKind::AllReduce(ReduceOp::BitOr) => (18, 0),
            CallKind::AllReduce(ReduceOp::BitXor) => (19, 0),
            CallKind::AllGatherUneven => (20, 0),
            CallKind::AllToAllUneven => (21, 0),
        };
        (tag, argument).encode(out);
    }
}

impl Decode for CallKind {
    fn decode(r: &mut Reader<'_>) -> Result<CallKind, Malformed> {
        Ok(match (r.u8()?, r.u64()?) {
            (1, 0) => CallKind::AllReduce(ReduceOp::Sum),
            (2, 0) => CallKind::AllReduce(ReduceOp::Mean),
            (3, 0) => CallKind::AllReduce(ReduceOp::Min),
            (4, 0) => CallKind::AllReduce(ReduceOp::Max),
            (5, root) => CallKind::Broadcast { root: rank(root)? },
            (6, 0) => CallKind::AllGather,
            (7, 0) => CallKind::Barrier,
            (8, version) => CallKind::Sync { version },
            (9, 0) => CallKind::AllReduce(ReduceOp::Prod),
            (10, both) => CallKind::Reduce { op: op(both >> 8)?, root: rank(both & 0xff)? },
            (11, tag) => CallKind::ReduceScatter(op(tag)?),
            (12, root) => CallKind::Gather { root: rank(root)? },
            (13, root) => CallKind::Scatter { root: rank(root)? },
            (14, 0) => CallKind::AllToAll,
            (15, all) => CallKind::Message {
                from: rank(all >> 8 & 0xff)?,
                to: rank(all & 0xff)?,
                tag: tag_of(all >> 16)?,
            },
            (16, parts) => CallKind::Step { parts: parts_of(parts)? },
            (17, 0) => CallKind::AllReduce(ReduceOp::BitAnd),
            (18, 0) => CallKind::AllReduce(ReduceOp::BitOr),
            (19, 0) => CallKind::AllReduce(ReduceOp::BitXor),
            (20, 0) => CallKind::AllGatherUneven,
            (21, 0) => CallKind::AllToAllUneven,
            _ => return Err(Malformed::UnknownTag),
        })
    }
}

fn rank(argument: u64) -> Result<Rank, Malformed> {
    u8::try_from(argument).map(Rank).map_err(|_| Malformed::TooLong)
}

fn tag_of(argument: u64) -> Result<u32, Malformed> {
    u32::try_from(argument).map_err(|_| Malformed::TooLong)
}

fn parts_of(argument: u64) -> Result<u8, Malformed> {
    u8::try_from(argument)
        .ok()
        .filter(|parts| usize::from(*parts) <= PARTS_MAX)
        .ok_or(Malformed::TooLong)
}

fn op(argument: u64) -> Result<ReduceOp, Malformed> {
    ReduceOp::from_bytes(&[u8::try_from(argument).map_err(|_| Malformed::TooLong)?])
}

#[cfg(test)]
mod tests {
    use super::super::op_id::Lane;
    use super::*;
    use crate::wire::assert_codec;

    #[test]
    fn every_kind_survives_the_wire() {
        let kinds = [
            CallKind::AllReduce(ReduceOp::Sum),
            CallKind::AllReduce(ReduceOp::Mean),
            CallKind::AllReduce(ReduceOp::Min),
            CallKind::AllReduce(ReduceOp::Max),
            CallKind::AllReduce(ReduceOp::Prod),
            CallKind::AllReduce(ReduceOp::BitAnd),
            CallKind::AllReduce(ReduceOp::BitOr),
            CallKind::AllReduce(ReduceOp::BitXor),
            CallKind::Broadcast { root: Rank(3) },
            CallKind::AllGather,
            CallKind::Reduce { op: ReduceOp::Min, root: Rank(15) },
            CallKind::ReduceScatter(ReduceOp::Prod),
            CallKind::Gather { root: Rank(1) },
            CallKind::Scatter { root: Rank(2) },
            CallKind::AllToAll,
            CallKind::AllGatherUneven,
            CallKind::AllToAllUneven,
            CallKind::Barrier,
            CallKind::Message { from: Rank(15), to: Rank(1), tag: u32::MAX },
            CallKind::Step { parts: PARTS_MAX as u8 },
            CallKind::Sync { version: u64::MAX },
        ];
        let modes = [CallMode::PerOp, CallMode::PerStep, CallMode::BestEffort];
        for (i, kind) in kinds.into_iter().enumerate() {
            for dtype in DType::ALL {
                let call =
                    Call { kind, dtype, count: 1 << i, codec: CodecId::Bf16, mode: modes[i % 3] };
                assert_codec(&Descriptor {
                    op: OpId { lane: Lane::of_view(1), number: i as u64 },
                    call,
                    plan_revision: 2,
                });
            }
        }
    }

    #[test]
    fn a_step_of_too_many_calls_is_refused() {
        let call = Call::new(CallKind::Step { parts: 65 }, DType::U8, 0);
        assert_eq!(Call::from_bytes(&call.to_bytes()), Err(Malformed::TooLong));
    }

    #[test]
    fn an_operator_fits_its_type() {
        let rejection = |op, dtype| Call::new(CallKind::AllReduce(op), dtype, 1).rejection(3);
        for dtype in DType::ALL {
            for op in ReduceOp::ALL {
                let expected = match op {
                    ReduceOp::Min | ReduceOp::Max => None,
                    ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => {
                        dtype.is_float().then_some(Rejection::BitsOfFloats { op, dtype })
                    }
                    _ if dtype == DType::Bool => Some(Rejection::ArithmeticOfBools(op)),
                    ReduceOp::Mean if !dtype.is_float() => Some(Rejection::MeanOfIntegers(dtype)),
                    _ => None,
                };
                assert_eq!(rejection(op, dtype), expected, "{op} of {dtype}");
            }
        }
    }

    #[test]
    fn a_message_goes_to_another_member() {
        let message = |from, to| {
            let kind = CallKind::Message { from: Rank(from), to: Rank(to), tag: 0 };
            Call::new(kind, DType::U8, 1).rejection(3)
        };
        assert_eq!(message(0, 2), None);
        for (from, to) in [(1, 1), (0, 3), (3, 0)] {
            assert_eq!(message(from, to), Some(Rejection::NoPeer { size: 3 }), "{from} to {to}");
        }
    }

    #[test]
    fn only_syncs_and_uneven_calls_may_differ_in_their_counts() {
        let sync = Call::new(CallKind::Sync { version: 1 }, DType::U8, 5);
        assert!(sync.agrees(&Call { kind: CallKind::Sync { version: 2 }, count: 0, ..sync }));
        let sum = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 5);
        assert!(!sum.agrees(&Call { count: 6, ..sum }));
        assert!(!sum.agrees(&sync));
        let whole = Call::new(CallKind::AllToAllUneven, DType::F32, 5);
        assert!(whole.agrees(&Call { count: 6, ..whole }));
        assert!(!whole.agrees(&Call { dtype: DType::I32, ..whole }));
        let data = Call { mode: CallMode::PerStep, ..whole };
        assert!(!data.agrees(&Call { count: 6, ..data }) && !whole.agrees(&data));
        assert_eq!((whole.parts(), data.parts(), sum.parts()), (Some(2), None, None));
    }
}
