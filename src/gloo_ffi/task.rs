//! Layer: Core.
//!
//! What Gloo has to do for a call, worked out and checked before any of it begins.

use crate::collective::{Call, CodecId, DType, Kind, ReduceOp, Unfit};
use crate::topology::{Plan, Schedule};
use crate::view::Rank;

/// A call as Gloo takes it. Lengths are in bytes and lie in memory's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Add everybody's buffer of so many elements.
    Reduce(Reduction),
    /// The same for `f32` that travel encoded.
    ReduceEncoded(Reduction, CodecId),
    /// Hand on the root's bytes.
    Broadcast {
        /// Whose.
        root: Rank,
        /// How many.
        bytes: usize,
    },
    /// Bring everybody's bytes together in rank order.
    Gather {
        /// How many each member has.
        bytes: usize,
    },
    /// Add everybody's buffer for one rank.
    ReduceTo(Reduction, Rank),
    /// Add everybody's buffer, a shard on each rank.
    ReduceScatter(Reduction),
    /// Bring everybody's bytes to one rank.
    GatherTo {
        /// Whom.
        root: Rank,
        /// How many each member has.
        bytes: usize,
    },
    /// Give everybody its part of the root's bytes.
    Scatter {
        /// Whose.
        root: Rank,
        /// How many each member gets.
        bytes: usize,
    },
    /// Give everybody an equal part of everybody's bytes.
    AllToAll {
        /// How many each member has.
        bytes: usize,
    },
    /// Bring one rank's bytes to another; nobody else takes part.
    Message {
        /// Whose.
        from: Rank,
        /// Whom.
        to: Rank,
        /// How many.
        bytes: usize,
    },
    /// Wait for everybody.
    Barrier,
}

/// An all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// How elements are added.
    pub op: ReduceOp,
    /// Of what type.
    pub dtype: DType,
    /// How many.
    pub count: usize,
    /// Which way, if it is Gloo's all-reduce.
    pub algorithm: Algorithm,
}

/// Gloo's ways to all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Reduce-scatter and all-gather round a ring.
    Ring {
        /// Most bytes that travel and are added as one piece.
        segment_bytes: usize,
    },
    /// A hypercube: fewer rounds, for small buffers.
    Bcube,
    /// An all-gather of whole buffers, which every rank then adds: one round for two members.
    Exchange,
}

impl Task {
    /// The task of `call` among `size` ranks. `sync_root` says whose state of how many bytes a sync
    /// hands on.
    ///
    /// # Errors
    /// [`Unfit`] when the plan is for another size or another engine, a root is no rank, the call
    /// makes no sense, a codec is asked for anything but adding `f32`, a sync has no root yet, or
    /// the result cannot lie in memory.
    pub fn of(
        call: &Call,
        plan: &Plan,
        sync_root: Option<(Rank, u64)>,
        size: usize,
    ) -> Result<Task, Unfit> {
        let length = |count: u64| bytes_of(count, call.dtype).ok_or(Unfit);
        if plan.classes.is_empty() {
            return Err(Unfit);
        }
        // Nobody goes without it, as all links of these schedules are alike.
        let codec = plan.coding(call).codec();
        if codec != CodecId::None
            && !(matches!(call.kind, Kind::AllReduce(_)) && call.dtype == DType::F32)
        {
            return Err(Unfit);
        }
        if call.rejection(size).is_some() {
            return Err(Unfit);
        }
        let reduction = |op| reduction(op, call, length(call.count)?, plan, size);
        match (call.kind, sync_root) {
            (Kind::AllReduce(op), _) => match codec {
                CodecId::None => Ok(Task::Reduce(reduction(op)?)),
                codec => Ok(Task::ReduceEncoded(reduction(op)?, codec)),
            },
            (Kind::Reduce { op, root }, _) if root.index() < size => {
                Ok(Task::ReduceTo(reduction(op)?, root))
            }
            (Kind::ReduceScatter(op), _) => Ok(Task::ReduceScatter(reduction(op)?)),
            (Kind::Gather { root }, _) if root.index() < size => {
                length(call.output_count(size))?;
                Ok(Task::GatherTo { root, bytes: length(call.count)? })
            }
            (Kind::Scatter { root }, _) if root.index() < size => {
                length(call.output_count(size))?;
                Ok(Task::Scatter { root, bytes: length(call.count)? })
            }
            (Kind::AllToAll, _) => Ok(Task::AllToAll { bytes: length(call.count)? }),
            (Kind::Broadcast { root }, _) if root.index() < size => {
                Ok(Task::Broadcast { root, bytes: length(call.count)? })
            }
            (Kind::Sync { .. }, Some((root, bytes))) if root.index() < size => {
                Ok(Task::Broadcast { root, bytes: length(bytes)? })
            }
            (Kind::AllGather, _) => {
                length(call.output_count(size))?;
                Ok(Task::Gather { bytes: length(call.count)? })
            }
            (Kind::Message { from, to, .. }, _) => {
                Ok(Task::Message { from, to, bytes: length(call.count)? })
            }
            (Kind::Barrier, _) => Ok(Task::Barrier),
            _ => Err(Unfit),
        }
    }

    /// Lengths in bytes of the blocks in which a member hands in its contribution: one block, or
    /// none when it is empty.
    pub fn layout(&self, size: usize) -> Vec<usize> {
        let bytes = match self {
            Task::Reduce(reduction)
            | Task::ReduceEncoded(reduction, _)
            | Task::ReduceTo(reduction, _)
            | Task::ReduceScatter(reduction) => reduction.bytes(),
            Task::Broadcast { bytes, .. }
            | Task::Gather { bytes }
            | Task::GatherTo { bytes, .. }
            | Task::AllToAll { bytes }
            | Task::Message { bytes, .. } => *bytes,
            Task::Scatter { bytes, .. } => *bytes * size,
            Task::Barrier => 0,
        };
        if bytes == 0 { Vec::new() } else { vec![bytes] }
    }

    /// Whether `me` contributes; the other members' input is not looked at.
    pub fn contributes(&self, me: Rank) -> bool {
        match self {
            Task::Broadcast { root, .. } | Task::Scatter { root, .. } => *root == me,
            Task::Message { from, .. } => *from == me,
            _ => true,
        }
    }
}

impl Reduction {
    /// Bytes of the buffer.
    pub fn bytes(&self) -> usize {
        self.count * self.dtype.bytes()
    }
}

fn reduction(
    op: ReduceOp,
    call: &Call,
    bytes: usize,
    plan: &Plan,
    size: usize,
) -> Result<Reduction, Unfit> {
    if !plan.fits(size) {
        return Err(Unfit);
    }
    let class = plan.class_for(bytes as u64);
    let algorithm = match class.schedule {
        Schedule::GlooRing => Algorithm::Ring { segment_bytes: class.chunk_bytes as usize },
        Schedule::GlooBcube => Algorithm::Bcube,
        Schedule::GlooExchange => Algorithm::Exchange,
        _ => return Err(Unfit),
    };
    Ok(Reduction { op, dtype: call.dtype, count: bytes / call.dtype.bytes(), algorithm })
}

/// `None` for what no allocation can hold.
fn bytes_of(count: u64, dtype: DType) -> Option<usize> {
    usize::try_from(count)
        .ok()?
        .checked_mul(dtype.bytes())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Mode;
    use crate::topology::{AutoCodecs, PlanClass};

    fn plan(schedule: Schedule) -> Plan {
        let classes = vec![PlanClass {
            bytes_max: u64::MAX,
            chunk_bytes: 1024,
            schedule,
            auto: AutoCodecs::NONE,
        }];
        Plan { revision: 0, reason: String::new(), classes }
    }

    fn call(kind: Kind, dtype: DType, count: u64) -> Call {
        Call { kind, dtype, count, codec: CodecId::None, mode: Mode::PerOp }
    }

    const SUM: Kind = Kind::AllReduce(ReduceOp::Sum);

    #[test]
    fn the_plan_says_which_way_and_the_codec_whether_encoded() {
        let ring = Algorithm::Ring { segment_bytes: 1024 };
        for (schedule, algorithm) in
            [(Schedule::GlooRing, ring), (Schedule::GlooBcube, Algorithm::Bcube)]
        {
            let plan = plan(schedule);
            let reduction =
                Reduction { op: ReduceOp::Sum, dtype: DType::F32, count: 10, algorithm };
            let plain = call(SUM, DType::F32, 10);
            assert_eq!(Task::of(&plain, &plan, None, 3), Ok(Task::Reduce(reduction)));
            let coded = Call { codec: CodecId::Bf16, ..plain };
            assert_eq!(
                Task::of(&coded, &plan, None, 3),
                Ok(Task::ReduceEncoded(reduction, CodecId::Bf16))
            );
            assert_eq!(reduction.bytes(), 40);
        }
    }

    #[test]
    fn who_contributes_hands_in_one_block() {
        let (plan, root) = (plan(Schedule::GlooRing), Rank(1));
        let task = |call: Call, sync| Task::of(&call, &plan, sync, 3).expect("fits");
        assert_eq!(task(call(SUM, DType::F64, 5), None).layout(3), [40]);
        assert_eq!(task(call(Kind::AllGather, DType::F32, 5), None).layout(3), [20]);
        let scatter = task(call(Kind::Scatter { root: Rank(2) }, DType::I64, 5), None);
        assert_eq!((scatter.layout(3), scatter.contributes(Rank(0))), (vec![120], false));
        let broadcast = task(call(Kind::Broadcast { root }, DType::F32, 5), None);
        assert_eq!(
            (broadcast.layout(3), broadcast.contributes(root), broadcast.contributes(Rank(0))),
            (vec![20], true, false)
        );
        let sync = task(call(Kind::Sync { version: 1 }, DType::U8, 99), Some((root, 7)));
        assert_eq!(sync, Task::Broadcast { root, bytes: 7 });
        for empty in [call(SUM, DType::F32, 0), call(Kind::Barrier, DType::U8, 0)] {
            assert!(task(empty, None).layout(3).is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (ring, one_shot) = (plan(Schedule::GlooRing), plan(Schedule::OneShot));
        let coded = |call: Call| Call { codec: CodecId::Bf16, ..call };
        let unfit = [
            (call(Kind::AllReduce(ReduceOp::Mean), DType::U8, 1), None),
            (call(SUM, DType::F64, u64::MAX / 8 + 1), None),
            (call(SUM, DType::F32, 1 << 62), None),
            (call(Kind::AllGather, DType::F32, 1 << 60), None),
            (coded(call(SUM, DType::F64, 1)), None),
            (coded(call(Kind::AllGather, DType::F32, 1)), None),
            (call(Kind::Broadcast { root: Rank(3) }, DType::F32, 1), None),
            (call(Kind::Sync { version: 0 }, DType::U8, 1), None),
            (call(Kind::Sync { version: 0 }, DType::U8, 1), Some((Rank(3), 1))),
        ];
        for (call, sync_root) in unfit {
            assert_eq!(Task::of(&call, &ring, sync_root, 3), Err(Unfit), "{call}");
        }
        assert_eq!(Task::of(&call(SUM, DType::F32, 1), &one_shot, None, 3), Err(Unfit));
    }
}
