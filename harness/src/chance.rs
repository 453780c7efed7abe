//! Reproducible pseudo-randomness for tests.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// The seed from `POTLUCK_SEED`, else from the time. It is printed with the name of its use, so
/// that the run can be reproduced.
pub fn seed(of: &str) -> Result<u64> {
    let seed = match std::env::var("POTLUCK_SEED") {
        Ok(seed) => seed.parse().context("POTLUCK_SEED is a number")?,
        Err(_) => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    println!("{of}: POTLUCK_SEED={seed}");
    Ok(seed)
}

/// A SplitMix64 generator (Steele, Lea and Flood 2014): equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The generator for a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The generator for a seed and a name; each name gives another sequence.
    pub fn named(seed: u64, name: &str) -> Chance {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Chance(seed ^ hash)
    }

    /// A number from the full 64-bit range.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `0..end`; `end` is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers_and_others_do_not() {
        let first = |seed, name| Chance::named(seed, name).number();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn numbers_stay_below_and_reach_all() {
        let mut chance = Chance::new(5);
        let mut seen = [false; 5];
        (0..1000).for_each(|_| seen[chance.below(5)] = true);
        assert_eq!(seen, [true; 5]);
    }
}
