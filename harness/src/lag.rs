//! How late this machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures, from its beginning on, how much later than asked for a thread is woken: what a promise
/// in seconds cannot be held to when more wants to run than the machine has processors for.
#[derive(Debug)]
pub struct Lag {
    late_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Between two looks.
const REST: Duration = Duration::from_millis(10);

impl Lag {
    /// Begins.
    pub fn begin() -> Lag {
        let (late_us, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (theirs, ended) = (Arc::clone(&late_us), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let asked = Instant::now();
                std::thread::sleep(REST);
                let late = asked.elapsed().saturating_sub(REST);
                theirs.fetch_add(
                    u64::try_from(late.as_micros()).unwrap_or(u64::MAX),
                    Ordering::Relaxed,
                );
            }
        });
        Lag { late_us, over, thread: Some(thread) }
    }

    /// All the time since then that this machine was late.
    pub fn ms(&self) -> f64 {
        self.late_us.load(Ordering::Relaxed) as f64 / 1e3
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // It has nothing to say that matters any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
