//! The tests: runs of many seeds. Each seed runs in its own process, so that it always gives the
//! same run: after a crash of a host the runtime depends on names that its process has used before.

use super::node::calls;
use super::{FAULTS, Outcome, RECOVERY, Run, sinks};
use crate::protocol::Mutant;
use potluck_harness::history::Report;
use potluck_harness::history::claims::CLAIMS;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Begins the line with the counts of a run, which its parent process reads.
const RESULT_LINE: &str = "sim-run:";

/// Begins the line with the claims that do not hold.
const BROKEN_LINE: &str = "sim-breaks:";

/// The mutant of a member that lies. It need not be found: the others must keep their promises to
/// each other.
const LIES: &str = "lies";

/// Seeds in which a mutant must be found.
const FOUND_IN: u64 = 20;

/// Totals over all programs of a run, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Calls that took a number.
    calls: u64,
    /// Calls that succeeded.
    succeeded: u64,
    /// Views that were used.
    views: u64,
    faults: u64,
    /// The digest of the logs.
    digest: u64,
}

/// `POTLUCK_SIM_SEED` selects one seed, `POTLUCK_SIM_SEEDS` a number of seeds; the default is four.
/// `POTLUCK_SIM_HOSTS` is the number of hosts; the default is 2 to 5, by chance.
/// `POTLUCK_SIM_MUTANT` names a rule that the nodes break; then the test passes once that is found.
#[test]
fn groups_in_virtual_time_never_differ_and_find_together() {
    let mutant = std::env::var("POTLUCK_SIM_MUTANT").ok();
    match (number("POTLUCK_SIM_SEED"), number("POTLUCK_SIM_SEEDS"), mutant) {
        (Some(seed), _, mutant) => run_one(seed, mutant.as_deref()),
        (None, seeds, Some(lies)) if lies == LIES => run_all(0..seeds.unwrap_or(4), Some(LIES)),
        (None, _, Some(mutant)) => find(&mutant),
        (None, seeds, None) => run_all(0..seeds.unwrap_or(4), None),
    }
}

#[test]
fn members_beside_a_liar_keep_their_promises_to_each_other() {
    // The other test runs the seeds that are asked for.
    if std::env::var_os("POTLUCK_SIM_SEEDS").is_none() {
        run_all(0..4, Some(LIES));
    }
}

/// The run of a group in which one member never votes is not a clean one.
#[test]
fn a_member_that_never_votes_is_found() {
    if std::env::var_os("POTLUCK_SIM_SEEDS").is_none() {
        find("silent");
    }
}

/// The number in this environment variable, if it is set.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs this seed in this process.
fn run_one(seed: u64, mutant: Option<&str>) {
    calls::silence();
    sinks::install(seed);
    let mutant = mutant.map(|name| Mutant::named(name).expect("a mutant that has a name"));
    let hosts = number("POTLUCK_SIM_HOSTS").map(|hosts| hosts as usize);
    let Outcome { report, wrong, digest, observer } = Run::new(seed, hosts, mutant).go();
    if !wrong.is_empty() {
        println!("seed {seed}:\n{}", wrong.join("\n"));
        println!(
            "{BROKEN_LINE} {}",
            broken(&report, wrong.len()).into_iter().collect::<Vec<_>>().join(" ")
        );
    }
    if let Some(folder) = std::env::var_os("POTLUCK_SIM_LOGS") {
        observer.keep(Path::new(&folder)).expect("the logs can be written");
    }
    let faults: usize = report.faults.values().sum();
    let Report { calls, succeeded, views, .. } = report;
    println!("{RESULT_LINE} {calls} {succeeded} {views} {faults} {digest}");
    println!(
        "sim: seed {seed}: {} calls ({} succeeded), {} Views, {faults} faults, longest wait \
         {:.1} s, {} things wrong, logs {digest:016x}",
        calls,
        succeeded,
        views,
        report.longest_us as f64 / 1e6,
        wrong.len()
    );
    // A run in which nothing succeeds has shown nothing.
    assert!(succeeded > 0 && wrong.is_empty(), "seed {seed}; SEED={seed} make sim repeats it");
}

/// The claims that do not hold, and `simulation` if only that has found something.
fn broken(report: &Report, wrong: usize) -> BTreeSet<&'static str> {
    let is_broken = |claim: &str| report.violations.iter().any(|v| v.claim == claim);
    let names = CLAIMS.iter().map(|(name, _)| *name).filter(|name| is_broken(name));
    // The first entry is the log of the faults.
    let by_itself = wrong > report.violations.len().min(20) + 1;
    names.chain(by_itself.then_some("simulation")).collect()
}

/// Runs seeds with a mutant until it is found.
fn find(mutant: &str) {
    for seed in 0..FOUND_IN {
        if let Err(output) = run_in_own_process(seed, Some(mutant)) {
            println!("{output}");
            let breaks = output.lines().find_map(|line| line.split_once(BROKEN_LINE));
            let (_, claims) = breaks.expect("the run ended by something else");
            println!("sim: the mutant {mutant} is found by seed {seed}: {}", claims.trim());
            return;
        }
    }
    panic!("the mutant {mutant} is not found in {FOUND_IN} seeds");
}

/// Runs `seeds`, several at a time, and reports the failures.
fn run_all(seeds: Range<u64>, mutant: Option<&str>) {
    let (next, counts, failed) =
        (AtomicU64::new(seeds.start), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let is_repeated = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run_in_own_process(seed, mutant) {
                        Ok(more) => {
                            *counts.lock().expect("no panic") += more;
                            if seed == seeds.start {
                                is_repeated
                                    .store(is_repeatable(seed, mutant, more), Ordering::Relaxed);
                            }
                        }
                        Err(output) => {
                            println!("{output}");
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
    let lasts = if mutant.is_some() { super::LIES + RECOVERY } else { FAULTS + RECOVERY };
    let (seconds, runs) = (lasts.as_secs(), seeds.end - seeds.start);
    let Counts { calls, succeeded, views, faults, .. } = counts;
    println!(
        "sim: {runs} seeds of at least {seconds} simulated seconds, {calls} calls ({succeeded} \
         succeeded), {views} Views, {faults} faults, {} failed",
        failed.len()
    );
    assert!(failed.is_empty(), "seeds {failed:?}; SEED=n make sim repeats one");
    assert!(is_repeated.into_inner(), "seed {} gives another run", seeds.start);
}

/// Whether a seed gives the same run once more. Only in the build of `make sim` tokio's own choices
/// are seeded too.
fn is_repeatable(seed: u64, mutant: Option<&str>, first: Counts) -> bool {
    let again = || run_in_own_process(seed, mutant).map(|again| again.digest);
    !cfg!(potluck_tight) || again() == Ok(first.digest)
}

/// The counts of a run, or all its output if it failed.
fn run_in_own_process(seed: u64, mutant: Option<&str>) -> Result<Counts, String> {
    let this = std::env::current_exe().map_err(|error| format!("seed {seed}: {error}"))?;
    let name = concat!(module_path!(), "::groups_in_virtual_time_never_differ_and_find_together");
    // The name without the crate.
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let run = Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .env("POTLUCK_SIM_SEED", seed.to_string())
        .envs(mutant.map(|mutant| ("POTLUCK_SIM_MUTANT", mutant)))
        .output();
    let run = run.map_err(|error| format!("seed {seed}: {error}"))?;
    let stdout = String::from_utf8_lossy(&run.stdout).into_owned();
    let line = stdout.lines().find_map(|line| line.split_once(RESULT_LINE));
    let counts = line.and_then(|(_, counts)| read(counts));
    match counts.filter(|_| run.status.success()) {
        Some(counts) => Ok(counts),
        None => Err(format!("{stdout}{}", String::from_utf8_lossy(&run.stderr))),
    }
}

fn read(counts: &str) -> Option<Counts> {
    let numbers: Vec<u64> =
        counts.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [calls, succeeded, views, faults, digest] = numbers[..] else { return None };
    Some(Counts { calls, succeeded, views, faults, digest })
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.calls += more.calls;
        self.succeeded += more.succeeded;
        self.views += more.views;
        self.faults += more.faults;
        // Of several runs there is none.
        self.digest = 0;
    }
}
