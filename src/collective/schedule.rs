//! Layer: Core.
//!
//! A schedule as data: which piece of a result takes which way between the ranks.
//!
//! An [`Itinerary`] is what a call, a plan and a View's size come to: a row of [`Flow`]s, each an element range of the result
//! with its [`Route`]. A route has a tree towards the owner, along which contributions are added, and *another* tree
//! away from it, along which the result is handed on. A ring is the case where both trees are chains; stars and other
//! trees are told by the same arrays. Flows are cut into chunks, which travel and are added as one piece.
//!
//! At every node the contributions are those of the node itself and of its children, folded by ascending rank. On a ring
//! that is: what arrives, then the own, as folding two values is commutative.

use super::call::{Call, CodecId, DType, Kind, ReduceOp};
use crate::compression::codec;
use crate::engine::EngineKind;
use crate::topology::{Plan, Schedule};
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
    /// The flows, which cover the result in order and without gaps.
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
    },
}

/// A tree over all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parent of each rank, by rank; `None` at the root.
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
    /// The plan's class is chosen by the bytes of the result before compression.
    ///
    /// # Errors
    /// [`Unfit`] when the plan is for another size or engine, a root is no rank, a mean of integers is asked for, a codec is asked for
    /// anything but adding `f32`, a sync has no root yet, or there are more than [`CHUNKS_MAX`] chunks.
    pub fn of(call: &Call, sync_root: Option<(Rank, u64)>, plan: &Plan, size: usize) -> Result<Itinerary, Unfit> {
        if size == 0
            || size > MEMBERS_MAX
            || plan.classes.is_empty()
            || !plan.fits(size)
            || !plan.is_for(EngineKind::Native)
            || !encodable(call)
            || call.rejection().is_some()
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
        let class = plan.class_for(bytes as u64);
        let chunk_elements = class.chunk_bytes as usize / call.dtype.bytes();
        let reduce = match call.kind {
            Kind::AllReduce(op) => Some(op),
            _ => None,
        };
        let flows = flows(call.kind, count, sync_root, &class.schedule, size)?;
        let itinerary = Itinerary { size, dtype: call.dtype, codec: call.codec, reduce, flows, chunk_elements };
        let chunks: usize = (0..itinerary.flows.len()).map(|flow| itinerary.chunks(flow)).sum();
        if chunks <= CHUNKS_MAX { Ok(itinerary) } else { Err(Unfit) }
    }

    /// Elements of the result.
    pub fn count(&self) -> usize {
        self.flows.last().map_or(0, |flow| flow.elements.end)
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
                Station { contributors: ranks(self.size).collect(), then: Then::Keep, down_from: None, down_to: Vec::new() }
            }
            Route::Paths { owner, up, down } => {
                let mut contributors = up.as_ref().map_or_else(Vec::new, |tree| tree.children(me));
                if self.flows[flow].route.contributes(me) {
                    contributors.push(me);
                    contributors.sort_unstable();
                }
                let parent = up.as_ref().and_then(|tree| tree.parents[me.index()]);
                let then = if *owner == me { Then::HandOn } else { parent.map_or(Then::Keep, Then::Send) };
                Station { contributors, then, down_from: down.parents[me.index()], down_to: down.children(me) }
            }
        }
    }
}

impl Route {
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

fn flows(kind: Kind, count: usize, sync_root: Option<(Rank, u64)>, schedule: &Schedule, size: usize) -> Result<Vec<Flow>, Unfit> {
    match (kind, sync_root) {
        (Kind::AllReduce(_), _) => Ok(reducing(count, schedule, size)),
        (Kind::AllGather, _) => {
            let each = count / size;
            Ok(ranks(size).map(|rank| copying(rank.index() * each..(rank.index() + 1) * each, rank, schedule, size)).collect())
        }
        (Kind::Broadcast { root }, _) | (Kind::Sync { .. }, Some((root, _))) if root.index() < size => {
            Ok(vec![copying(0..count, root, schedule, size)])
        }
        (Kind::Barrier, _) => Ok(Vec::new()),
        _ => Err(Unfit),
    }
}

/// One exchange, or round a ring one flow for each place, owned by the rank that sits there.
fn reducing(count: usize, schedule: &Schedule, size: usize) -> Vec<Flow> {
    let Schedule::Ring { order } = schedule else {
        return vec![Flow { elements: 0..count, route: Route::Exchange }];
    };
    let segment = |place: usize| {
        let elements = cut(count, place, size)..cut(count, place + 1, size);
        // Down from the owner round the ring; up the other way round along the same cables, from its successor to itself.
        let down = Tree::chain(ring_from(order, place), size);
        let up = Tree::chain((0..size).map(|step| order[(place + size - step) % size]), size);
        Flow { elements, route: Route::Paths { owner: order[place], up: Some(up), down } }
    };
    (0..size).map(segment).collect()
}

fn copying(elements: Range<usize>, owner: Rank, schedule: &Schedule, size: usize) -> Flow {
    let down = match schedule {
        Schedule::Ring { order } => {
            let place = order.iter().position(|rank| *rank == owner).unwrap_or(0);
            Tree::chain(ring_from(order, place), size)
        }
        _ => Tree::star(owner, size),
    };
    Flow { elements, route: Route::Paths { owner, up: None, down } }
}

/// Once round the ring, from a place on.
fn ring_from(order: &[Rank], place: usize) -> impl Iterator<Item = Rank> {
    order.iter().cycle().skip(place).take(order.len()).copied()
}

/// Where segment `place` of `size` begins; wide enough that the product cannot overflow.
fn cut(count: usize, place: usize, size: usize) -> usize {
    (count as u128 * place as u128 / size as u128) as usize
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
        for kind in [SUM, Kind::AllGather, Kind::Broadcast { root: Rank(4) }] {
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
                    for kind in [SUM, Kind::AllGather, Kind::Broadcast { root: Rank(0) }] {
                        let itinerary = Itinerary::of(&call(kind, count as u64), None, &plan, size).expect("fits");
                        let mut end = 0;
                        for flow in 0..itinerary.flows.len() {
                            for chunk in 0..itinerary.chunks(flow) {
                                let elements = itinerary.elements(flow, chunk);
                                assert!(elements.start == end && !elements.is_empty());
                                end = elements.end;
                            }
                        }
                        let expected = if kind == Kind::AllGather { count * size } else { count };
                        assert_eq!((end, itinerary.count()), (expected, expected));
                        assert_eq!(itinerary.input_layout(Rank(0)).iter().sum::<usize>(), count * 4);
                    }
                }
            }
        }
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
        assert_eq!(of(call(Kind::Broadcast { root: Rank(3) }, 1)), Some(Unfit));
        assert_eq!(of(Call { dtype: DType::U8, ..call(Kind::AllReduce(ReduceOp::Mean), 1) }), Some(Unfit));
        assert_eq!(of(Call { codec: CodecId::Bf16, ..call(Kind::AllGather, 1) }), Some(Unfit));
        assert_eq!(of(Call { codec: CodecId::Bf16, dtype: DType::F64, ..call(SUM, 1) }), Some(Unfit));
        assert_eq!(Itinerary::of(&call(SUM, 1), None, &ring(&[0, 1], 1024), 3), Err(Unfit));
        assert_eq!(Itinerary::of(&call(SUM, 1), None, &plan, 17), Err(Unfit));
    }
}
