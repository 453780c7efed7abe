//! Two groups of real processes for a long time, and an observer of both: every kind of call in
//! several lanes at once, dropped, leaked and timed out at random; processes, cables, connections
//! and disks that fail; and a check of all logs at the end.
//!
//! Without arguments of its own this is a suite with one short run; `soak run …` makes a run of any
//! length (`make soak`). `soak node …` is the program under test, of which the others start one
//! process for each machine and job; `soak observe` is the observer. The claims that must hold are
//! in the harness, in `history/claims.rs`.

mod conductor;
mod file;
mod hangs;
mod machine;
mod nemesis;
mod node;
mod observer;
mod process;
mod watch;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use conductor::Plan;
use potluck_harness::history::Report;
use potluck_harness::history::claims::CLAIMS;
use potluck_harness::{Need, Suite, chance, need};

const NEEDS: [Need; 5] = [
    Need::Lab,
    Need::Command("nft"),
    Need::Command("ethtool"),
    Need::Command("ss"),
    Need::Command("mount"),
];

const USAGE: &str =
    "soak run [--minutes M] [--seed S] [--nodes N] [--engine E] [--mutant D] [--faults F,..]";

/// The short run: seconds with faults.
const SHORT: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("node") => process::run(&words[1..]),
        Some("run") => long(&words[1..]),
        Some("observe") => observer::run(),
        _ => suite(),
    }
}

fn suite() -> ExitCode {
    let mut suite = Suite::new();
    let Ok(seed) = chance::seed("soak") else { return ExitCode::FAILURE };
    suite.serial("a short run with faults has no violation", &NEEDS, move || {
        let engine = "native".to_owned();
        let (mutant, faults) = (None, Vec::new());
        let plan = Plan { nodes: 4, beside: 3, lasts: SHORT, seed, engine, mutant, faults };
        let outcome = conductor::run(plan)?;
        ensure!(outcome.report.succeeded > 100, "only {} calls", outcome.report.succeeded);
        let first = outcome.report.violations.first();
        ensure!(first.is_none(), "{first:?}; the logs are in {}", outcome.folder.display());
        Ok(())
    });
    suite.run()
}

fn long(words: &[String]) -> ExitCode {
    let began = Instant::now();
    match plan(words).and_then(|plan| try_long(plan, began)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn plan(words: &[String]) -> Result<Plan> {
    let (mut minutes, mut nodes, mut seed) = (5.0f64, 5, None);
    let (mut engine, mut mutant, mut faults) = ("native".to_owned(), None, Vec::new());
    for pair in words.chunks(2) {
        let [option, value] = pair else { bail!("{USAGE}") };
        match option.as_str() {
            "--minutes" => minutes = value.parse().context("--minutes takes a number")?,
            "--nodes" => nodes = value.parse().context("--nodes takes a number")?,
            "--seed" => seed = Some(value.parse().context("--seed takes a number")?),
            "--engine" => engine.clone_from(value),
            "--mutant" => mutant = Some(value.clone()),
            "--faults" => faults = value.split(',').map(str::to_owned).collect(),
            _ => bail!("{USAGE}"),
        }
    }
    ensure!((3..=6).contains(&nodes), "--nodes takes 3 to 6");
    let has_mutants = cfg!(potluck_mutants);
    ensure!(mutant.is_none() || has_mutants, "this build has no mutants: make soak MUTANT=...");
    let lasts = Duration::try_from_secs_f64(minutes * 60.0)?;
    let seed = seed.map_or_else(|| chance::seed("soak"), Ok)?;
    Ok(Plan { nodes, beside: 3, lasts, seed, engine, mutant, faults })
}

/// Whether the run was as it should be: without a violation, or with one if a mutant is sought.
fn try_long(plan: Plan, began: Instant) -> Result<bool> {
    if let Some(reason) = need::first_unmet(&NEEDS) {
        bail!("the soak cannot run here: {reason}");
    }
    let (seed, mutant) = (plan.seed, plan.mutant.clone());
    println!("seed {seed}");
    let outcome = conductor::run(plan)?;
    let report = &outcome.report;
    for violation in report.violations.iter().take(20) {
        println!("VIOLATION {violation}");
    }
    if !report.violations.is_empty() {
        println!("the logs are in {}", outcome.folder.display());
    }
    if let Some(mutant) = &mutant {
        println!("{}", broken(report, mutant));
    }
    println!("{}", summary(report, began.elapsed()));
    Ok(report.violations.is_empty() == mutant.is_none())
}

/// The claims that a mutant has broken.
fn broken(report: &Report, mutant: &str) -> String {
    let is_broken = |claim: &str| report.violations.iter().any(|v| v.claim == claim);
    let claims = CLAIMS.iter().filter(|(claim, _)| is_broken(claim));
    let names: Vec<String> = claims.map(|(claim, text)| format!("{claim} ({text})")).collect();
    if names.is_empty() {
        format!("the mutant {mutant} was not found")
    } else {
        format!("the mutant {mutant} breaks: {}", names.join(", "))
    }
}

fn summary(report: &Report, took: Duration) -> String {
    let faults: usize =
        report.faults.iter().filter(|(kind, _)| *kind != "end").map(|(_, n)| n).sum();
    let kinds = report.faults.iter().filter(|(kind, _)| *kind != "end");
    let kinds: Vec<String> = kinds.map(|(kind, n)| format!("{n} {kind}")).collect();
    format!(
        "soak: {:.1} minutes, {} calls ({} succeeded), {} Views, {faults} faults ({}), {} forked \
         states, longest wait {:.1} s, {} violations",
        took.as_secs_f64() / 60.0,
        report.calls,
        report.succeeded,
        report.views,
        kinds.join(", "),
        report.forks,
        report.longest_us as f64 / 1e6,
        report.violations.len()
    )
}
