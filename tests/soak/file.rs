//! Logs in files: one JSON object per line, written at once.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::node::log::Log;

/// A log in a new file. A log that cannot be written makes the run worthless, so the process ends.
pub fn log(path: &Path) -> Result<Log> {
    let file = OpenOptions::new().create_new(true).append(true).open(path);
    let file = Mutex::new(file.with_context(|| path.display().to_string())?);
    Ok(Log::new(move |mut event| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        event["t"] = now_us().into();
        if let Err(error) = file.write_all(format!("{event}\n").as_bytes()) {
            eprintln!("the log: {error}");
            std::process::abort();
        }
    }))
}

/// Microseconds of the machine's monotonic clock.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
