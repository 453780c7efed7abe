//! The largest clique of a graph of at most 63 candidates.

use crate::protocol::MEMBERS_MAX;

/// The mask of the largest clique, of which at most `MEMBERS_MAX - 1` candidates count. For each
/// candidate, `neighbours` has the mask of the other candidates that it reaches in both directions.
/// Ties are broken by the larger number of `preferred` candidates, then by the lower positions.
/// In a graph with very many cliques the search ends early, with the best clique found so far.
pub(super) fn largest_clique(neighbours: Vec<u64>, preferred: u64) -> u64 {
    let all = (0..neighbours.len()).fold(0u64, |mask, i| mask | 1 << i);
    let mut search =
        CliqueSearch { neighbours, preferred, best: Group::default(), steps: STEPS_MAX };
    search.extend(0, all, 0);
    search.best.mask
}

/// Maximal cliques by Bron and Kerbosch 1973 with Tomita's pivot, on bit masks. A graph of `n` has
/// up to `3^(n/3)` of them, so the steps are bounded. Bit `i` stands for candidate `i`.
struct CliqueSearch {
    neighbours: Vec<u64>,
    preferred: u64,
    best: Group,
    /// The steps that it may still make.
    steps: u32,
}

/// A group of candidates. The order of the fields is the order of comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    size: u32,
    preferred: u32,
    /// The mask with its bits reversed: larger if smaller ids are in the group.
    smallest_ids: u64,
    mask: u64,
}

impl CliqueSearch {
    /// While steps are left, visits every maximal clique that contains all of `chosen`, otherwise
    /// only members of `open`, and cannot be extended by a member of `done`. Skips branches that
    /// cannot reach the best size.
    fn extend(&mut self, chosen: u64, mut open: u64, mut done: u64) {
        if self.steps == 0 || (chosen | open).count_ones().min(OTHERS_MAX) < self.best.size {
            return;
        }
        self.steps -= 1;
        if open == 0 && done == 0 {
            self.best = self.best.max(self.group(chosen));
            return;
        }
        let pivot = bits(open | done).max_by_key(|i| (self.neighbours[*i] & open).count_ones());
        let skipped = pivot.map_or(0, |pivot| self.neighbours[pivot]);
        for i in bits(open & !skipped) {
            let neighbours = self.neighbours[i];
            self.extend(chosen | 1 << i, open & neighbours, done & neighbours);
            open &= !(1 << i);
            done |= 1 << i;
        }
    }

    /// The best part of a clique that fits into a View.
    fn group(&self, clique: u64) -> Group {
        let by_merit = bits(clique & self.preferred).chain(bits(clique & !self.preferred));
        let mask = by_merit.take(OTHERS_MAX as usize).fold(0u64, |mask, i| mask | 1 << i);
        Group {
            size: mask.count_ones(),
            preferred: (mask & self.preferred).count_ones(),
            smallest_ids: mask.reverse_bits(),
            mask,
        }
    }
}

/// The positions of the set bits, from the lowest.
fn bits(mask: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |i| mask >> i & 1 == 1)
}

/// Enough for every graph of 31 candidates, which has at most 78,732 maximal cliques (Moon and
/// Moser 1965); a few tens of milliseconds.
const STEPS_MAX: u32 = 200_000;

/// A View has this one and so many others.
const OTHERS_MAX: u32 = MEMBERS_MAX as u32 - 1;
