//! Layer: Face.
//!
//! The collectives on one View.

use crate::cluster::Cluster;
use crate::collective::{
    AbortCause, AbortReason, Call, CallRefusal, CodecId, DType, Decided, Element, Envelope, Kind, Outcome, ReduceOp, Refused,
    Staging, SyncStep, Traffic, bytes_of, bytes_of_mut,
};
use crate::driver::peer_at;
use crate::error::{Cause, Error, Mismatched, Peer, Result};
use crate::view::{EngineKind, Lane, OpId, Rank};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

/// This node's place in one View, and the calls its members make together.
///
/// A Context is one *lane*: its calls are numbered when the method is called, in program order, and must come in the same
/// order on every rank. The returned futures borrow only the buffer, so several may be in flight. Another task uses its
/// own [`Context::lane`]; a Context can be sent to another thread but not shared.
///
/// *Failure.* A call is all or nothing for all members that go on, and on every error the buffer is as it was.
/// *Determinism.* Results are the same bits on every rank and for the same View and plan.
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

    /// The engine that all members run.
    pub fn engine(&self) -> EngineKind {
        self.envelope.view().engine
    }

    /// Why the members talk as they do, in one sentence.
    pub fn plan(&self) -> &str {
        &self.envelope.view().plan.reason
    }

    /// In which order the contributions to a buffer of `len` elements of `T` are added: the arithmetic of a sequential
    /// reference. See [`reference_sum`](crate::reference_sum).
    pub fn fold_order<T: Element>(&self, len: usize) -> crate::topology::FoldOrder {
        self.envelope.view().plan.fold_order(self.size(), len, T::DTYPE.bytes())
    }

    /// Whether the members hold the same state. If not, every call but [`Context::sync`] returns [`Error::NeedsSync`].
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
            .map(|name| format!("bulk data over {name} travels unencrypted to nodes that trust it too"))
            .collect()
    }

    /// Another lane of this View, for another task. The same tag is the same lane on every rank; use each tag once.
    pub fn lane(&self, tag: u32) -> Context {
        Context {
            envelope: Arc::clone(&self.envelope),
            cluster: self.cluster.clone(),
            lane: Lane::tagged(tag),
            _not_shared: PhantomData,
        }
    }

    /// The newest View's Context: this View if it is still current, else the next one. Waits without bound. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node has left.
    pub fn renewed(&self) -> impl Future<Output = Result<Context>> + Send + use<> {
        // Not `async fn`: its future would borrow the Context, which cannot be shared, and could not change threads.
        let cluster = self.cluster.clone();
        async move { cluster.context().await }
    }

    /// Adds up `buffer` over all members, in place: afterwards every member holds the same sum.
    ///
    /// Set [`mean`](AllReduce::mean) and the rest before awaiting it.
    pub fn all_reduce<'buf, T: Element>(&mut self, buffer: &'buf mut [T]) -> AllReduce<'buf, T> {
        let call = self.call::<T>(Kind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduce { flight: Flight::numbered(self, call), buffer }
    }

    /// Like [`all_reduce`](Context::all_reduce), from one buffer into another: the input is only read, and comes back on an error.
    pub fn all_reduce_owned<T: Element>(&mut self, buffer: Vec<T>) -> AllReduceOwned<T> {
        let call = self.call::<T>(Kind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduceOwned { flight: Flight::numbered(self, call), buffer: Some(buffer) }
    }

    /// Copies the buffer of the rank `root` into everybody's. All buffers have the same length.
    pub fn broadcast<'buf, T: Element>(&mut self, root: usize, buffer: &'buf mut [T]) -> Broadcast<'buf, T> {
        // A rank that does not exist is refused by the engine on every rank alike.
        let root = Rank(u8::try_from(root).unwrap_or(u8::MAX));
        let call = self.call::<T>(Kind::Broadcast { root }, buffer.len());
        let is_root = root == self.envelope.me();
        Broadcast { flight: Flight::numbered(self, call), buffer, is_root }
    }

    /// Collects everybody's buffer, in rank order: `size * buffer.len()` elements. All buffers have the same length.
    pub fn all_gather<'buf, T: Element>(&mut self, buffer: &'buf [T]) -> AllGather<'buf, T> {
        let call = self.call::<T>(Kind::AllGather, buffer.len());
        AllGather { flight: Flight::numbered(self, call), buffer }
    }

    /// Waits until every member has called it.
    pub fn barrier(&mut self) -> Barrier {
        let call = Call { kind: Kind::Barrier, dtype: DType::U8, count: 0, codec: CodecId::None };
        Barrier { flight: Flight::numbered(self, call) }
    }

    /// Brings all members to one state: that of the member which is furthest along the group's history.
    ///
    /// `version` is the caller's own count, for example steps done; among the members of the winning history the highest one
    /// is taken, then the lowest rank. `state` is replaced by that member's bytes; its length may differ between members.
    /// In a View that is in sync this returns at once and sends nothing.
    pub fn sync<'buf>(&mut self, version: u64, state: &'buf mut Vec<u8>) -> Sync<'buf> {
        let call = Call { kind: Kind::Sync { version }, dtype: DType::U8, count: state.len() as u64, codec: CodecId::None };
        let flight = if self.is_in_sync() && !self.envelope.is_frozen() { None } else { Some(Flight::numbered(self, call)) };
        Sync { flight, state, began: false }
    }

    /// The result of a call of this lane that was dropped after its outcome was decided, if it was committed; the lane can
    /// be used again. `None` when there is none, or when it is not decided yet.
    pub fn take_result<T: Element>(&mut self) -> Option<Vec<T>> {
        let decided = self.envelope.take_lost(self.lane)?;
        let output = decided.output?;
        output.len().is_multiple_of(T::DTYPE.bytes()).then(|| elements(&output))
    }

    /// Forgets that result; the lane can be used again. False when there is none, or when it is not decided yet.
    pub fn discard_result(&mut self) -> bool {
        self.envelope.take_lost(self.lane).is_some()
    }

    fn call<T: Element>(&self, kind: Kind, count: usize) -> Call {
        Call { kind, dtype: T::DTYPE, count: count as u64, codec: CodecId::None }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(rank {} of {}, view {})", self.rank(), self.size(), self.view())
    }
}

/// How bulk data is encoded on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    id: CodecId,
}

impl Codec {
    /// bfloat16: half the bytes, about three decimal digits. Contributions are decoded before they are added, in f32.
    pub fn bf16() -> Codec {
        Codec { id: CodecId::Bf16 }
    }
}

/// One operation of this member, from its number to its outcome.
struct Flight {
    envelope: Arc<Envelope>,
    call: Call,
    op: std::result::Result<OpId, Refused>,
    deadline: Option<Duration>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Numbered,
    Begun,
    Over,
}

impl Flight {
    fn numbered(context: &Context, call: Call) -> Flight {
        let op = context.envelope.call(context.lane, call);
        Flight { envelope: Arc::clone(&context.envelope), call, op, deadline: None, stage: Stage::Numbered }
    }

    /// The operation's number, or why it has none.
    fn op(&mut self) -> Result<OpId> {
        self.op.map_err(|refused| {
            self.stage = Stage::Over;
            match refused {
                Refused::By(CallRefusal::Frozen) => Error::ViewChanged,
                Refused::By(CallRefusal::NeedsSync) => Error::NeedsSync,
                Refused::By(CallRefusal::TooManyInFlight) => Error::TooManyInFlight,
                Refused::Lost(op) => Error::LostResult { op },
            }
        })
    }

    fn poll(&mut self, task: &mut Task<'_>, bytes: Option<&[u8]>) -> Poll<Result<Staging>> {
        let op = self.op()?;
        if self.stage == Stage::Numbered {
            self.begin(op, |pool, lengths| bytes.map_or_else(Staging::default, |bytes| Staging::cut(pool, bytes, lengths)));
        }
        let decided = ready!(self.envelope.poll_decided(op, task));
        Poll::Ready(self.over(decided))
    }

    fn begin(&mut self, op: OpId, fill: impl FnOnce(&crate::collective::Pool, &[usize]) -> Staging) {
        self.stage = Stage::Begun;
        if let Some(after) = self.deadline {
            self.envelope.give_up_after(op, after);
        }
        self.envelope.begin(op, self.call, fill);
    }

    fn over(&mut self, decided: Decided) -> Result<Staging> {
        self.stage = Stage::Over;
        match decided.outcome {
            Outcome::Committed => Ok(decided.output.unwrap_or_default()),
            Outcome::Aborted(cause) => Err(self.aborted(cause, &decided)),
            Outcome::Indeterminate => Err(Error::Indeterminate),
            Outcome::DigestMismatch => Err(Error::Engine(crate::collective::EngineFault::DigestMismatch)),
        }
    }

    fn aborted(&self, cause: AbortCause, decided: &Decided) -> Error {
        let here = cause.by == self.envelope.me();
        let elsewhere = || if here { None } else { Some(self.peer(cause.by)) };
        let cause = match cause.reason {
            AbortReason::Mismatch(m) => {
                let (one, other) = ((self.peer(m.lower.0), m.lower.1), (self.peer(m.higher.0), m.higher.1));
                return Error::Mismatch(Box::new(Mismatched { one, other }));
            }
            AbortReason::Deadline => Cause::Deadline { of: elsewhere() },
            AbortReason::Dropped => Cause::Dropped { by: elsewhere() },
            AbortReason::Engine => Cause::Engine { on: self.peer(cause.by), fault: decided.fault.filter(|_| here) },
            AbortReason::ViewChange => Cause::MemberLost,
        };
        Error::Aborted { cause }
    }

    fn peer(&self, rank: Rank) -> Peer {
        let unknown = || Peer { rank, name: crate::identity::Name::from_lossy("?"), node: crate::identity::NodeId([0; 32]) };
        peer_at(self.envelope.view(), rank).unwrap_or_else(unknown)
    }
}

impl Drop for Flight {
    /// Before this member's vote the operation is aborted for all; after it the decided result is kept, see
    /// [`Context::take_result`].
    fn drop(&mut self) {
        if let (Ok(op), true) = (self.op, self.stage != Stage::Over) {
            self.envelope.abandon(op);
        }
    }
}

/// An [`all_reduce`](Context::all_reduce) under way.
///
/// Dropped before it is done, it is aborted for all members; forgotten, it goes on without touching the buffer.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct AllReduce<'buf, T: Element> {
    flight: Flight,
    buffer: &'buf mut [T],
}

impl<T: Element> AllReduce<'_, T> {
    /// How contributions become one value. Default: the sum.
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.flight.call.kind = Kind::AllReduce(op);
        self
    }

    /// The sum divided by the number of members.
    pub fn mean(self) -> Self {
        self.op(ReduceOp::Mean)
    }

    /// The least value.
    pub fn min(self) -> Self {
        self.op(ReduceOp::Min)
    }

    /// The greatest value.
    pub fn max(self) -> Self {
        self.op(ReduceOp::Max)
    }

    /// Gives up for all members when `after` has passed since the first poll; the default is to wait for members that live.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.flight.deadline = Some(after);
        self
    }
}

impl AllReduce<'_, f32> {
    /// Encodes what goes over the wire. Every rank must use the same codec.
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.flight.call.codec = codec.id;
        self
    }
}

impl<T: Element> Future for AllReduce<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let output = ready!(this.flight.poll(task, Some(bytes_of(this.buffer))))?;
        output.copy_to(bytes_of_mut(this.buffer));
        Poll::Ready(Ok(()))
    }
}

/// An [`all_reduce_owned`](Context::all_reduce_owned) under way.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct AllReduceOwned<T: Element> {
    flight: Flight,
    buffer: Option<Vec<T>>,
}

/// A failed call with the buffer it was given.
pub struct Owned<T> {
    /// What went wrong.
    pub error: Error,
    /// The buffer, untouched.
    pub buffer: Vec<T>,
}

impl<T> From<Owned<T>> for Error {
    fn from(owned: Owned<T>) -> Error {
        owned.error
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:?}, {} elements)", self.error, self.buffer.len())
    }
}

impl<T: Element> AllReduceOwned<T> {
    /// How contributions become one value. Default: the sum.
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.flight.call.kind = Kind::AllReduce(op);
        self
    }

    /// Gives up for all members when `after` has passed since the first poll.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.flight.deadline = Some(after);
        self
    }
}

impl<T: Element + Unpin> Future for AllReduceOwned<T> {
    type Output = std::result::Result<Vec<T>, Owned<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = ready!(this.flight.poll(task, this.buffer.as_deref().map(bytes_of)));
        let buffer = this.buffer.take().unwrap_or_default();
        Poll::Ready(match result {
            Ok(output) => Ok(elements(&output)),
            Err(error) => Err(Owned { error, buffer }),
        })
    }
}

/// A [`broadcast`](Context::broadcast) under way.
#[must_use = "a broadcast does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Broadcast<'buf, T: Element> {
    flight: Flight,
    buffer: &'buf mut [T],
    is_root: bool,
}

impl<T: Element> Future for Broadcast<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let input = this.is_root.then(|| bytes_of(this.buffer));
        let output = ready!(this.flight.poll(task, input))?;
        output.copy_to(bytes_of_mut(this.buffer));
        Poll::Ready(Ok(()))
    }
}

/// An [`all_gather`](Context::all_gather) under way.
#[must_use = "an all_gather does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct AllGather<'buf, T: Element> {
    flight: Flight,
    buffer: &'buf [T],
}

impl<T: Element> Future for AllGather<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        let output = ready!(this.flight.poll(task, Some(bytes_of(this.buffer))))?;
        Poll::Ready(Ok(elements(&output)))
    }
}

/// A [`barrier`](Context::barrier) under way.
#[must_use = "a barrier does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Barrier {
    flight: Flight,
}

impl Future for Barrier {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        self.flight.poll(task, None).map_ok(drop)
    }
}

/// A [`sync`](Context::sync) under way.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Sync<'buf> {
    /// None when the View was in sync.
    flight: Option<Flight>,
    state: &'buf mut Vec<u8>,
    began: bool,
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let Some(flight) = &mut this.flight else { return Poll::Ready(Ok(())) };
        let op = flight.op()?;
        if flight.stage == Stage::Numbered {
            flight.begin(op, |_, _| Staging::default());
        }
        if !this.began {
            match ready!(flight.envelope.poll_sync(op, task)) {
                SyncStep::Decided(decided) => {
                    let output = flight.over(decided)?;
                    this.state.resize(output.len(), 0);
                    output.copy_to(this.state);
                    return Poll::Ready(Ok(()));
                }
                SyncStep::Agreed(root, bytes) => {
                    this.began = true;
                    let state = (root == flight.envelope.me()).then_some(&*this.state);
                    let envelope = Arc::clone(&flight.envelope);
                    envelope.begin_sync(op, flight.call, (root, bytes), |pool, lengths| {
                        state.map_or_else(Staging::default, |state| Staging::cut(pool, state, lengths))
                    });
                }
            }
        }
        let decided = ready!(flight.envelope.poll_decided(op, task));
        let output = flight.over(decided)?;
        this.state.resize(output.len(), 0);
        output.copy_to(this.state);
        Poll::Ready(Ok(()))
    }
}

/// The bytes of a result as elements of their own.
fn elements<T: Element>(output: &Staging) -> Vec<T> {
    let mut elements = vec![T::ZERO; output.len() / T::DTYPE.bytes()];
    output.copy_to(bytes_of_mut(&mut elements));
    elements
}
