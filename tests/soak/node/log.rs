//! The log of this process: one JSON object per line, written at once.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

pub struct Log {
    file: Mutex<File>,
    calls: AtomicU64,
}

impl Log {
    pub fn create(path: &Path) -> Result<Log> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = Mutex::new(file.with_context(|| path.display().to_string())?);
        Ok(Log { file, calls: AtomicU64::new(1) })
    }

    /// Writes an event with the time. A log that cannot be written makes the run worthless, so the
    /// process ends.
    pub fn tell(&self, mut event: Value) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        event["t"] = now_us().into();
        if let Err(error) = file.write_all(format!("{event}\n").as_bytes()) {
            eprintln!("the log: {error}");
            std::process::abort();
        }
    }

    /// The number of the next call.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

/// Microseconds of the machine's monotonic clock.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
