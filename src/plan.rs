//! Layer: Face.
//!
//! How the members of a View talk, for whoever wants to know.

use crate::collective::{Coarsest, CodecId};
use crate::topology::{self, Schedule};
use crate::view::Rank;
use std::fmt;
use std::sync::Arc;

/// How the members of a View move a buffer, as it is now. Another one may take its place while the
/// View stays: once it is known what the links carry, see [`Context::plan`](crate::Context::plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    plan: Arc<topology::Plan>,
}

/// What a plan does with buffers up to a size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeClass {
    /// Largest buffer in bytes; `u64::MAX` for the last class.
    pub bytes_max: u64,
    /// Bytes that travel and are added as one piece.
    pub chunk_bytes: u32,
    /// Who sends what to whom.
    pub way: Way,
}

/// Who sends what to whom. Ranks are places in the View.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Everybody sends its whole buffer to everybody.
    Exchange,
    /// Round a ring in this order.
    Ring(Vec<usize>),
    /// Up several trees and down again.
    Trees(Vec<WeightedTree>),
    /// As Gloo does it: one of `exchange`, `ring`, `bcube`.
    Gloo(&'static str),
}

/// A tree, and how much of a buffer goes over it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightedTree {
    /// Of each rank the one above it; `None` of the root.
    pub parents: Vec<Option<usize>>,
    /// Its share in millionths.
    pub ppm: u32,
}

impl Plan {
    pub(crate) fn new(plan: Arc<topology::Plan>) -> Plan {
        Plan { plan }
    }

    /// 0 for the plan that the View came with, more for those that took its place.
    pub fn revision(&self) -> u32 {
        self.plan.revision
    }

    /// Why it is as it is, in one sentence; with the times it promises against others, where the
    /// links were measured.
    pub fn explain(&self) -> &str {
        &self.plan.reason
    }

    /// Which codec [`Codec::auto_up_to`](crate::Codec::auto_up_to) this one is for a buffer of so
    /// many bytes; [`CodecId::None`] where it is none.
    pub fn codec(&self, coarsest: Coarsest, bytes: u64) -> CodecId {
        self.plan.class_for(bytes).auto.up_to(coarsest).codec()
    }

    /// How the contribution of a rank to such a call is encoded: by that codec, or not at all where
    /// all its ways to those who add are fast. Then it counts as it is, and with error feedback
    /// nothing is owed.
    pub fn codec_of(&self, rank: usize, coarsest: Coarsest, bytes: u64) -> CodecId {
        self.plan.class_for(bytes).auto.up_to(coarsest).of(Rank::clamped(rank))
    }

    /// What it does, by growing size.
    pub fn classes(&self) -> Vec<SizeClass> {
        let class = |c: &topology::PlanClass| SizeClass {
            bytes_max: c.bytes_max,
            chunk_bytes: c.chunk_bytes,
            way: way(&c.schedule),
        };
        self.plan.classes.iter().map(class).collect()
    }
}

fn way(schedule: &Schedule) -> Way {
    let parents =
        |tree: &topology::Tree| tree.parents.iter().map(|parent| parent.map(Rank::index)).collect();
    match schedule {
        Schedule::OneShot => Way::Exchange,
        Schedule::Ring { order } => Way::Ring(order.iter().map(|rank| rank.index()).collect()),
        Schedule::Trees { trees } => Way::Trees(
            trees.iter().map(|t| WeightedTree { parents: parents(&t.tree), ppm: t.ppm }).collect(),
        ),
        Schedule::GlooExchange => Way::Gloo("exchange"),
        Schedule::GlooRing => Way::Gloo("ring"),
        Schedule::GlooBcube => Way::Gloo("bcube"),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_told_as_it_is() {
        let tree = topology::TreeShare { tree: topology::Tree::star(Rank(1), 3), ppm: 1_000_000 };
        let mut plan = topology::Plan::mesh(3);
        let first = topology::PlanClass {
            bytes_max: 9,
            schedule: Schedule::Trees { trees: vec![tree] },
            ..plan.classes[0].clone()
        };
        plan.classes.insert(0, first);
        let told = Plan::new(Arc::new(plan));
        let classes = told.classes();
        let parents = vec![Some(1), None, Some(1)];
        assert_eq!(classes[0].way, Way::Trees(vec![WeightedTree { parents, ppm: 1_000_000 }]));
        assert_eq!((classes[0].bytes_max, &classes[1].way, classes.len()), (9, &Way::Exchange, 2));
        assert_eq!((told.revision(), told.to_string().as_str()), (0, told.explain()));
    }
}
