//! Layer: Core.
//!
//! The set of operations that are over, so that late data for them is recognised and dropped.

use crate::view::{Lane, OpId};
use std::collections::BTreeMap;

/// The set of operations that are over: ranges of numbers by lane.
///
/// Between two ranges lies an undecided operation, and there are at most 64 of them. So a lane
/// takes a few words of memory; the calling program determines the number of lanes.
#[derive(Debug, Default)]
pub struct Retired {
    lanes: BTreeMap<Lane, BTreeMap<u64, u64>>,
}

/// Twice as many gaps as a ledger leaves; beyond that, the oldest gap counts as over.
const RANGES_MAX: usize = 128;

impl Retired {
    /// Whether `op` is over.
    pub fn contains(&self, op: OpId) -> bool {
        let below = |ranges: &BTreeMap<u64, u64>| {
            ranges.range(..=op.number).next_back().is_some_and(|r| op.number <= *r.1)
        };
        self.lanes.get(&op.lane).is_some_and(below)
    }

    /// Marks `op` as over.
    pub fn insert(&mut self, op: OpId) {
        if self.contains(op) {
            return;
        }
        let ranges = self.lanes.entry(op.lane).or_default();
        let before = ranges.range(..op.number).next_back().map(|(start, end)| (*start, *end));
        let start = before
            .filter(|(_, end)| end.checked_add(1) == Some(op.number))
            .map_or(op.number, |(start, _)| start);
        let after = op.number.checked_add(1).and_then(|next| ranges.remove(&next));
        ranges.insert(start, after.unwrap_or(op.number));
        if ranges.len() > RANGES_MAX {
            close_first_gap(ranges);
        }
    }
}

fn close_first_gap(ranges: &mut BTreeMap<u64, u64>) {
    let (Some((start, _)), Some((_, end))) = (ranges.pop_first(), ranges.pop_first()) else {
        return;
    };
    ranges.insert(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane(7), number }
    }

    #[test]
    fn retired_numbers_are_remembered_as_ranges() {
        let mut retired = Retired::default();
        for number in [0, 1, 5, 3, 4, u64::MAX, 2] {
            assert!(!retired.contains(op(number)));
            retired.insert(op(number));
        }
        assert_eq!(retired.lanes[&Lane(7)], BTreeMap::from([(0, 5), (u64::MAX, u64::MAX)]));
        assert!(retired.contains(op(5)) && !retired.contains(op(6)));
        assert!(!retired.contains(OpId { lane: Lane(8), number: 5 }));
    }

    #[test]
    fn memory_of_the_past_is_bounded_and_gives_up_the_oldest_gap() {
        let mut retired = Retired::default();
        for number in 0..1000 {
            retired.insert(op(2 * number));
        }
        assert_eq!(retired.lanes[&Lane(7)].len(), RANGES_MAX);
        assert!(retired.contains(op(1)) && !retired.contains(op(1997)));
    }
}
