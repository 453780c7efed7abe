//! Layer: Face.
//!
//! One step's gradients, from the first that is pushed to the mean of all.

use super::GradientSync;
use crate::calls::{Bundle, Codec};
use crate::collective::{
    Call, CodecId, DType, GradientProblem, Kind, Mode, ReduceOp, Rejection, bytes_of, bytes_of_mut,
};
use crate::error::Result;
use std::time::Duration;

/// One step of a [`GradientSync`].
///
/// Dropped before it has [finished](GradientStep::finish), it is aborted for all members, and no
/// gradient was touched.
#[must_use = "a step counts only when it is finished, and is aborted for all members when it is dropped"]
pub struct GradientStep<'sync, 'buf> {
    sync: &'sync mut GradientSync,
    bundle: Bundle,
    /// By parameter: where its mean goes.
    gradients: Vec<Option<&'buf mut [f32]>>,
    /// By bucket: how many of its gradients are not here.
    missing: Vec<usize>,
    /// Buckets that are on their way: these, from the first on.
    begun: usize,
    rank: usize,
}

impl<'sync, 'buf> GradientStep<'sync, 'buf> {
    /// In the View of the Context that `sync` has.
    pub(super) fn new(sync: &'sync mut GradientSync, bundle: Bundle) -> GradientStep<'sync, 'buf> {
        let gradients = sync.layout.lens().iter().map(|_| None).collect();
        let missing = sync.layout.buckets().iter().map(ExactSizeIterator::len).collect();
        let rank = bundle.me().index();
        let mut step = GradientStep { sync, bundle, gradients, missing, begun: 0, rank };
        step.begin_whole();
        step
    }

    /// This node's rank in the step's View, `0..size`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many members the step's View has.
    pub fn size(&self) -> usize {
        self.bundle.size()
    }

    /// Gives the step up for all members when `after` has passed since
    /// [`finish`](GradientStep::finish) was first polled; the default is to wait for members that
    /// live.
    pub fn deadline(&mut self, after: Duration) {
        self.bundle.deadline(after);
    }

    /// Takes the gradient of a parameter, each once, in any order; from the last parameter to the
    /// first is best. Its contents are read now, and it is written when the step finishes.
    ///
    /// A parameter that is none, one for the second time, or a gradient of another length than was
    /// registered: the step is given up, and `finish` says why.
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
        self.sync.buckets[place.bucket].elements[place.elements].copy_from_slice(gradient);
        self.gradients[parameter] = Some(gradient);
        self.missing[place.bucket] -= 1;
        self.begin_whole();
    }

    /// Waits until all members hold the mean of every gradient, and writes them.
    ///
    /// # Errors
    /// As every collective has them, for the step as a whole; the gradients are as they were
    /// pushed. [`Error::Rejected`](crate::Error::Rejected) when a push made no sense or a gradient
    /// was not pushed.
    pub async fn finish(mut self) -> Result<()> {
        if let Some(parameter) = self.gradients.iter().position(Option::is_none) {
            self.bundle
                .reject(Rejection::Gradient { parameter, problem: GradientProblem::Missing });
        }
        let means = std::future::poll_fn(|task| self.bundle.poll_end(task)).await?;
        for (bucket, mean) in self.sync.buckets.iter_mut().zip(means) {
            mean.copy_to(bytes_of_mut(&mut bucket.elements));
        }
        for (parameter, gradient) in self.gradients.iter_mut().enumerate() {
            if let Some((gradient, place)) =
                gradient.as_mut().zip(self.sync.layout.place(parameter))
            {
                gradient.copy_from_slice(&self.sync.buckets[place.bucket].elements[place.elements]);
            }
        }
        Ok(())
    }

    /// Begins the next buckets, as far as they are whole: on every member in the same order.
    fn begin_whole(&mut self) {
        while self.missing.get(self.begun) == Some(&0) {
            let bucket = &self.sync.buckets[self.begun];
            let codec = bucket.codec.as_ref();
            let call = Call {
                kind: Kind::AllReduce(ReduceOp::Mean),
                dtype: DType::F32,
                count: bucket.elements.len() as u64,
                codec: codec.map_or(CodecId::None, Codec::id),
                mode: Mode::PerStep,
            };
            self.bundle.begin_owing(
                call,
                Some(bytes_of(&bucket.elements)),
                codec.and_then(Codec::account),
            );
            self.begun += 1;
        }
    }
}
