//! Searches in simulated homes.

use super::super::fluid::max_min_bits_per_s;
use super::super::homes::Lan::Wired;
use super::super::homes::{Home, HomePath};
use super::*;
use crate::protocol::rank_pairs;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// A home whose bursts show too little now and then.
struct Noisy {
    home: Home,
    rng: SmallRng,
    /// The rate at which all machines together can send and receive, in kbit/s.
    processors_kbps: f64,
}

impl Noisy {
    fn of(home: &Home, seed: u64) -> Noisy {
        let rng = SmallRng::seed_from_u64(seed);
        Noisy { home: home.clone(), rng, processors_kbps: f64::INFINITY }
    }

    /// The rates of these paths together, in kbit/s.
    fn together(&mut self, pairs: &[Pair]) -> BTreeMap<Pair, u32> {
        let path = |pair: &Pair| self.home.path(pair.0.0, pair.1.0).expect("a path");
        let paths: Vec<HomePath> = pairs.iter().map(path).collect();
        let paths: Vec<&HomePath> = paths.iter().collect();
        let rates = max_min_bits_per_s(&paths, self.home.resources());
        let part = (self.processors_kbps * 1000.0 / rates.iter().sum::<f64>()).min(1.0);
        let heard = |(pair, bits_per_s): (&Pair, f64)| {
            let seen = if self.rng.random_bool(0.05) {
                self.rng.random_range(0.4..0.9)
            } else {
                self.rng.random_range(0.94..1.0)
            };
            (*pair, (bits_per_s * part * seen / 1000.0) as u32)
        };
        pairs.iter().zip(rates).map(heard).collect()
    }

    /// The rates of all paths alone, each the highest of a few bursts.
    fn alone(&mut self) -> BTreeMap<Pair, u32> {
        let most = |pair: Pair, noisy: &mut Noisy| {
            (0..3).filter_map(|_| noisy.together(&[pair]).get(&pair).copied()).max()
        };
        let pairs: Vec<Pair> = rank_pairs(self.home.size()).collect();
        pairs.into_iter().filter_map(|pair| Some((pair, most(pair, self)?))).collect()
    }
}

/// The segments that a search finds in a home, and the number of its measurements.
fn search(noisy: &mut Noisy) -> (Vec<Division>, usize) {
    let (rates, radios) = (noisy.alone(), BTreeSet::new());
    let alone = Alone { size: noisy.home.size(), rates: &rates, radios: &radios };
    let (mut search, mut count) = (SegmentSearch::default(), 0);
    while let Some(paths) = search.wanted(alone) {
        let ends: BTreeSet<Rank> = paths.iter().map(|(from, _)| *from).collect();
        assert_eq!(ends.len(), paths.len(), "one path from each: {paths:?}");
        search.on_joint(alone, &noisy.together(&paths));
        count += 1;
        assert!(count < 200, "no end");
    }
    (search.found(alone), count)
}

/// The side without rank 0, and whether the segment is half duplex, of each of these.
fn sides(found: &[Division]) -> BTreeSet<(Vec<u8>, bool)> {
    let far = |division: &Division| {
        (division.sides[1].iter().map(|rank| rank.0).collect(), division.is_half)
    };
    found.iter().map(far).collect()
}

fn split(size: u8, port: u32, trunk: u32, is_half: bool) -> Home {
    let behind: Vec<u8> = (0..size).filter(|rank| rank % 2 == 1).collect();
    Home::new(&vec![Wired(port); usize::from(size)], &[]).with_trunk(&behind, trunk, is_half)
}

#[test]
fn a_cable_between_two_switches_is_found_with_its_sides_and_its_rate() {
    let wired =
        |ports: &[u32]| Home::new(&ports.iter().map(|mbps| Wired(*mbps)).collect::<Vec<_>>(), &[]);
    let homes = [
        split(4, 940, 940, false),
        split(8, 940, 940, false),
        split(16, 940, 940, false),
        split(4, 2350, 940, false),
        split(8, 2350, 940, false),
        split(4, 50, 20, false),
        split(4, 940, 300, true),
        split(8, 940, 400, true),
        split(8, 20_000, 940, false),
        wired(&[940; 6]).with_trunk(&[4, 5], 940, false),
        wired(&[940, 940, 100, 940, 940, 100, 940]).with_trunk(&[1, 2, 4], 940, false),
        wired(&[940; 9]).with_trunk(&[0, 1, 2], 940, false).with_trunk(&[6, 7, 8], 940, false),
        wired(&[940; 5]).with_trunk(&[1, 3], 1410, false),
    ];
    for (number, home) in homes.iter().enumerate() {
        let expected: BTreeSet<(Vec<u8>, bool)> = home
            .trunks
            .iter()
            .map(|trunk| {
                let is_far = |rank: &u8| trunk.behind.contains(rank) != trunk.behind.contains(&0);
                ((0..home.size() as u8).filter(is_far).collect(), trunk.is_half)
            })
            .collect();
        let (mut complete, mut most) = (0, 0);
        for seed in 0..SEEDS {
            let (found, count) = search(&mut Noisy::of(home, seed));
            let found_sides = sides(&found);
            assert!(found_sides.is_subset(&expected), "home {number}, seed {seed}: {found:?}");
            let kbps = f64::from(home.trunks[0].mbps * 1000);
            for found_kbps in found.iter().flat_map(|division| division.kbps) {
                let ratio = f64::from(found_kbps) / kbps;
                assert!((0.9..1.1).contains(&ratio), "home {number}, seed {seed}: {found:?}");
            }
            complete += u64::from(found_sides == expected);
            most = most.max(count);
        }
        println!("home {number}: {complete} of {SEEDS} complete, up to {most} measurements");
        assert!(complete * 20 >= SEEDS * 19, "home {number}");
        assert!(most <= 60, "home {number}");
    }
}

#[test]
fn machines_may_be_at_either_switch() {
    for seed in 0..8 * SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let size = rng.random_range(4..=10);
        let behind: Vec<u8> = (1..size).filter(|_| rng.random_bool(0.5)).collect();
        if behind.len() < 2 || behind.len() + 2 > usize::from(size) {
            continue;
        }
        let home = Home::new(&vec![Wired(100); usize::from(size)], &[]);
        let (mbps, is_half) = ([40, 100][rng.random_range(0..2)], rng.random_bool(0.3));
        let home = home.with_trunk(&behind, mbps, is_half);
        let (found, _) = search(&mut Noisy::of(&home, seed));
        assert_eq!(sides(&found), [(behind, is_half)].into(), "seed {seed}, {size} machines");
    }
}

/// The simulated homes of each kind; one burst in twenty shows much too little.
const SEEDS: u64 = 12;

#[test]
fn where_nothing_is_shared_nothing_is_found() {
    let homes = [
        Home::new(&[Wired(940); 4], &[]),
        Home::new(&[Wired(940); 16], &[]),
        Home::new(&[Wired(940), Wired(940), Wired(282), Wired(94)], &[]),
        split(4, 940, 9400, false),
    ];
    for home in &homes {
        for seed in 0..SEEDS {
            let (found, count) = search(&mut Noisy::of(home, seed));
            assert_eq!(found, [], "seed {seed}");
            assert!(count <= 2 * home.size(), "{count} measurements");
        }
    }
}

#[test]
fn processors_that_are_the_limit_are_no_segment() {
    for (size, times) in [(4, 2.5), (4, 1.2), (8, 2.5), (8, 4.5), (16, 3.0)] {
        for seed in 0..SEEDS {
            let home = Home::new(&vec![Wired(940); size], &[]);
            let processors_kbps = 940_000.0 * times;
            let (found, _) = search(&mut Noisy { processors_kbps, ..Noisy::of(&home, seed) });
            assert_eq!(found, [], "{size} members, {times} paths at once, seed {seed}");
        }
    }
}
