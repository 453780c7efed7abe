//! Several calls under one vote: the common part of [`Step`](super::step::Step) and `GradientStep`.

use super::error_feedback::{ErrorFeedback, FeedbackRefusal};
use super::pending_op::{PendingOp, Stage};
use crate::collective::{Input, is_weight, weigh};
use crate::memory::{DType, Element, OutOfMemory, Pool, bytes_of, elements_of, target_of};
use crate::protocol::{
    AbortReason, Call, CallKind, CallMode, CodecId, PARTS_MAX, Rank, ReduceOp, Rejection,
};
use crate::report::Result;
use crate::session::PartResult;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

/// Calls under one vote. Dropping it before its end aborts all of them for all members.
pub(crate) struct Bundle {
    pending: PendingOp,
    /// The number of calls made so far.
    calls: usize,
    /// The bytes of this rank's buffers in all of these calls.
    bytes: u64,
}

/// This member's weight in means, and the call of the bundle that sums the weights.
#[derive(Clone, Copy)]
pub(crate) struct Weight {
    weight: f64,
    weights: u8,
}

impl Weight {
    /// The products of this weight and `elements`; both slices have the same length.
    pub(crate) fn times<T: Element>(self, elements: &[T], products: &mut [T]) {
        let mut products = target_of(products);
        weigh(self.weight, T::DTYPE, products.bytes_mut(), bytes_of(elements));
    }
}

impl Bundle {
    pub(crate) fn new(pending: PendingOp) -> Bundle {
        Bundle { pending, calls: 0, bytes: 0 }
    }

    pub(crate) fn me(&self) -> Rank {
        self.pending.me()
    }

    pub(crate) fn size(&self) -> usize {
        self.pending.size()
    }

    /// The pool of its engine.
    pub(crate) fn pool(&self) -> &Pool {
        self.pending.session.pool()
    }

    /// Begins the next call, unless the bundle is rejected. With the residual of `feedback` added
    /// to the input, if there is one.
    pub(crate) fn begin(
        &mut self,
        call: Call,
        input: &Input<'_>,
        feedback: Option<&ErrorFeedback>,
    ) {
        if let Some(rejection) = call.rejection(self.size()) {
            self.reject(rejection);
        }
        if self.calls >= PARTS_MAX {
            self.reject(Rejection::StepTooLong);
        }
        if self.pending.number().is_ok() && self.pending.rejected.is_none() {
            match feedback {
                None => _ = self.carry_out(call, input),
                Some(feedback) => {
                    let elements = elements_of(input.bytes()).unwrap_or_default();
                    match feedback.open(call.kind, elements, self.pending.session.pool()) {
                        Ok(ticket) => {
                            let codec = self.carry_out(call, &ticket.contribution());
                            // Below `PARTS_MAX`: further calls are rejected above.
                            if let Ok(step) = self.pending.number() {
                                self.pending.keep_ticket(
                                    step.part(self.calls as u8),
                                    codec,
                                    ticket,
                                );
                            }
                        }
                        Err(FeedbackRefusal::Rejected(rejection)) => self.reject(rejection),
                        Err(FeedbackRefusal::Lacks(lack)) => self.lacks(lack),
                    }
                }
            }
        }
        self.calls += 1;
        self.bytes =
            self.bytes.saturating_add(call.count.saturating_mul(call.dtype.bytes() as u64));
    }

    /// Begins the sum of the members' weights. Returns its place, for
    /// [`begin_weighted`](Bundle::begin_weighted). A weight that is none rejects the bundle.
    pub(crate) fn weigh(&mut self, weight: f64) -> Weight {
        if !is_weight(weight) {
            self.reject(Rejection::Weight);
        }
        // Below `PARTS_MAX`, else `begin` rejects the bundle.
        let weights = self.calls as u8;
        // The sum that they weight comes next; the session must know of it before this one ends.
        if let Ok(step) = self.pending.number() {
            self.pending.session.weighted(step, weights.saturating_add(1), weights);
        }
        let sum = CallKind::AllReduce(ReduceOp::Sum);
        let call = Call { mode: CallMode::PerStep, ..Call::new(sum, DType::F64, 1) };
        self.begin(call, &Input::Borrowed(bytes_of(&[weight])), None);
        Weight { weight, weights }
    }

    /// The next call is the sum of a mean with these weights.
    pub(crate) fn weighted_by(&self, weight: Weight) {
        if let Ok(step) = self.pending.number() {
            self.pending.session.weighted(step, self.calls as u8, weight.weights);
        }
    }

    /// Begins the next call, the sum of a weighted mean.
    pub(super) fn begin_weighted<T: Element>(
        &mut self,
        call: Call,
        weight: Weight,
        elements: &[T],
        feedback: Option<&ErrorFeedback>,
    ) {
        match self.pool().elements::<T>(elements.len()) {
            Ok(mut products) => {
                weight.times(elements, &mut products);
                self.weighted_by(weight);
                self.begin(call, &Input::shared(&Arc::new(products)), feedback);
            }
            Err(lack) => self.lacks(lack),
        }
    }

    /// Aborts all calls for all members now; the end returns the first rejection.
    pub(crate) fn reject(&mut self, rejection: Rejection) {
        self.pending.rejected.get_or_insert(rejection);
        if let Ok(op) = self.pending.number() {
            self.pending.abandon(op);
        }
    }

    /// Gives all calls up for all members, because there is no memory for one of them here. The
    /// votes decide the outcome, as always.
    pub(crate) fn lacks(&self, lack: OutOfMemory) {
        if let Ok(op) = self.pending.number() {
            self.pending.session.give_up(op, lack.into());
        }
    }

    /// Aborts all calls if a reduction that begins from now on has a NaN or an infinity in its
    /// input, or if any result has one.
    pub(super) fn reject_non_finite(&mut self) {
        self.pending.finite_only = true;
        if let Ok(op) = self.pending.number() {
            self.pending.session.finite_only(op);
        }
    }

    /// Aborts all calls if they are undecided this long after the first poll of the end.
    pub(crate) fn deadline(&mut self, after: Duration) {
        self.pending.deadline = Some(after);
    }

    /// Ends the bundle; resolves to the results of all calls in order when they are committed.
    pub(crate) fn poll_end(&mut self, task: &mut Task<'_>) -> Poll<Result<Vec<PartResult>>> {
        let op = self.pending.op()?;
        if self.pending.stage == Stage::Numbered {
            self.pending.check(op)?;
            // At most `PARTS_MAX`, else `check` has rejected it.
            self.pending.end_step(op, self.calls as u8, self.bytes);
        }
        let mut decided = ready!(self.pending.session.poll_decided(op, task));
        let results = std::mem::take(&mut decided.parts);
        Poll::Ready(self.pending.finish(decided).map(|_| results))
    }

    fn carry_out(&self, call: Call, input: &Input<'_>) -> Option<CodecId> {
        // Callers check that there is a number.
        let op = self.pending.number().ok()?;
        let session = &self.pending.session;
        if self.pending.finite_only
            && call.kind.reduce_op().is_some()
            && !input.is_finite(call.dtype)
        {
            session.give_up(op, AbortReason::NonFinite);
            return None;
        }
        // Below `PARTS_MAX`: further calls are rejected before.
        session.begin_part(op, self.calls as u8, call, input)
    }
}
