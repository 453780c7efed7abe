//! Layer: Face.
//!
//! Several calls that count together or not at all.

use super::account::Account;
use super::bundle::Bundle;
use super::choices::reducing_by;
use super::codec::Codec;
use crate::collective::{
    Call, CodecId, Element, Kind, Mode, ReduceOp, Rejection, bytes_of, bytes_of_mut,
};
use crate::error::Result;
use crate::topology::ring_segment;
use crate::view::Rank;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// Several collectives under one vote, see [`Context::step`](crate::Context::step).
///
/// Each call begins when it is made, with the contents that its buffer has then; what comes of it
/// is written when the step is [committed](Step::commit), of all calls or of none. Every rank makes
/// the same calls in the same order.
///
/// Dropped before that, the step is aborted for all members; forgotten, it never ends for the
/// others, unless they have a deadline, and touches no buffer.
#[must_use = "a step counts only when it is committed, and is aborted for all members when it is dropped"]
pub struct Step<'buf> {
    bundle: Bundle,
    /// Where the results of the calls go; a call may have none here.
    outputs: Vec<Option<&'buf mut [u8]>>,
}

/// A reduction that a step is about to make: it begins when this value goes, at the end of the
/// statement.
pub struct StepReduction<'step, 'buf, T: Element> {
    step: &'step mut Step<'buf>,
    call: Call,
    /// None when the input is what `output` holds.
    input: Option<&'buf [T]>,
    output: Option<&'buf mut [u8]>,
    /// What its codec owes.
    account: Option<Account>,
    of: PhantomData<T>,
}

/// The end of a [`Step`] under way.
///
/// Dropped before it is done, the step is aborted for all members; forgotten, it goes on without
/// touching the buffers.
#[must_use = "a step is not committed until this is awaited, and is aborted for all members when it is dropped"]
pub struct Commit<'buf> {
    pub(super) flight: Bundle,
    outputs: Vec<Option<&'buf mut [u8]>>,
}

impl<'buf> Step<'buf> {
    pub(crate) fn new(bundle: Bundle) -> Step<'buf> {
        Step { bundle, outputs: Vec::new() }
    }

    /// Adds up `buffer` over all members, in place, as
    /// [`Context::all_reduce`](crate::Context::all_reduce) does. What is to be done else than
    /// adding is said of what this returns: `step.all_reduce(&mut buffer).mean();`.
    pub fn all_reduce<T: Element>(&mut self, buffer: &'buf mut [T]) -> StepReduction<'_, 'buf, T> {
        let call = call::<T>(Kind::AllReduce(ReduceOp::Sum), buffer.len());
        self.reduction(call, None, Some(bytes_of_mut(buffer)))
    }

    /// The same for the rank `root`, in place; the buffers of the others stay as they are.
    pub fn reduce<T: Element>(
        &mut self,
        root: usize,
        buffer: &'buf mut [T],
    ) -> StepReduction<'_, 'buf, T> {
        let call =
            call::<T>(Kind::Reduce { op: ReduceOp::Sum, root: Rank::clamped(root) }, buffer.len());
        self.reduction(call, None, Some(bytes_of_mut(buffer)))
    }

    /// Adds up `buffer` over all members and gives each rank its [`shard`](crate::Context::shard)
    /// of the sum in `out`, which must be as long.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        buffer: &'buf [T],
        out: &'buf mut [T],
    ) -> StepReduction<'_, 'buf, T> {
        let shard = ring_segment(self.bundle.me().index(), self.bundle.size(), buffer.len());
        self.want(out.len(), shard.len());
        let call = call::<T>(Kind::ReduceScatter(ReduceOp::Sum), buffer.len());
        self.reduction(call, Some(buffer), Some(bytes_of_mut(out)))
    }

    /// Copies the buffer of the rank `root` into everybody's.
    pub fn broadcast<T: Element>(&mut self, root: usize, buffer: &'buf mut [T]) {
        let root = Rank::clamped(root);
        let (call, is_root) =
            (call::<T>(Kind::Broadcast { root }, buffer.len()), root == self.bundle.me());
        let output = bytes_of_mut(buffer);
        self.bundle.begin(call, is_root.then_some(&*output));
        self.outputs.push(Some(output));
    }

    /// Collects everybody's buffer in `out`, in rank order: `size * buffer.len()` elements.
    pub fn all_gather<T: Element>(&mut self, buffer: &[T], out: &'buf mut [T]) {
        self.want(out.len(), buffer.len().saturating_mul(self.bundle.size()));
        self.copying(
            call::<T>(Kind::AllGather, buffer.len()),
            Some(bytes_of(buffer)),
            Some(bytes_of_mut(out)),
        );
    }

    /// The same at the rank `root`, which alone has an `out`; what others give is not looked at.
    pub fn gather<T: Element>(&mut self, root: usize, buffer: &[T], out: Option<&'buf mut [T]>) {
        let root = Rank::clamped(root);
        let out = out.filter(|_| root == self.bundle.me());
        if root == self.bundle.me() {
            self.want(
                out.as_ref().map_or(0, |out| out.len()),
                buffer.len().saturating_mul(self.bundle.size()),
            );
        }
        self.copying(
            call::<T>(Kind::Gather { root }, buffer.len()),
            Some(bytes_of(buffer)),
            out.map(bytes_of_mut),
        );
    }

    /// Hands out the parts of the rank `root`, as [`Context::scatter`](crate::Context::scatter)
    /// does.
    pub fn scatter<T: Element>(&mut self, root: usize, parts: Option<&[T]>, out: &'buf mut [T]) {
        let root = Rank::clamped(root);
        let parts = (root == self.bundle.me()).then(|| parts.unwrap_or_default());
        let (size, part) = (self.bundle.size(), out.len());
        if let Some(given) =
            parts.map(<[T]>::len).filter(|given| Some(*given) != part.checked_mul(size))
        {
            self.bundle.reject(Rejection::ScatterInput { given, part, size });
        }
        self.copying(
            call::<T>(Kind::Scatter { root }, part),
            parts.map(bytes_of),
            Some(bytes_of_mut(out)),
        );
    }

    /// Gives each rank one part of `buffer` and takes one from each in `out`, which is as long, as
    /// [`Context::all_to_all`](crate::Context::all_to_all) does.
    pub fn all_to_all<T: Element>(&mut self, buffer: &[T], out: &'buf mut [T]) {
        self.want(out.len(), buffer.len());
        self.copying(
            call::<T>(Kind::AllToAll, buffer.len()),
            Some(bytes_of(buffer)),
            Some(bytes_of_mut(out)),
        );
    }

    /// Gives the step up for all members when a reduction of it that is made from now on, or its
    /// result, holds a NaN or an infinity, as
    /// [`AllReduce::reject_non_finite`](crate::AllReduce::reject_non_finite) does.
    pub fn reject_non_finite(&mut self) {
        self.bundle.reject_non_finite();
    }

    /// Ends the step: waits until all members hold the results of all calls, and writes them.
    ///
    /// # Errors
    /// As every collective has them, for the step as a whole.
    /// [`Error::Rejected`](crate::Error::Rejected) when one of its calls made no sense here: too
    /// many of them, or an output of another length than its call has.
    pub fn commit(self) -> Commit<'buf> {
        Commit { flight: self.bundle, outputs: self.outputs }
    }

    fn want(&mut self, given: usize, wanted: usize) {
        if given != wanted {
            self.bundle.reject(Rejection::Output { given, wanted });
        }
    }

    fn reduction<T: Element>(
        &mut self,
        call: Call,
        input: Option<&'buf [T]>,
        output: Option<&'buf mut [u8]>,
    ) -> StepReduction<'_, 'buf, T> {
        StepReduction { step: self, call, input, output, account: None, of: PhantomData }
    }

    fn copying(&mut self, call: Call, input: Option<&[u8]>, output: Option<&'buf mut [u8]>) {
        self.bundle.begin(call, input);
        self.outputs.push(output);
    }
}

impl<T: Element> StepReduction<'_, '_, T> {
    /// How contributions become one value. Default: the sum. A mean of integers is
    /// [`Error::Rejected`](crate::Error::Rejected).
    pub fn op(mut self, op: ReduceOp) {
        self.call.kind = reducing_by(self.call.kind, op);
    }

    /// The sum divided by the number of members. Of floats only.
    pub fn mean(self) {
        self.op(ReduceOp::Mean);
    }

    /// The least value.
    pub fn min(self) {
        self.op(ReduceOp::Min);
    }

    /// The greatest value.
    pub fn max(self) {
        self.op(ReduceOp::Max);
    }

    /// The product.
    pub fn product(self) {
        self.op(ReduceOp::Prod);
    }
}

impl StepReduction<'_, '_, f32> {
    /// Encodes what goes over the wire. Every rank must use the same codec; only an all_reduce can
    /// be encoded.
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.call.codec = codec.id();
        self.account = codec.account().map(Account::share);
        self
    }
}

impl<T: Element> Drop for StepReduction<'_, '_, T> {
    fn drop(&mut self) {
        let (call, output) = (self.call, self.output.take());
        let input = self.input.map(bytes_of).or(output.as_deref());
        self.step.bundle.begin_owing(call, input, self.account.as_ref());
        // Who gets no result keeps what it has.
        let is_mine = call.kind.root().is_none_or(|root| root == self.step.bundle.me());
        self.step.outputs.push(output.filter(|_| is_mine));
    }
}

impl Future for Commit<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let results = ready!(this.flight.poll_end(task))?;
        for (output, result) in this.outputs.iter_mut().zip(results) {
            if let Some(output) = output {
                result.copy_to(output);
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn call<T: Element>(kind: Kind, count: usize) -> Call {
    Call { kind, dtype: T::DTYPE, count: count as u64, codec: CodecId::None, mode: Mode::PerStep }
}
