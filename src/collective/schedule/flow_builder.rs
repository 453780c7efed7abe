//! The route of each flow of a call: direct, along a ring, or along trees.

use super::flow::{Flow, Keepers, Route, Unfit};
use crate::compression::in_whole_blocks;
use crate::protocol::{
    Algorithm, CallKind, CodecId, Lengths, Plan, Rank, Tree, ranks, ring_segment, tree_segments,
};
use std::ops::Range;

/// Builds the routes of a call's flows.
pub(super) struct FlowBuilder<'a> {
    /// The plan's algorithm for buffers of this size.
    algorithm: &'a Algorithm,
    /// Only neighbours in the schedule are sure to reach each other.
    neighbours_only: bool,
    /// Contributions and sums are encoded, and so rounded, at every hop.
    encodes: bool,
    size: usize,
}

impl<'a> FlowBuilder<'a> {
    /// For `algorithm`, which is one of the plan's.
    pub(super) fn new(
        plan: &Plan,
        algorithm: &'a Algorithm,
        size: usize,
        codec: CodecId,
    ) -> FlowBuilder<'a> {
        // A plan contains an exchange only if all pairs reach each other.
        let straight = plan.classes.iter().any(|class| class.algorithm == Algorithm::OneShot);
        FlowBuilder { algorithm, neighbours_only: !straight, encodes: codec != CodecId::None, size }
    }

    /// The flows of a call. `count` is the length in elements of the largest result of any rank.
    pub(super) fn flows(
        &self,
        kind: CallKind,
        count: usize,
        sync_root: Option<(Rank, u64)>,
    ) -> Result<Vec<Flow>, Unfit> {
        let size = self.size;
        let each = count / size;
        let part = |index: usize| index * each..(index + 1) * each;
        let root = kind.root().or(sync_root.map(|(root, _)| root)).unwrap_or(Rank(0));
        if root.index() >= size {
            return Err(Unfit);
        }
        Ok(match kind {
            CallKind::AllReduce(_) => self.reducing(count),
            CallKind::AllGather => {
                ranks(size).flat_map(|rank| self.copying(part(rank.index()), rank)).collect()
            }
            CallKind::Broadcast { .. } | CallKind::Sync { .. } => self.copying(0..count, root),
            CallKind::Reduce { .. } => self.reducing_to(0..count, root),
            CallKind::ReduceScatter(_) => ranks(size)
                .flat_map(|rank| self.reducing_to(ring_segment(rank.index(), size, count), rank))
                .collect(),
            CallKind::Gather { .. } => {
                ranks(size).map(|from| self.carrying(part(from.index()), from, root)).collect()
            }
            CallKind::Scatter { .. } => {
                ranks(size).map(|to| self.carrying(part(to.index()), root, to)).collect()
            }
            CallKind::AllToAll => self.crossing(each),
            // Only the two ends know of a message, so no other rank can forward it. A message
            // between ranks without a link is rejected before.
            CallKind::Message { from, to, .. } => vec![self.straight(0..count, from, to)],
            CallKind::Barrier | CallKind::Step { .. } => Vec::new(),
            CallKind::AllGatherUneven | CallKind::AllToAllUneven => return Err(Unfit),
        })
    }

    /// The flows of the data of an uneven call.
    pub(super) fn uneven(&self, kind: CallKind, lengths: &Lengths) -> Result<Vec<Flow>, Unfit> {
        let mut end = 0;
        let mut next = |length: usize| {
            let start = end;
            end += length;
            start..end
        };
        let size = self.size;
        Ok(match kind {
            CallKind::AllGatherUneven => ranks(size)
                .flat_map(|rank| self.copying(next(lengths.between(rank, Rank(0))), rank))
                .collect(),
            CallKind::AllToAllUneven => {
                let pairs = ranks(size).flat_map(|from| ranks(size).map(move |to| (from, to)));
                pairs
                    .map(|(from, to)| self.carrying(next(lengths.between(from, to)), from, to))
                    .collect()
            }
            _ => return Err(Unfit),
        })
    }

    /// The flows of an all-reduce: one exchange, or one flow per rank of a ring, owned by it, or
    /// one per tree, owned by its root.
    fn reducing(&self, count: usize) -> Vec<Flow> {
        let owned = |elements: Range<usize>, owner: Rank, up: Tree, down: Tree| {
            // Cut between the codec's blocks, so that a part is encoded as it is in the whole
            // buffer.
            let elements = if self.encodes { in_whole_blocks(elements, count) } else { elements };
            let route = Route::Paths { owner, up: Some(up), down, kept: Keepers::ByAll };
            Flow { elements, route }
        };
        match self.algorithm {
            Algorithm::Ring { order } => {
                let segments = order
                    .iter()
                    .enumerate()
                    .map(|(position, owner)| (ring_segment(position, self.size, count), *owner));
                // A star through the owner takes as many bytes as the ring, and encodes each
                // contribution and each sum only once.
                let star = |owner| (Tree::star(owner, self.size), Tree::star(owner, self.size));
                let around = |owner| {
                    if self.encodes && !self.neighbours_only {
                        star(owner)
                    } else {
                        (up_ring(order, owner), down_ring(order, owner))
                    }
                };
                let flow = |(elements, owner)| {
                    let (up, down) = around(owner);
                    owned(elements, owner, up, down)
                };
                segments.map(flow).collect()
            }
            Algorithm::Trees { trees } => {
                let root = |tree: &Tree| tree.root(self.size).unwrap_or(Rank(0));
                let segments = trees.iter().zip(tree_segments(trees, 0..count));
                segments
                    .map(|(share, elements)| {
                        owned(elements, root(&share.tree), share.tree.clone(), share.tree.clone())
                    })
                    .collect()
            }
            _ => vec![Flow { elements: 0..count, route: Route::Exchange }],
        }
    }

    /// Reduces all contributions to one rank, which keeps the result.
    fn reducing_to(&self, elements: Range<usize>, owner: Rank) -> Vec<Flow> {
        let flow = |(elements, up, _)| {
            let (up, down) = (Some(up), Tree::empty(self.size));
            Flow { elements, route: Route::Paths { owner, up, down, kept: Keepers::By(owner) } }
        };
        self.around(elements, owner).into_iter().map(flow).collect()
    }

    /// Copies from one rank to all.
    fn copying(&self, elements: Range<usize>, owner: Rank) -> Vec<Flow> {
        let flow = |(elements, _, down)| Flow {
            elements,
            route: Route::Paths { owner, up: None, down, kept: Keepers::ByAll },
        };
        self.around(elements, owner).into_iter().map(flow).collect()
    }

    /// Copies from one rank to one.
    fn carrying(&self, elements: Range<usize>, from: Rank, to: Rank) -> Flow {
        let down = Tree::chain(self.path(from, to).into_iter(), self.size);
        Flow {
            elements,
            route: Route::Paths { owner: from, up: None, down, kept: Keepers::By(to) },
        }
    }

    fn straight(&self, elements: Range<usize>, from: Rank, to: Rank) -> Flow {
        let down = Tree::chain([from, to].into_iter(), self.size);
        Flow {
            elements,
            route: Route::Paths { owner: from, up: None, down, kept: Keepers::By(to) },
        }
    }

    /// Copies from every rank to every rank, `each` elements per pair.
    fn crossing(&self, each: usize) -> Vec<Flow> {
        let pairs = ranks(self.size).flat_map(|from| ranks(self.size).map(move |to| (from, to)));
        let flow = |(index, (from, to)): (usize, (Rank, Rank))| {
            self.carrying(index * each..(index + 1) * each, from, to)
        };
        pairs.enumerate().map(flow).collect()
    }

    /// The routes through `owner`, as (part of `elements`, tree up to the owner, tree down from
    /// it): the ring from the owner's successor round to the owner and round again, each tree with
    /// its share, or a star.
    fn around(&self, elements: Range<usize>, owner: Rank) -> Vec<(Range<usize>, Tree, Tree)> {
        match self.algorithm {
            Algorithm::Ring { order } => {
                vec![(elements, up_ring(order, owner), down_ring(order, owner))]
            }
            Algorithm::Trees { trees } => {
                let shares = trees.iter().map(|share| share.tree.rerooted(owner));
                shares
                    .zip(tree_segments(trees, elements))
                    .map(|(tree, part)| (part, tree.clone(), tree))
                    .collect()
            }
            _ => vec![(elements, Tree::star(owner, self.size), Tree::star(owner, self.size))],
        }
    }

    /// The ranks that data for one rank alone passes, both ends included.
    fn path(&self, from: Rank, to: Rank) -> Vec<Rank> {
        match self.algorithm {
            _ if from == to => vec![from],
            Algorithm::Ring { order } if self.neighbours_only => {
                let steps = (position(order, to) + self.size - position(order, from)) % self.size;
                ring_from(order, position(order, from)).take(steps + 1).collect()
            }
            Algorithm::Trees { trees } if self.neighbours_only => {
                // The tree with the shortest path between the two.
                let paths = trees.iter().map(|share| share.tree.path(from, to));
                paths.min_by_key(Vec::len).unwrap_or_else(|| vec![from, to])
            }
            _ => vec![from, to],
        }
    }
}

/// Round the ring to `owner`, beginning at its successor. The chain lists the ranks from its root
/// on, against the direction of the ring. In the ring `[2, 0, 1]` with owner 2, contributions go
/// 0 -> 1 -> 2, so the chain is 2, 1, 0; the result goes 2 -> 0 -> 1.
fn up_ring(order: &[Rank], owner: Rank) -> Tree {
    let (size, position) = (order.len(), position(order, owner));
    Tree::chain((0..size).map(|step| order[(position + size - step) % size]), size)
}

/// Round the ring from `owner`.
fn down_ring(order: &[Rank], owner: Rank) -> Tree {
    Tree::chain(ring_from(order, position(order, owner)), order.len())
}

fn position(order: &[Rank], rank: Rank) -> usize {
    // A plan that fits contains every rank.
    order.iter().position(|at| *at == rank).unwrap_or(0)
}

/// Once round the ring, beginning at `position`.
fn ring_from(order: &[Rank], position: usize) -> impl Iterator<Item = Rank> {
    order.iter().cycle().skip(position).take(order.len()).copied()
}
