//! Divisions of a View's members into the two sides of a segment, and which of them explain best
//! the rates of paths that were measured together.

use super::pair::Pair;
use crate::protocol::{Rank, RankSet, ranks};
use std::collections::{BTreeMap, BTreeSet};

/// A segment between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// The side of rank 0, and the other one.
    pub sides: [RankSet; 2],
    /// From the first side to the second and back, in kbit/s.
    pub kbps: [u32; 2],
    /// Both directions take turns.
    pub is_half: bool,
}

/// A path that was measured together with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) path: Pair,
    /// In kbit/s, not 0.
    pub(super) alone_kbps: u32,
    /// Together with the others; at most as much as alone.
    pub(super) kbps: u32,
}

impl Division {
    /// The direction in which a path crosses.
    fn direction(&self, (from, to): Pair) -> Option<usize> {
        let [first, second] = self.sides;
        match () {
            () if first.contains(from) && second.contains(to) => Some(0),
            () if second.contains(from) && first.contains(to) => Some(1),
            () => None,
        }
    }

    /// Whether a path crosses.
    pub(super) fn is_crossed(&self, from: Rank, to: Rank) -> bool {
        self.direction((from, to)).is_some()
    }

    /// The highest rate of a path alone in each direction: the segment carries at least this.
    pub(super) fn kbps_alone(&self, rates: &BTreeMap<Pair, u32>) -> [u32; 2] {
        let mut most = [0; 2];
        for (pair, kbps) in rates {
            if let Some(direction) = self.direction(*pair) {
                most[direction] = most[direction].max(*kbps);
            }
        }
        most
    }

    /// The division with the lowest capacities that the measurements allow.
    fn of(far: RankSet, size: usize, is_half: bool, rounds: &[Vec<Observed>]) -> Division {
        let near = ranks(size).filter(|rank| !far.contains(*rank)).collect();
        let mut division = Division { sides: [near, far], kbps: [0; 2], is_half };
        for round in rounds {
            let mut totals = [0u32; 2];
            for one in round {
                if let Some(direction) = division.direction(one.path) {
                    let kbps = &mut division.kbps[direction];
                    *kbps = (*kbps).max(one.alone_kbps);
                    totals[direction] = totals[direction].saturating_add(one.kbps);
                }
            }
            if is_half {
                totals = [totals[0].saturating_add(totals[1]); 2];
            }
            for (kbps, total) in division.kbps.iter_mut().zip(totals) {
                *kbps = total.max(*kbps);
            }
        }
        division
    }
}

/// The divisions that explain the rounds, the best one first.
///
/// The error of an explanation is the sum over all paths of the squared difference between the
/// predicted and the measured rate, in parts of the rate alone. One division after the other is
/// added, each time followed by a search for better ones in the place of those before it: a single
/// division explains a network of several segments best by a compromise between them. A division
/// is kept if it removes [`WORTH`] of the error that is left without it. Those whose far sides are
/// `refuted` are left out.
pub(super) fn suspects(
    size: usize,
    rounds: &[Vec<Observed>],
    refuted: &BTreeSet<RankSet>,
) -> Vec<Division> {
    let search = Search { size, rounds, refuted };
    let mut found: Vec<Division> = Vec::new();
    let mut left = error(&found, rounds);
    while left > ERROR_MIN && found.len() < SUSPECTS_MAX {
        let Some((division, _)) = search.best(&found) else { break };
        let mut more = found.clone();
        more.push(division);
        let less = search.improve(&mut more);
        if less > left * (1.0 - WORTH) {
            break;
        }
        (found, left) = (more, less);
    }
    found
}

/// The input of the search.
struct Search<'a> {
    size: usize,
    rounds: &'a [Vec<Observed>],
    refuted: &'a BTreeSet<RankSet>,
}

impl Search<'_> {
    /// Replaces one division after the other by the best one beside the others, as long as that
    /// helps. Returns the error that is left.
    fn improve(&self, found: &mut [Division]) -> f64 {
        let mut left = error(found, self.rounds);
        for _ in 0..IMPROVEMENTS_MAX {
            let before = left;
            for index in 0..found.len() {
                let mut others = found.to_vec();
                others.remove(index);
                match self.best(&others) {
                    Some((division, less)) if less < left - 1e-9 => {
                        found[index] = division;
                        left = less;
                    }
                    _ => {}
                }
            }
            if left >= before {
                break;
            }
        }
        left
    }

    /// The division that explains most beside the known ones, and the error that is left then. It
    /// starts from the neighbourhoods of the ranks, the sets of ranks to and from which one carried
    /// everything. From the best of them, single ranks or whole neighbourhoods change sides as long
    /// as that helps.
    fn best(&self, known: &[Division]) -> Option<(Division, f64)> {
        let neighbourhoods: Vec<RankSet> =
            ranks(self.size).map(|rank| far_from(rank, self.size, self.rounds)).collect();
        // A rank may have had only one path that others disturbed.
        let both = |a: &RankSet, b: &RankSet| RankSet::of_bits(a.bits() | b.bits());
        let starts: BTreeSet<RankSet> = neighbourhoods
            .iter()
            .flat_map(|a| neighbourhoods.iter().map(move |b| both(a, b)))
            .collect();
        let starts = starts.into_iter().filter_map(|far| self.beside(known, far));
        let mut tops: Vec<(Division, f64)> = starts.collect();
        tops.sort_by(|a, b| a.1.total_cmp(&b.1));
        tops.truncate(CLIMBS);
        for top in &mut tops {
            loop {
                let far = top.0.sides[1];
                let sets = known.iter().map(|division| division.sides[1]);
                let single = ranks(self.size).skip(1).map(|rank| RankSet::EMPTY.with(rank));
                let moves = single.chain(sets).chain(neighbourhoods.iter().copied());
                let moved = moves.filter_map(|set| self.beside(known, difference(far, set)));
                match moved.min_by(|a, b| a.1.total_cmp(&b.1)) {
                    Some(better) if better.1 < top.1 - 1e-9 => *top = better,
                    _ => break,
                }
            }
        }
        tops.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The division with this far side beside the known ones, and the error that is left then;
    /// `None` if there cannot be a segment.
    fn beside(&self, known: &[Division], far: RankSet) -> Option<(Division, f64)> {
        // Switches form a tree, so of two far sides one contains the other, or they are disjoint.
        let fits = |division: &Division| {
            let both = far.bits() & division.sides[1].bits();
            [0, far.bits(), division.sides[1].bits()].contains(&both)
        };
        if far.len() < 2
            || far.len() + 2 > self.size
            || self.refuted.contains(&far)
            || !known.iter().all(fits)
        {
            return None;
        }
        let [full, half] = [false, true].map(|is_half| {
            let division = Division::of(far, self.size, is_half, self.rounds);
            let all: Vec<Division> = known.iter().copied().chain([division]).collect();
            (division, error(&all, self.rounds))
        });
        // In a round both directions carry about as much, so a half-duplex segment of twice the
        // rate explains as much.
        Some(if half.1 + CLEARLY < full.1 { half } else { full })
    }
}

/// The ranks to or from which a path of this rank carried less than alone, or, if rank 0 is among
/// them, the others.
fn far_from(rank: Rank, size: usize, rounds: &[Vec<Observed>]) -> RankSet {
    let is_low = |one: &&Observed| u64::from(one.kbps) * 10 < u64::from(one.alone_kbps) * 8;
    let ends = |one: &Observed| match one.path {
        (from, to) if from == rank => Some(to),
        (from, to) if to == rank => Some(from),
        _ => None,
    };
    let far: RankSet = rounds.iter().flatten().filter(is_low).filter_map(ends).collect();
    if far.contains(Rank(0)) {
        ranks(size).filter(|rank| !far.contains(*rank)).collect()
    } else {
        far
    }
}

/// The ranks that are in one of the sets and not in both.
fn difference(a: RankSet, b: RankSet) -> RankSet {
    RankSet::of_bits(a.bits() ^ b.bits())
}

fn error(divisions: &[Division], rounds: &[Vec<Observed>]) -> f64 {
    rounds.iter().map(|round| error_of_round(divisions, round)).sum()
}

fn error_of_round(divisions: &[Division], round: &[Observed]) -> f64 {
    let off = |(one, predicted): (&Observed, f64)| {
        ((predicted - f64::from(one.kbps)) / f64::from(one.alone_kbps)).powi(2)
    };
    round.iter().zip(predicted_kbps(divisions, round)).map(off).sum()
}

/// The rates of these paths together over these segments: each path gets its share of the segment
/// that leaves it least.
pub(super) fn predicted_kbps(divisions: &[Division], round: &[Observed]) -> Vec<f64> {
    let levels: Vec<[f64; 2]> = divisions.iter().map(|division| division.levels(round)).collect();
    let predicted = |one: &Observed| {
        let levels = divisions.iter().zip(&levels);
        let shares = levels.filter_map(|(division, of)| Some(of[division.direction(one.path)?]));
        shares.fold(f64::from(one.alone_kbps), f64::min)
    };
    round.iter().map(predicted).collect()
}

impl Division {
    /// The rate in each direction at which the crossing paths fill the segment if each sends at
    /// most that fast (water-filling), in kbit/s; infinite where they do not fill it.
    fn levels(&self, round: &[Observed]) -> [f64; 2] {
        let crossing = |direction: usize| {
            let is_in = move |one: &&Observed| match self.direction(one.path) {
                Some(_) if self.is_half => true,
                crossed => crossed == Some(direction),
            };
            round.iter().filter(is_in).map(|one| f64::from(one.alone_kbps))
        };
        [0, 1].map(|direction| {
            let mut kbps: Vec<f64> = crossing(direction).collect();
            kbps.sort_by(f64::total_cmp);
            let (mut left, mut count) = (f64::from(self.kbps[direction]), kbps.len());
            for alone in kbps {
                let share = left / count as f64;
                if alone > share {
                    return share;
                }
                left -= alone;
                count -= 1;
            }
            f64::INFINITY
        })
    }
}

/// The share of the error that a division must remove.
const WORTH: f64 = 0.3;
/// Half duplex must leave so much less of the error.
const CLEARLY: f64 = 0.05;
/// An error that is not worth a search: two paths of which each carried three quarters.
const ERROR_MIN: f64 = 0.125;
/// More than the switches of a home.
const SUSPECTS_MAX: usize = 8;
/// From so many of the best starts the search goes on.
const CLIMBS: usize = 3;
/// Bounds the time of the search; two are enough for three switches.
const IMPROVEMENTS_MAX: usize = 4;
