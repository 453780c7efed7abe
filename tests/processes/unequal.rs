//! Machines that are not alike: what their links carry is measured, and the plan follows, while the View stays.

use anyhow::{Result, bail, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::outcome::all_exact;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.serial("links that are not alike are measured and get a plan of their own", &LAN, measured);
    suite.serial("a link that becomes slow gets another plan within ten calls", &LAN, slowed_down);
    suite.serial("while links are measured calls go on as ever", &LAN, called_meanwhile);
}

/// Calls after which the plan fits a link that has become ten times slower.
const CALLS_MAX: usize = 10;

/// Of a line rate, what is left for TCP's payload on Ethernet.
const PAYLOAD: f64 = 0.9415;

fn by_its_own_plan(status: &Value) -> bool {
    status["view"]["plan_revision"].as_u64() >= Some(1)
}

/// Of a group of four.
fn knows_all_paths(status: &Value) -> bool {
    let known = |paths: &Vec<Value>| paths.iter().filter(|path| path["rate_kbps"].is_u64()).count();
    status["view"]["paths"].as_array().map_or(0, known) == 12
}

fn measured() -> Result<()> {
    let mut group = Group::up("slow1", 4)?;
    let contexts = group.meet()?;
    let view = contexts[0]["view"].clone();
    let rates: Vec<f64> = contexts.iter().map(|c| if c["rank"] == rank_of(&contexts, 3) { 200.0 } else { 1000.0 }).collect();
    let by_rank = |rank: u64| contexts.iter().position(|c| c["rank"] == rank).map_or(0.0, |index| rates[index]);
    for peer in &mut group.peers {
        let status = peer.status_where(|status| knows_all_paths(status) && by_its_own_plan(status), PATIENCE)?;
        ensure!(status["view"]["id"] == view, "the View has changed: {status}");
        for path in status["view"]["paths"].as_array().into_iter().flatten() {
            let line = by_rank(path["from"].as_u64().unwrap_or(99)).min(by_rank(path["to"].as_u64().unwrap_or(99)));
            let times = path["rate_kbps"].as_f64().unwrap_or(0.0) / (line * 1000.0 * PAYLOAD);
            // The processor may be too busy for a fast one; a slow one is as slow as it is.
            ensure!(times < 1.1 && (times > 0.9 || line > 200.0), "{path} of {line} Mbit/s: {times}");
        }
    }
    let sums = group.all(&json!({"do": "all_reduce", "len": 1 << 20, "seed": 1}), "done")?;
    all_exact(&sums)
}

fn slowed_down() -> Result<()> {
    let mut group = Group::up_at("gbe4", 4, 200)?;
    let view = group.meet()?[0]["view"].clone();
    for peer in &mut group.peers {
        peer.status_where(knows_all_paths, PATIENCE)?;
    }
    let order = json!({"do": "all_reduce", "len": 1 << 19, "seed": 3});
    all_exact(&group.all(&order, "done")?)?;
    group.lab.rate("n3", 20, 20)?;
    for calls in 1..=CALLS_MAX {
        // None fails, and the View stays.
        let done = group.all(&order, "done")?;
        all_exact(&done).inspect_err(|_| println!("logs in {}", group.keep_logs(&format!("slowed-{}", std::process::id()))))?;
        let told = group.all(&json!({"do": "status"}), "status")?;
        ensure!(told.iter().all(|status| status["view"]["id"] == view), "the View has changed: {told:?}");
        if told.iter().all(by_its_own_plan) {
            println!("measured: {calls} calls until the plan fitted a link that had become ten times slower");
            let times = group.all(&order, "done")?;
            println!("measured: then {} ms", times[0]["ms"]);
            return all_exact(&times);
        }
    }
    let told = group.all(&json!({"do": "status"}), "status")?;
    bail!("no other plan after {CALLS_MAX} calls: {told:?}")
}

/// The rank of the node on machine `n{index + 1}`.
fn rank_of(contexts: &[Value], index: usize) -> Value {
    contexts[index]["rank"].clone()
}

fn called_meanwhile() -> Result<()> {
    let mut group = Group::up("slow1", 4)?;
    let view = group.meet()?[0]["view"].clone();
    let mut calls = 0;
    // As many calls as it takes, large and small, alone and in steps.
    loop {
        for order in [
            json!({"do": "all_reduce", "len": 300, "seed": calls}),
            json!({"do": "all_reduce", "len": 200_000, "seed": calls}),
            json!({"do": "step", "lens": [1000, 50_000], "seed": calls}),
        ] {
            all_exact(&group.all(&order, "done")?)?;
        }
        calls += 1;
        let told = group.all(&json!({"do": "status"}), "status")?;
        ensure!(told.iter().all(|status| status["view"]["id"] == view), "the View has changed: {told:?}");
        if told.iter().all(by_its_own_plan) {
            break;
        }
        ensure!(calls < 2000, "no plan of their own after {calls} rounds of calls: {told:?}");
    }
    println!("measured: {calls} rounds of calls until the plan fitted the links");
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 200_000, "seed": 7}), "done")?)
}
