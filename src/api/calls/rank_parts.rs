//! The result of an uneven call.

use crate::protocol::Rank;
use std::ops::Range;

/// One part from each rank, in rank order, of any lengths, in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankParts<T> {
    elements: Vec<T>,
    lengths: Vec<usize>,
}

impl<T> RankParts<T> {
    /// The lengths add up to the number of elements.
    pub(super) fn new(elements: Vec<T>, lengths: Vec<usize>) -> RankParts<T> {
        RankParts { elements, lengths }
    }

    /// The part from a rank; empty if there is no such rank.
    pub fn of(&self, rank: impl Into<Rank>) -> &[T] {
        &self.elements[self.range(rank)]
    }

    /// The place of a rank's part among [all elements](RankParts::elements).
    pub fn range(&self, rank: impl Into<Rank>) -> Range<usize> {
        let rank = rank.into().index();
        let start = self.lengths.iter().take(rank).sum();
        start..start + self.lengths.get(rank).copied().unwrap_or(0)
    }

    /// The length of each rank's part.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The parts in rank order.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        let mut rest = self.elements.as_slice();
        self.lengths.iter().map(move |length| {
            let (part, others) = rest.split_at(*length);
            rest = others;
            part
        })
    }

    /// All parts, one after the other.
    pub fn elements(&self) -> &[T] {
        &self.elements
    }

    /// All parts, one after the other.
    pub fn into_elements(self) -> Vec<T> {
        self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_part() {
        let parts = RankParts::new(vec![1, 2, 3, 4], vec![1, 0, 3]);
        assert_eq!((parts.of(0), parts.of(1), parts.of(2)), (&[1][..], &[][..], &[2, 3, 4][..]));
        assert_eq!((parts.of(3), parts.range(2)), (&[][..], 1..4));
        assert_eq!(parts.iter().map(<[i32]>::len).collect::<Vec<_>>(), parts.lengths());
        assert_eq!(parts.into_elements(), [1, 2, 3, 4]);
    }
}
