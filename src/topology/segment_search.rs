//! The search for segments: parts of the network that several paths share, such as the cable
//! between two switches.
//!
//! A path alone does not show which segments it shares with others. So paths without a common port
//! are measured together:
//!
//! 1. *Rounds.* In round `k` every rank sends to the rank `k` places after it. Over all rounds,
//!    each path is used once. A segment with at least two members on either side carries two paths
//!    in the same direction in at least one of them.
//! 2. *Suspects.* A segment divides the members into two sides. The division that explains best
//!    which paths carried less than alone is suspected; with it, the next one, as long as that
//!    explains much of the rest.
//! 3. *Checks.* Paths over the suspect are measured together, in the same direction (they must
//!    carry less than alone), in both (if they carry less, the segment is half duplex), and as many
//!    paths on one side (they must not carry less, or it is not the segment but the machines that
//!    are the limit). If a check refutes a suspect, the suspects are derived again without it.
//!
//! A burst can show a lower rate than the path has, and never a higher one. So one result proves
//! that paths share nothing, and several are needed to conclude that they do. Radios are left out:
//! their shared medium is known.

use super::division::{Division, Observed, predicted_kbps, suspects};
use super::media::Alone;
use super::pair::Pair;
use crate::protocol::{Rank, RankSet, ranks};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The results of all bursts that ran together, and the segments that follow from them.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentSearch {
    /// By the paths, in ascending order.
    joints: BTreeMap<Vec<Pair>, Joint>,
    /// The suspects; `None` before the rounds are over.
    suspects: Option<Vec<Suspect>>,
    /// The far sides of former suspects.
    refuted: BTreeSet<RankSet>,
    failures: u32,
}

/// The rates of paths that were measured together.
#[derive(Clone, Debug, Default)]
struct Joint {
    /// The highest rate of each path, in kbit/s.
    kbps: Vec<u32>,
    /// The highest total of one try, in kbit/s.
    total_kbps: u64,
    tries: u32,
}

/// A division of the members, and the paths that check whether a segment lies between its sides.
#[derive(Clone, Debug)]
struct Suspect {
    division: Division,
    /// The other suspects.
    others: Vec<Division>,
    /// Over the suspect in one direction.
    same: Vec<Pair>,
    /// Over no suspect.
    control: Vec<Pair>,
    /// Over the suspect in both directions.
    opposite: Vec<Pair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Unknown,
    /// Each path carries as much together with the others as alone.
    Apart,
    Shared,
}

impl SegmentSearch {
    /// The paths to be measured together next, in ascending order, without a common sender or
    /// receiver; `None` if everything is decided.
    pub(super) fn wanted(&self, alone: Alone<'_>) -> Option<Vec<Pair>> {
        if alone.size < SIZE_MIN || self.failures >= FAILURES_MAX {
            return None;
        }
        let Some(suspects) = &self.suspects else { return self.open_round(alone) };
        suspects.iter().find_map(|suspect| self.open_check(suspect, alone))
    }

    /// Records the rates of paths that were measured together, in kbit/s; 0 if a burst gave none.
    pub(super) fn on_joint(&mut self, alone: Alone<'_>, came: &BTreeMap<Pair, u32>) {
        if came.values().any(|kbps| *kbps == 0) {
            self.failures += 1;
            return;
        }
        self.joints.entry(came.keys().copied().collect()).or_default().note(came);
        let refuted = |suspect: &&Suspect| self.is_refuted(suspect, alone);
        let refuted = self.suspects.as_ref().and_then(|suspects| suspects.iter().find(refuted));
        match refuted.map(|suspect| suspect.division.sides[1]) {
            Some(far) if self.refuted.len() < REFUTED_MAX => {
                self.refuted.insert(far);
            }
            None if self.suspects.is_none() && self.open_round(alone).is_none() => {}
            _ => return,
        }
        self.suspects = Some(self.suspects(alone));
    }

    /// The segments that were found.
    pub(super) fn found(&self, alone: Alone<'_>) -> Vec<Division> {
        self.suspects
            .iter()
            .flatten()
            .filter_map(|suspect| self.confirmed(suspect, alone))
            .collect()
    }

    /// The paths of the next round.
    fn open_round(&self, alone: Alone<'_>) -> Option<Vec<Pair>> {
        let is_open = |paths: &Vec<Pair>| {
            let joint = self.joints.get(paths);
            paths.len() > 1
                && !is_exchange(paths)
                && joint.is_none_or(|joint| !joint.is_believed(paths, alone))
        };
        (1..alone.size).map(|shift| paths_of_round(shift, alone)).find(is_open)
    }

    /// The suspects that follow from the rounds.
    fn suspects(&self, alone: Alone<'_>) -> Vec<Suspect> {
        let rounds = (1..alone.size).map(|shift| paths_of_round(shift, alone));
        let observed: Vec<Vec<Observed>> = rounds
            .filter_map(|paths| Some(self.joints.get(&paths)?.observed(&paths, alone)))
            .collect();
        let divisions = suspects(alone.size, &observed, &self.refuted);
        let is_clear = |one: &&Observed| is_clear(one.kbps.into(), one.alone_kbps.into());
        let clear = observed.iter().flatten().filter(is_clear).map(|one| one.path).collect();
        let suspect = |division| Suspect::of(division, &divisions, &clear, alone);
        divisions.iter().copied().filter_map(suspect).collect()
    }

    fn sharing(&self, paths: &[Pair], others: &[Division], alone: Alone<'_>) -> Sharing {
        let Some(joint) = self.joints.get(paths) else { return Sharing::Unknown };
        match () {
            () if is_clear(joint.total_kbps, expected_kbps(paths, others, alone)) => Sharing::Apart,
            () if joint.tries >= CHECKS => Sharing::Shared,
            () => Sharing::Unknown,
        }
    }

    /// The paths of the next check of a suspect whose result matters.
    fn open_check(&self, suspect: &Suspect, alone: Alone<'_>) -> Option<Vec<Pair>> {
        let is_open =
            |paths: &&Vec<Pair>| self.sharing(paths, &suspect.others, alone) == Sharing::Unknown;
        [&suspect.same, &suspect.control, &suspect.opposite].into_iter().find(is_open).cloned()
    }

    fn is_refuted(&self, suspect: &Suspect, alone: Alone<'_>) -> bool {
        self.sharing(&suspect.same, &suspect.others, alone) == Sharing::Apart
            || self.sharing(&suspect.control, &suspect.others, alone) == Sharing::Shared
    }

    /// The segment, if all checks confirm it.
    fn confirmed(&self, suspect: &Suspect, alone: Alone<'_>) -> Option<Division> {
        if self.open_check(suspect, alone).is_some() || self.is_refuted(suspect, alone) {
            return None;
        }
        let total_kbps = self.joints.get(&suspect.same)?.total_kbps;
        let total_kbps = u32::try_from(total_kbps).unwrap_or(u32::MAX);
        let kbps = suspect.division.kbps_alone(alone.rates).map(|kbps| kbps.max(total_kbps));
        let is_half = self.sharing(&suspect.opposite, &suspect.others, alone) == Sharing::Shared;
        Some(Division { kbps, is_half, ..suspect.division })
    }
}

impl Joint {
    fn note(&mut self, came: &BTreeMap<Pair, u32>) {
        self.kbps.resize(came.len(), 0);
        for (best, kbps) in self.kbps.iter_mut().zip(came.values()) {
            *best = (*kbps).max(*best);
        }
        self.total_kbps = self.total_kbps.max(came.values().map(|kbps| u64::from(*kbps)).sum());
        self.tries += 1;
    }

    fn observed(&self, paths: &[Pair], alone: Alone<'_>) -> Vec<Observed> {
        let one = |(path, kbps): (&Pair, &u32)| {
            let alone_kbps = (*alone.rates.get(path)?).max(1);
            Some(Observed { path: *path, alone_kbps, kbps: (*kbps).min(alone_kbps) })
        };
        paths.iter().zip(&self.kbps).filter_map(one).collect()
    }

    /// Whether more bursts would show nothing new: each path carried as much as alone, or there
    /// were enough tries.
    fn is_believed(&self, paths: &[Pair], alone: Alone<'_>) -> bool {
        let is_clear = |one: &Observed| is_clear(one.kbps.into(), one.alone_kbps.into());
        self.tries >= TRIES || self.observed(paths, alone).iter().all(is_clear)
    }
}

impl Suspect {
    /// `None` if the sides have too few paths to check it. `clear` are the paths that carried
    /// everything in their round.
    fn of(
        division: Division,
        all: &[Division],
        clear: &BTreeSet<Pair>,
        alone: Alone<'_>,
    ) -> Option<Suspect> {
        let [first, second] = division.sides;
        let is_there = |(from, to): Pair| first.contains(from) && second.contains(to);
        // Members on one side of all suspects. Paths from several such parts share nothing but this
        // suspect.
        let part = |rank: Rank| -> Vec<bool> {
            all.iter().map(|other| other.sides[1].contains(rank)).collect()
        };
        let mut same = disjoint(alone, part, is_there);
        let kbps = |pair: &Pair| alone.rates.get(pair).map_or(0, |kbps| u64::from(*kbps));
        // More paths than necessary could share something else. In the rounds both directions
        // carried about as much.
        let filled = u64::from(division.kbps[0]) / if division.is_half { 2 } else { 1 };
        let needed = filled * 3 / 2;
        let enough =
            (2..same.len()).find(|count| same[..*count].iter().map(kbps).sum::<u64>() >= needed);
        same.truncate(enough.unwrap_or(same.len()));
        let is_aside = |(from, to): Pair| {
            clear.contains(&(from, to)) && !all.iter().any(|other| other.is_crossed(from, to))
        };
        let mut control = disjoint(alone, part, is_aside);
        control.truncate(same.len());
        let (a, b) = *same.first()?;
        let is_back = |(from, to): Pair| is_there((to, from)) && from != b && to != a;
        let mut opposite = vec![(a, b), *disjoint(alone, part, is_back).first()?];
        for paths in [&mut same, &mut control, &mut opposite] {
            paths.sort_unstable();
        }
        let others: Vec<Division> =
            all.iter().copied().filter(|other| *other != division).collect();
        let [without, with] =
            [&others[..], all].map(|divisions| expected_kbps(&same, divisions, alone));
        let can_tell = same.len() > 1 && control.len() > 1 && !is_clear(with, without);
        can_tell.then_some(Suspect { division, others, same, control, opposite })
    }
}

/// The paths of a round, of those that take part.
fn paths_of_round(shift: usize, alone: Alone<'_>) -> Vec<Pair> {
    let to = |from: Rank| Rank::from((from.index() + shift) % alone.size);
    let paths = ranks(alone.size).map(|from| (from, to(from)));
    paths.filter(|pair| takes_part(*pair, alone)).collect()
}

/// Whether these are the two directions between two members. A round is no more than that if all
/// its other pairs have no direct link or a radio. It tells nothing of segments, and the search for
/// shared media takes its result.
fn is_exchange(paths: &[Pair]) -> bool {
    matches!(paths, [(a, b), (c, d)] if (a, b) == (d, c))
}

fn takes_part((from, to): Pair, alone: Alone<'_>) -> bool {
    let is_radio = |rank: &Rank| alone.radios.contains(rank);
    alone.rates.contains_key(&(from, to)) && ![from, to].iter().any(is_radio)
}

/// Paths of this kind without a common end: from and to parts that have few of them so far, of
/// those the fastest.
fn disjoint(
    alone: Alone<'_>,
    part: impl Fn(Rank) -> Vec<bool>,
    is_wanted: impl Fn(Pair) -> bool,
) -> Vec<Pair> {
    let mut open: Vec<Pair> = alone.rates.keys().copied().collect();
    open.retain(|pair| takes_part(*pair, alone) && is_wanted(*pair));
    let (mut used, mut chosen) = (BTreeMap::<Vec<bool>, u32>::new(), Vec::new());
    loop {
        let uses = |rank: Rank| used.get(&part(rank)).copied().unwrap_or(0);
        let worth = |pair: &Pair| {
            (uses(pair.0) + uses(pair.1), Reverse(alone.rates.get(pair).copied()), *pair)
        };
        let Some((from, to)) = open.iter().copied().min_by_key(|pair| worth(pair)) else {
            return chosen;
        };
        chosen.push((from, to));
        open.retain(|(a, b)| ![from, to].contains(a) && ![from, to].contains(b));
        for rank in [from, to] {
            *used.entry(part(rank)).or_default() += 1;
        }
    }
}

/// The sum of the rates of these paths if these are the only segments, in kbit/s.
fn expected_kbps(paths: &[Pair], divisions: &[Division], alone: Alone<'_>) -> u64 {
    let one = |path: &Pair| {
        let alone_kbps = (*alone.rates.get(path)?).max(1);
        Some(Observed { path: *path, alone_kbps, kbps: alone_kbps })
    };
    let round: Vec<Observed> = paths.iter().filter_map(one).collect();
    predicted_kbps(divisions, &round).into_iter().sum::<f64>() as u64
}

/// Whether a rate is nearly as high as it is alone.
fn is_clear(kbps: u64, alone_kbps: u64) -> bool {
    kbps * 100 >= alone_kbps * CLEAR_PERCENT
}

/// With fewer members, a segment leads to a single one: then it is the port of that one.
const SIZE_MIN: usize = 4;
/// Bursts over an idle path differ by 7 %. Two paths that share a segment which one of them fills
/// carry half.
const CLEAR_PERCENT: u64 = 85;
/// A round is measured at most this many times.
const TRIES: u32 = 2;
/// This many measurements must show that paths share something.
const CHECKS: u32 = 4;
/// After this many measurements without all rates the search is given up.
const FAILURES_MAX: u32 = 20;
/// Nothing is learned from a network that refutes so many suspects.
const REFUTED_MAX: usize = 8;

#[cfg(test)]
mod tests;
