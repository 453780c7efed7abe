//! Layer: Words.
//!
//! In which order a sum is made: what a schedule does to each element, for whoever wants to make
//! the same sum alone.

use super::tree::{Tree, ranks};
use crate::view::Rank;
use std::ops::Range;

/// In which order the contributions to each element are added; the arithmetic of a sequential
/// reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldOrder {
    /// Consecutive ranges that cover the buffer.
    pub segments: Vec<FoldSegment>,
}

/// The elements that share one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldSegment {
    /// Which elements.
    pub elements: Range<usize>,
    /// How they are added.
    pub tree: FoldTree,
}

/// A nested sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldTree {
    /// This rank's contribution.
    Leaf(Rank),
    /// The parts added from left to right.
    Sum(Vec<FoldTree>),
}

impl FoldTree {
    /// What comes out at the root of a tree of all ranks.
    pub(super) fn up(tree: &Tree, size: usize) -> FoldTree {
        tree.root(size)
            .map_or_else(|| FoldTree::sum_of(ranks(size)), |root| FoldTree::below(tree, root))
    }

    fn below(tree: &Tree, node: Rank) -> FoldTree {
        let mut parts = tree.children(node);
        if parts.is_empty() {
            return FoldTree::Leaf(node);
        }
        parts.push(node);
        parts.sort_unstable();
        let part = |rank: &Rank| {
            if *rank == node { FoldTree::Leaf(node) } else { FoldTree::below(tree, *rank) }
        };
        FoldTree::Sum(parts.iter().map(part).collect())
    }

    /// From left to right.
    pub(super) fn sum_of(ranks: impl Iterator<Item = Rank>) -> FoldTree {
        FoldTree::Sum(ranks.map(FoldTree::Leaf).collect())
    }
}
