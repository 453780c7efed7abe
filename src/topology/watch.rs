//! Layer: Core.
//!
//! Whether a plan keeps what it promises. Time is in milliseconds and never goes back.

/// Compares what operations take with their forecasts. Where processors are the limit all take longer than foretold, so what counts is by how
/// much more than usual.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The least that an operation has taken, in forecasts, and not less than one.
    usual: Option<f64>,
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
        Watch { usual: None, late: 0, not_before: now, rest_ms: REST_MS }
    }

    /// An operation took so long in place of its forecast, in microseconds. Says whether the links should be measured again.
    pub fn note(&mut self, now: u64, forecast_us: f64, took_us: f64) -> bool {
        let usual = self.usual.unwrap_or(f64::INFINITY).min(took_us / forecast_us).max(1.0);
        self.usual = Some(usual);
        let is_late = took_us > forecast_us * usual * LATE + SLACK_US;
        self.late = if is_late { self.late + 1 } else { 0 };
        let is_due = self.late >= IN_A_ROW && now >= self.not_before;
        if is_due {
            // It may be something else that takes time, which measuring does not mend: then that is usual from now on.
            self.usual = None;
            self.late = 0;
            self.not_before = now + self.rest_ms;
            self.rest_ms = (2 * self.rest_ms).min(REST_MAX_MS);
        }
        is_due
    }

    /// There is another plan, with forecasts of its own; measuring was worth it.
    pub fn was_right(&mut self) {
        self.usual = None;
        self.late = 0;
        self.rest_ms = REST_MS;
    }
}

/// Of what is usual, what is still like it.
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

    /// One that is as it should be, and one that takes twice as long.
    fn usual(watch: &mut Watch, now: u64) -> bool {
        watch.note(now, 100_000.0, 100_000.0)
    }

    fn late(watch: &mut Watch, now: u64) -> bool {
        watch.note(now, 100_000.0, 200_000.0)
    }

    #[test]
    fn several_late_operations_in_a_row_are_worth_a_look_but_not_all_the_time() {
        let mut watch = Watch::new(0);
        assert!(!usual(&mut watch, 0));
        assert!((0..10).all(|_| !watch.note(0, 100_000.0, 140_000.0)), "nearly as foretold");
        assert_eq!([0, 1, 2].map(|now| late(&mut watch, now)), [false; 3]);
        assert!(!usual(&mut watch, 3));
        assert_eq!([4, 5, 6, 7].map(|now| late(&mut watch, now)), [false, false, false, true]);
        assert!((8..100).all(|now| !late(&mut watch, now)), "it is usual now");
        assert!(!usual(&mut watch, 100));
        assert!((101..200).all(|now| !late(&mut watch, now)), "not again at once");
        assert!(late(&mut watch, 7 + REST_MS));
        usual(&mut watch, 8 + REST_MS);
        assert!((0..9).all(|more| !late(&mut watch, 8 + 2 * REST_MS + more)), "it rests twice as long");
        assert!(late(&mut watch, 8 + 3 * REST_MS));
    }

    #[test]
    fn where_processors_are_the_limit_nothing_is_late() {
        let mut watch = Watch::new(0);
        assert!((0..100).all(|now| !watch.note(now, 10_000.0, 40_000.0)));
        let slower: Vec<bool> = (100..104).map(|now| watch.note(now, 10_000.0, 80_000.0)).collect();
        assert_eq!(slower, [false, false, false, true]);
    }

    #[test]
    fn after_another_plan_it_looks_as_soon_as_at_first() {
        let mut watch = Watch::new(0);
        usual(&mut watch, 0);
        assert!((0..4).any(|now| late(&mut watch, now)));
        watch.was_right();
        usual(&mut watch, REST_MS + 4);
        assert!((0..4).any(|more| late(&mut watch, REST_MS + 5 + more)));
        usual(&mut watch, 2 * REST_MS + 20);
        assert!((0..4).any(|more| late(&mut watch, 2 * REST_MS + 20 + more)), "and has rested no longer than at first");
    }
}
