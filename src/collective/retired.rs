//! The set of operations that are over, so that late data for them is recognised and dropped.

use super::runs::Lanes;
use crate::protocol::OpId;

/// The set of operations that are over: ranges of numbers by lane. A step is over with all its
/// calls.
///
/// Between two ranges lies an undecided operation, and there are at most 64 of them. So a lane
/// takes a few words of memory, and neighbouring lanes with the same numbers take them once; a
/// View ends before a program has used too many others (`Ledger::must_end`).
#[derive(Debug, Default)]
pub struct Retired {
    /// By lane: first and last number of each range, ascending.
    lanes: Lanes<Vec<(u64, u64)>>,
}

/// Twice as many gaps as a ledger leaves; beyond that, the oldest gap counts as over.
const RANGES_MAX: usize = 128;

impl Retired {
    /// Whether `op` is over, or the step that it belongs to.
    pub fn contains(&self, op: OpId) -> bool {
        self.has(op.whole()) || op.step().is_some() && self.has(op)
    }

    fn has(&self, op: OpId) -> bool {
        let Some(ranges) = self.lanes.get(op.lane) else { return false };
        let after = ranges.partition_point(|(first, _)| *first <= op.number);
        after > 0 && op.number <= ranges[after - 1].1
    }

    /// Marks `op` as over.
    pub fn insert(&mut self, op: OpId) {
        if self.contains(op) {
            return;
        }
        let mut ranges = self.lanes.get(op.lane).cloned().unwrap_or_default();
        add(&mut ranges, op.number);
        if ranges.len() > RANGES_MAX {
            let (first, _) = ranges.remove(0);
            ranges[0].0 = first;
        }
        self.lanes.set(op.lane, ranges);
    }
}

/// Adds a number that is in none of the ranges.
fn add(ranges: &mut Vec<(u64, u64)>, number: u64) {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    let joins_before = after > 0 && ranges[after - 1].1.checked_add(1) == Some(number);
    let joins_after =
        ranges.get(after).is_some_and(|(first, _)| number.checked_add(1) == Some(*first));
    match (joins_before, joins_after) {
        (true, true) => ranges[after - 1].1 = ranges.remove(after).1,
        (true, false) => ranges[after - 1].1 = number,
        (false, true) => ranges[after].0 = number,
        (false, false) => ranges.insert(after, (number, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::of_view(7), number }
    }

    #[test]
    fn retired_numbers_are_remembered_as_ranges() {
        let mut retired = Retired::default();
        for number in [0, 1, 5, 3, 4, u64::MAX, 2] {
            assert!(!retired.contains(op(number)));
            retired.insert(op(number));
        }
        let ranges = retired.lanes.get(Lane::of_view(7)).expect("it was used");
        assert_eq!(*ranges, [(0, 5), (u64::MAX, u64::MAX)]);
        assert!(retired.contains(op(5)) && !retired.contains(op(6)));
        assert!(!retired.contains(OpId { lane: Lane::of_view(8), number: 5 }));
    }

    #[test]
    fn the_calls_of_a_step_are_over_with_it() {
        let mut retired = Retired::default();
        retired.insert(op(3).part(1));
        assert!(retired.contains(op(3).part(1)) && !retired.contains(op(3).part(2)));
        retired.insert(op(3));
        assert!(op(3).parts().all(|part| retired.contains(part)));
        op(3).parts().for_each(|part| retired.insert(part));
        assert_eq!(retired.lanes.runs(), 2, "no call is noted after its step");
        assert!(!retired.contains(op(4).part(0)));
    }

    #[test]
    fn memory_of_the_past_is_bounded_and_gives_up_the_oldest_gap() {
        let mut retired = Retired::default();
        for number in 0..1000 {
            retired.insert(op(2 * number));
        }
        assert_eq!(retired.lanes.get(Lane::of_view(7)).map(Vec::len), Some(RANGES_MAX));
        assert!(retired.contains(op(1)) && !retired.contains(op(1997)));
    }

    #[test]
    fn lanes_that_are_used_once_take_the_memory_of_one() {
        let mut retired = Retired::default();
        for tag in 0..5000 {
            let step = OpId { lane: Lane::tagged(tag), number: 0 };
            step.parts().for_each(|part| retired.insert(part));
            retired.insert(step);
        }
        assert_eq!(retired.lanes.runs(), 2, "one of the steps, one of their calls");
        assert!(retired.contains(OpId { lane: Lane::tagged(4999), number: 0 }));
        assert!(!retired.contains(OpId { lane: Lane::tagged(5000), number: 0 }));
    }
}
