//! A value for each lane, in little memory for programs that use many lanes once.

use crate::protocol::Lane;
use std::collections::BTreeMap;

/// A map from lanes to values. Neighbouring lanes with equal values share one entry, a *run*.
///
/// A program that counts its tags up and uses each lane once leaves lanes with equal values behind,
/// so its memory does not grow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lanes<V> {
    /// By the first lane of a run: its last lane, and the value. No two runs could be one.
    runs: BTreeMap<Lane, (Lane, V)>,
}

impl<V> Default for Lanes<V> {
    fn default() -> Lanes<V> {
        Lanes { runs: BTreeMap::new() }
    }
}

impl<V: Clone + Eq> Lanes<V> {
    /// The value of a lane, if it has one.
    pub fn get(&self, lane: Lane) -> Option<&V> {
        self.run_of(lane).map(|(_, _, value)| value)
    }

    /// Sets the value of a lane.
    pub fn set(&mut self, lane: Lane, value: V) {
        self.cut_out(lane);
        let (mut first, mut last) = (lane, lane);
        if let Some(start) = self.alike(lane.before(), &value) {
            self.runs.remove(&start);
            first = start;
        }
        if let Some(start) = self.alike(lane.after(), &value) {
            last = self.runs.remove(&start).map_or(last, |(end, _)| end);
        }
        self.runs.insert(first, (last, value));
    }

    /// Removes the value of a lane.
    pub fn remove(&mut self, lane: Lane) {
        self.cut_out(lane);
    }

    /// The number of runs, which determines the memory.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Removes a lane from its run, which leaves up to two shorter ones.
    fn cut_out(&mut self, lane: Lane) {
        let Some((start, end, value)) = self.run_of(lane) else { return };
        let value = value.clone();
        self.runs.remove(&start);
        if let Some(before) = lane.before().filter(|_| start < lane) {
            self.runs.insert(start, (before, value.clone()));
        }
        if let Some(after) = lane.after().filter(|_| lane < end) {
            self.runs.insert(after, (end, value));
        }
    }

    /// The first lane of the run that has this lane, if its value is this one.
    fn alike(&self, lane: Option<Lane>, value: &V) -> Option<Lane> {
        let (start, _, theirs) = self.run_of(lane?)?;
        (theirs == value).then_some(start)
    }

    fn run_of(&self, lane: Lane) -> Option<(Lane, Lane, &V)> {
        let (start, (end, value)) = self.runs.range(..=lane).next_back()?;
        (lane <= *end).then_some((*start, *end, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn it_is_a_map_and_no_two_of_its_runs_could_be_one() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut lanes, mut plain) = (Lanes::default(), BTreeMap::new());
            for _ in 0..200 {
                let at = rng.random_range(0..24u64);
                let lane = Lane::of_view(if at < 20 { at } else { u64::MAX - (at - 20) });
                if rng.random_range(0..4) == 0 {
                    lanes.remove(lane);
                    plain.remove(&lane);
                } else {
                    let value = rng.random_range(0..3u64);
                    lanes.set(lane, value);
                    plain.insert(lane, value);
                }
                let all = (0..20).chain(u64::MAX - 4..=u64::MAX).map(Lane::of_view);
                let same = all.into_iter().all(|lane| lanes.get(lane) == plain.get(&lane));
                assert!(same, "seed {seed}: {lanes:?} is not {plain:?}");
                let mut starts = plain.iter().filter(|(lane, value)| {
                    let before = lane.before().and_then(|before| plain.get(&before));
                    before != Some(value)
                });
                assert_eq!(lanes.runs(), starts.by_ref().count(), "seed {seed}: {lanes:?}");
            }
        }
    }

    #[test]
    fn lanes_that_are_used_once_and_in_order_take_one_place() {
        let mut lanes = Lanes::default();
        (0..100_000).for_each(|tag| lanes.set(Lane::tagged(tag), 1u64));
        assert_eq!(
            (lanes.runs(), lanes.get(Lane::tagged(77)), lanes.get(Lane::MAIN)),
            (1, Some(&1), None)
        );
    }
}
