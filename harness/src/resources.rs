//! What this process holds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Threads, descriptors and memory of this process. Linux only.
#[derive(Clone, Debug)]
pub struct Resources {
    /// The threads' names, in order; those of tokio's runtimes are left out, as they come and go by
    /// rules of their own.
    pub threads: Vec<String>,
    /// Open files and sockets.
    pub descriptors: usize,
    /// Memory that is there.
    pub rss_kib: u64,
}

impl Resources {
    /// What it holds now.
    pub fn now() -> Result<Resources> {
        let mut threads: Vec<String> = std::fs::read_dir("/proc/self/task")?
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| name != "tokio-rt-worker")
            .collect();
        threads.sort();
        let status = std::fs::read_to_string("/proc/self/status")?;
        let rss =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no such line")?;
        Ok(Resources {
            threads,
            descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
            rss_kib: rss.trim().trim_end_matches(" kB").parse()?,
        })
    }

    /// What it holds once its threads and descriptors have been the same for half a second; the
    /// last ones may be about to end.
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

    /// What it holds as soon as it has no more threads and descriptors than `before`, else after
    /// some seconds.
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

    /// Whether it has no more threads and descriptors than `before`.
    pub fn is_within(&self, before: &Resources) -> bool {
        self.threads.len() <= before.threads.len() && self.descriptors <= before.descriptors
    }
}

/// How long threads and descriptors are waited for that may be about to end.
const PATIENCE: Duration = Duration::from_secs(5);
