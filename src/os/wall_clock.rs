//! The wall clock, which people compare. No rule of the library depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970 on the clock of this machine; zero if that is earlier.
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
