//! What becomes of a group of real processes when one of it dies, freezes, loses its cable, leaves
//! or comes back, whatever they are doing at that moment.
//!
//! Every fault x phase x size x engine is a *cell* ([`cells`]); [`course`] is what happens in one
//! and what must hold. Without arguments of its own this is a suite of thirty cells; `faults matrix
//! ...` runs all or a choice of them and prints a table (`make faults`).

mod cells;
mod course;
mod fault;
mod matrix;
mod phase;

use std::process::ExitCode;

use anyhow::Result;
use potluck_harness::{Need, Suite, chance, engine};

/// For the network, for frames that get lost, and for that too.
const NEEDS: [Need; 3] = [Need::Lab, Need::Command("nft"), Need::Command("ethtool")];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("matrix") => matrix::run(&words[1..]),
        _ => suite(),
    }
}

fn suite() -> ExitCode {
    let mut suite = Suite::new();
    let Ok(seed) = chance::seed("faults") else { return ExitCode::FAILURE };
    // Most of the time of a cell that waits nobody does anything.
    suite.at_once(6);
    for cell in cells::few() {
        suite.on(cell.engine, without(cell.engine));
        let body = move || try_cell(&cell, seed);
        let name = cell.name();
        if cell.waits() {
            suite.test_needing(&name, &NEEDS, body)
        } else {
            suite.serial(&name, &NEEDS, body)
        }
    }
    suite.run()
}

fn try_cell(cell: &cells::Cell, seed: u64) -> Result<()> {
    let answer = engine::with(Some(cell.engine), || course::run(cell, seed))?;
    println!("measured: {}/{}: {answer}", cell.engine, cell.name());
    Ok(())
}

/// Why nothing can run on that engine.
fn without(engine: &str) -> Option<&'static str> {
    (engine == "gloo" && potluck::gloo_version().is_none()).then_some("this build has no Gloo")
}
