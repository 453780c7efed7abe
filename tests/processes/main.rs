//! Real processes that find each other on real sockets, and what becomes of them when some are killed, stopped, late or
//! wrong. Run with `--nocapture` or not: figures are printed as `measured …`.

mod builds;
mod calls;
mod faults;
mod gloo;
mod halves;
mod meeting;
mod memory;
mod patience;
mod training;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use potluck_harness::{Need, Suite};
use serde_json::Value;

const LO: [Need; 2] = [Need::Lab, Need::LoopbackMulticast];
const LAN: [Need; 1] = [Need::Lab];

fn main() {
    let mut suite = Suite::new();
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    for (engine, missing) in [("native", None), ("gloo", missing)] {
        suite.on(engine, missing);
        meeting::add(&mut suite);
        calls::add(&mut suite);
        builds::add(&mut suite);
        memory::add(&mut suite);
        faults::add(&mut suite);
        halves::add(&mut suite);
        patience::add(&mut suite);
        training::add(&mut suite);
    }
    gloo::add(&mut suite);
    suite.run()
}

/// What decides what happens when: `POTLUCK_SEED`, else the time. Printed, so that it can be had again.
fn seed(test: &str) -> Result<u64> {
    let seed = match std::env::var("POTLUCK_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    println!("{test}: POTLUCK_SEED={seed}");
    Ok(seed)
}

/// Every one of these calls succeeded, with the same bits everywhere, and the right ones.
fn all_exact(events: &[Value]) -> Result<()> {
    for event in events {
        ensure!(event["ok"] == true && event["verdict"] == "exact", "{events:?}");
        ensure!(event["hash"] == events[0]["hash"], "different results: {events:?}");
    }
    Ok(())
}

/// None of these calls succeeded, with this code, and no buffer was touched.
fn all_failed(events: &[Value], code: &str) -> Result<()> {
    for event in events {
        ensure!(event["ok"] == false && event["code"] == code, "not {code}: {event}");
        ensure!(event["verdict"] == "untouched", "{event}");
    }
    Ok(())
}
