//! Layer: Core.
//!
//! The way of each flow of a call: straight from rank to rank, or along a ring.

use super::{Flow, Kept, Route, Tree, Unfit, ranks};
use crate::collective::Kind;
use crate::topology::{Plan, Schedule, ring_segment};
use crate::view::Rank;
use std::ops::Range;

/// Between which ranks the flows of a call go.
pub(super) struct Ways<'a> {
    /// What the plan says for buffers of this size.
    schedule: &'a Schedule,
    /// The ring that everything must follow, where not all ranks reach each other.
    ring: Option<&'a [Rank]>,
    size: usize,
}

impl<'a> Ways<'a> {
    /// The ways of `schedule`, which is one of the plan's.
    pub(super) fn new(plan: &Plan, schedule: &'a Schedule, size: usize) -> Ways<'a> {
        Ways { schedule, ring: indirect_ring(plan, schedule), size }
    }

    /// The flows of a call whose result has `count` elements at the rank that has most of it.
    pub(super) fn flows(&self, kind: Kind, count: usize, sync_root: Option<(Rank, u64)>) -> Result<Vec<Flow>, Unfit> {
        let size = self.size;
        let each = count / size;
        let part = |index: usize| index * each..(index + 1) * each;
        let root = kind.root().or(sync_root.map(|(root, _)| root)).unwrap_or(Rank(0));
        if root.index() >= size {
            return Err(Unfit);
        }
        Ok(match kind {
            Kind::AllReduce(_) => self.reducing(count),
            Kind::AllGather => ranks(size).map(|rank| self.copying(part(rank.index()), rank)).collect(),
            Kind::Broadcast { .. } | Kind::Sync { .. } => vec![self.copying(0..count, root)],
            Kind::Reduce { .. } => vec![self.reducing_to(0..count, root)],
            Kind::ReduceScatter(_) => {
                ranks(size).map(|rank| self.reducing_to(ring_segment(rank.index(), size, count), rank)).collect()
            }
            Kind::Gather { .. } => ranks(size).map(|from| self.carrying(part(from.index()), from, root)).collect(),
            Kind::Scatter { .. } => ranks(size).map(|to| self.carrying(part(to.index()), root, to)).collect(),
            Kind::AllToAll => self.crossing(each),
            // Nobody else knows of it, so nobody else can pass it on.
            Kind::Message { .. } if self.ring.is_some() => return Err(Unfit),
            Kind::Message { from, to, .. } => vec![self.carrying(0..count, from, to)],
            Kind::Barrier | Kind::Step { .. } => Vec::new(),
        })
    }

    /// One exchange, or round a ring one flow for each place, owned by the rank that sits there.
    fn reducing(&self, count: usize) -> Vec<Flow> {
        let (Schedule::Ring { order }, size) = (self.schedule, self.size) else {
            return vec![Flow { elements: 0..count, route: Route::Exchange }];
        };
        let segment = |place: usize| {
            let owner = order[place];
            let (up, down) = (Some(self.towards(owner)), self.away_from(owner));
            let route = Route::Paths { owner, up, down, kept: Kept::ByAll };
            Flow { elements: ring_segment(place, size, count), route }
        };
        (0..size).map(segment).collect()
    }

    /// All contributions to one rank, which keeps their sum.
    fn reducing_to(&self, elements: Range<usize>, owner: Rank) -> Flow {
        let (up, down) = (Some(self.towards(owner)), Tree::empty(self.size));
        Flow { elements, route: Route::Paths { owner, up, down, kept: Kept::By(owner) } }
    }

    /// From one rank to all.
    fn copying(&self, elements: Range<usize>, owner: Rank) -> Flow {
        let down = self.away_from(owner);
        Flow { elements, route: Route::Paths { owner, up: None, down, kept: Kept::ByAll } }
    }

    /// From one rank to one.
    fn carrying(&self, elements: Range<usize>, from: Rank, to: Rank) -> Flow {
        let way: Vec<Rank> = match self.ring {
            Some(order) => {
                let steps = (place(order, to) + self.size - place(order, from)) % self.size;
                ring_from(order, place(order, from)).take(steps + 1).collect()
            }
            None if from == to => vec![from],
            None => vec![from, to],
        };
        let down = Tree::chain(way.into_iter(), self.size);
        Flow { elements, route: Route::Paths { owner: from, up: None, down, kept: Kept::By(to) } }
    }

    /// From every rank to every rank, so many elements each.
    fn crossing(&self, each: usize) -> Vec<Flow> {
        let pairs = ranks(self.size).flat_map(|from| ranks(self.size).map(move |to| (from, to)));
        let flow = |(index, (from, to)): (usize, (Rank, Rank))| self.carrying(index * each..(index + 1) * each, from, to);
        pairs.enumerate().map(flow).collect()
    }

    /// Everybody on its way to `owner`: round the ring from its successor to itself, or straight.
    fn towards(&self, owner: Rank) -> Tree {
        match self.schedule {
            Schedule::Ring { order } => {
                // The chain is told from its root on, so against the direction of the ring.
                let (size, place) = (self.size, place(order, owner));
                Tree::chain((0..size).map(|step| order[(place + size - step) % size]), size)
            }
            _ => Tree::star(owner, self.size),
        }
    }

    /// From `owner` to everybody: round the ring along the same cables, or straight.
    fn away_from(&self, owner: Rank) -> Tree {
        match self.schedule {
            Schedule::Ring { order } => Tree::chain(ring_from(order, place(order, owner)), self.size),
            _ => Tree::star(owner, self.size),
        }
    }
}

/// What is for one rank alone goes there straight, unless the plan has no exchange at all: then some pairs of
/// ranks do not reach each other, and only neighbours on the ring are sure to.
fn indirect_ring<'a>(plan: &Plan, schedule: &'a Schedule) -> Option<&'a [Rank]> {
    let straight = plan.classes.iter().any(|class| class.schedule == Schedule::OneShot);
    match schedule {
        Schedule::Ring { order } if !straight => Some(order),
        _ => None,
    }
}

fn place(order: &[Rank], rank: Rank) -> usize {
    // A plan that fits names every rank.
    order.iter().position(|at| *at == rank).unwrap_or(0)
}

/// Once round the ring, from a place on.
fn ring_from(order: &[Rank], place: usize) -> impl Iterator<Item = Rank> {
    order.iter().cycle().skip(place).take(order.len()).copied()
}

impl Tree {
    /// Of nobody.
    fn empty(size: usize) -> Tree {
        Tree { parents: vec![None; size] }
    }

    /// Everybody under `root`.
    fn star(root: Rank, size: usize) -> Tree {
        Tree { parents: ranks(size).map(|rank| (rank != root).then_some(root)).collect() }
    }

    /// Each rank of the row under the one before it.
    fn chain(row: impl Iterator<Item = Rank>, size: usize) -> Tree {
        let (mut parents, mut before) = (vec![None; size], None);
        for rank in row {
            parents[rank.index()] = before.replace(rank);
        }
        Tree { parents }
    }
}
