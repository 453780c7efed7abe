//! A group on Gloo whose links prove heterogeneous.

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{MEASURED, PATIENCE};
use potluck_harness::outcome::all_exact;
use potluck_harness::peer::Start;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.serial(
        "links that differ move a group to the native engine, and the View stays",
        &LAN,
        || uneven(None),
    );
    suite.serial("links that differ change nothing where Gloo is wanted", &LAN, || {
        uneven(Some("gloo"))
    });
    suite.serial(
        "a group that never rests moves to the native engine, and no call fails",
        &LAN,
        uneven_and_busy,
    );
}

/// Four machines with Gloo; the last one has a slow cable.
fn four_of_which_one_is_slow(engine: Option<&str>) -> Result<Group> {
    let mut group = Group::empty("slow1", 4)?;
    for index in 0..4 {
        let start = Start { engine: engine.map(str::to_owned), ..group.start(index) };
        group.add(index, &start)?;
    }
    group.all(&json!({"do": "join", "min": 4}), "joined")?;
    Ok(group)
}

fn moved_to_native(status: &Value) -> bool {
    let says = |field: &str| {
        status["view"][field].as_str().is_some_and(|text| text.contains("links differ"))
    };
    status["view"]["engine"] == "native" && says("engine_reason") && says("plan")
}

fn uneven(engine: Option<&str>) -> Result<()> {
    let mut group = four_of_which_one_is_slow(engine)?;
    let before = group.meet()?[0]["view"].clone();
    let all_paths = |status: &Value| {
        let known =
            |paths: &Vec<Value>| paths.iter().filter(|path| path["rate_kbps"].is_u64()).count();
        status["view"]["paths"].as_array().map_or(0, known) == 12
    };
    if engine.is_some() {
        for peer in &mut group.peers {
            let status = peer.status_where(all_paths, MEASURED)?;
            ensure!(
                status["view"]["engine"] == "gloo" && status["view"]["id"] == before,
                "{status}"
            );
            let reason = status["view"]["engine_reason"].as_str().unwrap_or_default();
            ensure!(reason.contains("was told to use it"), "{status}");
        }
        return all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001}), "done")?);
    }
    for peer in &mut group.peers {
        let status = peer.status_where(moved_to_native, MEASURED)?;
        ensure!(status["view"]["id"] == before, "another View for it: {status}");
    }
    // Messages stay on the plan with which the View began.
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001}), "done")?)?;
    exchange(&mut group)
}

/// The first node sends to the second one, small and large messages.
fn exchange(group: &mut Group) -> Result<()> {
    let ranks: Vec<Value> =
        group.meet()?.into_iter().map(|context| context["rank"].clone()).collect();
    for len in [100, 1 << 20] {
        group.peers[0].order(&json!({"do": "send", "peer": ranks[1], "len": len, "seed": 5}))?;
        let received = group.peers[1].ask(
            &json!({"do": "recv", "peer": ranks[0], "len": len, "seed": 5}),
            "done",
            PATIENCE,
        )?;
        ensure!(received["verdict"] == "exact", "{received}");
        group.peers[0].event("done", PATIENCE)?;
    }
    Ok(())
}

/// Calls without a pause leave no idle time, so the measurement must pause them. No call fails.
fn uneven_and_busy() -> Result<()> {
    const CALLS: usize = 120;
    let mut group = four_of_which_one_is_slow(None)?;
    let view = group.meet()?[0]["view"].clone();
    let order =
        json!({"do": "flights", "calls": CALLS, "in_flight": 2, "len": (1 << 19) + 1, "seed": 3});
    group.peers.iter_mut().try_for_each(|peer| peer.order(&order))?;
    let flown = group.events(|_| true, "flown", 3 * PATIENCE)?;
    for told in &flown {
        let answers = told["answers"].as_array().context("answers")?;
        ensure!(
            answers.len() == CALLS && answers.iter().all(|answer| answer["verdict"] == "exact"),
            "a call failed: {told}"
        );
        let moved = answers
            .iter()
            .position(|answer| answer["revision"].as_u64() >= Some(1))
            .context("the group has not moved")?;
        println!("measured: moved after {moved} of {CALLS} calls");
    }
    for peer in &mut group.peers {
        let status = peer.status_where(moved_to_native, MEASURED)?;
        ensure!(status["view"]["id"] == view, "another View for it: {status}");
    }
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1 << 20, "seed": 500}), "done")?)
}
