//! Layer: Core.
//!
//! Whether a plan keeps what it promises. Time is in milliseconds and never goes back.

/// Compares what operations take with their forecasts.
#[derive(Clone, Debug)]
pub struct Watch {
    /// How many in a row have taken too long.
    late: u32,
    /// Not before this time the links are measured again.
    not_before: u64,
    rest_ms: u64,
}

impl Watch {
    /// Operations below this are not looked at: they are mostly latency.
    pub const BYTES_MIN: u64 = 1 << 20;

    /// From now on.
    pub fn new(now: u64) -> Watch {
        Watch { late: 0, not_before: now, rest_ms: REST_MS }
    }

    /// An operation took so long in place of its forecast, in microseconds. Says whether the links should be measured again.
    pub fn note(&mut self, now: u64, forecast_us: f64, took_us: f64) -> bool {
        let is_late = took_us > forecast_us * LATE + SLACK_US;
        self.late = if is_late { self.late + 1 } else { 0 };
        let is_due = self.late >= IN_A_ROW && now >= self.not_before;
        if is_due {
            self.late = 0;
            self.not_before = now + self.rest_ms;
            // It may be something else that takes time, which measuring does not mend.
            self.rest_ms = (2 * self.rest_ms).min(REST_MAX_MS);
        }
        is_due
    }

    /// Measuring has led to another plan.
    pub fn was_right(&mut self) {
        self.rest_ms = REST_MS;
    }
}

/// Of the forecast, what is still like it.
const LATE: f64 = 1.5;
/// What a busy processor or a late thread may add.
const SLACK_US: f64 = 5_000.0;
/// Fewer may be chance.
const IN_A_ROW: u32 = 4;
const REST_MS: u64 = 20_000;
const REST_MAX_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_late_operations_in_a_row_are_worth_a_look_but_not_all_the_time() {
        let mut watch = Watch::new(0);
        let late = |watch: &mut Watch, now| watch.note(now, 100_000.0, 200_000.0);
        assert!((0..10).all(|_| !watch.note(0, 100_000.0, 140_000.0)));
        assert_eq!([0, 1, 2].map(|now| late(&mut watch, now)), [false; 3]);
        assert!(!watch.note(3, 100_000.0, 100_000.0), "as foretold");
        assert_eq!([4, 5, 6, 7].map(|now| late(&mut watch, now)), [false, false, false, true]);
        assert!((8..1000).all(|now| !late(&mut watch, now)), "not again at once");
        assert!(late(&mut watch, 7 + REST_MS));
        assert!((0..4).all(|more| !late(&mut watch, 7 + 2 * REST_MS + more)), "it rests twice as long");
        watch.was_right();
        assert!(late(&mut watch, 7 + 3 * REST_MS));
        assert!((0..4).any(|more| late(&mut watch, 8 + 4 * REST_MS + more)), "what was right is not mistrusted");
    }
}
