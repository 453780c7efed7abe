//! Values by lane or operation, in little memory if neighbours have the same.

use crate::protocol::{Lane, OpId};
use std::collections::BTreeMap;

/// A map in which neighbouring keys with equal values share one entry, a *run*.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Runs<K: Ord, V> {
    /// By the first key of a run: its last key, and the value. No two runs could be one.
    runs: BTreeMap<K, (K, V)>,
}

/// A value for each lane. A program that counts its tags up and uses each lane once leaves lanes
/// with equal values behind, so its memory does not grow.
pub type Lanes<V> = Runs<Lane, V>;

/// A key of [`Runs`].
pub trait Neighbours: Copy + Ord {
    /// The next lower key, if it is a neighbour.
    fn before(self) -> Option<Self>;

    /// The next higher key, if it is a neighbour.
    fn after(self) -> Option<Self>;
}

/// Neighbours are in the same group.
impl Neighbours for Lane {
    fn before(self) -> Option<Lane> {
        Lane::before(self)
    }

    fn after(self) -> Option<Lane> {
        Lane::after(self)
    }
}

/// Neighbours are in the same lane.
impl Neighbours for OpId {
    fn before(self) -> Option<OpId> {
        Some(OpId { number: self.number.checked_sub(1)?, ..self })
    }

    fn after(self) -> Option<OpId> {
        Some(OpId { number: self.number.checked_add(1)?, ..self })
    }
}

impl<K: Ord, V> Default for Runs<K, V> {
    fn default() -> Runs<K, V> {
        Runs { runs: BTreeMap::new() }
    }
}

impl<K: Neighbours, V: Clone + Eq> Runs<K, V> {
    /// The value of a key, if it has one.
    pub fn get(&self, key: K) -> Option<&V> {
        self.run_of(key).map(|(_, _, value)| value)
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: K, value: V) {
        self.cut_out(key);
        let (mut first, mut last) = (key, key);
        if let Some(start) = self.alike(key.before(), &value) {
            self.runs.remove(&start);
            first = start;
        }
        if let Some(start) = self.alike(key.after(), &value) {
            last = self.runs.remove(&start).map_or(last, |(end, _)| end);
        }
        self.runs.insert(first, (last, value));
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: K) {
        self.cut_out(key);
    }

    /// The number of runs, which determines the memory.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Removes a key from its run, which leaves up to two shorter ones.
    fn cut_out(&mut self, key: K) {
        let Some((start, end, value)) = self.run_of(key) else { return };
        let value = value.clone();
        self.runs.remove(&start);
        if let Some(before) = key.before().filter(|_| start < key) {
            self.runs.insert(start, (before, value.clone()));
        }
        if let Some(after) = key.after().filter(|_| key < end) {
            self.runs.insert(after, (end, value));
        }
    }

    /// The first key of the run that has this key, if its value is this one.
    fn alike(&self, key: Option<K>, value: &V) -> Option<K> {
        let (start, _, theirs) = self.run_of(key?)?;
        (theirs == value).then_some(start)
    }

    fn run_of(&self, key: K) -> Option<(K, K, &V)> {
        let (start, (end, value)) = self.runs.range(..=key).next_back()?;
        (key <= *end).then_some((*start, *end, value))
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

    #[test]
    fn operations_of_different_lanes_are_no_neighbours() {
        let op = |tag, number| OpId { lane: Lane::tagged(tag), number };
        let mut ops = Runs::default();
        for op in [op(1, 0), op(1, 1), op(1, u64::MAX), op(2, 0), op(2, 2)] {
            ops.set(op, ());
        }
        assert_eq!(ops.runs(), 4);
        assert_eq!(
            (ops.get(op(1, 2)), ops.get(op(2, 1)), ops.get(op(2, 2))),
            (None, None, Some(&()))
        );
    }
}
