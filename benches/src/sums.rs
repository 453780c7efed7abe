//! The time of a sum: borrowed and owned, encrypted and unencrypted, by size and number of
//! machines.

use crate::Extent;
use crate::machine::{Machines, answer, number};
use crate::report::{Report, Sum};
use crate::turns::{Turn, Turns};
use anyhow::Result;
use potluck_harness::Child;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The calls of a batch: enough to exceed the noise of a shared processor.
const WORKS: [(usize, usize); 5] =
    [(4 * KIB, 200), (64 * KIB, 100), (MIB, 20), (16 * MIB, 3), (64 * MIB, 1)];

/// This many times the required number of batches is made; the least disturbed ones count.
const SPARE: usize = 2;

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
    let batches = |bytes: usize| SPARE * if bytes >= 16 * MIB { 5 } else { 7 };
    match extent {
        Extent::Quick => [(4 * KIB, 100), (MIB, 10), (16 * MIB, 1)]
            .map(|(bytes, ops)| (bytes, ops, SPARE * 3))
            .to_vec(),
        Extent::Full => WORKS.map(|(bytes, ops)| (bytes, ops, batches(bytes))).to_vec(),
    }
}

fn group(
    profile: &'static str,
    trusted: &'static str,
    size: usize,
    works: &[(usize, usize, usize)],
) -> Result<Vec<Sum>> {
    // A lab of its own keeps earlier groups out.
    let machines = Machines::up(profile, size)?;
    let words: Vec<String> =
        works.iter().map(|(bytes, ops, batches)| format!("{bytes}:{ops}:{batches}")).collect();
    let order: Vec<&str> = std::iter::once("sum").chain(words.iter().map(String::as_str)).collect();
    let started: Result<Vec<Child>> =
        (1..=size).map(|n| machines.start(n, size, trusted, &order)).collect();
    let mut peers = started?;
    let encrypted = trusted == "-";
    let mut sums = Vec::new();
    for (bytes, ops, batches) in works.iter().copied() {
        let [mut borrowed, mut owned] = [(); 2].map(|()| Turns::wanted(batches.div_ceil(SPARE)));
        for _ in 0..batches {
            // Seconds per call of both kinds, and processor seconds of all calls on all members.
            let (mut slowest, mut spent, mut stolen) = ([0f64; 2], [0f64; 2], [0f64; 2]);
            for peer in &mut peers {
                let words = answer(peer, "batch")?;
                for kind in 0..2 {
                    slowest[kind] = slowest[kind].max(number(&words, kind)?);
                    spent[kind] += number(&words, 2 + kind)?;
                    stolen[kind] = stolen[kind].max(number(&words, 4 + kind)?);
                }
            }
            for (kind, turns) in [&mut borrowed, &mut owned].into_iter().enumerate() {
                turns.add(Turn {
                    seconds: vec![slowest[kind]],
                    cpu_s: spent[kind] / ops as f64,
                    stolen: stolen[kind],
                });
            }
        }
        let cpu = |turns: &Turns| turns.cpu_s() * (1u64 << 30) as f64 / bytes as f64;
        let (borrowed_cpu, owned_cpu) = (cpu(&borrowed), cpu(&owned));
        let (borrowed_s, owned_s) = (borrowed.median_s(), owned.median_s());
        let sum =
            Sum { profile, encrypted, size, bytes, borrowed_s, owned_s, borrowed_cpu, owned_cpu };
        sums.push(sum);
    }
    for peer in &mut peers {
        answer(peer, "end")?;
    }
    Ok(sums)
}
