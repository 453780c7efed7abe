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

/// For the native engine alone: Gloo has no trees.
pub fn add_native(suite: &mut Suite) {
    suite.serial("a fast cable goes without the codec that a slow one has", &LAN, fast_and_slow);
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

/// What each machine has sent.
fn sent_by(group: &Group) -> Result<Vec<u64>> {
    group.lab.nodes().iter().map(|node| group.lab.bytes_out(node, "eth0")).collect()
}

/// Of four machines one has a slow cable. What the fast ones send up is exact.
fn fast_and_slow() -> Result<()> {
    const MBIT: [u32; 4] = [200, 200, 200, 10];
    const SLOW: usize = 3;
    const LEN: usize = 600_000;
    let mut group = Group::up_rated("gbe4", &MBIT)?;
    let view = group.meet()?[0]["view"].clone();
    for peer in &mut group.peers {
        let has_codecs = |plan: &str| plan.contains("Codec::auto takes int8");
        peer.status_where(|status| status["view"]["plan"].as_str().is_some_and(has_codecs), PATIENCE)?;
    }
    // Two of the fast ones send all that they have once and no more, the slow one a quarter of it. Who adds hands the result to all, in eight bits.
    let whole = 4 * LEN as u64;
    let fits = |sent: &[u64]| {
        let fast = sent[..SLOW].iter().filter(|sent| (whole..whole + whole / 5).contains(sent)).count();
        fast == 2 && (whole / 4..whole / 3).contains(&sent[SLOW])
    };
    let began = Instant::now();
    let done = loop {
        let before = sent_by(&group)?;
        let order = json!({"do": "all_reduce", "len": LEN, "seed": 7, "codec": "auto", "reference": true});
        let done = group.all(&order, "done")?;
        let sent: Vec<u64> = sent_by(&group)?.iter().zip(before).map(|(after, before)| after - before).collect();
        ensure!(all_alike(&done)? == "int8" && done.iter().all(|event| event["as_reference"] == true), "{done:?}");
        if fits(&sent) {
            println!("measured: of {whole} bytes those with {MBIT:?} Mbit/s have sent {sent:?}: {}", done[0]["plan"]);
            break done;
        }
        // A burst came between, as long as links are still measured.
        ensure!(began.elapsed() < 2 * PATIENCE, "{sent:?} bytes: {}", done[0]["plan"]);
    };
    let own: Vec<&Value> = done.iter().map(|event| &event["own"]).collect();
    ensure!(own == ["no codec", "no codec", "no codec", "int8"], "{own:?}");
    let explained = done[0]["plan"].as_str().unwrap_or_default();
    ensure!(explained.contains("Codec::auto takes int8, but as it is from "), "{explained}");
    let told = group.all(&json!({"do": "status"}), "status")?;
    ensure!(told.iter().all(|status| status["view"]["id"] == view), "the View has changed: {told:?}");
    Ok(())
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
