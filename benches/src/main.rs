//! Benchmarks of potluck: real processes on the machines of a lab, in one reproducible run (`make
//! bench`).
//!
//! `potluck-bench [--quick] [--only PART]` is the run: it brings up labs, starts itself on their
//! machines, and prints the results. Without options it also writes `docs/benchmarks.md`.
//! `potluck-bench reliability [--quick] [FILE]` measures how a group forms and recovers, and writes
//! `docs/reliability.md` with the fault matrix's results in FILE; with `--crowd` it measures only
//! sixteen processes on one machine, and writes nothing. `potluck-bench topology [--cables |
//! --segments | --only PROFILE] [--quick]` measures heterogeneous machines, with `--cables` only
//! machines with direct cables, with `--segments` only homes with shared segments. `potluck-bench
//! peer ...` is one machine.

mod beside;
mod changes;
mod codecs;
mod crowd;
mod gloo;
mod group;
mod growth;
mod machine;
mod peer;
#[path = "../../examples/train-digits/src/plot.rs"]
mod plot;
mod radio;
mod reliability;
mod report;
mod segments;
mod sums;
mod topology;
mod turns;

use anyhow::{Result, bail, ensure};
use report::{BENCHMARKS, Report};
use std::path::Path;
use std::process::ExitCode;

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A quick look of about a minute.
    Quick,
    /// The run that the documentation shows.
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
    if let ["peer", order @ ..] = words {
        return peer::run(order).map(|()| ExitCode::SUCCESS);
    }
    let extent = if words.contains(&"--quick") { Extent::Quick } else { Extent::Full };
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--quick").collect();
    match words[..] {
        ["topology"] => topology::measure(extent, None),
        ["topology", "--cables"] => topology::measure_cables(extent),
        ["topology", "--segments"] => topology::measure_segments(extent),
        ["topology", "--only", profile] => topology::measure(extent, Some(profile)),
        ["reliability"] => reliability::measure(extent, None),
        ["reliability", "--crowd"] => reliability::measure_crowd(),
        ["reliability", matrix] => reliability::measure(extent, Some(Path::new(matrix))),
        [] => measure(extent, None),
        ["--only", part] => measure(extent, Some(part)),
        _ => bail!(
            "potluck-bench [--quick] [--only sums|codecs|changes|gloo|growth], potluck-bench \
             topology [--cables | --segments | --only PROFILE] [--quick], or potluck-bench \
             reliability [--quick | --crowd | FILE]"
        ),
    }
}

type Part = fn(Extent, &mut Report) -> Result<()>;

/// In the order of the document.
const PARTS: [(&str, Part); 5] = [
    ("sums", sums::measure),
    ("codecs", codecs::measure),
    ("changes", changes::measure),
    ("gloo", gloo::measure),
    ("growth", growth::measure),
];

fn measure(extent: Extent, only: Option<&str>) -> Result<ExitCode> {
    if let Some(part) = only {
        ensure!(
            PARTS.iter().any(|(name, _)| *name == part),
            "no part {part}: sums, codecs, changes, gloo or growth"
        );
    }
    // A document with only one part would overwrite the others.
    let mut report = if only.is_none() && extent == Extent::Full {
        Report::documented(BENCHMARKS)
    } else {
        Report::printed()
    };
    for (name, part) in PARTS {
        if only.is_none_or(|only| only == name) {
            part(extent, &mut report)?;
        }
    }
    report.finish()
}
