//! The log of a node: events with their times, as the harness reads them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

/// Where the events go, and the number of the last call.
pub struct Log {
    write: Box<dyn Fn(Value) + Send + Sync>,
    calls: AtomicU64,
}

impl Log {
    /// A log whose events `write` keeps, with the time `t` in microseconds.
    pub fn new(write: impl Fn(Value) + Send + Sync + 'static) -> Log {
        Log { write: Box::new(write), calls: AtomicU64::new(1) }
    }

    /// Writes an event, at once.
    pub fn tell(&self, event: Value) {
        (self.write)(event);
    }

    /// The number of the next call.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}
