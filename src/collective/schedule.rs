//! The schedule of a call as data: the route of each piece of the result between the ranks.
//!
//! A [`Schedule`] follows from a call, a plan and the number of ranks. It is a list of [`Flow`]s,
//! each an element range of the result with its [`Route`]. The ranges index the combined result of
//! all ranks: a common part stands in it once; a flow that one rank keeps has no elements on the
//! others. A rank's own result is the sequence of the flows that it keeps.
//!
//! A route has a tree towards the owner, along which contributions are reduced, and *another* tree
//! away from it, along which the result is distributed. In a ring both trees are chains; the same
//! arrays describe stars and other trees. Flows are cut into chunks, the unit of transfer and
//! reduction.
//!
//! ```text
//! ring of 3 ranks, 12 elements, chunks of 2 elements
//! element:   0   2   4   6   8   10  12
//! flow:      |   0   |   1   |   2   |
//! chunk:     | 0 | 1 | 0 | 1 | 0 | 1 |
//! ```
//!
//! Every node folds its own contribution and those of its children in ascending order of rank. In a
//! ring these are two values, the incoming one and the own one; their order does not matter,
//! because folding two values is commutative.

mod flow;
mod flow_builder;
#[cfg(test)]
mod tests;

use crate::compression::{BLOCK, Codec, codec, codec_of_sums};
use crate::memory::DType;
use crate::protocol::{
    Call, CallKind, Coding, EngineKind, Lengths, MEMBERS_MAX, Plan, Rank, ReduceOp, ranks,
};
use flow::{Flow, Keepers};
pub use flow::{Route, Unfit};
use flow_builder::FlowBuilder;
use std::ops::Range;

/// The schedule of one operation; the same value on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The number of ranks.
    pub size: usize,
    /// The type of the elements.
    pub dtype: DType,
    /// The codec on the wire, and the ranks that send uncompressed on the way up.
    pub coding: Coding,
    /// The reduction operator; `None` if data is only copied.
    pub reduce: Option<ReduceOp>,
    /// The flows. They cover the combined result of all ranks in order and without gaps.
    pub flows: Vec<Flow>,
    /// On trees: the largest number of chunks of a flow, at their size without a codec, that a rank
    /// sends towards the root before their results are back. 0: no bound.
    pub window_chunks: usize,
    /// Elements per chunk; the last chunk of a flow may have fewer. With a codec, flows and chunks
    /// begin at multiples of the codec's block.
    pub chunk_elements: usize,
}

/// One rank's role in a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRole {
    /// The ranks whose contributions this rank folds, ascending: its children and, if it
    /// contributes, itself.
    pub contributors: Vec<Rank>,
    /// The use of the folded value.
    pub then: Then,
    /// The rank from which this rank receives the result.
    pub down_from: Option<Rank>,
    /// The ranks to which this rank sends the result.
    pub down_to: Vec<Rank>,
    /// Whether this rank keeps the result.
    pub keeps: bool,
}

/// The use of the value that a rank has folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is a partial sum, to be sent to this parent.
    Send(Rank),
    /// It is the result; every rank computes it from the same contributions.
    Keep,
    /// It is the result, on the owner, which distributes it.
    HandOn,
}

/// Most chunks of one operation: 256 GiB in chunks of 256 KiB. Bounds the state kept per chunk.
pub const CHUNKS_MAX: usize = 1 << 20;

impl Schedule {
    /// The schedule of `call` among `size` ranks. `sync_root` is a sync's source: its rank and the
    /// length of its state in bytes.
    ///
    /// The plan's class is the one for the largest buffer that a member has for the call, in bytes
    /// before compression. The codec is the call's, or that of the class if the call leaves it to
    /// the plan.
    ///
    /// # Errors
    /// [`Unfit`] if the plan is for another size or engine, the call is invalid (for example its
    /// root is no rank), a codec is used for anything but reducing `f32` to all, a sync has no root
    /// yet, or there are more than [`CHUNKS_MAX`] chunks.
    pub fn of(
        call: &Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Plan,
        size: usize,
    ) -> Result<Schedule, Unfit> {
        let count = match (call.kind, sync_root) {
            (CallKind::Sync { .. }, root) => root.ok_or(Unfit)?.1,
            (CallKind::Barrier, _) => 0,
            _ => call.output_count(size),
        };
        let count = usize::try_from(count).map_err(|_| Unfit)?;
        let flows = |builder: &FlowBuilder<'_>| builder.flows(call.kind, count, sync_root);
        Schedule::with(call, plan, size, count, flows)
    }

    /// The schedule of the data of an uneven call, whose parts have these lengths.
    ///
    /// # Errors
    /// [`Unfit`] as for [`of`](Schedule::of), or if the lengths are not those of the call.
    pub fn uneven(
        call: &Call,
        lengths: &Lengths,
        plan: &Plan,
        size: usize,
    ) -> Result<Schedule, Unfit> {
        if lengths.size() != size || lengths.elements_of(call.kind) as u64 != call.count {
            return Err(Unfit);
        }
        // It fits: all lengths together do.
        let count = call.output_count(size) as usize;
        Schedule::with(call, plan, size, count, |builder| builder.uneven(call.kind, lengths))
    }

    /// The schedule with these flows. `count` is that of [`Call::output_count`] in elements.
    fn with(
        call: &Call,
        plan: &Plan,
        size: usize,
        count: usize,
        flows: impl FnOnce(&FlowBuilder<'_>) -> Result<Vec<Flow>, Unfit>,
    ) -> Result<Schedule, Unfit> {
        let is_planned =
            (1..=MEMBERS_MAX).contains(&size) && plan.fits(size) && plan.is_for(EngineKind::Native);
        if !is_planned || call.rejection(size).is_some() {
            return Err(Unfit);
        }
        let coding = plan.coding(call);
        if !encodable(call, coding) {
            return Err(Unfit);
        }
        let bytes = count.checked_mul(call.dtype.bytes()).ok_or(Unfit)?;
        // The combined result of all ranks has at most this many bytes.
        bytes.checked_mul(size).ok_or(Unfit)?;
        let class = plan.class_for(bytes as u64);
        let chunk_elements = class.chunk_bytes as usize / call.dtype.bytes();
        // Only `f32` is encoded and a chunk has at least 1 KiB, so it holds at least one codec
        // block.
        let chunk_elements = if coding == Coding::NONE {
            chunk_elements
        } else {
            chunk_elements - chunk_elements % BLOCK
        };
        let builder = FlowBuilder::new(plan, &class.algorithm, size, coding.codec());
        let (reduce, flows) = (call.kind.reduce_op(), flows(&builder)?);
        let window_chunks = class.window_chunks as usize;
        let schedule = Schedule {
            size,
            dtype: call.dtype,
            coding,
            reduce,
            flows,
            window_chunks,
            chunk_elements,
        };
        let chunks: usize = (0..schedule.flows.len()).map(|flow| schedule.chunks(flow)).sum();
        if chunks <= CHUNKS_MAX { Ok(schedule) } else { Err(Unfit) }
    }

    /// Elements of the combined result of all ranks.
    pub fn count(&self) -> usize {
        self.flows.last().map_or(0, |flow| flow.elements.end)
    }

    /// Whether the result is the same on every rank.
    pub fn is_common(&self) -> bool {
        self.flows.iter().all(|flow| flow.route.kept() == Keepers::ByAll)
    }

    /// The number of chunks of a flow.
    pub fn chunks(&self, flow: usize) -> usize {
        self.flows[flow].elements.len().div_ceil(self.chunk_elements)
    }

    /// The elements of the combined result in a chunk.
    pub fn elements(&self, flow: usize, chunk: usize) -> Range<usize> {
        let all = &self.flows[flow].elements;
        let start = all.start + chunk * self.chunk_elements;
        start..all.end.min(start + self.chunk_elements)
    }

    /// The codec of the contribution of `of`. The rank also applies it to a contribution that it
    /// does not send, so that all are rounded alike.
    pub fn codec_own(&self, of: Rank) -> Option<&'static dyn Codec> {
        codec(self.coding.of(of))
    }

    /// The codec for data that `from` sends up in a flow: its own contribution, or a partial sum.
    /// `None` if `from` sends uncompressed.
    pub fn codec_up(&self, flow: usize, from: Rank) -> Option<&'static dyn Codec> {
        let own = self.codec_own(from)?;
        if self.flows[flow].route.height(from) == 0 { Some(own) } else { self.codec_down() }
    }

    /// The codec of sums, also on the way down.
    pub fn codec_down(&self) -> Option<&'static dyn Codec> {
        codec_of_sums(self.coding.codec(), self.size)
    }

    /// Bytes on the wire of this many elements, with or without a codec.
    pub fn wire_bytes(&self, codec: Option<&dyn Codec>, elements: usize) -> usize {
        codec.map_or(elements * self.dtype.bytes(), |codec| codec.encoded_len(elements))
    }

    /// The flows to which `me` contributes; they are adjacent.
    pub fn own_flows(&self, me: Rank) -> Range<usize> {
        let owns = |flow: &Flow| flow.route.contributes(me);
        let start = self.flows.iter().position(owns).unwrap_or(0);
        let end = self.flows.iter().rposition(owns).map_or(0, |last| last + 1);
        start..end
    }

    /// The chunks to which `me` contributes, as (flow, chunk) in the order of need: first those for
    /// which it waits for the fewest ranks, beginning with those for which it is a leaf. Flows that
    /// one rank keeps start with the own rank and go on upwards, so that no two ranks start with
    /// the same destination.
    pub fn feed_order(&self, me: Rank) -> impl Iterator<Item = (usize, usize)> {
        let turn = |flow: usize| match self.flows[flow].route.kept() {
            Keepers::ByAll => 0,
            Keepers::By(rank) => (rank.index() + self.size - me.index()) % self.size,
        };
        let mut flows: Vec<usize> = self.own_flows(me).collect();
        flows.sort_by_key(|flow| (self.flows[*flow].route.height(me), turn(*flow)));
        flows
            .into_iter()
            .flat_map(move |flow| (0..self.chunks(flow)).map(move |chunk| (flow, chunk)))
    }

    /// The byte range of a chunk in the contribution of `me`. Empty if `me` does not contribute to
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

    /// The role of `me` in a flow.
    pub fn role(&self, flow: usize, me: Rank) -> FlowRole {
        match &self.flows[flow].route {
            Route::Exchange => {
                let contributors = ranks(self.size).collect();
                FlowRole {
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
                let keeps = *kept == Keepers::ByAll || *kept == Keepers::By(me);
                FlowRole {
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

impl FlowRole {
    /// The number of events that complete a chunk on this rank: its arrival if this rank keeps it,
    /// otherwise one send to each receiver.
    pub fn steps(&self) -> usize {
        if self.keeps {
            1
        } else {
            self.down_to.len() + usize::from(matches!(self.then, Then::Send(_)))
        }
    }

    /// Frames per chunk between this rank, `me`, and `peer`, in both directions.
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

/// Only an all-reduce of `f32` may use a codec.
fn encodable(call: &Call, coding: Coding) -> bool {
    coding == Coding::NONE
        || matches!((call.kind, call.dtype), (CallKind::AllReduce(_), DType::F32))
}
