//! A group on Gloo whose links prove heterogeneous.

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{MEASURED, PATIENCE};
use potluck_harness::peer::Start;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;
use crate::unequal::{calls_until_moved, knows_all_paths, landed, take_off};

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
    let join = json!({"do": "join", "min": 4});
    group.found(4, &join, |_, usual| Start { engine: engine.map(str::to_owned), ..usual })?;
    Ok(group)
}

fn moved_to_native(status: &Value) -> bool {
    let says = |field: &str, text: &str| {
        status["view"][field].as_str().is_some_and(|told| told.contains(text))
    };
    // On a busy processor a plan that was compared with others may have followed the first one.
    let is_planned = says("plan", "links differ") || says("plan", "by trial");
    status["view"]["engine"] == "native" && says("engine_reason", "links differ") && is_planned
}

fn uneven(engine: Option<&str>) -> Result<()> {
    let mut group = four_of_which_one_is_slow(engine)?;
    let before = group.meet()?[0]["view"].clone();
    if engine.is_some() {
        for status in group.all_show(knows_all_paths, MEASURED)? {
            ensure!(
                status["view"]["engine"] == "gloo" && status["view"]["id"] == before,
                "{status}"
            );
            let reason = status["view"]["engine_reason"].as_str().unwrap_or_default();
            ensure!(reason.contains("was told to use it"), "{status}");
        }
        return group.sum(100_001, 0);
    }
    group.all_show(moved_to_native, MEASURED)?;
    group.still_in(&before)?;
    // Messages stay on the plan with which the View began.
    group.sum(100_001, 0)?;
    exchange(&mut group)
}

/// The first node sends to the second one, small and large messages.
fn exchange(group: &mut Group) -> Result<()> {
    let ranks = group.ranks()?;
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
    take_off(&mut group, CALLS, 2)?;
    for answers in landed(&mut group, CALLS)? {
        let moved = calls_until_moved(&answers).context("the group has not moved")?;
        println!("measured: moved after {moved} of {CALLS} calls");
    }
    group.all_show(moved_to_native, MEASURED)?;
    group.still_in(&view)?;
    group.sum(1 << 20, 500)
}
