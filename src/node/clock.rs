//! The time of a node: since its start, until its periodic work, and lost in a suspend.

use crate::os::Sleep;
use crate::trace;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between round-trip measurements.
const PING: Duration = Duration::from_millis(500);

/// The same in large groups, of which all pairs measure.
const PING_OF_MANY: Duration = Duration::from_secs(1);

/// A node with more links than this is in a large group.
const FEW_LINKS: usize = 8;

/// Interval of the periodic work on the session: reports of resolved operations, wishes for path
/// trials, metering, and the interface reports of discovery.
const REPORT: Duration = Duration::from_millis(250);

/// Shortest suspend that counts. The clocks of one machine differ by less.
const SLEEP_MIN: Duration = Duration::from_secs(1);

/// The clock of one node.
pub(super) struct Clock {
    epoch: Instant,
    sleep: Box<dyn Sleep>,
    tick_at: Instant,
    ping_at: Instant,
    report_at: Instant,
}

impl Clock {
    /// Starts now; all periodic work is due.
    pub(super) fn new(sleep: Box<dyn Sleep>) -> Clock {
        let now = Instant::now();
        Clock { epoch: now, sleep, tick_at: now, ping_at: now, report_at: now }
    }

    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX)
    }

    /// Microseconds since the start.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.uptime().as_micros()).unwrap_or(u64::MAX)
    }

    /// Time since the start.
    pub(super) fn uptime(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The moment that was so many microseconds after the start.
    pub(super) fn at_us(&self, us: u64) -> Instant {
        self.epoch + Duration::from_micros(us)
    }

    /// Whether this machine was suspended since the last look.
    pub(super) fn has_slept(&mut self) -> bool {
        let slept = self.sleep.slept();
        if slept > SLEEP_MIN {
            trace::info!(?slept, "this machine has slept");
        }
        slept > SLEEP_MIN
    }

    /// Time until the next tick.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        self.tick_at.saturating_duration_since(now)
    }

    pub(super) fn is_tick_due(&self, now: Instant) -> bool {
        now >= self.tick_at
    }

    /// Sets the next tick.
    pub(super) fn tick_after(&mut self, now: Instant, rest_ms: u64) {
        self.tick_at = now + Duration::from_millis(rest_ms);
    }

    /// Whether a round-trip measurement over this many links is due; then the next one is set.
    pub(super) fn takes_ping(&mut self, now: Instant, links: usize) -> bool {
        let every = if links > FEW_LINKS { PING_OF_MANY } else { PING };
        takes(&mut self.ping_at, now, every)
    }

    /// The same for the periodic work on the session.
    pub(super) fn takes_report(&mut self, now: Instant) -> bool {
        takes(&mut self.report_at, now, REPORT)
    }
}

fn takes(at: &mut Instant, now: Instant, every: Duration) -> bool {
    let is_due = now >= *at;
    if is_due {
        *at = now + every;
    }
    is_due
}
