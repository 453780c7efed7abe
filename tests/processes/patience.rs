//! Programs with long computations.

use std::time::Duration;

use anyhow::{Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LO, all_exact};

pub fn add(suite: &mut Suite) {
    suite.test_needing("a blocked and late program is waited for, and named", &LO, late);
}

fn late() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let before = group.peers[0].status()?;
    let call = json!({"do": "all_reduce", "len": 100_001, "seed": 3});
    // Longer than the failure detector's timeout. The program calls after 12 s in which its thread
    // never returns to the executor.
    group.peers[2].order(&json!({"do": "block", "s": 12}))?;
    group.each(|_| call.clone())?;
    let waits = |status: &Value| {
        status["waiting"]["ranks"].as_array().is_some_and(|ranks| !ranks.is_empty())
    };
    for index in 0..2 {
        // At first the two fast nodes may also wait for each other.
        let named = |status: &Value| {
            waits(status) && status["waiting"]["since_ms"].as_f64() >= Some(3000.0)
        };
        let status = group.peers[index].status_where(named, PATIENCE)?;
        let ranks = &status["waiting"]["ranks"];
        ensure!(
            ranks.as_array().is_some_and(|r| r.len() == 1) && ranks[0]["name"] == "p3",
            "{status}"
        );
        ensure!(status["reasons"].to_string().contains("p3"), "{status}");
    }
    ensure!(
        !group.peers[2].has_said(|event| event["event"] == "unblocked"),
        "the others were asked too late: this test says nothing"
    );
    group.peers[2].event("unblocked", Duration::from_secs(60))?;
    let events = group.events(|_| true, "done", Duration::from_secs(5))?;
    all_exact(&events)?;
    ensure!(events[0]["ms"].as_f64() >= Some(11_000.0), "it was not waited for: {events:?}");
    for peer in &mut group.peers {
        // A status is a snapshot and may be slightly old.
        let after = peer.status_where(|status| status["waiting"].is_null(), PATIENCE)?;
        ensure!(
            after["view"]["id"] == before["view"]["id"],
            "a blocked program was left out: {before} {after}"
        );
    }
    Ok(())
}
