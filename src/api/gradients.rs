//! Averages gradients over all members during the backward pass.

mod layout;
mod step;

use super::calls::{AllGatherOwned, Codec};
use super::cluster::Cluster;
use super::context::Context;
use crate::memory::{OutOfMemory, Pool};
use crate::protocol::ViewDigest;
use crate::report::Result;
use layout::Layout;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
pub use step::GradientStep;

/// Averages the gradients of a model over all members, step by step.
///
/// It belongs to a [`Cluster`], not to a View: each [`step`](GradientSync::step) runs in the newest
/// View, and the codec's residual is carried over. Register the parameters once by their lengths,
/// in the order in which the forward pass uses them. Neighbouring parameters form *buckets*. A
/// bucket is reduced as soon as all its gradients are [pushed](GradientStep::push) and the buckets
/// before it have begun, while the program computes the next gradients. So push gradients in the
/// order of a backward pass: from the last parameter to the first.
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
/// use potluck::{Cluster, Codec, GradientSync, Result};
///
/// async fn train(cluster: &Cluster, model: &mut Model) -> Result<()> {
///     let codec = Codec::int4().with_feedback();
///     let mut gradients = GradientSync::new(cluster, &model.lens()).compress(codec);
///     while model.step < 1000 {
///         match train_step(&mut gradients, model).await {
///             Err(error) if error.can_renew() => {} // sync, and do the step again
///             other => other?,
///         }
///     }
///     Ok(())
/// }
///
/// async fn train_step(gradients: &mut GradientSync, model: &mut Model) -> Result<()> {
///     let ctx = gradients.context().await?;
///     ctx.sync_with(model.step, model, Model::to_bytes, Model::load).await?;
///     let mut step = gradients.step().await?;
///     let mut means = model.backward(step.rank().index(), step.size()); // on this rank's samples
///     for (parameter, gradient) in means.iter_mut().enumerate().rev() {
///         step.push(parameter, gradient);
///     }
///     step.finish().await?;
///     model.apply(&means); // the same bits on every rank
///     Ok(())
/// }
/// ```
///
/// *Semantics.* All buckets of a step are committed together or not at all, like the calls of a
/// [`Step`](super::calls::Step). The first step in each View begins with a small call in which the
/// members compare their lengths and buckets. *Determinism.* The mean of a bucket equals that of
/// one `all_reduce` of all its gradients in the order of their registration. *Failure.*
/// [`finish`](GradientStep::finish) writes all gradients, and only on `Ok`. The residual of a codec
/// [with feedback](Codec::with_feedback) changes only with committed steps.
///
/// As for every call, dropping a `finish` after this member's vote leaves an unclaimed result. Each
/// later [`finish`](GradientStep::finish), and each [`step`](GradientSync::step) that begins in a
/// new View, then returns [`Error::LostResult`](crate::Error::LostResult) until
/// `context().await?.discard_result()`, and the model must be brought up to date by other means.
///
/// The calls use their own lane, which must not be used otherwise: the [`Context::lane`] with the
/// tag [`LANE`](GradientSync::LANE).
pub struct GradientSync {
    cluster: Cluster,
    layout: Layout,
    /// The memory and the codec of each bucket.
    buckets: Vec<Bucket>,
    codec: Option<Codec>,
    /// This member's weight in the next step, if its means are weighted.
    weight: Option<f64>,
    /// The newest View's Context when it was last fetched.
    context: Option<Context>,
    /// The View whose members have confirmed that their layouts are equal.
    agreed: Option<ViewDigest>,
    /// The comparison of layouts in progress, with its View. It outlives a dropped `step`, since
    /// the other members may already have its result.
    asking: Option<(ViewDigest, AllGatherOwned<u64>)>,
}

/// The state of a bucket that is kept from step to step.
struct Bucket {
    /// Empty until the first step. Shared with the engine, which may read it.
    elements: Arc<Vec<f32>>,
    codec: Option<Codec>,
}

impl GradientSync {
    /// The tag of its lane.
    pub const LANE: u32 = u32::from_be_bytes(*b"grad");

    /// The default of [`bucket_bytes`](GradientSync::bucket_bytes): 1 MiB.
    const BUCKET_BYTES: usize = 1024 * 1024;

    /// For parameters with these numbers of elements, in the order in which a forward pass uses
    /// them; the same on every member. Sends nothing yet.
    pub fn new(cluster: &Cluster, lens: &[usize]) -> GradientSync {
        let layout = Layout::new(lens, GradientSync::BUCKET_BYTES / size_of::<f32>());
        let sync = GradientSync {
            cluster: cluster.clone(),
            layout,
            buckets: Vec::new(),
            codec: None,
            weight: None,
            context: None,
            agreed: None,
            asking: None,
        };
        sync.laid_out()
    }

    /// Compresses the data on the wire; every member must use the same codec. Each bucket gets its
    /// own copy of `codec`, without a residual. Default: uncompressed f32.
    pub fn compress(mut self, codec: Codec) -> GradientSync {
        self.codec = Some(codec);
        self.laid_out()
    }

    /// The maximum size of a bucket in bytes of f32, unless a single parameter is larger; the same
    /// on every member. Default: 1 MiB.
    ///
    /// Small buckets leave early and hide more of the communication behind the backward pass; each
    /// bucket costs a few small messages. If there would be more than 63 buckets, the size is
    /// doubled until there are not.
    pub fn bucket_bytes(mut self, bytes: usize) -> GradientSync {
        self.layout = Layout::new(self.layout.lens(), bytes / size_of::<f32>());
        self.laid_out()
    }

    /// Makes the means of the next step weighted means, see
    /// [`AllReduce::weighted`](crate::calls::AllReduce::weighted): each gradient counts `weight`
    /// times, for example this member's number of samples. Every member must give a weight for that
    /// step. The weight stays until a step begins, or until
    /// [`unweighted`](GradientSync::unweighted).
    ///
    /// A step with a negative, infinite or NaN weight is
    /// [`Error::Rejected`](crate::Error::Rejected) when it finishes; one whose weights are all 0
    /// ends with [`Cause::Weights`](crate::Cause::Weights) on every member. The residual of a codec
    /// with feedback is one of weighted gradients.
    ///
    /// ```no_run
    /// # use potluck::GradientSync;
    /// # async fn example(
    /// #     gradients: &mut GradientSync,
    /// #     samples: usize,
    /// #     mut gradient: Vec<f32>,
    /// # ) -> potluck::Result<()> {
    /// let mut step = gradients.weighted(samples as f64).step().await?;
    /// step.push(0, &mut gradient);
    /// step.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn weighted(&mut self, weight: f64) -> &mut GradientSync {
        self.weight = Some(weight);
        self
    }

    /// Makes the means of the next step plain ones: takes back the weight of a step that has not
    /// begun.
    pub fn unweighted(&mut self) -> &mut GradientSync {
        self.weight = None;
        self
    }

    /// The parameters of each bucket, in the order in which buckets are reduced: from the last
    /// parameters to the first.
    pub fn buckets(&self) -> &[Range<usize>] {
        self.layout.buckets()
    }

    /// The residual of each bucket's gradients, see [`Codec::residual`].
    pub fn residuals(&self) -> Vec<Vec<f32>> {
        self.buckets
            .iter()
            .map(|bucket| bucket.codec.as_ref().map(Codec::residual).unwrap_or_default())
            .collect()
    }

    /// The newest View's Context, in the lane of the gradients: for the [`sync`](Context::sync) of
    /// the model before a step. Waits for a View without limit. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) if the node has left.
    pub async fn context(&mut self) -> Result<&mut Context> {
        let newest = self.cluster.context().await?;
        Ok(self.context.insert(newest.lane(GradientSync::LANE)))
    }

    fn laid_out(mut self) -> GradientSync {
        let codec = || self.codec.as_ref().map(Codec::with_empty_residual);
        let bucket = |_| Bucket { elements: Arc::default(), codec: codec() };
        self.buckets = (0..self.layout.buckets().len()).map(bucket).collect();
        self
    }

    /// The memory of a bucket that is not complete yet. Allocated by the step that uses it first,
    /// and where a thread still reads the bucket of an earlier step.
    fn bucket(
        &mut self,
        bucket: usize,
        pool: &Pool,
    ) -> std::result::Result<&mut [f32], OutOfMemory> {
        let len = self.layout.bucket_len(bucket);
        let elements = &mut self.buckets[bucket].elements;
        if elements.len() != len || Arc::get_mut(elements).is_none() {
            *elements = Arc::new(pool.elements(len)?);
        }
        Ok(Arc::get_mut(elements).map(Vec::as_mut_slice).unwrap_or_default())
    }
}

impl fmt::Debug for GradientSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parameters, buckets) = (self.layout.lens().len(), self.buckets.len());
        write!(f, "GradientSync({parameters} parameters in {buckets} buckets, {:?})", self.codec)
    }
}
