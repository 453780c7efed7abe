//! Layer: Face.
//!
//! The mean of gradients over all members, while the backward pass goes on.

mod layout;
mod step;

pub use step::GradientStep;

use crate::calls::{AllGatherOwned, Codec};
use crate::cluster::Cluster;
use crate::collective::Rejection;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::view::{Rank, ViewDigest};
use layout::Layout;
use std::fmt;
use std::ops::Range;

/// The gradients of a model, of which each step takes the mean over all members.
///
/// It belongs to a [`Cluster`], not to a View: each [`step`](GradientSync::step) is in the newest
/// one, and what a codec owes goes along. Parameters are registered once by their lengths, in the
/// order in which the forward pass uses them. Neighbours travel together in *buckets*; a bucket is
/// on its way as soon as all its gradients are [pushed](GradientStep::push), while the program
/// computes the next. So push as a backward pass gets them: from the last parameter to the first.
///
/// ```no_run
/// # struct Model { step: u64, parameters: Vec<Vec<f32>> }
/// # impl Model {
/// #     fn lens(&self) -> Vec<usize> { vec![] }
/// #     fn to_bytes(&self) -> Vec<u8> { vec![] }
/// #     fn load(&mut self, _: &[u8]) {}
/// #     fn backward(&self, _: usize, _: usize) -> Vec<Vec<f32>> { vec![] }
/// #     fn apply(&mut self, _: &[Vec<f32>]) {}
/// # }
/// use potluck::{Cluster, Codec, Error, GradientSync, Result};
///
/// async fn train(cluster: &Cluster, model: &mut Model) -> Result<()> {
///     let mut gradients = GradientSync::new(cluster, &model.lens()).compress(Codec::int4().with_feedback());
///     while model.step < 1000 {
///         match train_step(&mut gradients, model).await {
///             Err(error) if error.is_retryable() => {} // the same step again, with whoever is there now
///             Err(Error::Indeterminate) => {}          // cut off: the others have the state
///             other => other?,
///         }
///     }
///     Ok(())
/// }
///
/// async fn train_step(gradients: &mut GradientSync, model: &mut Model) -> Result<()> {
///     let mut state = model.to_bytes();
///     gradients.context().await?.sync(model.step, &mut state).await?;
///     model.load(&state);
///     let mut step = gradients.step().await?;
///     let mut means = model.backward(step.rank(), step.size()); // of this rank's share of the samples
///     for (parameter, gradient) in means.iter_mut().enumerate().rev() {
///         step.push(parameter, gradient);
///     }
///     step.finish().await?;
///     model.apply(&means); // the same bits on every rank
///     Ok(())
/// }
/// ```
///
/// *Semantics.* All buckets of a step count together or not at all, as the calls of a
/// [`Step`](crate::Step) do. The first step in each View is preceded by a small call in which the
/// members compare their lengths and buckets. *Determinism.* The mean of a bucket is that of one
/// `all_reduce` of all its gradients in the order of their registration. *Failure.* Gradients are
/// written by [`finish`](GradientStep::finish), all of them and only on `Ok`. What a codec [with
/// feedback](Codec::with_feedback) owes changes with the steps that count.
///
/// A `finish` that is dropped after this member's vote leaves a result that nobody waits for, as
/// every call does: the next step is [`Error::LostResult`] until
/// `context().await?.discard_result()`, and the model must be brought up to date by other means.
///
/// Its calls have a lane of their own, which no other may use: [`Context::lane`] of the tag
/// [`LANE`](GradientSync::LANE).
pub struct GradientSync {
    cluster: Cluster,
    layout: Layout,
    /// The memory of each bucket, and its codec.
    buckets: Vec<Bucket>,
    codec: Option<Codec>,
    /// The newest View, as far as it has been looked for.
    context: Option<Context>,
    /// The View whose members have found that their layouts are the same.
    agreed: Option<ViewDigest>,
    /// The question in a View whether they are. It outlives the step that has asked: the others
    /// have an answer where this one may be dropped.
    asking: Option<(ViewDigest, AllGatherOwned<u64>)>,
}

/// What is kept of a bucket from step to step.
struct Bucket {
    elements: Vec<f32>,
    codec: Option<Codec>,
}

impl GradientSync {
    /// The tag of the lane in which it calls.
    pub const LANE: u32 = u32::from_be_bytes(*b"grad");

    /// Bytes of a bucket unless [`bucket_bytes`](GradientSync::bucket_bytes) says otherwise: 1 MiB.
    const BUCKET_BYTES: usize = 1024 * 1024;

    /// Of parameters with so many elements each, in the order in which a forward pass uses them.
    /// The same on every member. Nothing is sent yet.
    pub fn new(cluster: &Cluster, lens: &[usize]) -> GradientSync {
        let layout = Layout::new(lens, GradientSync::BUCKET_BYTES / size_of::<f32>());
        let sync = GradientSync {
            cluster: cluster.clone(),
            layout,
            buckets: Vec::new(),
            codec: None,
            context: None,
            agreed: None,
            asking: None,
        };
        sync.laid_out()
    }

    /// Encodes what goes over the wire; every member must use the same codec. Each bucket has one
    /// like `codec` of its own, that owes nothing yet. Default: f32 as it is.
    pub fn compress(mut self, codec: Codec) -> GradientSync {
        self.codec = Some(codec);
        self.laid_out()
    }

    /// Bytes of f32 that a bucket has at most, unless a parameter alone has more; the same on every
    /// member. Default: 1 MiB.
    ///
    /// Small ones leave early and hide more of the time on the wire behind the backward pass; each
    /// one costs a few small messages. When it were more than 64 buckets, they are larger.
    pub fn bucket_bytes(mut self, bytes: usize) -> GradientSync {
        self.layout = Layout::new(self.layout.lens(), bytes / size_of::<f32>());
        self.laid_out()
    }

    /// Which parameters are in each bucket, in the order in which buckets leave: from the last ones
    /// to the first.
    pub fn buckets(&self) -> &[Range<usize>] {
        self.layout.buckets()
    }

    /// What is owed to the gradients of each bucket, see [`Codec::owed`].
    pub fn owed(&self) -> Vec<Vec<f32>> {
        self.buckets
            .iter()
            .map(|bucket| bucket.codec.as_ref().map(Codec::owed).unwrap_or_default())
            .collect()
    }

    /// The newest View's Context, in the lane of the gradients: for the [`sync`](Context::sync) of
    /// the model before a step. Waits for a View without bound. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node has left.
    pub async fn context(&mut self) -> Result<&mut Context> {
        let newest = self.cluster.context().await?;
        Ok(self.context.insert(newest.lane(GradientSync::LANE)))
    }

    /// Begins a step in the newest View.
    ///
    /// # Errors
    /// As every collective has them; [`Error::NeedsSync`] where the members do not hold the same
    /// state yet. [`Error::Rejected`] on every member when they have registered different
    /// parameters, or cut them into different buckets.
    ///
    /// *Cancellation.* Dropped while the members compare their layouts, it goes on with that when
    /// it is called again; before that it has asked for nothing.
    pub async fn step<'buf>(&mut self) -> Result<GradientStep<'_, 'buf>> {
        let view = self.context().await?.view_digest();
        // That of a View that has ended has its answer, which is of no use any more.
        if let Some((_, asked)) = self.asking.as_mut().filter(|(asked, _)| *asked != view) {
            let _ = asked.await;
            self.asking = None;
        }
        // It has just been put there.
        let Some(context) = &mut self.context else { return Err(Error::Closed) };
        if self.agreed != Some(view) {
            let digest = self.layout.digest();
            let (_, asked) =
                self.asking.get_or_insert_with(|| (view, context.all_gather_owned(vec![digest])));
            let digests = asked.await;
            self.asking = None;
            if let Some(other) = digests?.iter().position(|other| *other != digest) {
                return Err(Error::Rejected(Rejection::Layout { rank: Rank::clamped(other) }));
            }
            self.agreed = Some(view);
        }
        let bundle = context.bundle();
        Ok(GradientStep::new(self, bundle))
    }

    fn laid_out(mut self) -> GradientSync {
        let codec = || self.codec.as_ref().map(Codec::owing_nothing);
        let bucket =
            |bucket| Bucket { elements: vec![0.0; self.layout.bucket_len(bucket)], codec: codec() };
        self.buckets = (0..self.layout.buckets().len()).map(bucket).collect();
        self
    }
}

impl fmt::Debug for GradientSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parameters, buckets) = (self.layout.lens().len(), self.buckets.len());
        write!(f, "GradientSync({parameters} parameters in {buckets} buckets, {:?})", self.codec)
    }
}
