//! The decision when operations are so late against their forecasts that the links should be
//! measured again. Times are in milliseconds and monotonic.

use std::collections::VecDeque;

/// Compares the durations of operations with their forecasts. If processors are the bottleneck, all
/// operations take longer than predicted. So the measure is how much the excess has grown over the
/// usual one.
///
/// Several concurrent operations tend to end together after a pause without any. So the watch looks
/// at the last few operations in total, without the one with the largest excess, which may be
/// chance.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The last operations: forecast and duration, in microseconds.
    last: VecDeque<(f64, f64)>,
    /// The smallest ratio of duration to forecast so far, taken over the last operations. At least
    /// 1, and at most [`USUAL_MAX`].
    usual: Option<f64>,
    /// The links are not measured again before this time.
    not_before: u64,
    rest_ms: u64,
}

impl Watch {
    /// Smaller operations should not be noted: they are mostly latency.
    pub const BYTES_MIN: u64 = 1 << 20;

    /// A watch that begins at this time.
    pub fn new(now: u64) -> Watch {
        Watch { last: VecDeque::new(), usual: None, not_before: now, rest_ms: REST_MS }
    }

    /// Notes an operation with its forecast and its duration, both in microseconds. Returns whether
    /// the links should be measured again.
    pub fn note(&mut self, now: u64, forecast_us: f64, took_us: f64) -> bool {
        self.last.push_back((forecast_us, took_us));
        if self.last.len() > IN_A_ROW_MAX {
            self.last.pop_front();
        }
        if self.last.len() < IN_A_ROW_MIN {
            return false;
        }
        let excess = |(forecast, took): &(f64, f64)| took - forecast;
        let longest = self
            .last
            .iter()
            .max_by(|a, b| excess(a).total_cmp(&excess(b)))
            .copied()
            .unwrap_or_default();
        let sum = |of: fn(&(f64, f64)) -> f64| self.last.iter().map(of).sum::<f64>() - of(&longest);
        let (forecast, took) = (sum(|one| one.0), sum(|one| one.1));
        let usual = self.usual.unwrap_or(USUAL_MAX).min(took / forecast).max(1.0);
        self.usual = Some(usual);
        let slack_us = SLACK_US * (self.last.len() - 1) as f64;
        let is_due = took > forecast * usual * LATE + slack_us && now >= self.not_before;
        if is_due {
            // The cause may be something else, which measuring does not fix. Then the new ratio
            // becomes the usual one, and the next alarm waits longer.
            self.forget();
            self.not_before = now + self.rest_ms;
            self.rest_ms = (2 * self.rest_ms).min(REST_MAX_MS);
        }
        is_due
    }

    /// To be called when measuring has led to another plan, which has forecasts of its own. Resets
    /// the time between alarms.
    pub fn was_right(&mut self) {
        self.forget();
        self.rest_ms = REST_MS;
    }

    /// To be called when another plan is used that measuring did not lead to.
    pub fn forget(&mut self) {
        self.usual = None;
        self.last.clear();
    }
}

/// If already the first operations exceed their forecasts by more than this factor, a link has
/// become slow since it was measured.
const USUAL_MAX: f64 = 3.0;
/// The tolerated factor over the usual ratio.
const LATE: f64 = 1.5;
/// The delay that a busy processor or a late thread may add to each operation.
const SLACK_US: f64 = 5_000.0;
/// Fewer operations may be chance.
const IN_A_ROW_MIN: usize = 4;
/// About the number of operations that are in flight together.
const IN_A_ROW_MAX: usize = 8;
const REST_MS: u64 = 20_000;
const REST_MAX_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation on time; `late` takes twice its forecast.
    fn usual(watch: &mut Watch, now: u64) -> bool {
        watch.note(now, 100_000.0, 100_000.0)
    }

    fn late(watch: &mut Watch, now: u64) -> bool {
        watch.note(now, 100_000.0, 200_000.0)
    }

    /// The number of late operations until an alarm.
    fn late_until_due(watch: &mut Watch, now: u64) -> Option<usize> {
        (1..=20).find(|_| late(watch, now))
    }

    #[test]
    fn several_late_operations_are_worth_a_look_but_not_all_the_time() {
        let mut watch = Watch::new(0);
        assert!((0..8).all(|_| !usual(&mut watch, 0)));
        assert!((0..20).all(|_| !watch.note(0, 100_000.0, 145_000.0)), "nearly as foretold");
        assert!(
            (0..20).all(|n| !watch.note(
                1,
                100_000.0,
                if n % 8 == 0 { 5_000_000.0 } else { 100_000.0 }
            )),
            "chance"
        );
        let after = late_until_due(&mut watch, 7).expect("late");
        assert!((4..=7).contains(&after), "{after}");
        assert!((8..100).all(|now| !late(&mut watch, now)), "it is usual now");
        assert!((0..8).all(|_| !usual(&mut watch, 100)));
        assert!((101..200).all(|now| !late(&mut watch, now)), "not again at once");
        assert!(late(&mut watch, 7 + REST_MS));
        assert!((0..8).all(|_| !usual(&mut watch, 8 + REST_MS)));
        assert!(
            (0..9).all(|more| !late(&mut watch, 8 + 2 * REST_MS + more)),
            "it rests twice as long"
        );
        assert!(late(&mut watch, 8 + 3 * REST_MS));
    }

    #[test]
    fn a_link_ten_times_as_slow_shows_after_two_operations() {
        let mut watch = Watch::new(0);
        assert!((0..8).all(|_| !usual(&mut watch, 0)));
        assert_eq!((1..=20).find(|_| watch.note(0, 100_000.0, 1_000_000.0)), Some(2));
    }

    #[test]
    fn of_eight_together_it_shows_as_well_and_only_then() {
        let mut watch = Watch::new(0);
        // The first one ends after a while, the others right behind it.
        let together = |watch: &mut Watch, all_us: f64| {
            (0..8).any(|n| watch.note(0, 100_000.0, all_us * if n == 0 { 0.8 } else { 0.2 / 7.0 }))
        };
        assert!((0..5).all(|_| !together(&mut watch, 800_000.0)));
        assert!(together(&mut watch, 8_000_000.0) || together(&mut watch, 8_000_000.0));
    }

    #[test]
    fn what_is_slow_from_the_beginning_shows_too() {
        let mut watch = Watch::new(0);
        assert_eq!((1..=20).find(|_| watch.note(0, 100_000.0, 1_000_000.0)), Some(4));
    }

    #[test]
    fn where_processors_are_the_limit_nothing_is_late() {
        let mut watch = Watch::new(0);
        assert!((0..100).all(|now| !watch.note(now, 10_000.0, 30_000.0)));
        assert!((100..108).any(|now| watch.note(now, 10_000.0, 80_000.0)));
    }

    #[test]
    fn after_another_plan_it_looks_as_soon_as_at_first() {
        let mut watch = Watch::new(0);
        assert!((0..8).all(|_| !usual(&mut watch, 0)));
        assert!(late_until_due(&mut watch, 0).is_some());
        watch.was_right();
        for now in [REST_MS + 4, 2 * REST_MS + 20] {
            assert!((0..8).all(|_| !usual(&mut watch, now)));
            assert!(
                late_until_due(&mut watch, now).is_some(),
                "and has rested no longer than at first"
            );
        }
    }
}
