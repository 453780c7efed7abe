//! Benchmarks of potluck: real processes as machines of the lab, in one run that anybody can repeat (`make bench`).
//!
//! `potluck-bench [--quick]` is the run: it brings labs up, starts itself as their machines, and prints. Without
//! `--quick` it also writes `docs/benchmarks.md`. `potluck-bench peer ...` is one machine.

mod changes;
mod machine;
mod peer;
mod report;
mod sums;

use anyhow::{Result, bail};
use report::Report;
use std::process::ExitCode;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A look, in about a minute.
    Quick,
    /// What the documentation shows.
    Full,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode> {
    match words.split_first() {
        Some((&"peer", order)) => peer::run(order).map(|()| ExitCode::SUCCESS),
        None => measure(Extent::Full),
        Some((&"--quick", [])) => measure(Extent::Quick),
        _ => bail!("potluck-bench [--quick]"),
    }
}

fn measure(extent: Extent) -> Result<ExitCode> {
    let mut report = Report::new(extent);
    sums::measure(extent, &mut report)?;
    changes::measure(extent, &mut report)?;
    report.finish()
}
