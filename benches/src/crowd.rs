//! Many more processes than processors sum without a pause: their View must stay.

use crate::Extent;
use crate::machine::{Machines, PATIENCE, answer, number};
use crate::report::{Report, bytes, time};
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use std::time::Duration;

/// As many as a View may have.
const SIZE: usize = 16;
const BYTES: usize = 1 << 20;

pub fn measure(extent: Extent, report: &mut Report) {
    let seconds = if extent == Extent::Quick { 10 } else { 300 };
    report.line("\n### Sixteen processes on one machine\n");
    match sums(seconds) {
        Ok(sums) => report.line(&format!(
            "{SIZE} processes on {} cores, on loopback and encrypted, had a common View {} after \
             the first start, and summed {} {} times in {seconds} s. No call failed and no View \
             was replaced. A sum took {} in the median, {} in the 99th percentile, {} at worst.",
            std::thread::available_parallelism().map_or(1, usize::from),
            time(sums.formed_s),
            bytes(BYTES),
            sums.calls,
            time(sums.median_s),
            time(sums.p99_s),
            time(sums.worst_s)
        )),
        Err(error) => report.failure(format!("sixteen processes: {error:#}")),
    }
}

/// The times are those of the slowest member.
#[derive(Default)]
struct Sums {
    formed_s: f64,
    calls: usize,
    median_s: f64,
    p99_s: f64,
    worst_s: f64,
}

fn sums(seconds: u64) -> Result<Sums> {
    let machines = Machines::up("lo", SIZE)?;
    let (for_s, of_bytes) = (seconds.to_string(), BYTES.to_string());
    let order = ["crowd", &for_s, &of_bytes];
    let mut peers: Vec<Child> =
        (1..=SIZE).map(|n| machines.start(n, SIZE, "-", &order)).collect::<Result<_>>()?;
    let (mut sums, mut first_start, mut views) = (Sums::default(), f64::MAX, Vec::new());
    for peer in &mut peers {
        let words = answer(peer, "view")?;
        first_start = first_start.min(number(&words, 0)?);
        sums.formed_s = sums.formed_s.max(number(&words, 1)?);
        views.push(words.get(2).cloned());
    }
    sums.formed_s -= first_start;
    views.dedup();
    ensure!(views.len() == 1, "the processes are in different views: {views:?}");
    let within = Duration::from_secs(seconds) + PATIENCE;
    for (at, peer) in peers.iter_mut().enumerate() {
        let line = peer.wait_for_line(|line| line.starts_with("crowd "), within)?;
        let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        let calls = words.first().and_then(|word| word.parse().ok()).context("a count")?;
        ensure!(at == 0 || calls == sums.calls, "{calls} calls and {}", sums.calls);
        sums.calls = calls;
        sums.median_s = sums.median_s.max(number(&words, 1)?);
        sums.p99_s = sums.p99_s.max(number(&words, 2)?);
        sums.worst_s = sums.worst_s.max(number(&words, 3)?);
    }
    Ok(sums)
}
