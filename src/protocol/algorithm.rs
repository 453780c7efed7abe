//! The algorithms of a collective call, with their parameters.

use super::engine::EngineKind;
use super::rank::{MEMBERS_MAX, Rank};
use super::tree::Tree;
use crate::wire::layout::{List, layout};

/// A collective algorithm with its parameters: which rank sends which part to which other rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Every rank sends its whole buffer to every other rank, and adds all of them in rank order.
    /// One step; for small buffers.
    OneShot,
    /// Reduce-scatter and all-gather around a ring in this order, with several chunks in flight
    /// (Patarasuk and Yuan 2009).
    Ring {
        /// Every rank exactly once. Each sends to the next one, the last one to the first.
        order: Vec<Rank>,
    },
    /// Several trees: each reduces its share of the buffer up to its root and broadcasts the result
    /// down. A weighted mesh is one star per member.
    Trees {
        /// In the order of their segments of the buffer; at most
        /// [`Algorithm::TREES_MAX`].
        trees: Vec<TreeShare>,
    },
    /// Every rank receives all whole buffers over Gloo's buffers and adds them in rank order. One
    /// step for two members.
    GlooExchange,
    /// Gloo's ring: reduce-scatter and all-gather in rank order. Each rank sends to the rank before
    /// it.
    GlooRing,
    /// Gloo's bcube: recursive halving and doubling in groups of two while the size is even, then
    /// in one group of all remaining ranks.
    GlooBcube,
}

layout! {
    enum Algorithm {
        1 => OneShot,
        2 => Ring { order: List(MEMBERS_MAX) },
        3 => GlooRing,
        4 => GlooBcube,
        5 => GlooExchange,
        6 => Trees { trees: List(Algorithm::TREES_MAX) },
    }
}

/// A tree and its share of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreeShare {
    /// A tree of all ranks.
    pub tree: Tree,
    /// The share in millionths; the shares of all trees add up to a million.
    pub ppm: u32,
}

layout!(TreeShare { tree, ppm });

impl Algorithm {
    /// The maximum number of trees.
    pub const TREES_MAX: usize = MEMBERS_MAX;

    /// One tree for all of a buffer.
    pub fn tree(tree: Tree) -> Algorithm {
        Algorithm::Trees { trees: vec![TreeShare { tree, ppm: 1_000_000 }] }
    }

    /// The engine that executes this schedule.
    pub fn engine(&self) -> EngineKind {
        match self {
            Algorithm::OneShot | Algorithm::Ring { .. } | Algorithm::Trees { .. } => {
                EngineKind::Native
            }
            Algorithm::GlooExchange | Algorithm::GlooRing | Algorithm::GlooBcube => {
                EngineKind::Gloo
            }
        }
    }

    /// The pairs that exchange data directly; `None` if the schedule uses all pairs.
    pub fn edges(&self) -> Option<impl Iterator<Item = (Rank, Rank)> + '_> {
        let (around, trees) = match self {
            Algorithm::Ring { order } => (&order[..], &[][..]),
            Algorithm::Trees { trees } => (&[][..], &trees[..]),
            _ => return None,
        };
        let around = around.iter().zip(around.iter().cycle().skip(1)).map(|(a, b)| (*a, *b));
        Some(around.chain(trees.iter().flat_map(|share| share.tree.edges())))
    }
}
