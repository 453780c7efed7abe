//! Programs that make wrong calls, or drop them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LO, all_exact, all_failed};

/// The bound for "at once" on a busy machine.
const SOON: Duration = Duration::from_secs(5);

pub fn add(suite: &mut Suite) {
    suite.test_needing("a mismatch is told to every rank, and the next call works", &LO, mismatch);
    suite.test_needing("a dropped call is aborted for all, and the next call works", &LO, dropped);
    suite.test_needing("a forgotten call harms nobody", &LO, forgotten);
    suite.test_needing("a deadline ends the wait for all, and the next call works", &LO, deadline);
    suite.test_needing("nonsense on the input is an event", &LO, nonsense);
}

/// Checks that the View is unchanged and works.
fn still_works(group: &mut Group, before: &Value) -> Result<()> {
    group.sum(5001, 77)?;
    let after = group.peers[0].status()?;
    ensure!(after["view"]["id"] == before["view"]["id"], "the View was replaced: {before} {after}");
    ensure!(after["counters"]["misbehaviours"] == 0, "{after}");
    Ok(())
}

fn mismatch() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let before = group.peers[0].status()?;
    let usual = json!({"do": "all_reduce", "len": 1000});
    let others = [
        json!({"do": "all_reduce", "len": 1001}),
        json!({"do": "all_reduce", "len": 1_000_000}),
        json!({"do": "all_reduce", "len": 1000, "op": "max"}),
        json!({"do": "all_reduce", "len": 1000, "dtype": "f64"}),
        json!({"do": "all_reduce", "len": 1000, "codec": "bf16"}),
        json!({"do": "broadcast", "len": 1000}),
        json!({"do": "reduce", "len": 1000}),
        json!({"do": "reduce_scatter", "len": 1000}),
        json!({"do": "scatter", "len": 1000, "root": 2}),
        json!({"do": "barrier"}),
    ];
    for (round, other) in others.iter().enumerate() {
        let odd = round % 3;
        group.each(|index| if index == odd { other } else { &usual }.clone())?;
        let events = group.events(|_| true, "done", SOON)?;
        all_failed(&events, "mismatch").with_context(|| format!("p{} called {other}", odd + 1))?;
        for event in &events {
            ensure!(event["message"] == events[0]["message"], "told differently: {events:?}");
        }
        let message = events[0]["message"].to_string();
        let odd_name = format!("p{}", odd + 1);
        ensure!(
            message.contains(&odd_name) && message.matches("rank ").count() == 2,
            "{other}: {message}"
        );
    }
    still_works(&mut group, &before)
}

fn dropped() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let before = group.peers[0].status()?;
    // Never polled, polled once, and well under way.
    for (round, polls) in [0, 1, 20].into_iter().enumerate() {
        let loser = round % 3;
        let usual = json!({"do": "all_reduce", "len": 16 << 20, "seed": round});
        let dropping =
            json!({"do": "drop_all_reduce", "len": 16 << 20, "seed": round, "polls": polls});
        // One member calls after the drop: the call cannot complete before all have called.
        let late = (loser + 2) % 3;
        group.peers[(loser + 1) % 3].order(&usual)?;
        let event = group.peers[loser].ask(&dropping, "dropped", PATIENCE)?;
        ensure!(event["was_over"] == false && event["verdict"] == "untouched", "{event}");
        group.peers[late].order(&usual)?;
        let events = group.events(|index| index != loser, "done", PATIENCE)?;
        all_failed(&events, "aborted")?;
        for event in &events {
            let said = format!("({:?} ", format!("p{}", loser + 1));
            let message = event["message"].as_str().unwrap_or_default();
            ensure!(message.contains(&said) && message.contains("dropped"), "{event}");
        }
        still_works(&mut group, &before)?;
    }
    Ok(())
}

fn forgotten() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let before = group.peers[0].status()?;
    let usual = json!({"do": "all_reduce", "len": 4 << 20, "seed": 4});
    // One member calls after the leak: the call cannot complete before all have called.
    group.peers[0].order(&usual)?;
    let forgetting = json!({"do": "forget_all_reduce", "len": 4 << 20, "seed": 4, "polls": 2});
    let event = group.peers[1].ask(&forgetting, "forgotten", PATIENCE)?;
    ensure!(event["was_over"] == false && event["verdict"] == "untouched", "{event}");
    group.peers[2].order(&usual)?;
    let events = group.events(|index| index != 1, "done", PATIENCE)?;
    // The call had begun and continues without its caller.
    all_exact(&events)?;
    still_works(&mut group, &before)
}

fn deadline() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let before = group.peers[0].status()?;
    let call = json!({"do": "all_reduce", "len": 1000});
    group.peers[1].order(&call)?;
    let own = group.peers[0].ask(
        &json!({"do": "all_reduce", "len": 1000, "deadline_ms": 300}),
        "done",
        SOON,
    )?;
    let other = group.peers[1].event("done", SOON)?;
    // A member that calls too late gets an error.
    let late = group.peers[2].ask(&call, "done", SOON)?;
    all_failed(&[own.clone(), other.clone(), late.clone()], "aborted")?;
    ensure!(own["retryable"] == false && own["ms"].as_f64() >= Some(300.0), "{own}");
    for event in [other, late] {
        let named = event["message"]
            .as_str()
            .is_some_and(|text| text.contains("deadline of") && text.contains("\"p1\""));
        ensure!(event["retryable"] == true && named, "{event}");
    }
    still_works(&mut group, &before)
}

fn nonsense() -> Result<()> {
    let mut group = Group::up("lo", 2)?;
    let before = group.peers[0].status()?;
    for order in
        [json!({"do": "dance"}), json!(["join"]), json!({"do": "all_reduce", "len": "many"})]
    {
        let event = group.peers[0].ask(&order, "error", SOON)?;
        ensure!(event["code"] == "order", "{event}");
    }
    still_works(&mut group, &before)
}
