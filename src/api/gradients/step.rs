//! One step's gradients, from the first push to the means.

use super::super::calls::{Bundle, Codec, Weight};
use super::GradientSync;
use crate::collective::Input;
use crate::memory::{DType, target_of};
use crate::protocol::{
    Call, CallKind, CallMode, CodecId, GradientProblem, Rank, ReduceOp, Rejection,
};
use crate::report::{Error, Result};
use std::time::Duration;

/// One step of a [`GradientSync`].
///
/// Dropping it before it has [finished](GradientStep::finish) aborts the step for all members and
/// leaves the gradients unchanged.
#[must_use = "a step counts only when it is finished, and is aborted for all members when it is \
    dropped"]
pub struct GradientStep<'sync, 'buf> {
    sync: &'sync mut GradientSync,
    bundle: Bundle,
    /// By parameter: the pushed gradient, to be overwritten with the mean.
    gradients: Vec<Option<&'buf mut [f32]>>,
    /// By bucket: the number of gradients not pushed yet.
    missing: Vec<usize>,
    /// The number of buckets whose reduction has begun, in order from the first.
    begun: usize,
    /// This member's weight, if the means are weighted.
    weight: Option<Weight>,
}

impl<'sync, 'buf> GradientStep<'sync, 'buf> {
    /// A step in the View of the Context that `sync` has.
    pub(super) fn new(
        sync: &'sync mut GradientSync,
        mut bundle: Bundle,
    ) -> GradientStep<'sync, 'buf> {
        let gradients = sync.layout.lens().iter().map(|_| None).collect();
        let missing = sync.layout.buckets().iter().map(ExactSizeIterator::len).collect();
        let weight = sync.weight.take().map(|weight| bundle.weigh(weight));
        let mut step = GradientStep { sync, bundle, gradients, missing, begun: 0, weight };
        step.begin_whole();
        step
    }

    /// This node's rank in the step's View, `0..size`.
    pub fn rank(&self) -> Rank {
        self.bundle.me()
    }

    /// The number of members of the step's View.
    pub fn size(&self) -> usize {
        self.bundle.size()
    }

    /// Aborts the step for all members if it is undecided this long after the first poll of
    /// [`finish`](GradientStep::finish). The default is to wait for live members without limit.
    pub fn deadline(&mut self, after: Duration) {
        self.bundle.deadline(after);
    }

    /// Takes the gradient of a parameter, each parameter once, in any order; last to first is best.
    /// The gradient is read now and overwritten when the step finishes.
    ///
    /// An unknown parameter, a second push of one, or a gradient whose length differs from the
    /// registered one aborts the step; `finish` returns the reason.
    pub fn push(&mut self, parameter: usize, gradient: &'buf mut [f32]) {
        let wrong = |problem| Rejection::Gradient { parameter, problem };
        let Some(place) = self.sync.layout.place(parameter) else {
            return self.bundle.reject(wrong(GradientProblem::Unknown));
        };
        if self.gradients[parameter].is_some() {
            return self.bundle.reject(wrong(GradientProblem::Twice));
        }
        let (given, wanted) = (gradient.len(), place.elements.len());
        if given != wanted {
            return self.bundle.reject(wrong(GradientProblem::Length { given, wanted }));
        }
        match self.sync.bucket(place.bucket, self.bundle.pool()) {
            Ok(bucket) => match self.weight {
                None => bucket[place.elements].copy_from_slice(gradient),
                Some(weight) => weight.times(gradient, &mut bucket[place.elements]),
            },
            Err(lack) => self.bundle.lacks(lack),
        }
        self.gradients[parameter] = Some(gradient);
        self.missing[place.bucket] -= 1;
        self.begin_whole();
    }

    /// Waits until all members have the mean of every gradient, then writes the means to the
    /// gradients.
    ///
    /// # Errors
    /// [Those of every call](crate::Context#errors-of-calls), for the step as a whole; the
    /// gradients then keep their pushed values. [`Error::Rejected`] if a push was invalid or a
    /// gradient was not pushed.
    pub async fn finish(mut self) -> Result<()> {
        if let Some(parameter) = self.gradients.iter().position(Option::is_none) {
            self.bundle
                .reject(Rejection::Gradient { parameter, problem: GradientProblem::Missing });
        }
        let means = std::future::poll_fn(|task| self.bundle.poll_end(task)).await?;
        for (bucket, mean) in self.sync.layout.buckets().iter().zip(means) {
            let gradients = self.gradients[bucket.clone()].iter_mut().flatten();
            mean.copy_to_all(gradients.map(|gradient| target_of(gradient)));
        }
        Ok(())
    }

    /// Begins the reductions of the next complete buckets, in the same order on every member.
    fn begin_whole(&mut self) {
        while self.missing.get(self.begun) == Some(&0) {
            let bucket = &self.sync.buckets[self.begun];
            // Where there was no memory for a bucket, the step has been given up.
            if bucket.elements.len() == self.sync.layout.bucket_len(self.begun) {
                let codec = bucket.codec.as_ref();
                let op = if self.weight.is_some() { ReduceOp::Sum } else { ReduceOp::Mean };
                let (kind, count) = (CallKind::AllReduce(op), bucket.elements.len() as u64);
                let call = Call {
                    codec: codec.map_or(CodecId::None, Codec::id),
                    mode: CallMode::PerStep,
                    ..Call::new(kind, DType::F32, count)
                };
                let feedback = codec.and_then(Codec::feedback);
                self.weight.iter().for_each(|weight| self.bundle.weighted_by(*weight));
                self.bundle.begin(call, &Input::shared(&bucket.elements), feedback);
            }
            self.begun += 1;
        }
    }
}

impl GradientSync {
    /// Begins a step in the newest View.
    ///
    /// # Errors
    /// [Those of every call](crate::Context#errors-of-calls). [`Error::NeedsSync`] if the members
    /// do not hold the same state yet. [`Error::Rejected`] on every member if their parameters or
    /// buckets differ.
    ///
    /// *Cancellation.* If dropped while the members compare their layouts, the next call continues
    /// the comparison. If dropped before that, nothing has been sent.
    pub async fn step<'buf>(&mut self) -> Result<GradientStep<'_, 'buf>> {
        let view = self.context().await?.view_digest();
        // The View of an older comparison has ended, so it resolves; its result is not needed.
        if let Some((_, asked)) = self.asking.as_mut().filter(|(asked, _)| *asked != view) {
            let _ = asked.await;
            self.asking = None;
        }
        // Always present: `context` above has set it.
        let Some(context) = &mut self.context else { return Err(Error::Closed) };
        if self.agreed != Some(view) {
            let digest = self.layout.digest();
            let (_, asked) =
                self.asking.get_or_insert_with(|| (view, context.all_gather_owned(vec![digest])));
            let digests = asked.await;
            self.asking = None;
            if let Some(other) = digests?.iter().position(|other| *other != digest) {
                return Err(Error::Rejected(Rejection::Layout { rank: Rank::from(other) }));
            }
            self.agreed = Some(view);
        }
        let bundle = context.bundle();
        Ok(GradientStep::new(self, bundle))
    }
}
