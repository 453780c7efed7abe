//! The plan of a View for users of the crate, read from the [`Plan`] of the protocol.

use crate::protocol::{Algorithm as PlannedAlgorithm, Coarsest, CodecId, Plan, PlanClass, Rank};
use std::fmt;
use std::sync::Arc;

/// The plan of a View: how its collectives move a buffer. This is a snapshot. Another plan can
/// replace it inside the same View once the links are measured, see
/// [`Context::plan`](crate::Context::plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPlan {
    plan: Arc<Plan>,
}

/// The algorithm for buffers of one size class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeClass {
    /// Largest buffer in bytes; `u64::MAX` for the last class.
    pub bytes_max: u64,
    /// Size in bytes of the pieces in which a buffer is sent and reduced.
    pub chunk_bytes: u32,
    /// The algorithm.
    pub algorithm: Algorithm,
}

/// The algorithm of a size class: which rank sends which part to which other rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Every rank sends its whole buffer to every other rank.
    Exchange,
    /// A ring in this rank order.
    Ring(Vec<Rank>),
    /// Several trees: up to their roots and down again.
    Trees(Vec<WeightedTree>),
    /// An algorithm of Gloo: `exchange`, `ring` or `bcube`.
    Gloo(&'static str),
}

/// A tree and its share of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightedTree {
    /// The parent of each rank; `None` for the root.
    pub parents: Vec<Option<Rank>>,
    /// The share in millionths; the shares of all trees add up to a million.
    pub ppm: u32,
}

impl ViewPlan {
    pub(crate) fn new(plan: Arc<Plan>) -> ViewPlan {
        ViewPlan { plan }
    }

    /// 0 for the View's first plan, larger for each plan that replaced it.
    pub fn revision(&self) -> u32 {
        self.plan.revision
    }

    /// The reason for this plan, in one sentence. If the links were measured, it compares the
    /// predicted duration with those of other schedules.
    pub fn explain(&self) -> &str {
        &self.plan.reason
    }

    /// The codec that [`Codec::auto_up_to`](crate::Codec::auto_up_to) selects for a buffer of
    /// `bytes` bytes; [`CodecId::None`] if it selects none.
    pub fn codec(&self, coarsest: Coarsest, bytes: u64) -> CodecId {
        self.plan.class_for(bytes).auto.up_to(coarsest).codec()
    }

    /// The codec that encodes the contribution of `rank` to such a call: that of
    /// [`ViewPlan::codec`], or [`CodecId::None`] if all uplinks of this rank in the plan's trees
    /// are fast. Such a contribution is added exactly, and error feedback keeps no residual for it.
    pub fn codec_of(&self, rank: impl Into<Rank>, coarsest: Coarsest, bytes: u64) -> CodecId {
        self.plan.class_for(bytes).auto.up_to(coarsest).of(rank.into())
    }

    /// The size classes, by increasing size.
    pub fn classes(&self) -> Vec<SizeClass> {
        let class = |c: &PlanClass| SizeClass {
            bytes_max: c.bytes_max,
            chunk_bytes: c.chunk_bytes,
            algorithm: algorithm(&c.algorithm),
        };
        self.plan.classes.iter().map(class).collect()
    }
}

fn algorithm(algorithm: &PlannedAlgorithm) -> Algorithm {
    match algorithm {
        PlannedAlgorithm::OneShot => Algorithm::Exchange,
        PlannedAlgorithm::Ring { order } => Algorithm::Ring(order.clone()),
        PlannedAlgorithm::Trees { trees } => Algorithm::Trees(
            trees
                .iter()
                .map(|t| WeightedTree { parents: t.tree.parents.clone(), ppm: t.ppm })
                .collect(),
        ),
        PlannedAlgorithm::GlooExchange => Algorithm::Gloo("exchange"),
        PlannedAlgorithm::GlooRing => Algorithm::Gloo("ring"),
        PlannedAlgorithm::GlooBcube => Algorithm::Gloo("bcube"),
    }
}

impl fmt::Display for ViewPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_told_as_it_is() {
        let mut plan = Plan::mesh(3);
        let star = PlannedAlgorithm::tree(crate::protocol::Tree::star(Rank(1), 3));
        plan.classes
            .insert(0, PlanClass { algorithm: star, bytes_max: 9, ..plan.classes[0].clone() });
        let told = ViewPlan::new(Arc::new(plan));
        let classes = told.classes();
        let parents = vec![Some(Rank(1)), None, Some(Rank(1))];
        assert_eq!(
            classes[0].algorithm,
            Algorithm::Trees(vec![WeightedTree { parents, ppm: 1_000_000 }])
        );
        assert_eq!(
            (classes[0].bytes_max, &classes[1].algorithm, classes.len()),
            (9, &Algorithm::Exchange, 2)
        );
        assert_eq!((told.revision(), told.to_string().as_str()), (0, told.explain()));
    }
}
