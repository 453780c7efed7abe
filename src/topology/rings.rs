//! The rings of direct links between the members, and the search for the shortest one.

use super::link_map::LinkMap;
use crate::identity::MemberId;
use crate::protocol::Rank;

/// The direct links that rings can be formed of.
pub(super) struct Rings {
    /// Round-trip times by rank and rank, in microseconds; `None` without a direct link.
    hops_us: Vec<Vec<Option<u32>>>,
}

/// A depth-first search: the partial ring, and the best complete one so far.
struct RingSearch<'a> {
    hops_us: &'a [Vec<Option<u32>>],
    order: Vec<usize>,
    best: Option<(u64, Vec<usize>)>,
    /// The search stops after this many more steps of `nearest_first`.
    steps_left: u32,
}

impl Rings {
    /// The links of these members, given in rank order.
    pub(super) fn new(members: &[MemberId], links: &LinkMap) -> Rings {
        let hop_us = |a: MemberId, b: MemberId| {
            let way = a != b && links.direct_both_ways(a, b);
            way.then(|| links.rtt_us(a, b).unwrap_or(RTT_UNKNOWN_US))
        };
        Rings {
            hops_us: members
                .iter()
                .map(|a| members.iter().map(|b| hop_us(*a, *b)).collect())
                .collect(),
        }
    }

    /// The best ring, from rank 0. For up to eight members it is the shortest one; above, the first
    /// one that `nearest_first` finds. `None` if there is none, or if it was not found within
    /// [`STEPS_MAX`] steps.
    pub(super) fn best(&self) -> Option<Vec<Rank>> {
        let mut search = RingSearch {
            hops_us: &self.hops_us,
            order: vec![0],
            best: None,
            steps_left: STEPS_MAX,
        };
        if self.hops_us.len() <= EXACT_MAX {
            search.shortest(0);
        } else {
            search.nearest_first();
        }
        let (_, order) = search.best?;
        order.into_iter().map(|rank| u8::try_from(rank).ok().map(Rank)).collect()
    }

    /// The sum of the round-trip times along this order; `None` if it is not a ring of direct
    /// links.
    pub(super) fn round_us(&self, order: &[Rank]) -> Option<u64> {
        let next = order.iter().cycle().skip(1);
        order.iter().zip(next).map(|(a, b)| self.hops_us[a.index()][b.index()].map(u64::from)).sum()
    }
}

impl RingSearch<'_> {
    /// Tries all rings in lexicographic order, so that of equally short ones the first wins.
    fn shortest(&mut self, length_us: u64) {
        let last = self.order[self.order.len() - 1];
        if self.best.as_ref().is_some_and(|(best_us, _)| length_us >= *best_us) {
            return;
        }
        if self.order.len() == self.hops_us.len() {
            return self.close(length_us);
        }
        for next in 0..self.hops_us.len() {
            if let Some(hop_us) = self.hops_us[last][next].filter(|_| !self.order.contains(&next)) {
                self.order.push(next);
                self.shortest(length_us + u64::from(hop_us));
                self.order.pop();
            }
        }
    }

    /// Always continues with the nearest remaining member, and backtracks from dead ends. Stops at
    /// the first ring.
    fn nearest_first(&mut self) {
        let last = self.order[self.order.len() - 1];
        if self.order.len() == self.hops_us.len() {
            // The length does not matter: the first ring is taken.
            return self.close(0);
        }
        let ways = self.hops_us[last]
            .iter()
            .enumerate()
            .filter_map(|(next, hop_us)| hop_us.map(|hop_us| (hop_us, next)));
        let mut ways: Vec<(u32, usize)> =
            ways.filter(|(_, next)| !self.order.contains(next)).collect();
        ways.sort_unstable();
        for (_, next) in ways {
            if self.best.is_some() || self.steps_left == 0 {
                return;
            }
            self.steps_left -= 1;
            self.order.push(next);
            self.nearest_first();
            self.order.pop();
        }
    }

    fn close(&mut self, length_us: u64) {
        let Some(hop_us) = self.hops_us[self.order[self.order.len() - 1]][0] else { return };
        let length_us = length_us + u64::from(hop_us);
        if self.best.as_ref().is_none_or(|(best_us, _)| length_us < *best_us) {
            self.best = Some((length_us, self.order.clone()));
        }
    }
}

/// Seven factorial is 5040 rings, which take well under a millisecond.
const EXACT_MAX: usize = 8;
/// An unmeasured link is assumed to lie between a wire (0.2 ms) and Wi-Fi (2 ms and up), so it is
/// neither preferred nor avoided.
const RTT_UNKNOWN_US: u32 = 1000;
/// Bounds the search in sparse graphs, which could take exponential time; this many steps take some
/// milliseconds.
const STEPS_MAX: u32 = 50_000;

#[cfg(test)]
mod tests {
    use super::super::link_map::links_of;
    use super::*;
    use crate::protocol::member_id;
    use proptest::prelude::*;

    /// The smallest sum of round-trip times of all rings from rank 0, by trying all.
    fn least_round_us(rings: &Rings, order: &mut Vec<Rank>, left: &[Rank]) -> Option<u64> {
        if left.is_empty() {
            return rings.round_us(order);
        }
        let tries = left.iter().filter_map(|rank| {
            order.push(*rank);
            let rest: Vec<Rank> = left.iter().copied().filter(|other| other != rank).collect();
            let least = least_round_us(rings, order, &rest);
            order.pop();
            least
        });
        tries.min()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_small_ring_is_the_best_there_is(
            n in 3u8..=6,
            rtts in proptest::collection::vec(0u32..5000, 15),
        ) {
            let links = links_of(n, |a, b| {
                Some(rtts[usize::from((b - 1) * (b - 2) / 2 + a - 1)]).filter(|rtt| *rtt > 1000)
            });
            let rings = Rings::new(&(1..=n).map(member_id).collect::<Vec<_>>(), &links);
            let others: Vec<Rank> = (1..n).map(Rank).collect();
            let found = rings.best().and_then(|order| rings.round_us(&order));
            prop_assert_eq!(found, least_round_us(&rings, &mut vec![Rank(0)], &others));
        }
    }
}
