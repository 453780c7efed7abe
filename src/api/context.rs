//! The collectives on one View.

use super::calls::{
    AllGather, AllGatherOwned, AllGatherUneven, AllReduce, AllReduceOwned, AllToAll,
    AllToAllUneven, AnyOp, Barrier, Broadcast, Bundle, Gather, PendingOp, Receiving, ReceivingAny,
    Reduce, ReduceScatter, Scatter, Sending, StateSync, StateSyncWith, Step, UnevenOp,
    wrong_lengths, wrong_parts,
};
use super::cluster::Cluster;
use crate::memory::{Element, target_of};
use crate::node::{engine_reason, peer_at};
use crate::protocol::{
    Call, CallKind, EngineKind, FoldOrder, GroupProblem, GroupRanks, Lane, Rank, RankSet, ReduceOp,
    Rejection, ViewDigest, ring_segment,
};
use crate::report::{Error, Peer, Result, Traffic, ViewPlan};
use crate::session::{Refused, ViewSession};
use crate::topology::lacks_a_path;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// This node's rank in one View, and the collectives that its members call together: all of them,
/// or those of a [`group`](Context::group).
///
/// A Context is one *lane*: a sequence of calls. A call gets its number when the method is called,
/// in program order; every rank must make the same calls in the same order. The returned futures
/// borrow only the buffer, so several may be in flight. A second task uses its own
/// [`Context::lane`]. A Context can be sent to another thread but not shared.
///
/// *Failure.* A call is all or nothing for all members that continue; on every error the buffer is
/// unchanged. *Determinism.* Results are bit-identical on every rank, and repeatable for the same
/// View, plan and inputs.
///
/// # Errors of calls
///
/// A method of a call never fails itself; its future does. Methods list their special errors.
/// Every call may end with these:
///
/// | error | meaning |
/// | --- | --- |
/// | [`Error::Aborted`] | It took effect on no member; [`Cause`](crate::Cause) says why. |
/// | [`Error::ViewChanged`] | The View was replaced before; take [`renewed`](Context::renewed). |
/// | [`Error::Indeterminate`] | This member cannot know the outcome; a sync brings it. |
/// | [`Error::NeedsSync`] | Call [`sync`](Context::sync) first. |
/// | [`Error::Mismatch`] | Two ranks made different calls; it names them. |
/// | [`Error::Rejected`] | The call is invalid, for example a root that is no rank. |
/// | [`Error::LostResult`] | See [`take_result`](Context::take_result). |
/// | [`Error::TooManyInFlight`] | Await some of the calls in flight first. |
/// | [`Error::Engine`] | The ranks got different bits. |
/// | [`Error::Closed`] | The node has left the group. |
///
/// If a member has no memory for the call, all members get [`Error::Aborted`] with
/// [`Cause::Engine`](crate::Cause::Engine). After any of these errors the buffers are unchanged.
/// [`Error::can_renew`] tells which of them a program answers with `renewed`, `sync` and the next
/// step.
///
/// A call that ends with `ViewChanged`, `NeedsSync`, `LostResult`, `TooManyInFlight` or `Closed`
/// was refused: it took no number, and the next call of this lane takes its place. Its first poll
/// says so. If the future is dropped without a poll, the program does not learn it, so poll the
/// first call of a View, and one that follows a dropped call, at least once.
pub struct Context {
    session: Arc<ViewSession>,
    cluster: Cluster,
    lane: Lane,
    /// A lane is one sequence of calls: shared between threads, its order would be a race.
    _not_shared: PhantomData<Cell<()>>,
}

impl Context {
    pub(crate) fn new(session: Arc<ViewSession>, cluster: Cluster) -> Context {
        Context { session, cluster, lane: Lane::MAIN, _not_shared: PhantomData }
    }

    /// This node's rank, `0..size`. Constant.
    pub fn rank(&self) -> Rank {
        // No group is made without its own rank.
        self.ranks().in_group(self.session.me()).unwrap_or(Rank(0))
    }

    /// The number of members of the View, or of the [`group`](Context::group). Constant.
    pub fn size(&self) -> usize {
        self.ranks().len()
    }

    /// The members in rank order.
    pub fn members(&self) -> Vec<Peer> {
        let view = self.session.view();
        let member = |(rank, member)| {
            peer_at(view, member).map(|peer| Peer { rank: Rank::from(rank), ..peer })
        };
        self.ranks().iter().enumerate().filter_map(member).collect()
    }

    /// The ranks of the View that call here.
    fn ranks(&self) -> GroupRanks {
        self.lane.group(self.session.view().size())
    }

    /// The View's identifier, as `12#0a1b2c3d`: the round of its ballot, and the beginning of its
    /// digest. The round grows with every View; compare it as a number.
    pub fn view(&self) -> String {
        self.session.view().id().to_string()
    }

    /// The engine that new calls run on, the same on all members. In a View of three or more
    /// members that all have Gloo, and where none requires it
    /// ([`EngineOffer::Gloo`](crate::EngineOffer::Gloo)), the plan may move calls to the native
    /// engine when the links prove heterogeneous, and back to Gloo when a later measurement finds
    /// them alike. [`plan`](Context::plan) describes the current plan. Calls of a
    /// [`group`](Context::group) always run on the native engine.
    pub fn engine(&self) -> EngineKind {
        self.session.plan_in(self.lane).engine()
    }

    /// The reason for this engine, in one sentence.
    pub fn engine_reason(&self) -> String {
        let of_view = self.session.engine();
        if self.lane.is_of_group() && of_view.kind == EngineKind::Gloo {
            "the view runs on Gloo, whose schedules are for all members; the calls of a group run \
             on the native engine beside it"
                .to_owned()
        } else {
            engine_reason(self.session.view(), of_view)
        }
    }

    /// How the members exchange data, and why: the plan of the next call in this lane, as far as it
    /// is agreed on. The plan may change while the Context stays, once the links have been
    /// measured, also between this and the call. No call fails because of a change, and each call
    /// runs under the same plan on all members.
    pub fn plan(&self) -> ViewPlan {
        ViewPlan::new(self.session.plan_in(self.lane))
    }

    /// The order in which an `all_reduce` adds the contributions to a buffer of `len` elements of
    /// `T`, for a sequential reference such as [`reference_sum`](crate::plan::reference_sum): under
    /// the [`plan`](Context::plan) of the next call, which may change before it. It describes calls
    /// without a [`Codec`](super::calls::Codec): with one, the addends have been encoded and
    /// decoded, and the order may differ.
    pub fn fold_order<T: Element>(&self, len: usize) -> FoldOrder {
        self.session.plan_in(self.lane).fold_order(self.size(), len, T::DTYPE.bytes())
    }

    /// As [`fold_order`](Context::fold_order), for a [`reduce`](Context::reduce) to `root`.
    pub fn reduce_order<T: Element>(&self, root: impl Into<Rank>, len: usize) -> FoldOrder {
        let plan = self.session.plan_in(self.lane);
        plan.reduce_order(self.size(), root.into(), len, T::DTYPE.bytes())
    }

    /// As [`fold_order`](Context::fold_order), for a [`reduce_scatter`](Context::reduce_scatter) of
    /// buffers of `len` elements; one segment per shard.
    pub fn reduce_scatter_order<T: Element>(&self, len: usize) -> FoldOrder {
        let plan = self.session.plan_in(self.lane);
        plan.reduce_scatter_order(self.size(), len, T::DTYPE.bytes())
    }

    /// The range of a buffer of `len` elements that [`reduce_scatter`](Context::reduce_scatter)
    /// gives to this rank. The shards of all ranks are contiguous in rank order, cover the buffer,
    /// and differ in length by at most one element.
    pub fn shard(&self, len: usize) -> Range<usize> {
        ring_segment(self.rank().index(), self.size(), len)
    }

    /// Whether the members hold the same state. If not, every call but [`sync`](Context::sync) and
    /// [`sync_with`](Context::sync_with) returns [`Error::NeedsSync`].
    pub fn is_in_sync(&self) -> bool {
        self.session.is_synced()
    }

    /// The bytes of bulk data that this member has sent and received in this View so far, without
    /// headers and encryption. A contribution enclosed in a descriptor counts, other control
    /// messages do not.
    pub fn traffic(&self) -> Traffic {
        self.session.backend().traffic()
    }

    /// Exceptions to the encryption of links, one sentence each. If empty, all links are encrypted.
    /// Never encrypted are announcements by multicast DNS, the first 16 bytes of a connection, and
    /// bulk data that processes of one host exchange through shared memory.
    pub fn security(&self) -> Vec<String> {
        self.cluster
            .trusted()
            .iter()
            .map(|name| {
                format!("bulk data over {name} travels unencrypted to nodes that trust it too")
            })
            .collect()
    }

    /// Another lane of this View, or of this [`group`](Context::group), for another task. Equal
    /// tags name the same lane on every rank; use each tag once.
    pub fn lane(&self, tag: u32) -> Context {
        self.of_lane(self.lane.with_tag(tag))
    }

    /// The calls of some ranks of this Context among themselves, a *sub-group*. Made by these ranks
    /// alone; the others notice nothing of it. Nothing is sent until the first call.
    ///
    /// `ranks` are those of this Context, in any order, with the own one. In the new Context the
    /// ranks are `0..ranks.len()`, in the order of the sorted `ranks`: [`rank`](Context::rank),
    /// [`size`](Context::size), [`members`](Context::members), roots, shards, fold orders and the
    /// ranks in errors are those. It has all calls but [`sync`](Context::sync) and
    /// [`sync_with`](Context::sync_with), with the same promises to its ranks, and lanes and groups
    /// of its own. Groups run beside each other and beside the View, also if they share ranks.
    ///
    /// Equal ranks and tags name the same group. `tag` is the tag of a [`lane`](Context::lane) of
    /// that group: two groups of the same ranks, and lanes beside them, need different tags. A
    /// group of all ranks is the lane of this tag of this Context.
    ///
    /// A group lasts as long as its View, and the loss of any member ends that;
    /// [`renewed`](Context::renewed) gives the Context of the next View, from which groups are made
    /// anew. Operations of groups are no part of the history that `sync` compares. At most 32 of
    /// them may be in flight, together with messages. The result of a dropped call is kept for the
    /// group of the same ranks and tag, also in a later View.
    ///
    /// ```no_run
    /// # async fn example(ctx: potluck::Context, gradient: &mut [f32]) -> potluck::Result<()> {
    /// // Four ranks as a mesh of two rows and two columns.
    /// let (row, column) = (ctx.rank().index() / 2, ctx.rank().index() % 2);
    /// let mut row = ctx.group(&[2 * row, 2 * row + 1], 0)?;
    /// let mut column = ctx.group(&[column, column + 2], 0)?;
    /// let shard = row.reduce_scatter(gradient).mean().await?;
    /// let shard = column.all_reduce_owned(shard).mean().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Rejected`] with [`Rejection::Group`](crate::calls::Rejection::Group) if `ranks` is
    /// empty, has a rank twice or one that is none, or lacks the own one, and if the direct links
    /// among these ranks do not connect them.
    pub fn group<R: Copy + Into<Rank>>(&self, ranks: &[R], tag: u32) -> Result<Context> {
        let named: Vec<Rank> = ranks.iter().map(|rank| (*rank).into()).collect();
        let group =
            self.ranks_of_group(&named).map_err(|p| Error::Rejected(Rejection::Group(p)))?;
        Ok(self.of_lane(Lane::of_group(group, tag, self.session.view().size())))
    }

    /// These ranks of this Context, as ranks of the View.
    fn ranks_of_group(&self, named: &[Rank]) -> std::result::Result<GroupRanks, GroupProblem> {
        let mut members = RankSet::EMPTY;
        for rank in named {
            let known = self.ranks().in_view(*rank);
            let no_rank = GroupProblem::NoRank { rank: *rank, size: self.size() };
            let member = known.ok_or(no_rank)?;
            if members.contains(member) {
                return Err(GroupProblem::Twice(*rank));
            }
            members = members.with(member);
        }
        let group = GroupRanks::of(members);
        if members.is_empty() {
            return Err(GroupProblem::Empty);
        }
        if !members.contains(self.session.me()) {
            return Err(GroupProblem::WithoutOwn(self.rank()));
        }
        let here =
            |rank| group.in_view(rank).and_then(|r| self.ranks().in_group(r)).unwrap_or(rank);
        let unlinked = lacks_a_path(group, &self.session.view().no_direct_link);
        let problem = |(a, b)| GroupProblem::NoDirectLink { from: here(a), to: here(b) };
        unlinked.map(problem).map_or(Ok(group), Err)
    }

    fn of_lane(&self, lane: Lane) -> Context {
        Context {
            session: Arc::clone(&self.session),
            cluster: self.cluster.clone(),
            lane,
            _not_shared: PhantomData,
        }
    }

    /// The Context of the newest View: this View if it is still current, else its successor. Waits
    /// without bound. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node has left.
    pub fn renewed(&self) -> impl Future<Output = Result<Context>> + Send + use<> {
        // Not an `async fn`: its future would borrow the Context, which is not `Sync`, and would
        // not be `Send`.
        let cluster = self.cluster.clone();
        async move { cluster.context().await }
    }

    /// Sums `buffer` over all members, in place: afterwards every member holds the same sum. All
    /// buffers have the same length.
    ///
    /// Set [`mean`](AllReduce::mean) and other options before awaiting it.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if
    /// lengths, types or options differ. [`Error::Rejected`] for an operator that the type does not
    /// have, such as a mean of integers or the default sum of `bool`, or for a codec that does not
    /// fit.
    pub fn all_reduce<'buf, T: Element>(&mut self, buffer: &'buf mut [T]) -> AllReduce<'buf, T> {
        let pending = self.numbered::<T>(CallKind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduce { pending, buffer }
    }

    /// Like [`all_reduce`](Context::all_reduce), but takes ownership of the buffer, so the future
    /// borrows nothing. On success the result is returned in that memory or in other memory,
    /// whichever saves a copy; on an error the unchanged input is returned with it.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Context::all_reduce), in an
    /// [`OwnedError`](crate::calls::OwnedError).
    pub fn all_reduce_owned<T: Element>(&mut self, buffer: Vec<T>) -> AllReduceOwned<T> {
        let pending = self.numbered::<T>(CallKind::AllReduce(ReduceOp::Sum), buffer.len());
        AllReduceOwned { pending, buffer: Arc::new(buffer), ended: None }
    }

    /// Copies the buffer of rank `root` into the buffers of all ranks. All buffers have the same
    /// length.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if lengths
    /// or roots differ. [`Error::Rejected`] on every rank if the root is no rank.
    pub fn broadcast<'buf, T: Element>(
        &mut self,
        root: impl Into<Rank>,
        buffer: &'buf mut [T],
    ) -> Broadcast<'buf, T> {
        let root = root.into();
        let pending = self.numbered::<T>(CallKind::Broadcast { root }, buffer.len());
        Broadcast { pending, buffer, is_root: root == self.rank() }
    }

    /// Collects the buffers of all ranks, in rank order: `size * buffer.len()` elements. All
    /// buffers have the same length.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if lengths
    /// differ.
    pub fn all_gather<'buf, T: Element>(&mut self, buffer: &'buf [T]) -> AllGather<'buf, T> {
        let pending = self.numbered::<T>(CallKind::AllGather, buffer.len());
        AllGather { pending, buffer, out: Vec::new() }
    }

    pub(crate) fn all_gather_owned<T: Element>(&mut self, buffer: Vec<T>) -> AllGatherOwned<T> {
        let pending = self.numbered::<T>(CallKind::AllGather, buffer.len());
        AllGatherOwned { pending, buffer, out: Vec::new() }
    }

    /// Sums `buffer` over all members. Rank `root` gets the sum in place; the buffers of the others
    /// stay unchanged. All buffers have the same length.
    ///
    /// Set [`mean`](Reduce::mean) and other options before awaiting it. On a rank other than the
    /// root it completes when this rank's contribution has been sent and all members have voted for
    /// the operation.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if
    /// lengths, types, roots or options differ. [`Error::Rejected`] on every rank if the root is no
    /// rank, and for an operator that the type does not have.
    pub fn reduce<'buf, T: Element>(
        &mut self,
        root: impl Into<Rank>,
        buffer: &'buf mut [T],
    ) -> Reduce<'buf, T> {
        let root = root.into();
        let kind = CallKind::Reduce { op: ReduceOp::Sum, root };
        let pending = self.numbered::<T>(kind, buffer.len());
        Reduce { pending, buffer, is_root: root == self.rank() }
    }

    /// Sums `buffer` over all members and gives each rank its [`shard`](Context::shard) of the sum.
    /// All buffers have the same length; any length is allowed, and a shard may be empty.
    ///
    /// Set [`mean`](ReduceScatter::mean) and other options before awaiting it.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if
    /// lengths, types or options differ. [`Error::Rejected`] for an operator that the type does not
    /// have.
    pub fn reduce_scatter<'buf, T: Element>(
        &mut self,
        buffer: &'buf [T],
    ) -> ReduceScatter<'buf, T> {
        let pending = self.numbered::<T>(CallKind::ReduceScatter(ReduceOp::Sum), buffer.len());
        ReduceScatter { pending, buffer, out: Vec::new() }
    }

    /// Collects the buffers of all ranks at rank `root`, in rank order: `Some` of `size *
    /// buffer.len()` elements there, `None` elsewhere. All buffers have the same length.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on every rank if lengths
    /// or roots differ. [`Error::Rejected`] on every rank if the root is no rank.
    pub fn gather<'buf, T: Element>(
        &mut self,
        root: impl Into<Rank>,
        buffer: &'buf [T],
    ) -> Gather<'buf, T> {
        let root = root.into();
        let pending = self.numbered::<T>(CallKind::Gather { root }, buffer.len());
        Gather { pending, buffer, out: Vec::new(), is_root: root == self.rank() }
    }

    /// Distributes the parts of rank `root`: each rank receives its part in `out`, which has the
    /// same length everywhere. The root passes `size * out.len()` elements in rank order. `parts`
    /// is ignored on the other ranks; pass `None` there.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). If the root passes another number of
    /// elements, it gets [`Error::Rejected`] and the others [`Error::Aborted`].
    /// [`Error::Mismatch`] on every rank if lengths or roots differ. [`Error::Rejected`] on every
    /// rank if the root is no rank.
    pub fn scatter<'buf, T: Element>(
        &mut self,
        root: impl Into<Rank>,
        parts: Option<&'buf [T]>,
        out: &'buf mut [T],
    ) -> Scatter<'buf, T> {
        let root = root.into();
        let (size, part) = (self.size(), out.len());
        let parts = (root == self.rank()).then(|| parts.unwrap_or_default());
        let pending = self.numbered::<T>(CallKind::Scatter { root }, part);
        Scatter { pending: pending.rejected(wrong_parts(parts, part, size)), parts, out }
    }

    /// Sends one part of `buffer` to each rank, in rank order, and receives one part from each: the
    /// result is rank 0's part for this rank, then rank 1's, and so on. All buffers have the same
    /// length, a multiple of `size`; the result has that length too.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Rejected`] on a rank whose length
    /// is no multiple of `size`; ranks with a valid length get [`Error::Aborted`].
    /// [`Error::Mismatch`] on every rank if all lengths are valid and differ.
    pub fn all_to_all<'buf, T: Element>(&mut self, buffer: &'buf [T]) -> AllToAll<'buf, T> {
        let pending = self.numbered::<T>(CallKind::AllToAll, buffer.len());
        AllToAll { pending, buffer, out: Vec::new() }
    }

    /// Collects the buffers of all ranks, in rank order. Each rank's buffer has its own length,
    /// which may be 0 and which the others need not know: the result tells it.
    ///
    /// The lengths travel first, so it takes one message delay more than
    /// [`all_gather`](Context::all_gather), and the buffer is read when all ranks have called it.
    /// The memory of the result depends on the lengths of all ranks.
    ///
    /// ```no_run
    /// # async fn example(mut ctx: potluck::Context, found: &[u64]) -> potluck::Result<()> {
    /// let all = ctx.all_gather_uneven(found).await?;
    /// println!("{} in all, of which rank 0 has {}", all.elements().len(), all.of(0).len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). If a rank has no memory for the result,
    /// every rank gets [`Error::Aborted`].
    pub fn all_gather_uneven<'buf, T: Element>(
        &mut self,
        buffer: &'buf [T],
    ) -> AllGatherUneven<'buf, T> {
        let pending = self.numbered::<T>(CallKind::AllGatherUneven, buffer.len());
        let row = vec![buffer.len() as u64; self.size()];
        AllGatherUneven { pending: UnevenOp::new(pending, buffer, row) }
    }

    /// Sends one part of `buffer` to each rank and receives one part from each. `lengths` has one
    /// length for each rank: the parts are contiguous in rank order and cover the buffer. A part
    /// may be empty. A rank need not know the lengths of the parts that it receives: the result
    /// tells them.
    ///
    /// The lengths travel first, as in [`all_gather_uneven`](Context::all_gather_uneven), and the
    /// buffer is read when all ranks have called it.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Rejected`] on a rank whose lengths
    /// are not one for each rank, or do not add up to the length of its buffer; the others get
    /// [`Error::Aborted`]. If a rank has no memory for its result, every rank gets
    /// [`Error::Aborted`].
    pub fn all_to_all_uneven<'buf, T: Element>(
        &mut self,
        buffer: &'buf [T],
        lengths: &[usize],
    ) -> AllToAllUneven<'buf, T> {
        let rejection = wrong_lengths(lengths, buffer.len(), self.size());
        let pending = self.numbered::<T>(CallKind::AllToAllUneven, buffer.len());
        let row = lengths.iter().map(|length| *length as u64).collect();
        AllToAllUneven { pending: UnevenOp::new(pending.rejected(rejection), buffer, row) }
    }

    /// Sends `buffer` to rank `to`, which [receives](Context::recv) it. The other ranks take no
    /// part.
    ///
    /// In each lane, the messages from one rank to another are matched in call order. `tag` is
    /// compared only to detect programs that are out of step. Like every call it is all or nothing
    /// and completes when the receiver has the message too: two ranks that send to each other must
    /// not await the send before they begin the receive.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls). [`Error::Mismatch`] on both ranks if
    /// lengths, element types or tags differ. [`Error::Rejected`] if `to` is this rank or no rank.
    /// [`Error::TooManyInFlight`] with 32 messages and calls of groups in flight. Between members
    /// without a direct link, for example in a row of machines joined by cables without a switch,
    /// [`Error::Rejected`] at both ends, which names the two: messages are not forwarded,
    /// collectives are.
    pub fn send<'buf, T: Element>(
        &mut self,
        to: impl Into<Rank>,
        tag: u32,
        buffer: &'buf [T],
    ) -> Sending<'buf, T> {
        Sending { pending: self.message::<T>(self.rank(), to.into(), tag, buffer.len()), buffer }
    }

    /// Receives into `buffer` a message that rank `from` [sends](Context::send); the same rules
    /// apply.
    ///
    /// # Errors
    /// Those of [`send`](Context::send).
    pub fn recv<'buf, T: Element>(
        &mut self,
        from: impl Into<Rank>,
        tag: u32,
        buffer: &'buf mut [T],
    ) -> Receiving<'buf, T> {
        Receiving {
            pending: self.message::<T>(from.into(), self.rank(), tag, buffer.len()),
            buffer,
        }
    }

    /// Receives into `buffer` the next message with this `tag`, whichever rank
    /// [sends](Context::send) it; resolves to that rank. The other rules are those of
    /// [`recv`](Context::recv).
    ///
    /// It looks at the *next* message of each rank: the first one for which no receive of this rank
    /// has a number. It takes the number of the message that it chooses, in a poll, not when it is
    /// called. Three rules follow. A message with another tag stays, and with it all later messages
    /// of its sender in this lane, until a `recv` takes it. A `recv` from the same rank that is
    /// called meanwhile takes the next message, and `recv_any` then looks at the later ones. To
    /// receive messages in another order than they are sent, use a [`lane`](Context::lane) for each
    /// tag.
    ///
    /// If several ranks have sent, each has its turn; there is no order between messages of
    /// different ranks. Only the tag is compared before the choice. A message that its sender gave
    /// up before its tag was known counts as one with this tag.
    ///
    /// Before the choice, dropping it has no effect, and a deadline or a new View ends it without
    /// an effect on any other rank.
    ///
    /// ```no_run
    /// # async fn example(mut ctx: potluck::Context) -> potluck::Result<()> {
    /// let mut loss = [0.0f32];
    /// let from = ctx.recv_any(7, &mut loss).await?;
    /// println!("rank {from} has a loss of {}", loss[0]);
    /// let from = ctx.recv_any(7, &mut loss).among([1, 2]).await?; // One of these two.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`recv`](Context::recv). [`Error::Mismatch`] at both ends if the length or the
    /// element type of the chosen message differs. [`Error::ViewChanged`] if the View ends before
    /// the choice, [`Error::Aborted`] with [`Cause::Deadline`](crate::Cause::Deadline) if the
    /// deadline passes before it.
    pub fn recv_any<'buf, T: Element>(
        &mut self,
        tag: u32,
        buffer: &'buf mut [T],
    ) -> ReceivingAny<'buf, T> {
        let pending = AnyOp::new(&self.session, self.lane, tag, T::DTYPE, buffer.len());
        ReceivingAny { pending, buffer }
    }

    /// Begins a step: several collectives that commit together or not at all, with one vote. A step
    /// takes one number in the lane and ends with [`Step::commit`].
    ///
    /// ```no_run
    /// # async fn example(
    /// #     mut ctx: potluck::Context,
    /// #     weights: &mut [f32],
    /// #     count: &mut [u64],
    /// # ) -> potluck::Result<()> {
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

    /// Takes a number in the lane for several calls under one vote.
    pub(crate) fn bundle(&mut self) -> Bundle {
        Bundle::new(self.numbered::<u8>(CallKind::Step { parts: 0 }, 0))
    }

    pub(crate) fn view_digest(&self) -> ViewDigest {
        self.session.digest()
    }

    /// Waits until every member has called it.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls).
    pub fn barrier(&mut self) -> Barrier {
        Barrier { pending: self.numbered::<u8>(CallKind::Barrier, 0) }
    }

    /// Brings all members to one state: that of the member that is furthest along the group's
    /// history. A state belongs to the whole View, so it is rejected in a
    /// [`group`](Context::group).
    ///
    /// `version` is the caller's own counter, for example the number of steps done. Among the
    /// members of the winning history the highest `version` wins, then the lowest rank. `state` is
    /// replaced by that member's bytes; its length may differ between members.
    ///
    /// It returns at once and sends nothing in these cases: the members of the View shared one
    /// history from the start; the lane has been used for another collective since; or `state`
    /// equals the bytes that the last sync of this lane delivered. All members take the same
    /// decision, whatever messages have arrived. Histories are compared, not contents: members that
    /// have committed nothing together yet count as in sync, so programs that start from files must
    /// start from equal ones.
    ///
    /// *Cancellation.* Dropped before this member's vote, it is aborted for all. Dropped after the
    /// vote, the next sync of the lane continues it: it waits for the outcome and takes the
    /// delivered bytes, also in a later View. A dropped sync that commits is never skipped.
    ///
    /// # Errors
    /// [Those of every call](Context#errors-of-calls) but [`Error::NeedsSync`]. [`Error::Engine`]
    /// if there is no memory for the state that a dropped sync has brought. [`Error::Rejected`] in
    /// a group.
    pub fn sync<'buf>(&mut self, version: u64, state: &'buf mut Vec<u8>) -> StateSync<'buf> {
        StateSync::new(&self.session, self.lane, version, state)
    }

    /// Like [`sync`](Context::sync) for a state that becomes bytes only where it is needed: `save`
    /// makes the bytes of a state, `load` replaces a state by such bytes. Both get the state as an
    /// argument, so they borrow nothing and may be methods of it.
    ///
    /// `save` is called only on the member whose state is sent, and only if a member lacks it.
    /// `load` is called only on members that lack the sent state: those that do not share the
    /// group's history, and those whose `version` differs from that of the source. So, on one
    /// history, equal versions must name equal states. `load` is called after all members have
    /// voted for the transfer, and gets any number of bytes, as `save` has made them.
    ///
    /// ```no_run
    /// # struct Model { step: u64 }
    /// # impl Model {
    /// #     fn to_bytes(&self) -> Vec<u8> { vec![] }
    /// #     fn load(&mut self, _: &[u8]) {}
    /// # }
    /// # async fn example(mut ctx: potluck::Context, model: &mut Model) -> potluck::Result<()> {
    /// ctx.sync_with(model.step, model, Model::to_bytes, Model::load).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// In a View whose members shared one history from the start, and after another collective of
    /// the lane, it returns at once, as `sync` does, and calls neither function. A second call in a
    /// View that needed a sync, with no other collective between, calls `save` once to compare the
    /// state with the one that the last sync delivered. Ranks may mix `sync` and `sync_with` in one
    /// call if both have the same bytes.
    ///
    /// *Cancellation.* As for `sync`. A dropped one that this member had voted for is continued by
    /// the next; that one then calls `load` also on members that have the state.
    ///
    /// # Errors
    /// Those of [`sync`](Context::sync); the state is then unchanged. The memory of the bytes that
    /// `save` makes is the program's; a lack of it is no error of the call.
    pub fn sync_with<'buf, S, Save, Load>(
        &mut self,
        version: u64,
        state: &'buf mut S,
        save: Save,
        load: Load,
    ) -> StateSyncWith<'buf, S, Save, Load>
    where
        Save: FnMut(&S) -> Vec<u8>,
        Load: FnMut(&mut S, &[u8]),
    {
        StateSyncWith::new(&self.session, self.lane, version, state, save, load)
    }

    /// Takes the result of the first call of this lane whose future was dropped and that committed
    /// anyway, in this View or an earlier one. The lane is usable again when no such call is left.
    /// For a step: the results of its calls, concatenated. `None` if there is no such call or it is
    /// still undecided. `None` too, and the call is forgotten, if it was aborted, or if its result
    /// is not kept any more: a node keeps the newest 256 results, and of large ones 256 MiB. `None`
    /// and still blocked if the result's length in bytes is no multiple of the size of `T`, or if
    /// there is no memory for it.
    pub fn take_result<T: Element>(&mut self) -> Option<Vec<T>> {
        let (mut taken, pool) = (Vec::<T>::new(), self.session.pool());
        let fits = |bytes: Option<usize>| {
            let Some(bytes) = bytes else { return true };
            let elements = bytes.is_multiple_of(T::DTYPE.bytes()).then(|| bytes / T::DTYPE.bytes());
            let memory = elements.and_then(|len| pool.elements(len).ok());
            memory.map(|memory| taken = memory).is_some()
        };
        let decided = self.session.take_lost(self.lane, fits)?;
        decided.bytes()?;
        decided.copy_to(target_of(&mut taken));
        Some(taken)
    }

    /// Discards that result, as [`take_result`](Context::take_result) takes it. False if there is
    /// none or it is still undecided.
    pub fn discard_result(&mut self) -> bool {
        self.session.take_lost(self.lane, |_| true).is_some()
    }

    fn message<T: Element>(&self, from: Rank, to: Rank, tag: u32, count: usize) -> PendingOp {
        let call = Call::new(CallKind::Message { from, to, tag }, T::DTYPE, count as u64);
        let in_view = |rank| self.ranks().in_view(rank).unwrap_or(rank);
        let ends = (in_view(from), in_view(to));
        let lacks_link = self.session.view().lack_direct_link(ends.0, ends.1);
        let unlinked = lacks_link.then_some(Rejection::NoDirectLink { from, to });
        match call.rejection(self.size()).or(unlinked) {
            None => PendingOp::numbered(&self.session, self.lane.messages(ends.0, ends.1), call),
            Some(rejection) => {
                let refused = Refused::Senseless(rejection);
                PendingOp::refused(&self.session, self.lane, call, refused)
            }
        }
    }

    /// Takes the lane's next number for a call on `count` elements of `T`.
    fn numbered<T: Element>(&self, kind: CallKind, count: usize) -> PendingOp {
        let call = Call::new(kind, T::DTYPE, count as u64);
        PendingOp::numbered(&self.session, self.lane, call)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(rank {} of {}, view {}", self.rank(), self.size(), self.view())?;
        if self.lane.is_of_group() { write!(f, ", lane {})", self.lane) } else { f.write_str(")") }
    }
}
