//! Layer: Face.
//!
//! The collectives on one View.

use crate::calls::{
    AllGather, AllGatherOwned, AllReduce, AllReduceOwned, AllToAll, Barrier, Broadcast, Bundle,
    Flight, Gather, Receiving, Reduce, ReduceScatter, Scatter, Sending, Step, Sync, elements,
};
use crate::cluster::Cluster;
use crate::collective::{
    Call, CodecId, DType, Element, Envelope, Kind, Mode, ReduceOp, Rejection, Traffic,
};
use crate::driver::{engine_reason, peer_at};
use crate::engine::EngineKind;
use crate::error::{Peer, Result};
use crate::plan::Plan;
use crate::topology::{FoldOrder, ring_segment};
use crate::view::{Lane, Rank, ViewDigest};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// This node's place in one View, and the calls its members make together.
///
/// A Context is one *lane*: its calls are numbered when the method is called, in program order, and
/// must come in the same order on every rank. The returned futures borrow only the buffer, so
/// several may be in flight. Another task uses its own [`Context::lane`]; a Context can be sent to
/// another thread but not shared.
///
/// *Failure.* A call is all or nothing for all members that go on, and on every error the buffer is
/// as it was. *Determinism.* Results are the same bits on every rank and for the same View and
/// plan.
pub struct Context {
    envelope: Arc<Envelope>,
    cluster: Cluster,
    lane: Lane,
    /// One lane is one sequence of calls: sharing it would make the order a matter of chance.
    _not_shared: PhantomData<Cell<()>>,
}

impl Context {
    pub(crate) fn new(envelope: Arc<Envelope>, cluster: Cluster) -> Context {
        Context { envelope, cluster, lane: Lane::MAIN, _not_shared: PhantomData }
    }

    /// This node's rank, `0..size`. Never changes.
    pub fn rank(&self) -> usize {
        self.envelope.me().index()
    }

    /// How many members the View has. Never changes.
    pub fn size(&self) -> usize {
        self.envelope.view().size()
    }

    /// The members in rank order.
    pub fn members(&self) -> Vec<Peer> {
        let view = self.envelope.view();
        view.ranks().filter_map(|rank| peer_at(view, rank)).collect()
    }

    /// The View's name; grows with every View.
    pub fn view(&self) -> String {
        self.envelope.view().id().to_string()
    }

    /// The engine that calls run on by now, on all members. A group that is on Gloo because all
    /// have it goes on natively where its links turn out to differ, and back where they are
    /// measured again and alike; [`plan`](Context::plan) says how.
    pub fn engine(&self) -> EngineKind {
        self.envelope.engine().kind
    }

    /// Why this engine, in one sentence.
    pub fn engine_reason(&self) -> String {
        engine_reason(self.envelope.view(), self.envelope.engine())
    }

    /// How the members talk, and why. The plan may change while the Context stays, when it is known
    /// what the links carry: no call that was made fails for it, and every call runs under one plan
    /// on all members.
    pub fn plan(&self) -> Plan {
        Plan::new(self.envelope.plan())
    }

    /// In which order an `all_reduce` adds the contributions to a buffer of `len` elements of `T`:
    /// the arithmetic of a sequential reference. See [`reference_sum`](crate::reference_sum). With
    /// a [`Codec`](crate::Codec) what is added has been encoded and decoded, and the order may be
    /// another one.
    pub fn fold_order<T: Element>(&self, len: usize) -> FoldOrder {
        self.envelope.plan().fold_order(self.size(), len, T::DTYPE.bytes())
    }

    /// The same for a [`reduce`](Context::reduce) to `root`.
    pub fn reduce_order<T: Element>(&self, root: usize, len: usize) -> FoldOrder {
        self.envelope.plan().reduce_order(self.size(), Rank::clamped(root), len, T::DTYPE.bytes())
    }

    /// The same for a [`reduce_scatter`](Context::reduce_scatter) of buffers of `len` elements; one
    /// segment for each shard.
    pub fn reduce_scatter_order<T: Element>(&self, len: usize) -> FoldOrder {
        self.envelope.plan().reduce_scatter_order(self.size(), len, T::DTYPE.bytes())
    }

    /// This rank's shard of a buffer of `len` elements, as
    /// [`reduce_scatter`](Context::reduce_scatter) cuts it. The shards of all ranks follow each
    /// other, cover the buffer, and differ by at most one element.
    pub fn shard(&self, len: usize) -> Range<usize> {
        ring_segment(self.rank(), self.size(), len)
    }

    /// Whether the members hold the same state. If not, every call but [`Context::sync`] returns
    /// [`Error::NeedsSync`](crate::Error::NeedsSync).
    pub fn is_in_sync(&self) -> bool {
        self.envelope.is_synced()
    }

    /// What this View's data links have carried on this member so far.
    pub fn traffic(&self) -> Traffic {
        self.envelope.backend().traffic()
    }

    /// How the links are protected, as a sentence each: empty means that everything is encrypted.
    pub fn security(&self) -> Vec<String> {
        self.cluster
            .trusted()
            .iter()
            .map(|name| {
                format!("bulk data over {name} travels unencrypted to nodes that trust it too")
            })
            .collect()
    }

    /// Another lane of this View, for another task. The same tag is the same lane on every rank;
    /// use each tag once.
    pub fn lane(&self, tag: u32) -> Context {
        Context {
            envelope: Arc::clone(&self.envelope),
            cluster: self.cluster.clone(),
            lane: Lane::tagged(tag),
            _not_shared: PhantomData,
        }
    }

    /// The newest View's Context: this View if it is still current, else the next one. Waits
    /// without bound. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the node has left.
    pub fn renewed(&self) -> impl Future<Output = Result<Context>> + Send + use<> {
        // Not `async fn`: its future would borrow the Context, which cannot be shared, and could
        // not change threads.
        let cluster = self.cluster.clone();
        async move { cluster.context().await }
    }

    /// Adds up `buffer` over all members, in place: afterwards every member holds the same sum.
    ///
    /// Set [`mean`](AllReduce::mean) and the rest before awaiting it.
    pub fn all_reduce<'buf, T: Element>(&mut self, buffer: &'buf mut [T]) -> AllReduce<'buf, T> {
        let call = self.call::<T>(Kind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduce { flight: Flight::numbered(&self.envelope, self.lane, call), buffer }
    }

    /// Like [`all_reduce`](Context::all_reduce) of a buffer that is handed over: the result comes
    /// back in that memory or in other, whichever saves a copy, when it is decided; on an error the
    /// input comes back as it was. The future borrows nothing.
    pub fn all_reduce_owned<T: Element>(&mut self, buffer: Vec<T>) -> AllReduceOwned<T> {
        let call = self.call::<T>(Kind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduceOwned {
            flight: Flight::numbered(&self.envelope, self.lane, call),
            buffer: Arc::new(buffer),
        }
    }

    /// Copies the buffer of the rank `root` into everybody's. All buffers have the same length.
    pub fn broadcast<'buf, T: Element>(
        &mut self,
        root: usize,
        buffer: &'buf mut [T],
    ) -> Broadcast<'buf, T> {
        let root = Rank::clamped(root);
        let call = self.call::<T>(Kind::Broadcast { root }, buffer.len());
        let is_root = root == self.envelope.me();
        Broadcast { flight: Flight::numbered(&self.envelope, self.lane, call), buffer, is_root }
    }

    /// Collects everybody's buffer, in rank order: `size * buffer.len()` elements. All buffers have
    /// the same length.
    pub fn all_gather<'buf, T: Element>(&mut self, buffer: &'buf [T]) -> AllGather<'buf, T> {
        let call = self.call::<T>(Kind::AllGather, buffer.len());
        AllGather { flight: Flight::numbered(&self.envelope, self.lane, call), buffer }
    }

    pub(crate) fn all_gather_owned<T: Element>(&mut self, buffer: Vec<T>) -> AllGatherOwned<T> {
        let call = self.call::<T>(Kind::AllGather, buffer.len());
        AllGatherOwned { flight: Flight::numbered(&self.envelope, self.lane, call), buffer }
    }

    /// Adds up `buffer` over all members; the rank `root` gets the sum in place, the buffers of the
    /// others stay as they are. All buffers have the same length.
    ///
    /// Set [`mean`](Reduce::mean) and the rest before awaiting it. On a rank that is not the root
    /// it is done when its part is on its way and all members have voted for it.
    ///
    /// # Errors
    /// Buffers of different lengths, or different roots, are
    /// [`Error::Mismatch`](crate::Error::Mismatch) on every rank; a root that is no rank is
    /// [`Error::Aborted`](crate::Error::Aborted).
    pub fn reduce<'buf, T: Element>(
        &mut self,
        root: usize,
        buffer: &'buf mut [T],
    ) -> Reduce<'buf, T> {
        let root = Rank::clamped(root);
        let call = self.call::<T>(Kind::Reduce { op: ReduceOp::Sum, root }, buffer.len());
        let is_root = root == self.envelope.me();
        Reduce { flight: Flight::numbered(&self.envelope, self.lane, call), buffer, is_root }
    }

    /// Adds up `buffer` over all members and gives each rank its [`shard`](Context::shard) of the
    /// sum. All buffers have the same length, which need not be a multiple of anything; a shard may
    /// be empty.
    ///
    /// Set [`mean`](ReduceScatter::mean) and the rest before awaiting it.
    ///
    /// # Errors
    /// Buffers of different lengths are [`Error::Mismatch`](crate::Error::Mismatch) on every rank.
    pub fn reduce_scatter<'buf, T: Element>(
        &mut self,
        buffer: &'buf [T],
    ) -> ReduceScatter<'buf, T> {
        let call = self.call::<T>(Kind::ReduceScatter(ReduceOp::Sum), buffer.len());
        ReduceScatter { flight: Flight::numbered(&self.envelope, self.lane, call), buffer }
    }

    /// Collects everybody's buffer at the rank `root`, in rank order: `Some` of `size *
    /// buffer.len()` elements there, `None` elsewhere. All buffers have the same length.
    ///
    /// # Errors
    /// Buffers of different lengths, or different roots, are
    /// [`Error::Mismatch`](crate::Error::Mismatch) on every rank; a root that is no rank is
    /// [`Error::Aborted`](crate::Error::Aborted).
    pub fn gather<'buf, T: Element>(&mut self, root: usize, buffer: &'buf [T]) -> Gather<'buf, T> {
        let root = Rank::clamped(root);
        let call = self.call::<T>(Kind::Gather { root }, buffer.len());
        let is_root = root == self.envelope.me();
        Gather { flight: Flight::numbered(&self.envelope, self.lane, call), buffer, is_root }
    }

    /// Hands out the parts of the rank `root`: each rank gets its one in `out`, which has the same
    /// length everywhere. The root gives `size * out.len()` elements in rank order; what others
    /// give is not looked at, so `None` will do.
    ///
    /// # Errors
    /// When the root's parts are not as many as that, it gets
    /// [`Error::Rejected`](crate::Error::Rejected) and the others
    /// [`Error::Aborted`](crate::Error::Aborted). Parts of different lengths, or different roots,
    /// are [`Error::Mismatch`](crate::Error::Mismatch) on every rank; a root that is no rank is
    /// `Aborted`.
    pub fn scatter<'buf, T: Element>(
        &mut self,
        root: usize,
        parts: Option<&'buf [T]>,
        out: &'buf mut [T],
    ) -> Scatter<'buf, T> {
        let root = Rank::clamped(root);
        let call = self.call::<T>(Kind::Scatter { root }, out.len());
        let is_root = root == self.envelope.me();
        let parts = is_root.then(|| parts.unwrap_or_default());
        let wrong = parts
            .map(<[T]>::len)
            .filter(|given| Some(*given) != out.len().checked_mul(self.size()));
        let rejection = wrong.map(|given| Rejection::ScatterInput {
            given,
            part: out.len(),
            size: self.size(),
        });
        Scatter {
            flight: Flight::numbered(&self.envelope, self.lane, call).rejected(rejection),
            parts,
            out,
        }
    }

    /// Gives each rank one part of `buffer`, in rank order, and takes one part from each: the
    /// result is what rank 0 had for this rank, then what rank 1 had, and so on. All buffers have
    /// the same length, a multiple of `size`; so has the result.
    ///
    /// # Errors
    /// A length that is no multiple of `size` is [`Error::Rejected`](crate::Error::Rejected) where
    /// it is asked for; different lengths are [`Error::Mismatch`](crate::Error::Mismatch) on every
    /// rank.
    pub fn all_to_all<'buf, T: Element>(&mut self, buffer: &'buf [T]) -> AllToAll<'buf, T> {
        let call = self.call::<T>(Kind::AllToAll, buffer.len());
        AllToAll { flight: Flight::numbered(&self.envelope, self.lane, call), buffer }
    }

    /// Sends `buffer` to the rank `to`, which [receives](Context::recv) it. Nobody else calls
    /// anything for it.
    ///
    /// The messages from one rank to another in a lane meet in the order in which both call them;
    /// `tag` is compared, so that a program that has lost its place finds out. It is done when the
    /// other one has the message too, all or nothing like every call, so two ranks that send to
    /// each other must not wait for the one before they begin with the other.
    ///
    /// # Errors
    /// Different lengths, element types or tags are [`Error::Mismatch`](crate::Error::Mismatch) on
    /// both; this rank itself or one that is none is [`Error::Rejected`](crate::Error::Rejected),
    /// and 32 messages under way are [`Error::TooManyInFlight`](crate::Error::TooManyInFlight).
    /// Between members that have no direct link, as where cables join machines without a switch, it
    /// is [`Error::Rejected`](crate::Error::Rejected) at both ends, which names the two: nobody
    /// passes messages on, but collectives go everywhere.
    pub fn send<'buf, T: Element>(
        &mut self,
        to: usize,
        tag: u32,
        buffer: &'buf [T],
    ) -> Sending<'buf, T> {
        Sending {
            flight: self.message::<T>(self.envelope.me(), Rank::clamped(to), tag, buffer.len()),
            buffer,
        }
    }

    /// Receives in `buffer` what the rank `from` [sends](Context::send); see there.
    ///
    /// # Errors
    /// As `send` has them.
    pub fn recv<'buf, T: Element>(
        &mut self,
        from: usize,
        tag: u32,
        buffer: &'buf mut [T],
    ) -> Receiving<'buf, T> {
        Receiving {
            flight: self.message::<T>(Rank::clamped(from), self.envelope.me(), tag, buffer.len()),
            buffer,
        }
    }

    /// Begins a step: several collectives that count together or not at all, with one vote for all
    /// of them. It has one place in the lane, and ends with [`Step::commit`].
    ///
    /// ```no_run
    /// # async fn example(mut ctx: potluck::Context, weights: &mut [f32], count: &mut [u64]) -> potluck::Result<()> {
    /// let mut step = ctx.step();
    /// step.all_reduce(weights).mean();
    /// step.all_reduce(count);
    /// step.commit().await?; // Both, or neither.
    /// # Ok(())
    /// # }
    /// ```
    pub fn step<'buf>(&mut self) -> Step<'buf> {
        Step::new(self.bundle())
    }

    /// Takes a place in the lane for several calls under one vote.
    pub(crate) fn bundle(&mut self) -> Bundle {
        let call = Call {
            kind: Kind::Step { parts: 0 },
            dtype: DType::U8,
            count: 0,
            codec: CodecId::None,
            mode: Mode::PerOp,
        };
        Bundle::new(Flight::numbered(&self.envelope, self.lane, call))
    }

    pub(crate) fn view_digest(&self) -> ViewDigest {
        self.envelope.digest()
    }

    /// Waits until every member has called it.
    pub fn barrier(&mut self) -> Barrier {
        let call = Call {
            kind: Kind::Barrier,
            dtype: DType::U8,
            count: 0,
            codec: CodecId::None,
            mode: Mode::PerOp,
        };
        Barrier { flight: Flight::numbered(&self.envelope, self.lane, call) }
    }

    /// Brings all members to one state: that of the member which is furthest along the group's
    /// history.
    ///
    /// `version` is the caller's own count, for example steps done; among the members of the
    /// winning history the highest one is taken, then the lowest rank. `state` is replaced by that
    /// member's bytes; its length may differ between members.
    ///
    /// In a View whose members shared one history from the start it returns at once and sends
    /// nothing, and so it does in a lane that has been used for another call since, or when `state`
    /// is what it has brought last. All members do the same, whatever they have heard by then.
    /// Histories are compared, not contents: members that have done nothing together yet count as
    /// in sync, so programs that start from files must start from equal ones.
    ///
    /// *Cancellation.* Dropped before this member's vote it is aborted for all. Dropped after it,
    /// the next sync of the lane is that one: it waits for how it ends, and takes the bytes that it
    /// has brought, also in a later View. A dropped sync that counts is never passed over.
    pub fn sync<'buf>(&mut self, version: u64, state: &'buf mut Vec<u8>) -> Sync<'buf> {
        Sync::new(&self.envelope, self.lane, version, state)
    }

    /// The result of a call of this lane that was dropped after its outcome was decided, if it was
    /// committed, in this View or one before; the lane can be used again. Of a step, the results of
    /// its calls one after the other. `None` when there is none, when it is not decided yet, or when
    /// its bytes are no whole elements of `T`; then it stays.
    pub fn take_result<T: Element>(&mut self) -> Option<Vec<T>> {
        let fits =
            |bytes: Option<usize>| bytes.is_none_or(|bytes| bytes.is_multiple_of(T::DTYPE.bytes()));
        let output = self.envelope.take_lost(self.lane, fits)?.whole()?;
        Some(elements(&output))
    }

    /// Forgets that result; the lane can be used again. False when there is none, or when it is not
    /// decided yet.
    pub fn discard_result(&mut self) -> bool {
        self.envelope.take_lost(self.lane, |_| true).is_some()
    }

    fn message<T: Element>(&self, from: Rank, to: Rank, tag: u32, count: usize) -> Flight {
        let call = self.call::<T>(Kind::Message { from, to, tag }, count);
        let apart = self
            .envelope
            .view()
            .are_apart(from, to)
            .then_some(Rejection::NoDirectLink { from, to });
        match call.rejection(self.size()).or(apart) {
            None => Flight::numbered(&self.envelope, self.lane.messages(from, to), call),
            Some(rejection) => Flight::refused(&self.envelope, call, rejection),
        }
    }

    fn call<T: Element>(&self, kind: Kind, count: usize) -> Call {
        Call { kind, dtype: T::DTYPE, count: count as u64, codec: CodecId::None, mode: Mode::PerOp }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(rank {} of {}, view {})", self.rank(), self.size(), self.view())
    }
}
