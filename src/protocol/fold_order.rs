//! The order in which a schedule adds the contributions to each element, so that a sequential
//! program can compute the same sum.

use super::rank::Rank;
use super::tree::{Tree, ranks};
use std::ops::Range;

/// The order of additions for each element: the arithmetic of a sequential reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldOrder {
    /// Consecutive ranges that cover the buffer.
    pub segments: Vec<FoldSegment>,
}

/// A range of elements that are added in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldSegment {
    /// The elements.
    pub elements: Range<usize>,
    /// The order of additions.
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
    /// The sum at the root of a tree of all ranks.
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

    /// The contributions of these ranks, added from left to right.
    pub(super) fn sum_of(ranks: impl Iterator<Item = Rank>) -> FoldTree {
        FoldTree::Sum(ranks.map(FoldTree::Leaf).collect())
    }
}
