//! Translates a call into Gloo's terms, and checks it completely before it begins.

use crate::collective::Unfit;
use crate::memory::DType;
use crate::protocol::{Algorithm, Call, CallKind, CodecId, Lengths, Plan, Rank, ReduceOp};

/// A call in Gloo's terms. Lengths are in bytes and fit an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// All-reduce.
    Reduce(Reduction),
    /// All-reduce of `f32` elements that are sent encoded.
    ReduceEncoded(Reduction, CodecId),
    /// Broadcast of the root's bytes; also a sync.
    Broadcast {
        /// The source.
        root: Rank,
        /// The length of its bytes.
        bytes: usize,
    },
    /// All-gather, in rank order.
    Gather {
        /// The length of each rank's contribution.
        bytes: usize,
    },
    /// Reduce to one rank.
    ReduceTo(Reduction, Rank),
    /// Reduce-scatter: each rank gets a shard.
    ReduceScatter(Reduction),
    /// Gather to one rank.
    GatherTo {
        /// The destination.
        root: Rank,
        /// The length of each rank's contribution.
        bytes: usize,
    },
    /// Scatter: each rank gets its part of the root's bytes.
    Scatter {
        /// The source.
        root: Rank,
        /// The length of each rank's part.
        bytes: usize,
    },
    /// All-to-all: each rank sends each other an equal part of its bytes.
    AllToAll {
        /// The length of each rank's contribution, that is of all its parts.
        bytes: usize,
    },
    /// All-gather of contributions of any lengths, in rank order.
    GatherUneven(UnevenParts),
    /// All-to-all with parts of any lengths.
    AllToAllUneven(UnevenParts),
    /// A message from one rank to another; no other rank takes part.
    Message {
        /// The source.
        from: Rank,
        /// The destination.
        to: Rank,
        /// Its length.
        bytes: usize,
    },
    /// Barrier.
    Barrier,
}

/// The data of an uneven call, by its lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnevenParts {
    /// The bytes that this member sends to each rank; of an all-gather, its whole contribution.
    pub sent: Vec<usize>,
    /// The bytes that this member receives from each rank.
    pub received: Vec<usize>,
}

/// A reduction: of an all-reduce, a reduce or a reduce-scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The operator.
    pub op: ReduceOp,
    /// The type of the elements.
    pub dtype: DType,
    /// The number of elements.
    pub count: usize,
    /// The algorithm; used by an all-reduce only.
    pub algorithm: GlooAlgorithm,
}

/// The algorithms of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlooAlgorithm {
    /// Reduce-scatter and all-gather in a ring.
    Ring {
        /// Largest segment in bytes that is sent and folded as one.
        segment_bytes: usize,
    },
    /// A hypercube: fewer rounds, for small buffers.
    Bcube,
    /// An exchange of whole buffers, which every rank then folds: a single round.
    Exchange,
}

impl Task {
    /// The task of `call` among `size` ranks. For a sync, `sync_root` is the rank that sends its
    /// state and the state's length in bytes.
    ///
    /// # Errors
    /// [`Unfit`] if the plan of a reduction is for another size or another engine, a root is not a
    /// rank, the call is invalid, a codec is used for anything but an all-reduce of `f32`, a sync
    /// has no root yet, or a length exceeds the address space.
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
        // The codec applies to all ranks, because the links of these schedules are alike.
        let codec = plan.coding(call).codec();
        if codec != CodecId::None
            && !(matches!(call.kind, CallKind::AllReduce(_)) && call.dtype == DType::F32)
        {
            return Err(Unfit);
        }
        // Also if a root is not a rank.
        if call.rejection(size).is_some() {
            return Err(Unfit);
        }
        // The buffers of all ranks together must fit, too.
        let (bytes, _) = (length(call.count)?, length(call.output_count(size))?);
        let reduction = |op| reduction(op, call, bytes, plan, size);
        match (call.kind, sync_root) {
            (CallKind::AllReduce(op), _) => match codec {
                CodecId::None => Ok(Task::Reduce(reduction(op)?)),
                codec => Ok(Task::ReduceEncoded(reduction(op)?, codec)),
            },
            (CallKind::Reduce { op, root }, _) => Ok(Task::ReduceTo(reduction(op)?, root)),
            (CallKind::ReduceScatter(op), _) => Ok(Task::ReduceScatter(reduction(op)?)),
            (CallKind::Gather { root }, _) => Ok(Task::GatherTo { root, bytes }),
            (CallKind::Scatter { root }, _) => Ok(Task::Scatter { root, bytes }),
            (CallKind::AllToAll, _) => Ok(Task::AllToAll { bytes }),
            (CallKind::Broadcast { root }, _) => Ok(Task::Broadcast { root, bytes }),
            (CallKind::Sync { .. }, Some((root, bytes))) if root.index() < size => {
                Ok(Task::Broadcast { root, bytes: length(bytes)? })
            }
            (CallKind::AllGather, _) => Ok(Task::Gather { bytes }),
            (CallKind::Message { from, to, .. }, _) => Ok(Task::Message { from, to, bytes }),
            (CallKind::Barrier, _) => Ok(Task::Barrier),
            _ => Err(Unfit),
        }
    }

    /// The task of the data of an uneven call at rank `me`, whose parts have these lengths.
    ///
    /// # Errors
    /// [`Unfit`] as for [`of`](Task::of), or if the lengths are not those of the call.
    pub fn uneven(
        call: &Call,
        plan: &Plan,
        lengths: &Lengths,
        me: Rank,
        size: usize,
    ) -> Result<Task, Unfit> {
        let is_fit = !plan.classes.is_empty()
            && plan.coding(call).codec() == CodecId::None
            && call.rejection(size).is_none()
            && lengths.size() == size
            && lengths.elements_of(call.kind) as u64 == call.count;
        // The bytes of all ranks together fit, so those of one rank do.
        bytes_of(call.count, call.dtype).filter(|_| is_fit).ok_or(Unfit)?;
        let in_bytes = |count: &usize| count * call.dtype.bytes();
        let received = lengths.result(call.kind, me).iter().map(in_bytes).collect();
        let sent = lengths.row(me).iter().map(in_bytes);
        match call.kind {
            CallKind::AllGatherUneven => {
                Ok(Task::GatherUneven(UnevenParts { sent: sent.take(1).collect(), received }))
            }
            CallKind::AllToAllUneven => {
                Ok(Task::AllToAllUneven(UnevenParts { sent: sent.collect(), received }))
            }
            _ => Err(Unfit),
        }
    }

    /// The length of a contribution in bytes.
    pub fn input_bytes(&self, size: usize) -> usize {
        match self {
            Task::Scatter { bytes, .. } => bytes * size,
            Task::GatherUneven(parts) | Task::AllToAllUneven(parts) => parts.sent.iter().sum(),
            _ => self.bytes(),
        }
    }

    /// The length of each rank's buffer in bytes; of an uneven call, of this member's result.
    pub fn bytes(&self) -> usize {
        match self {
            Task::Reduce(reduction)
            | Task::ReduceEncoded(reduction, _)
            | Task::ReduceTo(reduction, _)
            | Task::ReduceScatter(reduction) => reduction.bytes(),
            Task::Broadcast { bytes, .. }
            | Task::Gather { bytes }
            | Task::GatherTo { bytes, .. }
            | Task::Scatter { bytes, .. }
            | Task::AllToAll { bytes }
            | Task::Message { bytes, .. } => *bytes,
            Task::GatherUneven(parts) | Task::AllToAllUneven(parts) => parts.received.iter().sum(),
            Task::Barrier => 0,
        }
    }

    /// Whether `me` contributes; the input of other ranks is not read.
    pub fn contributes(&self, me: Rank) -> bool {
        match self {
            Task::Broadcast { root, .. } | Task::Scatter { root, .. } => *root == me,
            Task::Message { from, .. } => *from == me,
            _ => true,
        }
    }
}

impl Reduction {
    /// The length of the buffer in bytes.
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
    let algorithm = match class.algorithm {
        Algorithm::GlooRing => GlooAlgorithm::Ring { segment_bytes: class.chunk_bytes as usize },
        Algorithm::GlooBcube => GlooAlgorithm::Bcube,
        Algorithm::GlooExchange => GlooAlgorithm::Exchange,
        _ => return Err(Unfit),
    };
    Ok(Reduction { op, dtype: call.dtype, count: bytes / call.dtype.bytes(), algorithm })
}

/// `None` if no allocation can be that long.
fn bytes_of(count: u64, dtype: DType) -> Option<usize> {
    usize::try_from(count)
        .ok()?
        .checked_mul(dtype.bytes())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::suite;
    use std::sync::Arc;

    fn plan(algorithm: Algorithm) -> Arc<Plan> {
        suite::plan(1024, algorithm)
    }

    const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

    #[test]
    fn the_plan_says_which_way_and_the_codec_whether_encoded() {
        let ring = GlooAlgorithm::Ring { segment_bytes: 1024 };
        for (planned, algorithm) in
            [(Algorithm::GlooRing, ring), (Algorithm::GlooBcube, GlooAlgorithm::Bcube)]
        {
            let plan = plan(planned);
            let reduction =
                Reduction { op: ReduceOp::Sum, dtype: DType::F32, count: 10, algorithm };
            let plain = Call::new(SUM, DType::F32, 10);
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
        let (plan, root) = (plan(Algorithm::GlooRing), Rank(1));
        let task = |call: Call, sync| Task::of(&call, &plan, sync, 3).expect("fits");
        assert_eq!(task(Call::new(SUM, DType::F64, 5), None).input_bytes(3), 40);
        assert_eq!(task(Call::new(CallKind::AllGather, DType::F32, 5), None).input_bytes(3), 20);
        let scatter = task(Call::new(CallKind::Scatter { root: Rank(2) }, DType::I64, 5), None);
        assert_eq!((scatter.input_bytes(3), scatter.contributes(Rank(0))), (120, false));
        let broadcast = task(Call::new(CallKind::Broadcast { root }, DType::F32, 5), None);
        assert_eq!(
            (broadcast.input_bytes(3), broadcast.contributes(root), broadcast.contributes(Rank(0))),
            (20, true, false)
        );
        let sync = task(Call::new(CallKind::Sync { version: 1 }, DType::U8, 99), Some((root, 7)));
        assert_eq!(sync, Task::Broadcast { root, bytes: 7 });
        for empty in [Call::new(SUM, DType::F32, 0), Call::new(CallKind::Barrier, DType::U8, 0)] {
            assert_eq!(task(empty, None).input_bytes(3), 0);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (ring, one_shot) = (plan(Algorithm::GlooRing), plan(Algorithm::OneShot));
        let coded = |call: Call| Call { codec: CodecId::Bf16, ..call };
        let unfit = [
            (Call::new(CallKind::AllReduce(ReduceOp::Mean), DType::U8, 1), None),
            (Call::new(SUM, DType::F64, u64::MAX / 8 + 1), None),
            (Call::new(SUM, DType::F32, 1 << 62), None),
            (Call::new(CallKind::AllGather, DType::F32, 1 << 60), None),
            (coded(Call::new(SUM, DType::F64, 1)), None),
            (coded(Call::new(CallKind::AllGather, DType::F32, 1)), None),
            (Call::new(CallKind::Broadcast { root: Rank(3) }, DType::F32, 1), None),
            (Call::new(CallKind::Sync { version: 0 }, DType::U8, 1), None),
            (Call::new(CallKind::Sync { version: 0 }, DType::U8, 1), Some((Rank(3), 1))),
        ];
        for (call, sync_root) in unfit {
            assert_eq!(Task::of(&call, &ring, sync_root, 3), Err(Unfit), "{call}");
        }
        assert_eq!(Task::of(&Call::new(SUM, DType::F32, 1), &one_shot, None, 3), Err(Unfit));
    }

    #[test]
    fn the_data_of_an_uneven_call_has_a_length_per_rank() {
        let lengths = Lengths::new(3, &[2, 0, 5, 1, 1, 1, 0, 0, 9]).expect("three rows");
        let ring = plan(Algorithm::GlooRing);
        let task = |kind, count| {
            Task::uneven(&Call::new(kind, DType::F32, count), &ring, &lengths, Rank(0), 3)
        };
        let crossing = task(CallKind::AllToAllUneven, 19).expect("it fits");
        let (sent, received) = (vec![8, 0, 20], vec![8, 4, 0]);
        assert_eq!((crossing.input_bytes(3), crossing.bytes()), (28, 12));
        assert_eq!(crossing, Task::AllToAllUneven(UnevenParts { sent, received }));
        let gather = task(CallKind::AllGatherUneven, 3).expect("it fits");
        assert_eq!((gather.input_bytes(3), gather.bytes()), (8, 12));
        let unfit = [(CallKind::AllToAllUneven, 18), (CallKind::AllToAll, 19)];
        for (kind, count) in unfit {
            assert_eq!(task(kind, count), Err(Unfit), "{kind:?}");
        }
        let alone = Lengths::new(1, &[3]).expect("one row");
        let call = Call::new(CallKind::AllGatherUneven, DType::F32, 3);
        assert_eq!(Task::uneven(&call, &ring, &alone, Rank(0), 3), Err(Unfit));
    }
}
