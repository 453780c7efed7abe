//! Several calls that commit together or not at all.

use super::bundle::Bundle;
use super::codec::Codec;
use super::error_feedback::ErrorFeedback;
use super::parts::wrong_parts;
use crate::memory::{Element, Float, Target, bytes_of, elements_of, target_of};
use crate::protocol::{Call, CallKind, CallMode, Rank, ReduceOp, Rejection, ring_segment};
use crate::report::Result;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// Several collectives under one vote, see [`Context::step`](super::super::context::Context::step).
///
/// Each call begins when it is made and reads its input buffer then. All results are written when
/// the step is [committed](Step::commit), or none. Every rank makes the same calls in the same
/// order.
///
/// If dropped before its commit, the step is aborted for all members. If leaked, it never ends for
/// the others, unless they set a deadline, and no buffer is written.
#[must_use = "a step counts only when it is committed, and is aborted for all members when it is \
    dropped"]
pub struct Step<'buf> {
    bundle: Bundle,
    /// The destination of each call's result; `None` if this rank gets none.
    outputs: Vec<Option<Target<'buf>>>,
}

/// A reduction of a step whose options can still be set. It begins when this value is dropped, at
/// the end of the statement.
pub struct StepReduction<'step, 'buf, T: Element> {
    step: &'step mut Step<'buf>,
    call: Call,
    /// `None` if the input is in `output`.
    input: Option<&'buf [T]>,
    output: Option<Target<'buf>>,
    /// The residual of its codec.
    feedback: Option<ErrorFeedback>,
    /// This member's weight in a mean.
    weight: Option<f64>,
    of: PhantomData<T>,
}

/// The commit of a [`Step`] in flight.
///
/// If dropped before it completes, the step is aborted for all members unless this member has voted
/// (see [`Context::take_result`](super::super::context::Context::take_result)). If leaked, it
/// continues without writing the buffers.
#[must_use = "a step is not committed until this is awaited, and is aborted for all members when \
    it is dropped"]
pub struct Commit<'buf> {
    pub(super) pending: Bundle,
    outputs: Vec<Option<Target<'buf>>>,
}

impl<'buf> Step<'buf> {
    pub(crate) fn new(bundle: Bundle) -> Step<'buf> {
        Step { bundle, outputs: Vec::new() }
    }

    /// Sums `buffer` over all members, in place, like
    /// [`Context::all_reduce`](super::super::context::Context::all_reduce). Set options on the
    /// returned value: `step.all_reduce(&mut buffer).mean();`.
    pub fn all_reduce<T: Element>(&mut self, buffer: &'buf mut [T]) -> StepReduction<'_, 'buf, T> {
        self.reduction(CallKind::AllReduce(ReduceOp::Sum), buffer.len(), None, buffer)
    }

    /// Sums `buffer` over all members at rank `root`, in place; the buffers of the others stay
    /// unchanged.
    pub fn reduce<T: Element>(
        &mut self,
        root: impl Into<Rank>,
        buffer: &'buf mut [T],
    ) -> StepReduction<'_, 'buf, T> {
        let kind = CallKind::Reduce { op: ReduceOp::Sum, root: root.into() };
        self.reduction(kind, buffer.len(), None, buffer)
    }

    /// Sums `buffer` over all members and writes each rank's
    /// [`shard`](super::super::context::Context::shard) of the sum to `out`, whose length must be
    /// that of the shard.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        buffer: &'buf [T],
        out: &'buf mut [T],
    ) -> StepReduction<'_, 'buf, T> {
        let shard = ring_segment(self.bundle.me().index(), self.bundle.size(), buffer.len());
        self.want(out.len(), shard.len());
        let kind = CallKind::ReduceScatter(ReduceOp::Sum);
        self.reduction(kind, buffer.len(), Some(buffer), out)
    }

    /// Copies the buffer of rank `root` into the buffers of all ranks.
    pub fn broadcast<T: Element>(&mut self, root: impl Into<Rank>, buffer: &'buf mut [T]) {
        let root = root.into();
        let call = call::<T>(CallKind::Broadcast { root }, buffer.len());
        let input = (root == self.bundle.me()).then(|| bytes_of(buffer));
        self.bundle.begin(call, &input.into(), None);
        self.outputs.push(Some(target_of(buffer)));
    }

    /// Collects the buffers of all ranks in `out`, in rank order: `size * buffer.len()` elements.
    pub fn all_gather<T: Element>(&mut self, buffer: &[T], out: &'buf mut [T]) {
        self.want(out.len(), buffer.len().saturating_mul(self.bundle.size()));
        self.copying(CallKind::AllGather, buffer.len(), Some(buffer), Some(out));
    }

    /// Collects the buffers of all ranks at rank `root`, in its `out`. `out` is ignored on other
    /// ranks.
    pub fn gather<T: Element>(
        &mut self,
        root: impl Into<Rank>,
        buffer: &[T],
        out: Option<&'buf mut [T]>,
    ) {
        let root = root.into();
        let out = out.filter(|_| root == self.bundle.me());
        if root == self.bundle.me() {
            self.want(
                out.as_ref().map_or(0, |out| out.len()),
                buffer.len().saturating_mul(self.bundle.size()),
            );
        }
        self.copying(CallKind::Gather { root }, buffer.len(), Some(buffer), out);
    }

    /// Distributes the parts of rank `root`, like
    /// [`Context::scatter`](super::super::context::Context::scatter).
    pub fn scatter<T: Element>(
        &mut self,
        root: impl Into<Rank>,
        parts: Option<&[T]>,
        out: &'buf mut [T],
    ) {
        let root = root.into();
        let parts = (root == self.bundle.me()).then(|| parts.unwrap_or_default());
        let (size, part) = (self.bundle.size(), out.len());
        wrong_parts(parts, part, size).into_iter().for_each(|wrong| self.bundle.reject(wrong));
        self.copying(CallKind::Scatter { root }, part, parts, Some(out));
    }

    /// Sends one part of `buffer` to each rank and receives one part from each in `out`, which has
    /// the same length, like [`Context::all_to_all`](super::super::context::Context::all_to_all).
    pub fn all_to_all<T: Element>(&mut self, buffer: &[T], out: &'buf mut [T]) {
        self.want(out.len(), buffer.len());
        self.copying(CallKind::AllToAll, buffer.len(), Some(buffer), Some(out));
    }

    /// Aborts the step for all members if a reduction of it has a NaN or an infinity in its input
    /// or result, like
    /// [`AllReduce::reject_non_finite`](super::all_reduce::AllReduce::reject_non_finite). Call it
    /// before these reductions: inputs of earlier ones are not checked.
    pub fn reject_non_finite(&mut self) {
        self.bundle.reject_non_finite();
    }

    /// Ends the step: waits until all members have the results of all calls, then writes them.
    ///
    /// # Errors
    /// [Those of every call](super::super::context::Context#errors-of-calls), for the step as a
    /// whole. [`Error::Rejected`](crate::Error::Rejected) if a call was invalid on this rank: more
    /// than 64 calls, an output of the wrong length, or an invalid call.
    pub fn commit(self) -> Commit<'buf> {
        Commit { pending: self.bundle, outputs: self.outputs }
    }

    fn want(&mut self, given: usize, wanted: usize) {
        if given != wanted {
            self.bundle.reject(Rejection::Output { given, wanted });
        }
    }

    fn reduction<T: Element>(
        &mut self,
        kind: CallKind,
        count: usize,
        input: Option<&'buf [T]>,
        output: &'buf mut [T],
    ) -> StepReduction<'_, 'buf, T> {
        let (call, output) = (call::<T>(kind, count), Some(target_of(output)));
        StepReduction {
            step: self,
            call,
            input,
            output,
            feedback: None,
            weight: None,
            of: PhantomData,
        }
    }

    fn copying<T: Element>(
        &mut self,
        kind: CallKind,
        count: usize,
        input: Option<&[T]>,
        output: Option<&'buf mut [T]>,
    ) {
        self.bundle.begin(call::<T>(kind, count), &input.map(bytes_of).into(), None);
        self.outputs.push(output.map(target_of));
    }
}

impl<T: Element> StepReduction<'_, '_, T> {
    /// The reduction operator. Default: the sum, which `bool` does not have. An operator that the
    /// element type does not have is [`Error::Rejected`](crate::Error::Rejected).
    pub fn op(mut self, op: ReduceOp) {
        self.call.kind = reducing_by(self.call.kind, op);
    }

    /// The sum divided by the number of members. Floats only.
    pub fn mean(self) {
        self.op(ReduceOp::Mean);
    }

    /// The minimum.
    pub fn min(self) {
        self.op(ReduceOp::Min);
    }

    /// The maximum.
    pub fn max(self) {
        self.op(ReduceOp::Max);
    }

    /// The product.
    pub fn product(self) {
        self.op(ReduceOp::Prod);
    }

    /// The bits that all ranks have. Integers and `bool` only.
    pub fn bit_and(self) {
        self.op(ReduceOp::BitAnd);
    }

    /// The bits that any rank has. Integers and `bool` only.
    pub fn bit_or(self) {
        self.op(ReduceOp::BitOr);
    }

    /// The bits that an odd number of ranks has. Integers and `bool` only.
    pub fn bit_xor(self) {
        self.op(ReduceOp::BitXor);
    }
}

impl<T: Float> StepReduction<'_, '_, T> {
    /// The weighted mean, see [`AllReduce::weighted`](super::all_reduce::AllReduce::weighted); it
    /// replaces the operator. It counts as two of the step's calls.
    pub fn weighted(mut self, weight: f64) {
        self.weight = Some(weight);
        self.op(ReduceOp::Sum);
    }
}

impl StepReduction<'_, '_, f32> {
    /// Encodes the data on the wire. Every rank must use the same codec. Only an all_reduce can be
    /// encoded: with another reduction the step ends with
    /// [`Error::Rejected`](crate::Error::Rejected).
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.call.codec = codec.id();
        self.feedback = codec.feedback().map(ErrorFeedback::share);
        self
    }
}

impl<T: Element> Drop for StepReduction<'_, '_, T> {
    fn drop(&mut self) {
        let (call, output) = (self.call, self.output.take());
        let (input, bundle) = (
            self.input.map(bytes_of).or(output.as_ref().map(Target::bytes)),
            &mut self.step.bundle,
        );
        match self.weight {
            None => bundle.begin(call, &input.into(), self.feedback.as_ref()),
            Some(weight) => {
                let weight = bundle.weigh(weight);
                let elements = input.and_then(elements_of::<T>).unwrap_or_default();
                bundle.begin_weighted(call, weight, elements, self.feedback.as_ref());
            }
        }
        // A rank without a result keeps its buffer.
        let is_mine = call.kind.root().is_none_or(|root| root == self.step.bundle.me());
        self.step.outputs.push(output.filter(|_| is_mine));
    }
}

impl Future for Commit<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let results = ready!(this.pending.poll_end(task))?;
        for (output, result) in this.outputs.iter_mut().zip(results) {
            if let Some(output) = output {
                result.copy_to(output.reborrow());
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn call<T: Element>(kind: CallKind, count: usize) -> Call {
    Call { mode: CallMode::PerStep, ..Call::new(kind, T::DTYPE, count as u64) }
}

/// The same collective with another reduction operator.
pub(super) fn reducing_by(kind: CallKind, op: ReduceOp) -> CallKind {
    match kind {
        CallKind::AllReduce(_) => CallKind::AllReduce(op),
        CallKind::Reduce { root, .. } => CallKind::Reduce { op, root },
        CallKind::ReduceScatter(_) => CallKind::ReduceScatter(op),
        other => other,
    }
}
