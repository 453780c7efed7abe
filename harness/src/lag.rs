//! The scheduling delay of this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures how much later than requested a thread wakes up, from its creation on. On an overloaded
/// machine, time limits in seconds must be extended by this.
///
/// A thread on each processor measures: on a virtual machine a single one may be paused, and the
/// processes on it with it.
#[derive(Debug)]
pub struct Lag {
    meters: Vec<Arc<Meter>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The delays of one thread, in microseconds.
#[derive(Debug, Default)]
struct Meter {
    sum: AtomicU64,
    longest: AtomicU64,
}

/// The sleep between two measurements.
const REST: Duration = Duration::from_millis(10);

impl Lag {
    /// Starts the measurement.
    pub fn begin() -> Lag {
        let over = Arc::new(AtomicBool::new(false));
        let (mut meters, mut threads) = (Vec::new(), Vec::new());
        for processor in processors() {
            let (meter, ended) = (Arc::new(Meter::default()), Arc::clone(&over));
            meters.push(Arc::clone(&meter));
            threads.push(std::thread::spawn(move || {
                stay_on(processor);
                while !ended.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    std::thread::sleep(REST);
                    let late = asked.elapsed().saturating_sub(REST);
                    let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                    meter.sum.fetch_add(late_us, Ordering::Relaxed);
                    meter.longest.fetch_max(late_us, Ordering::Relaxed);
                }
            }));
        }
        Lag { meters, over, threads }
    }

    /// The sum of all delays since the start, in milliseconds, on the processor with the largest.
    pub fn ms(&self) -> f64 {
        self.most(|meter| &meter.sum) as f64 / 1e3
    }

    /// The longest of the delays since the start.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.most(|meter| &meter.longest))
    }

    fn most(&self, of: impl Fn(&Meter) -> &AtomicU64) -> u64 {
        self.meters.iter().map(|meter| of(meter).load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread's result does not matter.
            let _ = thread.join();
        }
    }
}

/// The processors that this thread may use. At least one.
#[cfg(target_os = "linux")]
fn processors() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).ok();
    let is_allowed = |processor: &usize| allowed.is_some_and(|set| set.is_set(*processor));
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(is_allowed).collect();
    if processors.is_empty() { vec![0] } else { processors }
}

/// Binds this thread to a processor. Where that is refused it measures wherever it runs.
#[cfg(target_os = "linux")]
fn stay_on(processor: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut only = CpuSet::new();
    only.set(processor);
    let _ = sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
fn processors() -> Vec<usize> {
    vec![0]
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_is_measured() {
        let lag = Lag::begin();
        assert_eq!(lag.meters.len(), processors().len());
        let is_running = |meter: &Arc<Meter>| meter.sum.load(Ordering::Relaxed) > 0;
        let began = Instant::now();
        while !lag.meters.iter().all(is_running) {
            assert!(began.elapsed() < Duration::from_secs(60), "{lag:?}");
            std::thread::yield_now();
        }
        assert!(lag.ms() > 0.0 && lag.longest() > Duration::ZERO);
    }
}
