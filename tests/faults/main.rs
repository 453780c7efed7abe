//! The behaviour of a group of real processes when a member dies, freezes, loses its cable, leaves
//! or comes back, or when one of its connections, its disk or one of its threads fails, in every
//! phase of an operation.
//!
//! Every fault x phase x size x engine is a *cell* ([`cells`]); [`course`] runs one cell and checks
//! its conditions. Without arguments of its own this is a suite of forty-four cells; `faults
//! matrix ...` runs all or selected cells and prints a table (`make faults`).

mod cells;
mod course;
mod fault;
mod matrix;
mod phase;

use std::process::ExitCode;

use anyhow::Result;
use potluck_harness::{Need, Suite, chance, engine};

/// Needed for the network, for dropping frames, and for dropping every frame.
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
    // Cells that wait use hardly any processor time.
    suite.at_once(6);
    for cell in cells::few() {
        suite.on(cell.engine, without(cell.engine));
        let body = move || try_cell(&cell, seed);
        let name = cell.name();
        let needs = [&NEEDS[..], &cell.fault.needs()].concat();
        if cell.waits() {
            suite.test_needing(&name, &needs, body);
        } else {
            suite.serial(&name, &needs, body);
        }
    }
    suite.run()
}

fn try_cell(cell: &cells::Cell, seed: u64) -> Result<()> {
    let answer = engine::with(Some(cell.engine), || course::run(cell, seed))?;
    println!("measured: {}/{}: {answer}", cell.engine, cell.name());
    Ok(())
}

/// The reason why nothing can run on this engine.
fn without(engine: &str) -> Option<&'static str> {
    (engine == "gloo" && potluck::gloo_version().is_none()).then_some("this build has no Gloo")
}
