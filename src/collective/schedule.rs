//! Layer: Core.
//!
//! A schedule as data: which piece of a result takes which way between the ranks.
//!
//! An [`Itinerary`] is what a call, a plan and a View's size come to: a row of [`Flow`]s, each an
//! element range of the result with its [`Route`]. The result is that of all ranks together: what
//! they have in common stands in it once, and of a flow that only one rank keeps, the others hold
//! nothing. A rank's own result is the row of the flows that it keeps.
//!
//! A route has a tree towards the owner, along which contributions are added, and *another* tree
//! away from it, along which the result is handed on. A ring is the case where both trees are
//! chains; stars and other trees are told by the same arrays. Flows are cut into chunks, which
//! travel and are added as one piece.
//!
//! At every node the contributions are those of the node itself and of its children, folded by
//! ascending rank. On a ring that is: what arrives, then the own, as folding two values is
//! commutative.

mod ways;

use super::call::{Call, Kind, ReduceOp};
use super::dtype::DType;
use crate::compression::{BLOCK, Codec, codec, codec_of_sums};
use crate::engine::EngineKind;
use crate::topology::{Coding, Plan, Tree, ranks};
use crate::view::{MEMBERS_MAX, Rank};
use std::ops::Range;
use ways::Ways;

/// The way of every chunk of one operation; the same value on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Itinerary {
    /// How many ranks there are.
    pub size: usize,
    /// What is moved.
    pub dtype: DType,
    /// How it is written on the wire, and whose way up is without that.
    pub coding: Coding,
    /// How it is added; `None` when it is only copied.
    pub reduce: Option<ReduceOp>,
    /// The flows, which cover the result of all ranks together in order and without gaps.
    pub flows: Vec<Flow>,
    /// Elements of a chunk; the last one of a flow may have fewer. With a codec flows and chunks
    /// begin where blocks do.
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
    /// Everybody sends its contribution to everybody, and everybody folds all of them in rank
    /// order.
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
    /// The itinerary of `call` among `size` ranks. `sync_root` says whose state of how many bytes a
    /// sync hands on.
    ///
    /// The plan's class is chosen by the bytes of the largest buffer that a member has of the call,
    /// before compression. The codec is the call's, or that of the class where the call leaves it
    /// to the plan.
    ///
    /// # Errors
    /// [`Unfit`] when the plan is for another size or engine, a root is no rank, the call makes no
    /// sense, a codec is asked for anything but adding `f32`, a sync has no root yet, or there are
    /// more than [`CHUNKS_MAX`] chunks.
    pub fn of(
        call: &Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Plan,
        size: usize,
    ) -> Result<Itinerary, Unfit> {
        let is_planned =
            (1..=MEMBERS_MAX).contains(&size) && plan.fits(size) && plan.is_for(EngineKind::Native);
        if !is_planned || call.rejection(size).is_some() {
            return Err(Unfit);
        }
        let coding = plan.coding(call);
        if !encodable(call, coding) {
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
        // At least 1 KiB, and only f32 is encoded: so there is a block in it.
        let chunk_elements = if coding == Coding::NONE {
            chunk_elements
        } else {
            chunk_elements - chunk_elements % BLOCK
        };
        let ways = Ways::new(plan, &class.schedule, size, coding.codec());
        let (reduce, flows) = (call.kind.reduce_op(), ways.flows(call.kind, count, sync_root)?);
        let itinerary =
            Itinerary { size, dtype: call.dtype, coding, reduce, flows, chunk_elements };
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

    /// How what `of` contributes is encoded, on its way or only to be rounded as all others.
    pub fn codec_own(&self, of: Rank) -> Option<&'static dyn Codec> {
        codec(self.coding.of(of))
    }

    /// How what `from` sends of a flow is encoded on the way up: its own contribution, or a sum.
    pub fn codec_up(&self, flow: usize, from: Rank) -> Option<&'static dyn Codec> {
        let own = self.codec_own(from)?;
        if self.flows[flow].route.height(from) == 0 { Some(own) } else { self.codec_down() }
    }

    /// How what is added is encoded, on the way down too.
    pub fn codec_down(&self) -> Option<&'static dyn Codec> {
        codec_of_sums(self.coding.codec(), self.size)
    }

    /// Bytes of so many elements on the wire, with a codec or without.
    pub fn wire_bytes(&self, codec: Option<&dyn Codec>, elements: usize) -> usize {
        codec.map_or(elements * self.dtype.bytes(), |codec| codec.encoded_len(elements))
    }

    /// The flows that `me` contributes to; they are neighbours.
    pub fn own_flows(&self, me: Rank) -> Range<usize> {
        let owns = |flow: &Flow| flow.route.contributes(me);
        let start = self.flows.iter().position(owns).unwrap_or(0);
        let end = self.flows.iter().rposition(owns).map_or(0, |last| last + 1);
        start..end
    }

    /// The chunks to which `me` contributes, as flow and chunk, in the order in which they are
    /// needed: first those of which it is the first on the way, then those for which it waits for
    /// the fewest others; of what is for one rank alone each rank begins with another one's.
    pub fn feed_order(&self, me: Rank) -> Vec<(usize, usize)> {
        let turn = |flow: usize| match self.flows[flow].route.kept() {
            Kept::ByAll => 0,
            Kept::By(rank) => (rank.index() + self.size - me.index()) % self.size,
        };
        let mut flows: Vec<usize> = self.own_flows(me).collect();
        flows.sort_by_key(|flow| (self.flows[*flow].route.height(me), turn(*flow)));
        flows
            .into_iter()
            .flat_map(|flow| (0..self.chunks(flow)).map(move |chunk| (flow, chunk)))
            .collect()
    }

    /// Which bytes of the contribution of `me` a chunk is. Empty when `me` does not contribute to
    /// it.
    pub fn input_range(&self, me: Rank, flow: usize, chunk: usize) -> Range<usize> {
        let own = self.own_flows(me);
        if !own.contains(&flow) {
            return 0..0;
        }
        let (base, elements) = (self.flows[own.start].elements.start, self.elements(flow, chunk));
        let bytes = self.dtype.bytes();
        (elements.start - base) * bytes..(elements.end - base) * bytes
    }

    /// Bytes of the contribution of `me`.
    pub fn input_bytes(&self, me: Rank) -> usize {
        self.own_flows(me).map(|flow| self.flows[flow].elements.len()).sum::<usize>()
            * self.dtype.bytes()
    }

    /// What `me` does for a flow.
    pub fn station(&self, flow: usize, me: Rank) -> Station {
        match &self.flows[flow].route {
            Route::Exchange => {
                let contributors = ranks(self.size).collect();
                Station {
                    contributors,
                    then: Then::Keep,
                    down_from: None,
                    down_to: Vec::new(),
                    keeps: true,
                }
            }
            Route::Paths { owner, up, down, kept } => {
                let mut contributors = up.as_ref().map_or_else(Vec::new, |tree| tree.children(me));
                if self.flows[flow].route.contributes(me) {
                    contributors.push(me);
                    contributors.sort_unstable();
                }
                let parent = up.as_ref().and_then(|tree| tree.parents[me.index()]);
                let then =
                    if *owner == me { Then::HandOn } else { parent.map_or(Then::Keep, Then::Send) };
                let keeps = *kept == Kept::ByAll || *kept == Kept::By(me);
                Station {
                    contributors,
                    then,
                    down_from: down.parents[me.index()],
                    down_to: down.children(me),
                    keeps,
                }
            }
        }
    }
}

impl Station {
    /// What this rank must have done with each chunk: got it, if it keeps it, else sent it to all
    /// whom it concerns.
    pub fn steps(&self) -> usize {
        if self.keeps {
            1
        } else {
            self.down_to.len() + usize::from(matches!(self.then, Then::Send(_)))
        }
    }

    /// Frames of each chunk between this rank, `me`, and `peer`, both ways.
    pub fn frames_with(&self, peer: Rank, me: Rank) -> usize {
        let is_peer = |rank: &Rank| *rank == peer && *rank != me;
        let contributions = self.contributors.iter().filter(|rank| is_peer(rank)).count();
        let up = match self.then {
            Then::Send(parent) => usize::from(is_peer(&parent)),
            Then::Keep => contributions,
            Then::HandOn => 0,
        };
        let down = self.down_from.iter().chain(&self.down_to).filter(|rank| is_peer(rank)).count();
        contributions + up + down
    }
}

impl Route {
    fn kept(&self) -> Kept {
        match self {
            Route::Exchange => Kept::ByAll,
            Route::Paths { kept, .. } => *kept,
        }
    }

    /// How many ranks one behind the other add before `rank` does.
    fn height(&self, rank: Rank) -> usize {
        match self {
            Route::Paths { up: Some(tree), .. } => tree.height(rank),
            Route::Exchange | Route::Paths { up: None, .. } => 0,
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        match self {
            Route::Exchange | Route::Paths { up: Some(_), .. } => true,
            Route::Paths { owner, up: None, .. } => *owner == rank,
        }
    }
}

/// Only added `f32` may be encoded.
fn encodable(call: &Call, coding: Coding) -> bool {
    coding == Coding::NONE || matches!((call.kind, call.dtype), (Kind::AllReduce(_), DType::F32))
}

#[cfg(test)]
mod tests;
