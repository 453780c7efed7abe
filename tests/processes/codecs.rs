//! Codecs that are left to the plan: chosen by what the links carry, the same by all.

use std::time::Instant;

use anyhow::{Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LAN, LO, all_exact};

pub fn add(suite: &mut Suite) {
    suite.serial("slow links are measured, and all take the same codec", &LAN, on_slow_links);
    suite.serial("two members with a slow link take a codec too", &LAN, between_two);
    suite.test_needing("on one machine nothing is encoded where a codec is left to the plan", &LO, on_one_machine);
}

/// 4 MiB.
const LEN: usize = 1 << 20;

/// In Mbit/s. A build that is not optimised encodes so slowly that at 100 int8 is not worth it.
const RATE: u32 = 30;

/// Every one of these calls succeeded, with the same bits everywhere, and near the right ones. Gives the codec that calls take from now on.
fn all_alike(events: &[Value]) -> Result<String> {
    for event in events {
        ensure!(event["ok"] == true && event["verdict"] == "close", "{events:?}");
        ensure!(event["hash"] == events[0]["hash"], "different results: {events:?}");
    }
    Ok(events[0]["auto"].as_str().unwrap_or_default().to_owned())
}

/// Small calls, until all take this codec.
fn until_taken(group: &mut Group, codec: &str) -> Result<()> {
    let (began, mut seed) = (Instant::now(), 0);
    loop {
        seed += 1;
        let events = group.all(&json!({"do": "all_reduce", "len": 300_000, "codec": "auto", "seed": seed}), "done")?;
        all_alike(&events)?;
        if events.iter().all(|event| event["auto"] == codec) {
            println!("measured: {codec} after {seed} calls: {}", events[0]["plan"]);
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "still another one: {events:?}");
    }
}

/// How many milliseconds the slowest took.
fn ms(events: &[Value]) -> f64 {
    events.iter().filter_map(|event| event["ms"].as_f64()).fold(0.0, f64::max)
}

fn slow(size: usize) -> Result<()> {
    let mut group = Group::up_at("gbe4", size, RATE)?;
    let view = group.meet()?[0]["view"].clone();
    until_taken(&mut group, "int8")?;
    let plain = group.all(&json!({"do": "all_reduce", "len": LEN, "seed": 5}), "done")?;
    all_exact(&plain)?;
    let coded = group.all(&json!({"do": "all_reduce", "len": LEN, "seed": 5, "codec": "auto"}), "done")?;
    ensure!(all_alike(&coded)? == "int8", "{coded:?}");
    let by_name = group.all(&json!({"do": "all_reduce", "len": LEN, "seed": 5, "codec": "int8"}), "done")?;
    all_alike(&by_name)?;
    ensure!(by_name[0]["hash"] == coded[0]["hash"], "int8 by name gives other bits");
    println!("measured: 4 MiB of {size} at {RATE} Mbit/s take {:.0} ms, {:.0} ms with what was chosen", ms(&plain), ms(&coded));
    // How much less it is in an optimised build the benchmarks say.
    ensure!(ms(&coded) < ms(&plain) / 1.5, "{coded:?} after {plain:?}");
    let told = group.all(&json!({"do": "status"}), "status")?;
    ensure!(told.iter().all(|status| status["view"]["id"] == view), "the View has changed: {told:?}");
    Ok(())
}

fn on_slow_links() -> Result<()> {
    slow(4)
}

fn between_two() -> Result<()> {
    slow(2)
}

fn on_one_machine() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    for seed in 0..5 {
        let order = json!({"do": "all_reduce", "len": 300_000, "codec": "auto", "seed": seed});
        ensure!(all_alike(&group.all(&order, "done")?)? == "no codec", "nothing is known of these links");
        let plain = json!({"do": "all_reduce", "len": 300_000, "seed": seed});
        let hashes = [group.all(&order, "done")?[0]["hash"].clone(), group.all(&plain, "done")?[0]["hash"].clone()];
        ensure!(hashes[0] == hashes[1], "something was encoded");
    }
    Ok(())
}
