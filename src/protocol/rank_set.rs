//! A set of ranks of a View.

use super::rank::{MEMBERS_MAX, Rank};
use crate::wire::layout::layout;
use std::fmt;

/// A set of ranks of a View, as a bit mask.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankSet(u32);

layout!(RankSet(bits));

impl RankSet {
    /// The empty set.
    pub const EMPTY: RankSet = RankSet(0);

    /// The set of all ranks that can exist.
    pub const ALL: RankSet = RankSet(u32::MAX >> (u32::BITS - MEMBERS_MAX as u32));

    /// The set with these bits; bit `r` stands for rank `r`.
    pub fn of_bits(bits: u32) -> RankSet {
        RankSet(bits)
    }

    /// Its bits; bit `r` stands for rank `r`.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether the set contains a rank.
    pub fn contains(self, rank: Rank) -> bool {
        self.0 & bit(rank) != 0
    }

    /// The same set with this rank; a rank that cannot exist changes nothing.
    #[must_use]
    pub fn with(self, rank: Rank) -> RankSet {
        RankSet(self.0 | bit(rank))
    }

    /// Adds a rank; returns whether it is new. A rank that cannot exist changes nothing.
    pub fn insert(&mut self, rank: Rank) -> bool {
        let before = *self;
        *self = self.with(rank);
        *self != before
    }

    /// The same set without this rank.
    #[must_use]
    pub fn without(self, rank: Rank) -> RankSet {
        RankSet(self.0 & !bit(rank))
    }

    /// The ranks of either set.
    #[must_use]
    pub fn union(self, other: RankSet) -> RankSet {
        RankSet(self.0 | other.0)
    }

    /// The ranks of both sets.
    #[must_use]
    pub fn both(self, other: RankSet) -> RankSet {
        RankSet(self.0 & other.0)
    }

    /// Whether some rank is in both sets.
    pub fn overlaps(self, other: RankSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all its ranks are in the other set.
    pub fn is_within(self, other: RankSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Number of ranks.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == RankSet::EMPTY
    }

    /// The ranks in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        (0..MEMBERS_MAX as u8).map(Rank).filter(move |rank| self.contains(*rank))
    }

    /// Whether it is a proper subset of the first `size` ranks.
    pub fn is_part_of(self, size: usize) -> bool {
        self.len() < size && self.iter().all(|rank| rank.index() < size)
    }
}

/// The bit of a rank; 0 for a rank that cannot exist.
fn bit(rank: Rank) -> u32 {
    1u32.checked_shl(u32::from(rank.0)).unwrap_or(0)
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> RankSet {
        RankSet(ranks.into_iter().map(bit).fold(0, |all, one| all | one))
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|rank| rank.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    fn set(ranks: &[u8]) -> RankSet {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn it_has_those_that_were_put_in() {
        let some = set(&[31, 0, 3, 3]);
        assert_codec(&some);
        assert_eq!(
            (some.len(), some.iter().map(|rank| rank.0).collect::<Vec<_>>()),
            (3, vec![0, 3, 31])
        );
        assert!(
            some.contains(Rank(31))
                && !some.contains(Rank(1))
                && !some.contains(Rank(32))
                && !some.contains(Rank(255))
        );
        assert_eq!(
            (set(&[32, 255]), format!("{some:?}")),
            (RankSet::EMPTY, "{0, 3, 31}".to_owned())
        );
    }

    #[test]
    fn a_part_is_not_the_whole() {
        assert!(
            set(&[0, 2]).is_part_of(3)
                && !set(&[0, 2]).is_part_of(2)
                && !set(&[0, 1]).is_part_of(2)
        );
        assert!(RankSet::EMPTY.is_part_of(1) && !set(&[0]).is_part_of(1));
    }
}
