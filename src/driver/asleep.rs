//! Layer: Host.
//!
//! How long this machine has slept. The clock that everything here is timed by stands still meanwhile, so whoever wakes
//! would not know that the others have gone on.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Tells sleep.
pub trait Sleep: Send {
    /// How long the machine has slept since this was made, in all.
    fn slept(&self) -> Duration;
}

/// The difference of two clocks of the operating system.
pub struct MachineSleep {
    since: Instant,
    through_sleep_since: Duration,
}

/// The clock that goes on during sleep. The one of [`Instant`] does not: `CLOCK_MONOTONIC` on Linux, `CLOCK_UPTIME_RAW` on macOS.
#[cfg(any(target_os = "linux", target_os = "android"))]
const THROUGH_SLEEP: ClockId = ClockId::Boottime;
/// Untested. Where neither holds the difference is always zero, and only the silence of the others tells.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const THROUGH_SLEEP: ClockId = ClockId::Monotonic;

impl MachineSleep {
    /// Counts from now on.
    pub fn start() -> MachineSleep {
        MachineSleep { since: Instant::now(), through_sleep_since: through_sleep() }
    }
}

impl Sleep for MachineSleep {
    fn slept(&self) -> Duration {
        // In this order a pause between the two looks like no sleep.
        let in_all = through_sleep().saturating_sub(self.through_sleep_since);
        in_all.saturating_sub(self.since.elapsed())
    }
}

fn through_sleep() -> Duration {
    let time = clock_gettime(THROUGH_SLEEP);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_awake_has_not_slept() {
        let sleep = MachineSleep::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(sleep.slept() < Duration::from_millis(10), "{:?}", sleep.slept());
    }
}
