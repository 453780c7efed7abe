//! The future of a weighted mean.

use super::all_reduce::AllReduce;
use super::bundle::Bundle;
use super::codec::Codec;
use super::error_feedback::ErrorFeedback;
use crate::memory::{Float, target_of};
use crate::protocol::{Call, CallKind, CallMode, CodecId, ReduceOp};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// A [weighted mean](AllReduce::weighted) in flight.
///
/// If dropped before it completes, it is aborted for all members unless this member has voted (see
/// [`Context::take_result`](super::super::context::Context::take_result)). If leaked, it continues
/// without writing the buffer.
#[must_use = "a weighted mean does nothing until it is awaited, and is aborted for all members \
    when it is dropped"]
pub struct WeightedMean<'buf, T: Float> {
    pub(super) pending: Bundle,
    buffer: &'buf mut [T],
    weight: f64,
    codec: CodecId,
    feedback: Option<ErrorFeedback>,
    has_begun: bool,
}

impl<'buf, T: Float> AllReduce<'buf, T> {
    /// The mean of all buffers, weighted by each rank's `weight`, for example its number of
    /// samples: `sum(weight * buffer) / sum(weight)`. It replaces the operator, and a
    /// [`best_effort`](AllReduce::best_effort) that was set: the members always vote. Floats only.
    ///
    /// A weight is finite and at least 0. With weight 0 this rank's buffer does not count, whatever
    /// it holds, and receives the mean of the others. The weights travel with the buffers under the
    /// same vote, as a [`Step`](super::step::Step) of two calls; every rank must give a weight.
    ///
    /// *Arithmetic.* Each product is computed in `f64` and rounded to the element type; the
    /// products are summed in the order of
    /// [`fold_order`](super::super::context::Context::fold_order). The weights are summed in `f64`,
    /// in the order of `fold_order::<f64>(1)`. The quotient is computed in `f64` and rounded to the
    /// element type. For halves, both are rounded to `f32` first. The products must fit into the
    /// element type: the largest `f16` is 65504, so give weights of about 1 there.
    ///
    /// ```no_run
    /// # async fn example(mut ctx: potluck::Context, samples: &[f32]) -> potluck::Result<()> {
    /// let mut mean = [samples.iter().sum::<f32>() / samples.len() as f32];
    /// ctx.all_reduce(&mut mean).weighted(samples.len() as f64).await?; // of all samples
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [Those of every call](super::super::context::Context#errors-of-calls).
    /// [`Cause::Weights`](crate::Cause::Weights) on every rank if the sum of the weights is 0 or
    /// infinite. [`Rejection::Weight`](crate::calls::Rejection::Weight) on a rank whose weight is
    /// negative, infinite or a NaN; the others get [`Error::Aborted`](crate::Error::Aborted).
    pub fn weighted(self, weight: f64) -> WeightedMean<'buf, T> {
        let finite_only = self.pending.finite_only;
        let (pending, codec, feedback) = self.pending.into_step();
        let mut bundle = Bundle::new(pending);
        if finite_only {
            bundle.reject_non_finite();
        }
        let buffer = self.buffer;
        WeightedMean { pending: bundle, buffer, weight, codec, feedback, has_begun: false }
    }
}

impl<T: Float> WeightedMean<'_, T> {
    /// Aborts the call for all members if this rank's product or a sum has a NaN or an infinity,
    /// see [`AllReduce::reject_non_finite`].
    pub fn reject_non_finite(mut self) -> Self {
        self.pending.reject_non_finite();
        self
    }

    /// Begins the sum of the weights and the weighted sum.
    fn begin(&mut self) {
        let sum = CallKind::AllReduce(ReduceOp::Sum);
        let call = Call {
            codec: self.codec,
            mode: CallMode::PerStep,
            ..Call::new(sum, T::DTYPE, self.buffer.len() as u64)
        };
        let weight = self.pending.weigh(self.weight);
        self.pending.begin_weighted(call, weight, self.buffer, self.feedback.as_ref());
    }
}

impl WeightedMean<'_, f32> {
    /// Encodes the products on the wire, see [`AllReduce::compress`]. The weights are not encoded.
    /// The residual of a codec with feedback is one of products.
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.codec = codec.id();
        self.feedback = codec.feedback().map(ErrorFeedback::share);
        self
    }
}

impl<T: Float> Future for WeightedMean<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.has_begun, true) {
            this.begin();
        }
        let results = ready!(this.pending.poll_end(task))?;
        results.iter().for_each(|mean| mean.copy_to(target_of(this.buffer)));
        Poll::Ready(Ok(()))
    }
}
