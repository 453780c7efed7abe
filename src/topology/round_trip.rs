//! The idle round-trip time to a member.

/// The round-trip times to one member, of which the minimum of the last seconds counts.
///
/// A ping waits behind other traffic on the same cable, so under load the mean measures the load.
/// The minimum measures the path, which a plan needs. It is taken over a window of time, as in BBR,
/// so that it can grow when the path changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// The start of the current window, in milliseconds.
    since: u64,
    least_us: Option<u32>,
    /// The minimum of the previous window.
    before_us: Option<u32>,
}

impl RoundTrip {
    /// Adds a round-trip time of `us` microseconds. `now` is in milliseconds and monotonic.
    pub fn sample(&mut self, now: u64, us: u32) {
        let windows = now.saturating_sub(self.since) / WINDOW_MS;
        if windows > 0 {
            let before_us = self.least_us.take();
            *self = RoundTrip {
                since: now,
                least_us: None,
                before_us: before_us.filter(|_| windows == 1),
            };
        }
        self.least_us = Some(self.least_us.map_or(us, |least| least.min(us)).max(1));
    }

    /// The minimum of the current and the previous window, in microseconds, at least 1. The two
    /// windows cover the 10 to 20 s before the last sample; without new samples the value stays.
    /// `None` before the first sample.
    pub fn us(&self) -> Option<u32> {
        self.least_us.into_iter().chain(self.before_us).min()
    }
}

const WINDOW_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_while_messages_wait_behind_others() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.us(), None);
        for (now, us) in [
            (0, 900),
            (500, 200),
            (1000, 13_000),
            (9500, 14_000),
            (10_500, 13_000),
            (19_000, 12_000),
        ] {
            trip.sample(now, us);
        }
        assert_eq!(trip.us(), Some(200));
    }

    #[test]
    fn a_path_that_became_a_longer_one_is_seen_within_two_windows() {
        let mut trip = RoundTrip::default();
        trip.sample(0, 200);
        let seen = (1..60).map(|half| half * 500).find(|now| {
            trip.sample(*now, 5000);
            trip.us() == Some(5000)
        });
        assert!(seen.is_some_and(|now| (WINDOW_MS..=2 * WINDOW_MS).contains(&now)), "{seen:?}");
    }

    #[test]
    fn what_is_long_ago_does_not_count_and_nothing_takes_no_time() {
        let mut trip = RoundTrip::default();
        trip.sample(0, 200);
        trip.sample(3 * WINDOW_MS, 700);
        assert_eq!(trip.us(), Some(700));
        trip.sample(3 * WINDOW_MS + 1, 0);
        assert_eq!(trip.us(), Some(1));
    }
}
