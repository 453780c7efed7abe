//! The ranks of a sub-group, and how they translate.

use super::rank::Rank;
use super::rank_set::RankSet;
use super::tree::ranks;

/// The ranks of a View whose members number and make the calls of a lane: all of them, or those of
/// a sub-group.
///
/// A *rank of the View* names a member. A *rank of the group* is a place among these ranks in
/// ascending order, `0..len`; of a group of all members both are the same.
///
/// | ranks of the View | ranks of the group |
/// | --- | --- |
/// | lanes, votes, links, frames, promises | calls, plans and schedules of the lane, errors |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupRanks(RankSet);

impl GroupRanks {
    /// All ranks of a View of `size` members.
    pub fn all(size: usize) -> GroupRanks {
        GroupRanks(ranks(size).collect())
    }

    /// These ranks of a View.
    pub fn of(ranks: RankSet) -> GroupRanks {
        GroupRanks(ranks)
    }

    /// The number of ranks.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// The ranks of the View, ascending.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        self.0.iter()
    }

    /// The ranks of the View.
    pub fn set(self) -> RankSet {
        self.0
    }

    /// The rank of the View that has this rank of the group; `None` if the group is smaller.
    pub fn in_view(self, rank: Rank) -> Option<Rank> {
        self.0.iter().nth(rank.index())
    }

    /// The rank of the group that has this rank of the View; `None` if it is not in the group.
    pub fn in_group(self, rank: Rank) -> Option<Rank> {
        self.0.iter().position(|member| member == rank).map(Rank::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_translate_there_and_back() {
        let group = GroupRanks::of([1, 4, 15].map(Rank).into_iter().collect());
        assert_eq!(group.len(), 3);
        for (of_group, of_view) in [(0, 1), (1, 4), (2, 15)] {
            assert_eq!(group.in_view(Rank(of_group)), Some(Rank(of_view)));
            assert_eq!(group.in_group(Rank(of_view)), Some(Rank(of_group)));
        }
        for other in [0, 2, 14, 16, 255] {
            assert_eq!(group.in_group(Rank(other)), None, "{other}");
        }
        assert_eq!((group.in_view(Rank(3)), group.in_view(Rank(255))), (None, None));
    }

    #[test]
    fn in_a_group_of_all_both_are_the_same() {
        let all = GroupRanks::all(5);
        assert!(
            ranks(5)
                .all(|rank| (all.in_view(rank), all.in_group(rank)) == (Some(rank), Some(rank)))
        );
        assert_eq!((all.len(), all.in_group(Rank(5))), (5, None));
    }
}
