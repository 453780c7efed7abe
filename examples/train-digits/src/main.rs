//! Data-parallel training of two small models on handwritten digits, each worker a process: `make
//! train`.
//!
//! `train-digits run [--quick] [--digits FILE] DOCS` runs everything in labs of its own (needs
//! root). `train-digits peer NETWORK MIN_MEMBERS [FILE]` is one member, which reads its tasks from
//! its input. [`train`] is the part that an own program would contain.

mod alone;
mod chance;
mod digits;
mod group;
mod net;
mod peer;
mod plot;
mod report;
mod run;
mod train;
mod trainee;

use anyhow::{Context as _, Result, bail};
use run::Extent;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match start(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn start(words: &[&str]) -> Result<ExitCode> {
    match words {
        ["peer", network, min_members, digits @ ..] => {
            let min_members = min_members.parse().context("how many members")?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(peer::serve(network, min_members, digits.first().map(Path::new)))?;
            Ok(ExitCode::SUCCESS)
        }
        ["run", "--quick", "--digits", file, docs] => {
            run::run(Extent::Quick, Some(Path::new(file)), Path::new(docs))
        }
        ["run", "--digits", file, docs] => {
            run::run(Extent::Full, Some(Path::new(file)), Path::new(docs))
        }
        ["run", "--quick", docs] => run::run(Extent::Quick, None, Path::new(docs)),
        ["run", docs] => run::run(Extent::Full, None, Path::new(docs)),
        _ => bail!("train-digits run [--quick] [--digits FILE] DOCS"),
    }
}
