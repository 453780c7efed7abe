//! Layer: Core.
//!
//! A schedule as data: which piece of a result takes which way between the ranks.
//!
//! An [`Itinerary`] is what a call, a plan and a View's size come to: a row of [`Flow`]s, each an element range of the result
//! with its [`Route`]. The result is that of all ranks together: what they have in common stands in it once, and of a flow that
//! only one rank keeps, the others hold nothing. A rank's own result is the row of the flows that it keeps.
//! A route has a tree towards the owner, along which contributions are added, and *another* tree
//! away from it, along which the result is handed on. A ring is the case where both trees are chains; stars and other
//! trees are told by the same arrays. Flows are cut into chunks, which travel and are added as one piece.
//!
//! At every node the contributions are those of the node itself and of its children, folded by ascending rank. On a ring
//! that is: what arrives, then the own, as folding two values is commutative.

use super::call::{Call, CodecId, DType, Kind, ReduceOp};
use crate::compression::codec;
use crate::engine::EngineKind;
use crate::topology::{Plan, Schedule, ring_segment};
use crate::view::{MEMBERS_MAX, Rank};
use std::ops::Range;

/// The way of every chunk of one operation; the same value on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Itinerary {
    /// How many ranks there are.
    pub size: usize,
    /// What is moved.
    pub dtype: DType,
    /// How it is written on the wire.
    pub codec: CodecId,
    /// How it is added; `None` when it is only copied.
    pub reduce: Option<ReduceOp>,
    /// The flows, which cover the result of all ranks together in order and without gaps.
    pub flows: Vec<Flow>,
    /// Elements of a chunk; the last one of a flow may have fewer.
    pub chunk_elements: usize,
}

/// A range of the result and its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Which elements of the result.
    pub elements: Range<usize>,
    /// Which way.
    pub route: Route,
}

/// How a flow gets from the contributions to the result on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Everybody sends its contribution to everybody, and everybody folds all of them in rank order.
    Exchange,
    /// Up to an owner and down from it.
    Paths {
        /// Where the way up ends and the way down begins.
        owner: Rank,
        /// Along which contributions are added; `None` when only the owner contributes.
        up: Option<Tree>,
        /// Along which the result is handed on.
        down: Tree,
        /// Who keeps it; the others on the way down only pass it on.
        kept: Kept,
    },
}

/// Who keeps a flow's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is the same on all ranks.
    ByAll,
    /// It is this rank's own.
    By(Rank),
}

/// A tree over some ranks or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parent of each rank, by rank; `None` at the root and where a rank is not in the tree.
    pub parents: Vec<Option<Rank>>,
}

/// What one rank does for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Whose contributions this rank folds, ascending; its own and its children's.
    pub contributors: Vec<Rank>,
    /// What becomes of the sum.
    pub then: Then,
    /// Who hands the result to this rank.
    pub down_from: Option<Rank>,
    /// To whom this rank hands the result.
    pub down_to: Vec<Rank>,
    /// Whether the result stays here too.
    pub keeps: bool,
}

/// What becomes of the sum at a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is a part of the sum, for this parent.
    Send(Rank),
    /// It is the result; every rank computes it from the same contributions.
    Keep,
    /// It is the result, which only this rank has yet.
    HandOn,
}

/// A call that cannot be carried out, as it stands, under its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// Most chunks of one operation: 256 GiB in chunks of 256 KiB. Bounds what is kept per chunk.
pub const CHUNKS_MAX: usize = 1 << 20;

impl Itinerary {
    /// The itinerary of `call` among `size` ranks. `sync_root` says whose state of how many bytes a sync hands on.
    ///
    /// The plan's class is chosen by the bytes of the largest buffer that a member has of the call, before compression.
    ///
    /// # Errors
    /// [`Unfit`] when the plan is for another size or engine, a root is no rank, the call makes no sense, a codec is asked for
    /// anything but adding `f32`, a sync has no root yet, or there are more than [`CHUNKS_MAX`] chunks.
    pub fn of(call: &Call, sync_root: Option<(Rank, u64)>, plan: &Plan, size: usize) -> Result<Itinerary, Unfit> {
        if size == 0
            || size > MEMBERS_MAX
            || plan.classes.is_empty()
            || !plan.fits(size)
            || !plan.is_for(EngineKind::Native)
            || !encodable(call)
            || call.rejection(size).is_some()
        {
            return Err(Unfit);
        }
        let count = match (call.kind, sync_root) {
            (Kind::Sync { .. }, root) => root.ok_or(Unfit)?.1,
            (Kind::Barrier, _) => 0,
            _ => call.output_count(size),
        };
        let count = usize::try_from(count).map_err(|_| Unfit)?;
        let bytes = count.checked_mul(call.dtype.bytes()).ok_or(Unfit)?;
        // So much have all ranks together at most.
        bytes.checked_mul(size).ok_or(Unfit)?;
        let class = plan.class_for(bytes as u64);
        let chunk_elements = class.chunk_bytes as usize / call.dtype.bytes();
        let ways = Ways { schedule: &class.schedule, ring: indirect_ring(plan, &class.schedule), size };
        let (reduce, flows) = (call.kind.reduce_op(), ways.flows(call.kind, count, sync_root)?);
        let itinerary = Itinerary { size, dtype: call.dtype, codec: call.codec, reduce, flows, chunk_elements };
        let chunks: usize = (0..itinerary.flows.len()).map(|flow| itinerary.chunks(flow)).sum();
        if chunks <= CHUNKS_MAX { Ok(itinerary) } else { Err(Unfit) }
    }

    /// Elements of the result of all ranks together.
    pub fn count(&self) -> usize {
        self.flows.last().map_or(0, |flow| flow.elements.end)
    }

    /// Whether it is the same on every rank.
    pub fn is_common(&self) -> bool {
        self.flows.iter().all(|flow| flow.route.kept() == Kept::ByAll)
    }

    /// How many chunks a flow has.
    pub fn chunks(&self, flow: usize) -> usize {
        self.flows[flow].elements.len().div_ceil(self.chunk_elements)
    }

    /// The elements of the result in a chunk.
    pub fn elements(&self, flow: usize, chunk: usize) -> Range<usize> {
        let all = &self.flows[flow].elements;
        let start = all.start + chunk * self.chunk_elements;
        start..all.end.min(start + self.chunk_elements)
    }

    /// Bytes of so many elements on the wire.
    pub fn wire_bytes(&self, elements: usize) -> usize {
        codec(self.codec).map_or(elements * self.dtype.bytes(), |codec| codec.encoded_len(elements))
    }

    /// The flows that `me` contributes to; they are neighbours.
    pub fn own_flows(&self, me: Rank) -> Range<usize> {
        let owns = |flow: &Flow| flow.route.contributes(me);
        let start = self.flows.iter().position(owns).unwrap_or(0);
        let end = self.flows.iter().rposition(owns).map_or(0, |last| last + 1);
        start..end
    }

    /// Lengths in bytes of the blocks in which `me` hands in its contribution.
    pub fn input_layout(&self, me: Rank) -> Vec<usize> {
        let chunks = self.own_flows(me).flat_map(|flow| (0..self.chunks(flow)).map(move |chunk| (flow, chunk)));
        chunks.map(|(flow, chunk)| self.elements(flow, chunk).len() * self.dtype.bytes()).collect()
    }

    /// What `me` does for a flow.
    pub fn station(&self, flow: usize, me: Rank) -> Station {
        match &self.flows[flow].route {
            Route::Exchange => {
                let contributors = ranks(self.size).collect();
                Station { contributors, then: Then::Keep, down_from: None, down_to: Vec::new(), keeps: true }
            }
            Route::Paths { owner, up, down, kept } => {
                let mut contributors = up.as_ref().map_or_else(Vec::new, |tree| tree.children(me));
                if self.flows[flow].route.contributes(me) {
                    contributors.push(me);
                    contributors.sort_unstable();
                }
                let parent = up.as_ref().and_then(|tree| tree.parents[me.index()]);
                let then = if *owner == me { Then::HandOn } else { parent.map_or(Then::Keep, Then::Send) };
                let keeps = *kept == Kept::ByAll || *kept == Kept::By(me);
                Station { contributors, then, down_from: down.parents[me.index()], down_to: down.children(me), keeps }
            }
        }
    }
}

impl Station {
    /// What this rank must have done with each chunk: got it, if it keeps it, else sent it to all whom it concerns.
    pub fn steps(&self) -> usize {
        if self.keeps { 1 } else { self.down_to.len() + usize::from(matches!(self.then, Then::Send(_))) }
    }
}

impl Route {
    fn kept(&self) -> Kept {
        match self {
            Route::Exchange => Kept::ByAll,
            Route::Paths { kept, .. } => *kept,
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        match self {
            Route::Exchange | Route::Paths { up: Some(_), .. } => true,
            Route::Paths { owner, up: None, .. } => *owner == rank,
        }
    }
}

impl Tree {
    /// The ranks whose parent is `rank`, ascending.
    pub fn children(&self, rank: Rank) -> Vec<Rank> {
        ranks(self.parents.len()).filter(|child| self.parents[child.index()] == Some(rank)).collect()
    }

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

/// Between which ranks the flows of a call go.
struct Ways<'a> {
    /// What the plan says for buffers of this size.
    schedule: &'a Schedule,
    /// The ring that everything must follow, where not all ranks reach each other.
    ring: Option<&'a [Rank]>,
    size: usize,
}

impl Ways<'_> {
    fn flows(&self, kind: Kind, count: usize, sync_root: Option<(Rank, u64)>) -> Result<Vec<Flow>, Unfit> {
        let size = self.size;
        let each = count / size;
        let part = |index: usize| index * each..(index + 1) * each;
        let root = match (kind, sync_root) {
            (Kind::Sync { .. }, Some((root, _))) => root,
            (Kind::Broadcast { root } | Kind::Reduce { root, .. } | Kind::Gather { root } | Kind::Scatter { root }, _) => root,
            _ => Rank(0),
        };
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
            Kind::Barrier => Vec::new(),
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

/// Only added `f32` may be encoded.
fn encodable(call: &Call) -> bool {
    match (call.kind, call.dtype, call.codec) {
        (Kind::AllReduce(_), DType::F32, CodecId::Bf16) => true,
        (_, _, codec) => codec == CodecId::None,
    }
}

fn ranks(size: usize) -> impl Iterator<Item = Rank> {
    (0..MEMBERS_MAX as u8).map(Rank).take(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::PlanClass;

    fn ring(order: &[u8], chunk_bytes: u32) -> Plan {
        let schedule = Schedule::Ring { order: order.iter().copied().map(Rank).collect() };
        let classes = vec![PlanClass { bytes_max: u64::MAX, chunk_bytes, schedule }];
        Plan { revision: 0, reason: String::new(), classes }
    }

    fn call(kind: Kind, count: u64) -> Call {
        Call { kind, dtype: DType::F32, count, codec: CodecId::None }
    }

    const SUM: Kind = Kind::AllReduce(ReduceOp::Sum);

    #[test]
    fn a_ring_adds_from_the_owners_successor_round_to_the_owner() {
        let itinerary = Itinerary::of(&call(SUM, 10), None, &ring(&[2, 0, 1], 1024), 3).expect("fits");
        assert_eq!(itinerary.flows.iter().map(|f| f.elements.clone()).collect::<Vec<_>>(), [0..3, 3..6, 6..10]);
        // Flow 0 is owned by rank 2: 0 sends to 1, 1 to 2; then 2 hands on to 0 and 0 to 1.
        let station = |me| itinerary.station(0, Rank(me));
        assert_eq!((station(0).contributors, station(0).then), (vec![Rank(0)], Then::Send(Rank(1))));
        assert_eq!((station(1).contributors, station(1).then), (vec![Rank(0), Rank(1)], Then::Send(Rank(2))));
        assert_eq!((station(2).contributors, station(2).then), (vec![Rank(1), Rank(2)], Then::HandOn));
        assert_eq!((station(2).down_from, station(2).down_to), (None, vec![Rank(0)]));
        assert_eq!((station(0).down_from, station(0).down_to), (Some(Rank(2)), vec![Rank(1)]));
        assert_eq!((station(1).down_from, station(1).down_to), (Some(Rank(0)), vec![]));
    }

    #[test]
    fn on_a_ring_everybody_sends_to_its_successor_alone() {
        let order = [3, 1, 4, 0, 2];
        for kind in every_kind(Rank(4)) {
            let itinerary = Itinerary::of(&call(kind, 1000), None, &ring(&order, 1024), 5).expect("fits");
            for (place, me) in order.into_iter().enumerate() {
                let (next, before) = (Rank(order[(place + 1) % 5]), Rank(order[(place + 4) % 5]));
                for flow in 0..itinerary.flows.len() {
                    let station = itinerary.station(flow, Rank(me));
                    assert!(station.contributors.iter().all(|c| *c == Rank(me) || *c == before));
                    assert!(!matches!(station.then, Then::Send(to) if to != next));
                    assert!(station.down_to.iter().all(|to| *to == next) && station.down_from.is_none_or(|f| f == before));
                }
            }
        }
    }

    #[test]
    fn chunks_cover_the_result_once_and_in_order() {
        for size in 1..=8 {
            let order: Vec<u8> = (0..size as u8).rev().collect();
            for count in [0, 1, size - 1, size, 1000, 65_537] {
                for plan in [ring(&order, 1024), Plan::mesh(size)] {
                    for kind in every_kind(Rank(0)) {
                        let count = if kind == Kind::AllToAll { count * size } else { count };
                        let itinerary = Itinerary::of(&call(kind, count as u64), None, &plan, size).expect("fits");
                        let mut end = 0;
                        for flow in 0..itinerary.flows.len() {
                            for chunk in 0..itinerary.chunks(flow) {
                                let elements = itinerary.elements(flow, chunk);
                                assert!(elements.start == end && !elements.is_empty());
                                end = elements.end;
                            }
                        }
                        let each = [Kind::AllGather, Kind::AllToAll].contains(&kind)
                            || matches!(kind, Kind::Gather { .. } | Kind::Scatter { .. });
                        let expected = if each { count * size } else { count };
                        assert_eq!((end, itinerary.count()), (expected, expected));
                        let given = if matches!(kind, Kind::Scatter { .. }) { count * size } else { count };
                        assert_eq!(itinerary.input_layout(Rank(0)).iter().sum::<usize>(), given * 4);
                    }
                }
            }
        }
    }

    fn every_kind(root: Rank) -> [Kind; 8] {
        let op = ReduceOp::Sum;
        let rooted = [Kind::Broadcast { root }, Kind::Reduce { op, root }, Kind::Gather { root }, Kind::Scatter { root }];
        let [a, b, c, d] = rooted;
        [SUM, Kind::AllGather, Kind::ReduceScatter(op), Kind::AllToAll, a, b, c, d]
    }

    /// How many elements each rank keeps.
    fn kept(kind: Kind, count: u64, plan: &Plan, size: usize) -> Vec<usize> {
        let itinerary = Itinerary::of(&call(kind, count), None, plan, size).expect("fits");
        let of = |me: Rank| {
            let flows = (0..itinerary.flows.len()).filter(|flow| itinerary.station(*flow, me).keeps);
            flows.map(|flow| itinerary.flows[flow].elements.len()).sum()
        };
        ranks(size).map(of).collect()
    }

    #[test]
    fn what_is_for_one_rank_is_kept_by_it_alone() {
        for plan in [ring(&[2, 0, 1], 1024), Plan::mesh(3)] {
            let kept = |kind, count| kept(kind, count, &plan, 3);
            let (op, root) = (ReduceOp::Max, Rank(1));
            assert_eq!(kept(Kind::Reduce { op, root }, 10), [0, 10, 0]);
            assert_eq!(kept(Kind::ReduceScatter(op), 10), [3, 3, 4]);
            assert_eq!(kept(Kind::Gather { root }, 10), [0, 30, 0]);
            assert_eq!(kept(Kind::Scatter { root }, 10), [10, 10, 10]);
            assert_eq!(kept(Kind::AllToAll, 9), [9, 9, 9]);
            assert_eq!(kept(SUM, 10), [10, 10, 10]);
        }
    }

    /// Both ends of every frame agree on it, and every rank that keeps a flow gets it.
    #[test]
    fn what_is_sent_is_expected_and_arrives() {
        for size in 1..=6usize {
            let order: Vec<u8> = (0..size as u8).rev().collect();
            for plan in [ring(&order, 1024), Plan::mesh(size)] {
                for kind in every_kind(Rank(size as u8 - 1)) {
                    let itinerary = Itinerary::of(&call(kind, 60), None, &plan, size).expect("fits");
                    for flow in 0..itinerary.flows.len() {
                        assert_flow(&itinerary, flow);
                    }
                }
            }
        }
    }

    fn assert_flow(itinerary: &Itinerary, flow: usize) {
        let stations: Vec<Station> = ranks(itinerary.size).map(|me| itinerary.station(flow, me)).collect();
        let mut has = Vec::new();
        for me in ranks(itinerary.size) {
            let station = &stations[me.index()];
            let is_owner = station.then != Then::Keep || !station.contributors.is_empty();
            has.push(is_owner && !matches!(station.then, Then::Send(_)));
            if let Then::Send(parent) = station.then {
                assert!(stations[parent.index()].contributors.contains(&me));
            }
            for to in &station.down_to {
                assert_eq!(stations[to.index()].down_from, Some(me));
            }
            for from in station.contributors.iter().filter(|from| **from != me && station.then != Then::Keep) {
                assert_eq!(stations[from.index()].then, Then::Send(me));
            }
        }
        for me in ranks(itinerary.size).filter(|me| stations[me.index()].keeps) {
            let mut at = me;
            while !has[at.index()] {
                at = stations[at.index()].down_from.expect("a way to who keeps it");
            }
        }
    }

    #[test]
    fn what_is_for_one_rank_goes_straight_where_all_reach_each_other() {
        let mut plan = ring(&[0, 1, 2, 3], 1024);
        let frames = |plan: &Plan| {
            let itinerary = Itinerary::of(&call(Kind::AllToAll, 400), None, plan, 4).expect("fits");
            let of = |flow: usize| ranks(4).map(|me| itinerary.station(flow, me).down_to.len()).sum::<usize>();
            (0..16).map(of).sum::<usize>()
        };
        assert_eq!(frames(&plan), 4 * (1 + 2 + 3));
        plan.classes.insert(0, PlanClass { bytes_max: 9, chunk_bytes: 1024, schedule: Schedule::OneShot });
        assert_eq!(frames(&plan), 12);
    }

    #[test]
    fn a_sync_needs_its_root_and_takes_its_length() {
        let sync = Call { kind: Kind::Sync { version: 3 }, dtype: DType::U8, count: 5, codec: CodecId::None };
        assert_eq!(Itinerary::of(&sync, None, &Plan::mesh(3), 3), Err(Unfit));
        let itinerary = Itinerary::of(&sync, Some((Rank(2), 70)), &Plan::mesh(3), 3).expect("fits");
        assert_eq!((itinerary.count(), itinerary.input_layout(Rank(2)), itinerary.input_layout(Rank(0))), (70, vec![70], vec![]));
    }

    #[test]
    fn what_makes_no_sense_is_unfit() {
        let plan = Plan::mesh(3);
        let of = |call: Call| Itinerary::of(&call, None, &plan, 3).err();
        assert_eq!(of(call(SUM, u64::MAX)), Some(Unfit));
        assert_eq!(of(call(SUM, u64::MAX / 8)), Some(Unfit));
        assert_eq!(of(call(Kind::AllGather, u64::MAX)), Some(Unfit));
        for kind in every_kind(Rank(3)).into_iter().skip(4) {
            assert_eq!(of(call(kind, 1)), Some(Unfit), "{kind:?}");
        }
        assert_eq!(of(call(Kind::AllToAll, 4)), Some(Unfit));
        assert_eq!(of(call(Kind::AllToAll, u64::MAX / 12 * 3)), Some(Unfit));
        assert_eq!(of(Call { dtype: DType::U8, ..call(Kind::AllReduce(ReduceOp::Mean), 1) }), Some(Unfit));
        assert_eq!(of(Call { codec: CodecId::Bf16, ..call(Kind::AllGather, 1) }), Some(Unfit));
        assert_eq!(of(Call { codec: CodecId::Bf16, dtype: DType::F64, ..call(SUM, 1) }), Some(Unfit));
        assert_eq!(Itinerary::of(&call(SUM, 1), None, &ring(&[0, 1], 1024), 3), Err(Unfit));
        assert_eq!(Itinerary::of(&call(SUM, 1), None, &plan, 17), Err(Unfit));
    }
}
