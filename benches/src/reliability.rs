//! The time to form a group, and to continue after the loss of a member, a hundred times each; and
//! sums of many processes on few processors.

use crate::Extent;
use crate::changes::{Loss, SEED, forming, losses};
use crate::crowd;
use crate::machine::{median, p99, worst};
use crate::report::{RELIABILITY, Report, time};
use anyhow::{Context, Result};
use potluck_harness::Chance;
use std::path::Path;
use std::process::ExitCode;

/// `matrix`: a file with the table of the fault matrix, which is included in the document.
pub fn measure(extent: Extent, matrix: Option<&Path>) -> Result<ExitCode> {
    // Read first: a wrong name fails now, not after half an hour.
    let table = matrix.map(|path| {
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    });
    let table = table.transpose()?;
    let (rounds, mut report) = match extent {
        Extent::Quick => (3, Report::printed()),
        Extent::Full => (100, Report::documented(RELIABILITY)),
    };
    let mut chance = Chance::new(SEED);
    report.line(&format!("\n### Four machines on gbe4, {rounds} times each\n"));
    report.line(
        "| from | to | median | p99 | worst | goal, p99 |\n| --- | --- | --- | --- | --- | --- |",
    );
    match forming(rounds, &mut chance) {
        Ok(times) => {
            row(
                &mut report,
                "the last of four starts, in any order within two seconds",
                "the common View",
                &times,
                Some(0.5),
            );
        }
        Err(error) => report.failure(format!("four starts: {error:#}")),
    }
    for (loss, what, answer_s, next_s) in [
        (Loss::Killed, "`kill -9` of one of four", 0.5, Some(1.0)),
        (Loss::Stopped, "SIGSTOP of one of four", 3.0, None),
    ] {
        match losses(loss, rounds, &mut chance) {
            Ok(times) => {
                row(&mut report, what, "every survivor's answer", &times.answer_s, Some(answer_s));
                row(
                    &mut report,
                    what,
                    "the next completed call on all survivors",
                    &times.next_s,
                    next_s,
                );
            }
            Err(error) => report.failure(format!("{what}: {error:#}")),
        }
    }
    crowd::measure(extent, &mut report);
    report.line("\n### Fault matrix\n");
    report.line(table.as_deref().unwrap_or("Not run."));
    report.finish()
}

/// Sixteen processes alone.
pub fn measure_crowd() -> Result<ExitCode> {
    let mut report = Report::printed();
    crowd::measure(Extent::Full, &mut report);
    report.finish()
}

fn row(report: &mut Report, from: &str, to: &str, times: &[f64], goal_s: Option<f64>) {
    let goal = goal_s.map_or_else(String::new, time);
    let (median, p99, worst) = (median(times), p99(times), worst(times));
    report.line(&format!(
        "| {from} | {to} | {} | {} | {} | {goal} |",
        time(median),
        time(p99),
        time(worst)
    ));
    if let Some(goal_s) = goal_s {
        report.must(&format!("{from} to {to}, p99 s"), p99, goal_s);
    }
}
