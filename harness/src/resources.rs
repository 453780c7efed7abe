//! The resources of this process.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::memory_kib;

/// Threads, descriptors and memory of this process. Linux only.
#[derive(Clone, Debug)]
pub struct Resources {
    /// The names of the threads, sorted. Threads of tokio's runtimes are left out, because tokio
    /// starts and ends them as it likes.
    pub threads: Vec<String>,
    /// The number of open files and sockets.
    pub descriptors: usize,
    /// Resident memory in KiB.
    pub rss_kib: u64,
}

impl Resources {
    /// The current resources.
    pub fn now() -> Result<Resources> {
        let mut threads: Vec<String> = std::fs::read_dir("/proc/self/task")?
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| name != "tokio-rt-worker")
            .collect();
        threads.sort();
        Ok(Resources {
            threads,
            descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
            rss_kib: memory_kib("self", "VmRSS")?,
        })
    }

    /// The resources once threads and descriptors have not changed for half a second; before, some
    /// may still be about to end.
    pub fn settled() -> Result<Resources> {
        let until = Instant::now() + PATIENCE;
        let (mut known, mut since) = (Resources::now()?, Instant::now());
        while since.elapsed() < Duration::from_millis(500) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            let now = Resources::now()?;
            if (now.threads.len(), now.descriptors) != (known.threads.len(), known.descriptors) {
                since = Instant::now();
            }
            known = now;
        }
        Ok(known)
    }

    /// The resources as soon as there are no more threads and descriptors than `before`, at the
    /// latest after `PATIENCE`.
    pub fn back_to(before: &Resources) -> Result<Resources> {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = Resources::now()?;
            if now.is_within(before) || Instant::now() >= until {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether there are no more threads and descriptors than in `before`.
    pub fn is_within(&self, before: &Resources) -> bool {
        self.threads.len() <= before.threads.len() && self.descriptors <= before.descriptors
    }
}

/// How long to wait for threads and descriptors that are about to end.
const PATIENCE: Duration = Duration::from_secs(5);
