//! The plan of a View: for each class of buffer sizes a schedule, a chunk size and the automatic
//! codecs. It also gives the order in which a schedule adds contributions, for a sequential
//! reference.

use super::algorithm::{Algorithm, TreeShare};
use super::auto_codecs::AutoCodecs;
use super::call::Call;
use super::codec_id::CodecId;
use super::coding::Coding;
use super::engine::EngineKind;
use super::fold_order::{FoldOrder, FoldSegment, FoldTree};
use super::gloo_fold;
use super::rank::Rank;
use super::tree::ranks;
use crate::wire::layout::{List, Text, layout};
use std::ops::Range;

/// The schedules of a View. Its proposer chooses them and ships them with the View.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// 0 for the View's first plan, larger for each plan that replaced it in the same View.
    pub revision: u32,
    /// The reason for this plan, one sentence for people.
    pub reason: String,
    /// The size classes, by increasing `bytes_max`. The last class takes all larger buffers.
    pub classes: Vec<PlanClass>,
}

layout! {
    Plan { revision, reason: Text(Plan::REASON_BYTES_MAX), classes: List(Plan::CLASSES_MAX) }
    if |plan| !plan.classes.is_empty()
}

/// The schedule for buffers of one size class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanClass {
    /// Largest buffer in bytes, `u64::MAX` for the last class.
    pub bytes_max: u64,
    /// Size in bytes of the pieces in which a buffer is sent and added: a multiple of 64, from 1
    /// KiB to 1 MiB, or to 4 MiB for Gloo's ring.
    pub chunk_bytes: u32,
    /// On trees: the largest number of chunks, at their size without a codec, that a rank sends
    /// towards the root before their results are back. Encoded chunks count by their bytes. It
    /// applies where the rank keeps the result. 0: no bound.
    pub window_chunks: u32,
    /// The schedule.
    pub algorithm: Algorithm,
    /// The codecs of calls that leave the choice to the plan.
    pub auto: AutoCodecs,
}

layout!(PlanClass { bytes_max, chunk_bytes, window_chunks, auto, algorithm });

impl Plan {
    /// The maximum length of a reason, in bytes.
    pub const REASON_BYTES_MAX: usize = 600;
    /// The maximum number of size classes.
    pub const CLASSES_MAX: usize = 8;

    /// The beginning of a reason, short enough for `rest` more bytes. A reason is for people: a
    /// longer one is cut, because other members could not read the plan.
    pub fn cut_reason(reason: &str, rest: usize) -> &str {
        let mut end = reason.len().min(Plan::REASON_BYTES_MAX.saturating_sub(rest));
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        &reason[..end]
    }

    /// A plan that exchanges whole buffers for every size.
    #[cfg(any(test, fuzzing))]
    pub fn mesh(size: usize) -> Plan {
        let reason = format!("{size} members exchange whole buffers");
        Plan { reason, ..Plan::of_one(256 * 1024, Algorithm::OneShot) }
    }

    /// A plan with one schedule for every size.
    #[cfg(any(test, fuzzing))]
    pub fn of_one(chunk_bytes: u32, algorithm: Algorithm) -> Plan {
        let class = PlanClass::new(u64::MAX, chunk_bytes, algorithm);
        Plan { revision: 0, reason: String::new(), classes: vec![class] }
    }

    /// The class of a buffer of `bytes`.
    pub fn class_for(&self, bytes: u64) -> &PlanClass {
        let last = self.classes.len() - 1;
        self.classes.iter().find(|c| bytes <= c.bytes_max).unwrap_or(&self.classes[last])
    }

    /// The order in which an all-reduce adds the members' contributions to a buffer of `count`
    /// elements, for a sequential reference. `size` is the number of ranks of the View, or of the
    /// group whose plan this is.
    ///
    /// - Ring: one segment per member in ring order, including empty ones. Each is added from its
    ///   owner's successor around to the owner.
    /// - Trees: one segment per tree. Every node adds its own contribution and its children's sums
    ///   by ascending rank.
    /// - `OneShot` and `GlooExchange`: one segment, in rank order.
    /// - Gloo's ring and bcube: see `gloo_fold`.
    pub fn fold_order(&self, size: usize, count: usize, elem_bytes: usize) -> FoldOrder {
        let bytes = (count as u64).saturating_mul(elem_bytes as u64);
        let class = self.class_for(bytes);
        let segments = match &class.algorithm {
            Algorithm::OneShot | Algorithm::GlooExchange => {
                let ranks = (0..size).filter_map(|rank| u8::try_from(rank).ok()).map(Rank);
                vec![FoldSegment { elements: 0..count, tree: FoldTree::sum_of(ranks) }]
            }
            Algorithm::Ring { order } => {
                (0..order.len()).map(|place| ring_fold(order, place, count)).collect()
            }
            Algorithm::Trees { trees } => {
                let segments = trees.iter().zip(tree_segments(trees, 0..count));
                segments
                    .map(|(share, elements)| FoldSegment {
                        elements,
                        tree: FoldTree::up(&share.tree, size),
                    })
                    .collect()
            }
            Algorithm::GlooRing => {
                gloo_fold::ring(size, count, elem_bytes, class.chunk_bytes as usize)
            }
            Algorithm::GlooBcube => gloo_fold::bcube(size, count),
        };
        FoldOrder { segments }
    }

    /// The order in which a `reduce` to `root` adds. Ring: one segment, from the root's successor
    /// around to the root. Trees: one segment per tree, re-rooted at `root`. Other schedules: one
    /// segment in rank order.
    pub fn reduce_order(
        &self,
        size: usize,
        root: Rank,
        count: usize,
        elem_bytes: usize,
    ) -> FoldOrder {
        FoldOrder {
            segments: self.folds_towards(
                size,
                root,
                0..count,
                (count as u64).saturating_mul(elem_bytes as u64),
            ),
        }
    }

    /// The order in which a `reduce_scatter` adds: for each rank the segments of a `reduce` of its
    /// shard to it, including empty shards.
    pub fn reduce_scatter_order(&self, size: usize, count: usize, elem_bytes: usize) -> FoldOrder {
        let bytes = (count as u64).saturating_mul(elem_bytes as u64);
        let shard = |owner: Rank| {
            self.folds_towards(size, owner, ring_segment(owner.index(), size, count), bytes)
        };
        FoldOrder { segments: ranks(size).flat_map(shard).collect() }
    }

    /// How these elements of a buffer of `bytes` bytes are added for one owner.
    fn folds_towards(
        &self,
        size: usize,
        owner: Rank,
        elements: Range<usize>,
        bytes: u64,
    ) -> Vec<FoldSegment> {
        let tree = match &self.class_for(bytes).algorithm {
            Algorithm::Ring { order } => {
                let place = order.iter().position(|rank| *rank == owner).unwrap_or(0);
                FoldTree::sum_of(order.iter().cycle().skip(place + 1).take(order.len()).copied())
            }
            Algorithm::Trees { trees } => {
                let segments = trees.iter().zip(tree_segments(trees, elements));
                let fold = |share: &TreeShare| FoldTree::up(&share.tree.rerooted(owner), size);
                return segments
                    .map(|(share, elements)| FoldSegment { elements, tree: fold(share) })
                    .collect();
            }
            _ => FoldTree::sum_of(ranks(size)),
        };
        vec![FoldSegment { elements, tree }]
    }

    /// Whether this engine executes all of the plan's schedules.
    pub fn is_for(&self, engine: EngineKind) -> bool {
        self.classes.iter().all(|class| class.algorithm.engine() == engine)
    }

    /// The engine of this plan, provided that one engine executes all its schedules.
    pub fn engine(&self) -> EngineKind {
        if self.is_for(EngineKind::Gloo) { EngineKind::Gloo } else { EngineKind::Native }
    }

    /// Whether the plan sends no data directly between these pairs, which have no direct link. Each
    /// pair has the lower rank first.
    pub fn avoids(&self, no_direct_link: &[(Rank, Rank)]) -> bool {
        let lacks_link = |a: Rank, b: Rank| no_direct_link.contains(&(a.min(b), a.max(b)));
        no_direct_link.is_empty()
            || self.classes.iter().all(|class| {
                class.algorithm.edges().is_some_and(|mut e| !e.any(|(a, b)| lacks_link(a, b)))
            })
    }

    /// Whether the plan is valid for exactly `size` ranks and its classes are in order.
    pub fn fits(&self, size: usize) -> bool {
        let ordered = self.classes.windows(2).all(|w| w[0].bytes_max < w[1].bytes_max);
        let open = self.classes.last().is_some_and(|c| c.bytes_max == u64::MAX);
        ordered && open && self.classes.iter().all(|c| c.fits(size))
    }
}

/// The segment that the member at position `place` of a ring of `places` members owns, in a buffer
/// of `count` elements. The segments of all places are consecutive and cover the buffer. Their
/// lengths differ by at most one element.
pub fn ring_segment(place: usize, places: usize, count: usize) -> Range<usize> {
    // In u128 because place * count may exceed 64 bits; the quotient is at most count.
    let cut = |place: usize| (place as u128 * count as u128 / places as u128) as usize;
    cut(place)..cut(place + 1)
}

/// Divides these elements among the trees in their order: consecutive ranges that cover all
/// elements.
pub fn tree_segments(
    trees: &[TreeShare],
    elements: Range<usize>,
) -> impl Iterator<Item = Range<usize>> {
    let all: u128 = trees.iter().map(|share| u128::from(share.ppm)).sum::<u128>().max(1);
    let cut = move |ppm: u128| elements.start + (elements.len() as u128 * ppm / all) as usize;
    trees.iter().scan(0u128, move |before, share| {
        let start = cut(*before);
        *before += u128::from(share.ppm);
        Some(start..cut(*before))
    })
}

fn ring_fold(order: &[Rank], place: usize, count: usize) -> FoldSegment {
    let from_successor_to_owner = order.iter().cycle().skip(place + 1).take(order.len()).copied();
    FoldSegment {
        elements: ring_segment(place, order.len(), count),
        tree: FoldTree::sum_of(from_successor_to_owner),
    }
}

impl PlanClass {
    /// A class without a window, and without codecs for calls that leave the choice to the plan.
    pub fn new(bytes_max: u64, chunk_bytes: u32, algorithm: Algorithm) -> PlanClass {
        let (window_chunks, auto) = (0, AutoCodecs::NONE);
        PlanClass { bytes_max, chunk_bytes, window_chunks, algorithm, auto }
    }

    fn fits(&self, size: usize) -> bool {
        let mib = if self.algorithm == Algorithm::GlooRing { 4 } else { 1 };
        let chunk = (1024..=mib * 1024 * 1024).contains(&self.chunk_bytes)
            && self.chunk_bytes.is_multiple_of(64);
        let algorithm = match &self.algorithm {
            Algorithm::OneShot
            | Algorithm::GlooExchange
            | Algorithm::GlooRing
            | Algorithm::GlooBcube => true,
            Algorithm::Ring { order } => {
                let mut seen: Vec<usize> = order.iter().map(|r| r.index()).collect();
                seen.sort_unstable();
                seen.into_iter().eq(0..size)
            }
            Algorithm::Trees { trees } => {
                let whole =
                    trees.iter().map(|share| u64::from(share.ppm)).sum::<u64>() == 1_000_000;
                whole
                    && trees.len() <= Algorithm::TREES_MAX
                    && trees.iter().all(|share| share.tree.root(size).is_some())
            }
        };
        chunk && algorithm && self.auto.fits(&self.algorithm, size)
    }
}

impl Plan {
    /// The coding of a call: its own codec, or the plan's choice if the call leaves it to the plan.
    pub fn coding(&self, call: &Call) -> Coding {
        let CodecId::Auto(coarsest) = call.codec else { return call.codec.into() };
        let bytes = call.count.saturating_mul(call.dtype.bytes() as u64);
        self.class_for(bytes).auto.up_to(coarsest)
    }
}

#[cfg(test)]
mod tests;
