//! Deadlines of the View's operations.

use crate::protocol::OpId;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Number of deadlines at which those of closed operations are removed. More than can be open, and
/// few enough to scan.
const KEPT_MAX: usize = 4 * crate::protocol::OPS_IN_FLIGHT_MAX;

/// The deadlines of one View.
#[derive(Default)]
pub(super) struct Deadlines {
    due: BTreeSet<(Instant, OpId)>,
}

impl Deadlines {
    /// Sets the deadline of `op` to `after` from `now`. `is_open` tells which operations still need
    /// theirs.
    pub(super) fn arm(
        &mut self,
        op: OpId,
        now: Instant,
        after: Duration,
        is_open: impl Fn(OpId) -> bool,
    ) {
        if self.due.len() >= KEPT_MAX {
            self.due.retain(|(_, op)| is_open(*op));
        }
        // A time beyond the range of the clock is no deadline.
        self.due.extend(now.checked_add(after).map(|at| (at, op)));
    }

    /// Time until the next deadline.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        self.due.first().map_or(Duration::MAX, |(at, _)| at.saturating_duration_since(now))
    }

    /// Removes and returns the next operation whose deadline has passed.
    pub(super) fn next(&mut self, now: Instant) -> Option<OpId> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.pop_first().map(|(_, op)| op)
    }

    /// Removes all: the View has ended.
    pub(super) fn clear(&mut self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    const SECOND: Duration = Duration::from_secs(1);

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::MAIN, number }
    }

    #[test]
    fn the_earliest_comes_first_and_not_before_its_time() {
        let (mut deadlines, now) = (Deadlines::default(), Instant::now());
        assert_eq!(deadlines.pause(now), Duration::MAX);
        deadlines.arm(op(1), now, 2 * SECOND, |_| true);
        deadlines.arm(op(2), now, SECOND, |_| true);
        deadlines.arm(op(3), now, Duration::MAX, |_| true);
        assert_eq!(deadlines.pause(now), SECOND);
        assert_eq!(deadlines.next(now), None);
        assert_eq!(deadlines.pause(now + 2 * SECOND), Duration::ZERO);
        assert_eq!(
            [(); 3].map(|()| deadlines.next(now + 2 * SECOND)),
            [Some(op(2)), Some(op(1)), None]
        );
    }

    #[test]
    fn a_million_calls_with_an_hour_each_do_not_pile_up() {
        let (mut deadlines, now) = (Deadlines::default(), Instant::now());
        for number in 0..1_000_000 {
            deadlines.arm(op(number), now, 3600 * SECOND, |op| {
                op.number == 0 || op.number + 60 > number
            });
            assert!(deadlines.due.len() <= KEPT_MAX);
        }
        assert_eq!(deadlines.next(now + 3600 * SECOND), Some(op(0)), "it is still open");
    }
}
