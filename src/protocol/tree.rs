//! A tree over the ranks of a View.

#[cfg(test)]
pub use testing::any_tree;

use super::rank::{MEMBERS_MAX, Rank};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// A tree over some or all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// The parent of each rank, by rank; `None` for the root and for ranks outside the tree.
    pub parents: Vec<Option<Rank>>,
}

impl Tree {
    /// A tree without edges.
    pub fn empty(size: usize) -> Tree {
        Tree { parents: vec![None; size] }
    }

    /// All other ranks are children of `root`.
    pub fn star(root: Rank, size: usize) -> Tree {
        Tree { parents: ranks(size).map(|rank| (rank != root).then_some(root)).collect() }
    }

    /// Each rank of `row` is the child of the one before it.
    pub fn chain(row: impl Iterator<Item = Rank>, size: usize) -> Tree {
        let (mut parents, mut before) = (vec![None; size], None);
        for rank in row {
            parents[rank.index()] = before.replace(rank);
        }
        Tree { parents }
    }

    /// The lowest of the breadth-first trees over these links, one from each rank; of equally low
    /// ones that with the lower root. `None` if the links do not connect all ranks.
    pub fn lowest<N: Iterator<Item = Rank>>(
        size: usize,
        neighbours: impl Fn(Rank) -> N,
    ) -> Option<Tree> {
        let trees = ranks(size).map(|root| Tree::breadth_first(size, root, &neighbours));
        trees
            .filter_map(|tree| Some((tree.height(tree.root(size)?), tree)))
            .min_by_key(|(height, _)| *height)
            .map(|(_, tree)| tree)
    }

    /// Ranks that are not reached have no parent.
    fn breadth_first<N: Iterator<Item = Rank>>(
        size: usize,
        root: Rank,
        neighbours: impl Fn(Rank) -> N,
    ) -> Tree {
        let (mut tree, mut reached, mut next) = (Tree::empty(size), vec![root], 0);
        while let Some(at) = reached.get(next).copied() {
            next += 1;
            for other in neighbours(at) {
                if !reached.contains(&other) {
                    tree.parents[other.index()] = Some(at);
                    reached.push(other);
                }
            }
        }
        tree
    }

    /// The parent of a rank; `None` for the root and for ranks outside the tree.
    pub fn parent(&self, rank: Rank) -> Option<Rank> {
        self.parents.get(rank.index()).copied().flatten()
    }

    /// The edges, each from a child to its parent.
    pub fn edges(&self) -> impl Iterator<Item = (Rank, Rank)> + '_ {
        ranks(self.parents.len()).filter_map(|rank| Some((rank, self.parent(rank)?)))
    }

    /// The ranks whose parent is `rank`, ascending.
    pub fn children(&self, rank: Rank) -> Vec<Rank> {
        ranks(self.parents.len())
            .filter(|child| self.parents[child.index()] == Some(rank))
            .collect()
    }

    /// The number of levels below `rank`. The parents must not form a cycle.
    pub fn height(&self, rank: Rank) -> usize {
        self.children(rank).into_iter().map(|child| 1 + self.height(child)).max().unwrap_or(0)
    }

    /// The root; `None` unless this is a tree of exactly `size` ranks.
    pub fn root(&self, size: usize) -> Option<Rank> {
        let mut roots = ranks(size).filter(|rank| self.parents.get(rank.index()) == Some(&None));
        let root = roots.next()?;
        let reaches = |rank| self.upwards(rank).take(size).last() == Some(root);
        (self.parents.len() == size && roots.next().is_none() && ranks(size).all(reaches))
            .then_some(root)
    }

    /// The same edges with another root. Needs a tree of all ranks.
    pub fn rerooted(&self, root: Rank) -> Tree {
        let (mut parents, mut below) = (self.parents.clone(), None);
        for rank in self.upwards(root).take(self.parents.len()) {
            parents[rank.index()] = below.replace(rank);
        }
        Tree { parents }
    }

    /// The ranks on the way from one to another along the tree, including both. Needs a tree of all
    /// ranks.
    pub fn path(&self, from: Rank, to: Rank) -> Vec<Rank> {
        let mut path: Vec<Rank> =
            self.rerooted(from).upwards(to).take(self.parents.len()).collect();
        path.reverse();
        path
    }

    /// The ranks from `from` to the root, including both. Infinite if the parents form a cycle.
    fn upwards(&self, from: Rank) -> impl Iterator<Item = Rank> + '_ {
        std::iter::successors(Some(from), |rank| self.parent(*rank))
    }
}

/// The first `size` ranks.
pub fn ranks(size: usize) -> impl Iterator<Item = Rank> {
    (0..MEMBERS_MAX as u8).map(Rank).take(size)
}

/// All pairs of two of the first `size` ranks, in both directions.
pub fn rank_pairs(size: usize) -> impl Iterator<Item = (Rank, Rank)> {
    ranks(size).flat_map(move |a| ranks(size).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// The byte for no parent.
const NOBODY: u8 = u8::MAX;

/// By hand: a byte for the number of ranks, then one for each.
impl Encode for Tree {
    fn encode(&self, out: &mut Vec<u8>) {
        // A tree has at most 32 ranks.
        out.push(self.parents.len() as u8);
        out.extend(self.parents.iter().map(|parent| parent.map_or(NOBODY, |rank| rank.0)));
    }
}

impl Decode for Tree {
    fn decode(r: &mut Reader<'_>) -> Result<Tree, Malformed> {
        let size = usize::from(r.u8()?);
        if size > MEMBERS_MAX {
            return Err(Malformed::TooLong);
        }
        let parent = |byte: u8| match byte {
            NOBODY => Ok(None),
            rank if usize::from(rank) < MEMBERS_MAX => Ok(Some(Rank(rank))),
            _ => Err(Malformed::TooLong),
        };
        Ok(Tree { parents: (0..size).map(|_| parent(r.u8()?)).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;
    use proptest::prelude::*;

    /// A random tree of all ranks of a View of `size`.
    pub fn any_tree(size: usize) -> impl Strategy<Value = Tree> {
        let order = Just(ranks(size).collect::<Vec<_>>()).prop_shuffle();
        (order, proptest::collection::vec(any::<prop::sample::Index>(), size)).prop_map(
            move |(order, above)| {
                let mut parents = vec![None; size];
                for (place, rank) in order.iter().enumerate().skip(1) {
                    parents[rank.index()] = Some(order[above[place].index(place)]);
                }
                Tree { parents }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;
    use proptest::prelude::*;

    fn tree(parents: &[i8]) -> Tree {
        Tree { parents: parents.iter().map(|p| u8::try_from(*p).ok().map(Rank)).collect() }
    }

    #[test]
    fn a_tree_survives_the_wire() {
        assert_codec(&tree(&[2, 0, -1]));
        assert_eq!(Tree::from_bytes(&[1, MEMBERS_MAX as u8]), Err(Malformed::TooLong));
        assert_eq!(Tree::from_bytes(&[MEMBERS_MAX as u8 + 1]), Err(Malformed::TooLong));
    }

    #[test]
    fn only_one_root_above_all_makes_a_tree() {
        assert_eq!(tree(&[2, 0, -1]).root(3), Some(Rank(2)));
        assert_eq!(tree(&[-1]).root(1), Some(Rank(0)));
        let wrong: [&[i8]; 5] = [&[2, 0, 1], &[-1, 0, -1], &[-1, 2, 1], &[3, 0, -1], &[-1, 0]];
        for parents in wrong {
            assert_eq!(tree(parents).root(3), None, "{parents:?}");
        }
    }

    proptest! {
        #[test]
        fn another_root_leaves_the_cables_as_they_are(
            (tree, from, to) in (1usize..=32).prop_flat_map(|size| {
                (super::testing::any_tree(size), 0..size as u8, 0..size as u8)
            }),
        ) {
            let size = tree.parents.len();
            let cables = |tree: &Tree| {
                let pairs =
                    ranks(size).filter_map(|rank| Some((rank, tree.parents[rank.index()]?)));
                pairs.map(|(a, b)| (a.min(b), a.max(b))).collect::<std::collections::BTreeSet<_>>()
            };
            let other = tree.rerooted(Rank(from));
            prop_assert_eq!(other.root(size), Some(Rank(from)));
            prop_assert_eq!(cables(&other), cables(&tree));
            let path = tree.path(Rank(from), Rank(to));
            prop_assert_eq!((path.first(), path.last()), (Some(&Rank(from)), Some(&Rank(to))));
            prop_assert!(
                path.windows(2)
                    .all(|w| cables(&tree).contains(&(w[0].min(w[1]), w[0].max(w[1]))))
            );
        }
    }
}
