//! Layer: Face.
//!
//! The seeds that are run. Each runs in its own process: the runtime's behaviour after a crash of a
//! host depends on names that the process has given out before, and a seed must always give the
//! same run.

use super::{CALM, Outcome, Run, TROUBLE};
use crate::simulation::witness::Counts;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks a run's last line, which its parent process reads.
const SAYS: &str = "sim-run:";

/// `POTLUCK_SIM_SEED` selects one seed, `POTLUCK_SIM_SEEDS` a number of seeds; the default is four.
#[test]
fn groups_in_virtual_time_never_differ_and_find_together() {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("POTLUCK_SIM_SEED"), number("POTLUCK_SIM_SEEDS")) {
        (Some(seed), _) => run_one(seed),
        (None, seeds) => run_all(0..seeds.unwrap_or(4)),
    }
}

/// Runs this seed in this process.
fn run_one(seed: u64) {
    let Outcome { counts, faults } = Run::new(seed).go();
    let Counts { steps, failed, views, syncs } = counts;
    if !faults.is_empty() {
        println!("seed {seed}:\n{}", faults.join("\n"));
    }
    println!("{SAYS} {steps} {failed} {views} {syncs}");
    println!(
        "sim: seed {seed}: {steps} steps done, {failed} calls with an error, {views} Views taken, {} things wrong",
        faults.len()
    );
    // A run without steps has shown nothing.
    assert!(steps > 0 && faults.is_empty(), "seed {seed}; SEED={seed} make sim repeats it");
}

/// Runs `seeds`, several at a time, and reports the failures.
fn run_all(seeds: Range<u64>) {
    let (next, counts, failed) =
        (AtomicU64::new(seeds.start), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match in_a_process_of_its_own(seed) {
                        Ok(more) => *counts.lock().expect("no panic") += more,
                        Err(story) => {
                            println!("{story}");
                            failed.lock().expect("no panic").push(seed);
                        }
                    }
                }
            });
        }
    });
    let (mut failed, counts) =
        (failed.into_inner().expect("no panic"), counts.into_inner().expect("no panic"));
    failed.sort_unstable();
    let (minutes, runs) = ((TROUBLE + CALM).as_secs() / 60, seeds.end - seeds.start);
    let Counts { steps, failed: errors, views, syncs } = counts;
    println!(
        "{steps} steps done, {errors} calls with an error, {views} Views taken, {syncs} states brought by a sync"
    );
    println!("sim: {runs} seeds of at least {minutes} simulated minutes, {} failed", failed.len());
    assert!(failed.is_empty(), "seeds {failed:?}; SEED=n make sim repeats one");
}

/// The counts of a run, or all its output if it failed.
fn in_a_process_of_its_own(seed: u64) -> Result<Counts, String> {
    let this = std::env::current_exe().map_err(|error| format!("seed {seed}: {error}"))?;
    let name = concat!(module_path!(), "::groups_in_virtual_time_never_differ_and_find_together");
    // The name without the crate.
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let run = Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .env("POTLUCK_SIM_SEED", seed.to_string())
        .output();
    let run = run.map_err(|error| format!("seed {seed}: {error}"))?;
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let counts =
        said.lines().find_map(|line| line.split_once(SAYS)).and_then(|(_, counts)| read(counts));
    match counts.filter(|_| run.status.success()) {
        Some(counts) => Ok(counts),
        None => Err(format!("{said}{}", String::from_utf8_lossy(&run.stderr))),
    }
}

fn read(counts: &str) -> Option<Counts> {
    let numbers: Vec<u64> =
        counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [steps, failed, views, syncs] = numbers[..] else { return None };
    Some(Counts { steps, failed, views, syncs })
}
