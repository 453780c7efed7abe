//! Layer: Core.
//!
//! How long a small message takes to a member and back where nothing is in its way.

/// The round trips to one member, of which the least of late counts.
///
/// A ping waits behind whatever else leaves by the same cable, so under load the mean tells of the
/// load. The least tells of the path, which is what a plan is made for. It is that of a window of
/// time, as in BBR, so that it grows when the path becomes another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// When this window began, in milliseconds.
    since: u64,
    least_us: Option<u32>,
    /// Of the window before.
    before_us: Option<u32>,
}

impl RoundTrip {
    /// A message has come back after so many microseconds. Time is in milliseconds and never goes
    /// back.
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

    /// The least of the last ten to twenty seconds in which there was any, in microseconds, at
    /// least 1.
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
