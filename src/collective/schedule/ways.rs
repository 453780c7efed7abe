//! Layer: Core.
//!
//! The way of each flow of a call: straight from rank to rank, along a ring, or along trees.

use super::{Flow, Kept, Route, Unfit};
use crate::collective::{CodecId, Kind};
use crate::compression::in_whole_blocks;
use crate::topology::{Plan, Schedule, Tree, ranks, ring_segment, tree_segments};
use crate::view::Rank;
use std::ops::Range;

/// Between which ranks the flows of a call go.
pub(super) struct Ways<'a> {
    /// What the plan says for buffers of this size.
    schedule: &'a Schedule,
    /// Only ranks that are neighbours in the schedule are sure to reach each other.
    neighbours_only: bool,
    /// What is added is encoded at every step, and rounded each time.
    encodes: bool,
    size: usize,
}

impl<'a> Ways<'a> {
    /// The ways of `schedule`, which is one of the plan's.
    pub(super) fn new(
        plan: &Plan,
        schedule: &'a Schedule,
        size: usize,
        codec: CodecId,
    ) -> Ways<'a> {
        // Without any exchange in the plan some pairs do not.
        let straight = plan.classes.iter().any(|class| class.schedule == Schedule::OneShot);
        Ways { schedule, neighbours_only: !straight, encodes: codec != CodecId::None, size }
    }

    /// The flows of a call whose result has `count` elements at the rank that has most of it.
    pub(super) fn flows(
        &self,
        kind: Kind,
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
            Kind::AllReduce(_) => self.reducing(count),
            Kind::AllGather => {
                ranks(size).flat_map(|rank| self.copying(part(rank.index()), rank)).collect()
            }
            Kind::Broadcast { .. } | Kind::Sync { .. } => self.copying(0..count, root),
            Kind::Reduce { .. } => self.reducing_to(0..count, root),
            Kind::ReduceScatter(_) => ranks(size)
                .flat_map(|rank| self.reducing_to(ring_segment(rank.index(), size, count), rank))
                .collect(),
            Kind::Gather { .. } => {
                ranks(size).map(|from| self.carrying(part(from.index()), from, root)).collect()
            }
            Kind::Scatter { .. } => {
                ranks(size).map(|to| self.carrying(part(to.index()), root, to)).collect()
            }
            Kind::AllToAll => self.crossing(each),
            // Nobody else knows of it, so nobody else can pass it on: between two without a link
            // none is called.
            Kind::Message { from, to, .. } => vec![self.straight(0..count, from, to)],
            Kind::Barrier | Kind::Step { .. } => Vec::new(),
        })
    }

    /// One exchange, or a flow for each place round a ring or each tree, owned by the rank that
    /// sits there.
    fn reducing(&self, count: usize) -> Vec<Flow> {
        let owned = |elements: Range<usize>, owner: Rank, up: Tree, down: Tree| {
            // A part is encoded as it would be in the whole.
            let elements = if self.encodes { in_whole_blocks(elements, count) } else { elements };
            let route = Route::Paths { owner, up: Some(up), down, kept: Kept::ByAll };
            Flow { elements, route }
        };
        match self.schedule {
            Schedule::Ring { order } => {
                let segments = order
                    .iter()
                    .enumerate()
                    .map(|(place, owner)| (ring_segment(place, self.size, count), *owner));
                // As many bytes, straight to the owner: so each contribution is encoded once, and
                // each sum.
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
            Schedule::Trees { trees } => {
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

    /// All contributions to one rank, which keeps their sum.
    fn reducing_to(&self, elements: Range<usize>, owner: Rank) -> Vec<Flow> {
        let flow = |(elements, up, _)| {
            let (up, down) = (Some(up), Tree::empty(self.size));
            Flow { elements, route: Route::Paths { owner, up, down, kept: Kept::By(owner) } }
        };
        self.around(elements, owner).into_iter().map(flow).collect()
    }

    /// From one rank to all.
    fn copying(&self, elements: Range<usize>, owner: Rank) -> Vec<Flow> {
        let flow = |(elements, _, down)| Flow {
            elements,
            route: Route::Paths { owner, up: None, down, kept: Kept::ByAll },
        };
        self.around(elements, owner).into_iter().map(flow).collect()
    }

    /// From one rank to one.
    fn carrying(&self, elements: Range<usize>, from: Rank, to: Rank) -> Flow {
        let down = Tree::chain(self.way(from, to).into_iter(), self.size);
        Flow { elements, route: Route::Paths { owner: from, up: None, down, kept: Kept::By(to) } }
    }

    fn straight(&self, elements: Range<usize>, from: Rank, to: Rank) -> Flow {
        let down = Tree::chain([from, to].into_iter(), self.size);
        Flow { elements, route: Route::Paths { owner: from, up: None, down, kept: Kept::By(to) } }
    }

    /// From every rank to every rank, so many elements each.
    fn crossing(&self, each: usize) -> Vec<Flow> {
        let pairs = ranks(self.size).flat_map(|from| ranks(self.size).map(move |to| (from, to)));
        let flow = |(index, (from, to)): (usize, (Rank, Rank))| {
            self.carrying(index * each..(index + 1) * each, from, to)
        };
        pairs.enumerate().map(flow).collect()
    }

    /// By parts of these elements: everybody on its way to `owner`, and from there to everybody.
    /// Round the ring from its successor to itself and along the same cables on, over each tree
    /// with its share, or straight.
    fn around(&self, elements: Range<usize>, owner: Rank) -> Vec<(Range<usize>, Tree, Tree)> {
        match self.schedule {
            Schedule::Ring { order } => {
                vec![(elements, up_ring(order, owner), down_ring(order, owner))]
            }
            Schedule::Trees { trees } => {
                let shares = trees.iter().map(|share| share.tree.rerooted(owner));
                shares
                    .zip(tree_segments(trees, elements))
                    .map(|(tree, part)| (part, tree.clone(), tree))
                    .collect()
            }
            _ => vec![(elements, Tree::star(owner, self.size), Tree::star(owner, self.size))],
        }
    }

    /// The ranks that what is for one rank alone passes, both ends included.
    fn way(&self, from: Rank, to: Rank) -> Vec<Rank> {
        match self.schedule {
            _ if from == to => vec![from],
            Schedule::Ring { order } if self.neighbours_only => {
                let steps = (place(order, to) + self.size - place(order, from)) % self.size;
                ring_from(order, place(order, from)).take(steps + 1).collect()
            }
            Schedule::Trees { trees } if self.neighbours_only => {
                // The one with the fewest stations between them.
                let ways = trees.iter().map(|share| share.tree.path(from, to));
                ways.min_by_key(Vec::len).unwrap_or_else(|| vec![from, to])
            }
            _ => vec![from, to],
        }
    }
}

/// Round a ring to `owner`, from its successor on: a chain told from its root, so against the
/// direction of the ring.
fn up_ring(order: &[Rank], owner: Rank) -> Tree {
    let (size, place) = (order.len(), place(order, owner));
    Tree::chain((0..size).map(|step| order[(place + size - step) % size]), size)
}

/// Round a ring from `owner`.
fn down_ring(order: &[Rank], owner: Rank) -> Tree {
    Tree::chain(ring_from(order, place(order, owner)), order.len())
}

fn place(order: &[Rank], rank: Rank) -> usize {
    // A plan that fits names every rank.
    order.iter().position(|at| *at == rank).unwrap_or(0)
}

/// Once round the ring, from a place on.
fn ring_from(order: &[Rank], place: usize) -> impl Iterator<Item = Rank> {
    order.iter().cycle().skip(place).take(order.len()).copied()
}
