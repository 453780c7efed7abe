//! Layer: Words.
//!
//! What a collective call asks for, as every member must say it alike.

use super::codec_id::CodecId;
use super::dtype::DType;
use super::rejection::Rejection;
use crate::view::{OpId, PARTS_MAX, Rank};
use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// How contributions become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Sum; of integers the sum modulo 2 to the number of bits.
    Sum,
    /// Sum divided by the number of members of the View. Of floats only.
    Mean,
    /// Least value; NaN wins, -0 is below +0.
    Min,
    /// Greatest value; NaN wins, -0 is below +0.
    Max,
    /// Product; of integers the product modulo 2 to the number of bits.
    Prod,
}

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Everybody gets the reduction of all contributions.
    AllReduce(ReduceOp),
    /// Everybody gets the root's buffer.
    Broadcast {
        /// Whose buffer.
        root: Rank,
    },
    /// Everybody gets all contributions in rank order.
    AllGather,
    /// The root gets the reduction of all contributions.
    Reduce {
        /// How.
        op: ReduceOp,
        /// Who.
        root: Rank,
    },
    /// Everybody gets its shard of the reduction of all contributions.
    ReduceScatter(ReduceOp),
    /// The root gets all contributions in rank order.
    Gather {
        /// Who.
        root: Rank,
    },
    /// Everybody gets its part of the root's buffer.
    Scatter {
        /// Whose buffer.
        root: Rank,
    },
    /// Everybody gets one part of everybody's buffer.
    AllToAll,
    /// Nobody leaves before everybody has come.
    Barrier,
    /// One rank gets the buffer of another; only these two call it.
    Message {
        /// Who sends.
        from: Rank,
        /// Who receives.
        to: Rank,
        /// What both must call it by.
        tag: u32,
    },
    /// The end of a step of so many calls, which count together or not at all.
    Step {
        /// At most 64.
        parts: u8,
    },
    /// Everybody gets the state of the member that is furthest along the View's history.
    Sync {
        /// How far this member's state is; the caller's own count, for example steps.
        version: u64,
    },
}

/// One call: the same on every rank, but for the version and count of a `Sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Which collective.
    pub kind: Kind,
    /// Of what.
    pub dtype: DType,
    /// Elements of this member's contribution; of a scatter, of each member's part.
    pub count: u64,
    /// How contributions are encoded on the wire.
    pub codec: CodecId,
    /// When it counts.
    pub mode: Mode,
}

/// When a call counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// When all members have voted that they hold its result.
    #[default]
    PerOp,
    /// When its step does.
    PerStep,
    /// On each member when that one holds its result: a member that is lost meanwhile may leave
    /// some with it and some without.
    BestEffort,
}

/// What a member tells all others when it begins an operation. It is also their permission to send
/// it bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// Which operation of the View.
    pub op: OpId,
    /// What this member calls.
    pub call: Call,
    /// Under which revision of the plan it runs; the same for all, or nothing flows.
    pub plan_revision: u32,
}

impl ReduceOp {
    const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

    fn tag(self) -> u8 {
        match self {
            ReduceOp::Sum => 1,
            ReduceOp::Mean => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Prod => 5,
        }
    }

    fn of_tag(tag: u8) -> Result<ReduceOp, Malformed> {
        ReduceOp::ALL.into_iter().find(|op| op.tag() == tag).ok_or(Malformed::UnknownTag)
    }
}

impl Kind {
    /// How contributions become one value, where they do.
    pub(crate) fn reduce_op(self) -> Option<ReduceOp> {
        match self {
            Kind::AllReduce(op) | Kind::Reduce { op, .. } | Kind::ReduceScatter(op) => Some(op),
            _ => None,
        }
    }

    /// The root that the caller names.
    pub(crate) fn root(self) -> Option<Rank> {
        match self {
            Kind::Broadcast { root }
            | Kind::Reduce { root, .. }
            | Kind::Gather { root }
            | Kind::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// Whether every rank gets the same result, which the votes then compare.
    pub(crate) fn has_common_result(self) -> bool {
        !matches!(
            self,
            Kind::Reduce { .. }
                | Kind::ReduceScatter(_)
                | Kind::Gather { .. }
                | Kind::Scatter { .. }
                | Kind::AllToAll
                | Kind::Message { .. }
        )
    }
}

impl Call {
    /// How many bytes it reduces for all, uncompressed: what plans foretell the time of.
    pub(crate) fn reduced_by_all(&self) -> Option<u64> {
        match self.kind {
            Kind::AllReduce(_) if self.codec == CodecId::None => {
                Some(self.count.saturating_mul(self.dtype.bytes() as u64))
            }
            _ => None,
        }
    }

    /// Elements of the largest buffer that a member of a View of `size` has of it.
    pub fn output_count(&self, size: usize) -> u64 {
        match self.kind {
            Kind::AllGather | Kind::Gather { .. } | Kind::Scatter { .. } => {
                self.count.saturating_mul(size as u64)
            }
            _ => self.count,
        }
    }

    /// Why it makes no sense in a View of `size`, if it does not.
    pub(crate) fn rejection(&self, size: usize) -> Option<Rejection> {
        if self.kind.reduce_op() == Some(ReduceOp::Mean) && !self.dtype.is_float() {
            return Some(Rejection::MeanOfIntegers(self.dtype));
        }
        if let Some(root) = self.kind.root().filter(|root| root.index() >= size) {
            return Some(Rejection::NoRoot { root, size });
        }
        if let Kind::Message { from, to, .. } = self.kind
            && (from == to || from.index() >= size || to.index() >= size)
        {
            return Some(Rejection::NoPeer { size });
        }
        if let Some(op) =
            self.kind.reduce_op().filter(|op| !matches!(op, ReduceOp::Sum | ReduceOp::Mean))
            && matches!(self.codec, CodecId::TopK { .. })
        {
            return Some(Rejection::TopK(op));
        }
        let uneven = self.kind == Kind::AllToAll && !self.count.is_multiple_of(size as u64);
        uneven.then_some(Rejection::Uneven { count: self.count, size })
    }

    /// Whether two members ask for the same thing.
    pub fn agrees(&self, other: &Call) -> bool {
        match (self.kind, other.kind) {
            (Kind::Sync { .. }, Kind::Sync { .. }) => {
                (self.dtype, self.codec, self.mode) == (other.dtype, other.codec, other.mode)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Prod => "prod",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::AllReduce(op) => write!(f, "all_reduce({op}, {} x {}", self.count, self.dtype)?,
            Kind::Broadcast { root } => {
                write!(f, "broadcast(root {root}, {} x {}", self.count, self.dtype)?
            }
            Kind::AllGather => write!(f, "all_gather({} x {}", self.count, self.dtype)?,
            Kind::Reduce { op, root } => {
                write!(f, "reduce(root {root}, {op}, {} x {}", self.count, self.dtype)?
            }
            Kind::ReduceScatter(op) => {
                write!(f, "reduce_scatter({op}, {} x {}", self.count, self.dtype)?
            }
            Kind::Gather { root } => {
                write!(f, "gather(root {root}, {} x {}", self.count, self.dtype)?
            }
            Kind::Scatter { root } => {
                write!(f, "scatter(root {root}, {} x {} each", self.count, self.dtype)?
            }
            Kind::AllToAll => write!(f, "all_to_all({} x {}", self.count, self.dtype)?,
            Kind::Message { from, to, tag } => {
                write!(f, "send({from} to {to}, tag {tag}, {} x {}", self.count, self.dtype)?
            }
            Kind::Barrier => f.write_str("barrier(")?,
            Kind::Step { parts } => write!(f, "step of {parts} calls(")?,
            Kind::Sync { version } => write!(f, "sync(version {version}, {} bytes", self.count)?,
        }
        match self.codec {
            CodecId::None => f.write_str(")")?,
            codec => write!(f, ", {codec})")?,
        }
        match self.mode {
            Mode::PerOp => Ok(()),
            Mode::PerStep => f.write_str(" in a step"),
            Mode::BestEffort => f.write_str(" by best effort"),
        }
    }
}

impl Encode for Call {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, argument) = match self.kind {
            Kind::AllReduce(ReduceOp::Sum) => (1, 0),
            Kind::AllReduce(ReduceOp::Mean) => (2, 0),
            Kind::AllReduce(ReduceOp::Min) => (3, 0),
            Kind::AllReduce(ReduceOp::Max) => (4, 0),
            Kind::Broadcast { root } => (5, u64::from(root.0)),
            Kind::AllGather => (6, 0),
            Kind::Barrier => (7, 0),
            Kind::Sync { version } => (8, version),
            Kind::AllReduce(ReduceOp::Prod) => (9, 0),
            Kind::Reduce { op, root } => (10, u64::from(op.tag()) << 8 | u64::from(root.0)),
            Kind::ReduceScatter(op) => (11, u64::from(op.tag())),
            Kind::Gather { root } => (12, u64::from(root.0)),
            Kind::Scatter { root } => (13, u64::from(root.0)),
            Kind::AllToAll => (14, 0),
            Kind::Message { from, to, tag } => {
                (15, u64::from(tag) << 16 | u64::from(from.0) << 8 | u64::from(to.0))
            }
            Kind::Step { parts } => (16, u64::from(parts)),
        };
        out.push(tag);
        out.extend_from_slice(&argument.to_le_bytes());
        out.push(self.dtype.tag());
        out.extend_from_slice(&self.count.to_le_bytes());
        self.codec.encode(out);
        out.push(match self.mode {
            Mode::PerOp => 0,
            Mode::PerStep => 1,
            Mode::BestEffort => 2,
        });
    }
}

impl Decode for Call {
    fn decode(r: &mut Reader<'_>) -> Result<Call, Malformed> {
        let (tag, argument) = (r.u8()?, r.u64()?);
        let kind = match (tag, argument) {
            (1, 0) => Kind::AllReduce(ReduceOp::Sum),
            (2, 0) => Kind::AllReduce(ReduceOp::Mean),
            (3, 0) => Kind::AllReduce(ReduceOp::Min),
            (4, 0) => Kind::AllReduce(ReduceOp::Max),
            (5, root) => Kind::Broadcast { root: rank(root)? },
            (6, 0) => Kind::AllGather,
            (7, 0) => Kind::Barrier,
            (8, version) => Kind::Sync { version },
            (9, 0) => Kind::AllReduce(ReduceOp::Prod),
            (10, both) => Kind::Reduce { op: op(both >> 8)?, root: rank(both & 0xff)? },
            (11, tag) => Kind::ReduceScatter(op(tag)?),
            (12, root) => Kind::Gather { root: rank(root)? },
            (13, root) => Kind::Scatter { root: rank(root)? },
            (14, 0) => Kind::AllToAll,
            (15, all) => Kind::Message {
                from: rank(all >> 8 & 0xff)?,
                to: rank(all & 0xff)?,
                tag: tag_of(all >> 16)?,
            },
            (16, parts) => Kind::Step { parts: parts_of(parts)? },
            _ => return Err(Malformed::UnknownTag),
        };
        let dtype = DType::of_tag(r.u8()?)?;
        let count = r.u64()?;
        let codec = CodecId::decode(r)?;
        let mode = match r.u8()? {
            0 => Mode::PerOp,
            1 => Mode::PerStep,
            2 => Mode::BestEffort,
            _ => return Err(Malformed::UnknownTag),
        };
        Ok(Call { kind, dtype, count, codec, mode })
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
    ReduceOp::of_tag(u8::try_from(argument).map_err(|_| Malformed::TooLong)?)
}

impl Encode for Descriptor {
    fn encode(&self, out: &mut Vec<u8>) {
        self.op.encode(out);
        self.call.encode(out);
        out.extend_from_slice(&self.plan_revision.to_le_bytes());
    }
}

impl Decode for Descriptor {
    fn decode(r: &mut Reader<'_>) -> Result<Descriptor, Malformed> {
        Ok(Descriptor { op: OpId::decode(r)?, call: Call::decode(r)?, plan_revision: r.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Lane;
    use crate::wire::testing::assert_codec;

    #[test]
    fn every_kind_survives_the_wire() {
        let kinds = [
            Kind::AllReduce(ReduceOp::Sum),
            Kind::AllReduce(ReduceOp::Mean),
            Kind::AllReduce(ReduceOp::Min),
            Kind::AllReduce(ReduceOp::Max),
            Kind::AllReduce(ReduceOp::Prod),
            Kind::Broadcast { root: Rank(3) },
            Kind::AllGather,
            Kind::Reduce { op: ReduceOp::Min, root: Rank(15) },
            Kind::ReduceScatter(ReduceOp::Prod),
            Kind::Gather { root: Rank(1) },
            Kind::Scatter { root: Rank(2) },
            Kind::AllToAll,
            Kind::Barrier,
            Kind::Message { from: Rank(15), to: Rank(1), tag: u32::MAX },
            Kind::Step { parts: PARTS_MAX as u8 },
            Kind::Sync { version: u64::MAX },
        ];
        let modes = [Mode::PerOp, Mode::PerStep, Mode::BestEffort];
        for (i, kind) in kinds.into_iter().enumerate() {
            for dtype in DType::ALL {
                let call =
                    Call { kind, dtype, count: 1 << i, codec: CodecId::Bf16, mode: modes[i % 3] };
                assert_codec(&Descriptor {
                    op: OpId { lane: Lane(1), number: i as u64 },
                    call,
                    plan_revision: 2,
                });
            }
        }
    }

    #[test]
    fn a_step_of_too_many_calls_is_refused() {
        let call = Call {
            kind: Kind::Step { parts: 65 },
            dtype: DType::U8,
            count: 0,
            codec: CodecId::None,
            mode: Mode::PerOp,
        };
        assert_eq!(Call::from_bytes(&call.to_bytes()), Err(Malformed::TooLong));
    }

    #[test]
    fn a_message_goes_to_another_member() {
        let message = |from, to| {
            let kind = Kind::Message { from: Rank(from), to: Rank(to), tag: 0 };
            Call { kind, dtype: DType::U8, count: 1, codec: CodecId::None, mode: Mode::PerOp }
                .rejection(3)
        };
        assert_eq!(message(0, 2), None);
        for (from, to) in [(1, 1), (0, 3), (3, 0)] {
            assert_eq!(message(from, to), Some(Rejection::NoPeer { size: 3 }), "{from} to {to}");
        }
    }

    #[test]
    fn only_a_sync_may_differ_in_version_and_count() {
        let sync = Call {
            kind: Kind::Sync { version: 1 },
            dtype: DType::U8,
            count: 5,
            codec: CodecId::None,
            mode: Mode::PerOp,
        };
        assert!(sync.agrees(&Call { kind: Kind::Sync { version: 2 }, count: 0, ..sync }));
        let sum = Call {
            kind: Kind::AllReduce(ReduceOp::Sum),
            dtype: DType::F32,
            count: 5,
            codec: CodecId::None,
            mode: Mode::PerOp,
        };
        assert!(!sum.agrees(&Call { count: 6, ..sum }));
        assert!(!sum.agrees(&sync));
    }
}
