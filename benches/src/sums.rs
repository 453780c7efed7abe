//! How long a sum takes: borrowed and owned, encrypted and in the clear, by size and number of machines.

use crate::Extent;
use crate::machine::{Machines, answer, median, number};
use crate::report::{Report, Sum};
use anyhow::Result;
use potluck_harness::Child;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Calls of one batch: enough to be longer than the noise of a shared processor.
const WORKS: [(usize, usize); 5] = [(4 * KIB, 200), (64 * KIB, 100), (MIB, 20), (16 * MIB, 3), (64 * MIB, 1)];

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    for (profile, trusted) in [("lo", "lo"), ("lo", "-"), ("gbe4", "-")] {
        for size in sizes(extent) {
            let works = works(extent);
            match group(profile, trusted, size, &works) {
                Ok(sums) => sums.into_iter().for_each(|sum| report.sum(&sum)),
                Err(error) => report.failure(format!("{profile}, {size} machines: {error:#}")),
            }
        }
    }
    Ok(())
}

fn sizes(extent: Extent) -> Vec<usize> {
    match extent {
        Extent::Quick => vec![2, 4],
        Extent::Full => vec![2, 3, 4],
    }
}

fn works(extent: Extent) -> Vec<(usize, usize, usize)> {
    let batches = |bytes: usize| if bytes >= 16 * MIB { 5 } else { 7 };
    match extent {
        Extent::Quick => vec![(4 * KIB, 100, 3), (MIB, 10, 3), (16 * MIB, 1, 3)],
        Extent::Full => WORKS.map(|(bytes, ops)| (bytes, ops, batches(bytes))).to_vec(),
    }
}

fn group(profile: &'static str, trusted: &'static str, size: usize, works: &[(usize, usize, usize)]) -> Result<Vec<Sum>> {
    // A lab with more machines than are needed costs nothing; one of its own keeps earlier groups out.
    let machines = Machines::up(profile, size)?;
    let words: Vec<String> = works.iter().map(|(bytes, ops, batches)| format!("{bytes}:{ops}:{batches}")).collect();
    let order: Vec<&str> = std::iter::once("sum").chain(words.iter().map(String::as_str)).collect();
    let started: Result<Vec<Child>> = (1..=size).map(|n| machines.start(n, size, trusted, &order)).collect();
    let mut peers = started?;
    let encrypted = trusted == "-";
    let mut sums = Vec::new();
    for (bytes, ops, batches) in works.iter().copied() {
        let mut sum = Sum { profile, encrypted, size, bytes, borrowed_s: 0.0, owned_s: 0.0, borrowed_cpu: 0.0, owned_cpu: 0.0 };
        let (mut borrowed, mut owned) = (Vec::new(), Vec::new());
        let (mut spent_borrowed, mut spent_owned) = (0.0, 0.0);
        for _ in 0..batches {
            let mut slowest = (0f64, 0f64);
            for peer in &mut peers {
                let words = answer(peer, "batch")?;
                slowest = (slowest.0.max(number(&words, 0)?), slowest.1.max(number(&words, 1)?));
                spent_borrowed += number(&words, 2)?;
                spent_owned += number(&words, 3)?;
            }
            borrowed.push(slowest.0);
            owned.push(slowest.1);
        }
        (sum.borrowed_s, sum.owned_s) = (median(&borrowed), median(&owned));
        // Of all members together, for every GiB of buffer that was summed.
        let gib = (bytes * ops * batches) as f64 / (1u64 << 30) as f64;
        (sum.borrowed_cpu, sum.owned_cpu) = (spent_borrowed / gib, spent_owned / gib);
        sums.push(sum);
    }
    for peer in &mut peers {
        answer(peer, "end")?;
    }
    Ok(sums)
}
