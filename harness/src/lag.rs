//! The scheduling delay of this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures how much later than requested a thread wakes up, from its creation on. On an overloaded
/// machine, time limits in seconds must be extended by this.
#[derive(Debug)]
pub struct Lag {
    late_us: Arc<AtomicU64>,
    longest_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The sleep between two measurements.
const REST: Duration = Duration::from_millis(10);

impl Lag {
    /// Starts the measurement.
    pub fn begin() -> Lag {
        let (late_us, longest_us) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let (sum, longest, ended) =
            (Arc::clone(&late_us), Arc::clone(&longest_us), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let asked = Instant::now();
                std::thread::sleep(REST);
                let late = asked.elapsed().saturating_sub(REST);
                let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                sum.fetch_add(late_us, Ordering::Relaxed);
                longest.fetch_max(late_us, Ordering::Relaxed);
            }
        });
        Lag { late_us, longest_us, over, thread: Some(thread) }
    }

    /// The sum of all delays since the start.
    pub fn ms(&self) -> f64 {
        self.late_us.load(Ordering::Relaxed) as f64 / 1e3
    }

    /// The longest of the delays since the start.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread's result does not matter.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
