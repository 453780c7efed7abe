//! A network that is cut into two halves, and the operations that each half may continue.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::{Group, Lab, Suite};
use serde_json::{Value, json};

use crate::{LAN, all_failed};

pub fn add(suite: &mut Suite) {
    suite.serial("two halves go on, and one of them syncs when they meet", &LAN, both_go_on);
    suite.serial(
        "two halves of four, and a majority is three: both wait, and go on together",
        &LAN,
        neither_goes_on,
    );
    suite.serial("nodes with different rosters get no link and say why", &LAN, other_roster);
    suite.serial("a roster that cannot work is refused at once", &LAN, bad_roster);
}

fn first(index: usize) -> bool {
    index < 2
}

fn last(index: usize) -> bool {
    index >= 2
}

/// Silently drops all traffic between n1, n2 and n3, n4.
fn cut_in_half(lab: &Lab) -> Result<()> {
    lab.cut_between("n1,n2", "n3,n4")
}

fn mend(lab: &Lab) -> Result<()> {
    lab.join_between("n1,n2", "n3,n4")
}

/// All nodes are in one View that is not in sync, reject a sum, and have the same state after the
/// sync.
fn synced(group: &mut Group) -> Result<Vec<Value>> {
    let contexts = group.meet()?;
    ensure!(
        contexts.iter().all(|c| c["in_sync"] == false),
        "two histories, and in sync: {contexts:?}"
    );
    all_failed(&group.all(&json!({"do": "all_reduce", "len": 10}), "done")?, "needs-sync")?;
    group.each(|index| {
        let version = 3 + index;
        json!({"do": "sync", "version": version, "bytes": 4096 * version, "seed": version})
    })?;
    let events = group.events(|_| true, "synced", PATIENCE)?;
    ensure!(
        events.iter().all(|event| event["hash"] == events[0]["hash"]),
        "different states: {events:?}"
    );
    group.sum(5001, 9)?;
    Ok(events)
}

fn both_go_on() -> Result<()> {
    let mut group = Group::up("loop", 4)?;
    group.sum(5001, 1)?;
    cut_in_half(&group.lab)?;
    group.meet_of(first)?;
    group.meet_of(last)?;
    // The first half commits more operations, and wins.
    for seed in 2..5 {
        group.sum_of(first, 5001, seed)?;
    }
    group.sum_of(last, 5001, 5)?;
    mend(&group.lab)?;
    let events = synced(&mut group)?;
    for (index, event) in events.iter().enumerate() {
        // The higher version of the two holders of the winning history is sent; both nodes of the
        // other half take it.
        ensure!(first(index) || event["kept_own"] == false, "the wrong state won: {events:?}");
    }
    ensure!(events.iter().any(|event| event["kept_own"] == true), "nobody's state won: {events:?}");
    Ok(())
}

/// Four nodes on one switch, configured with the same roster.
fn group_by(rule: &str, size: usize) -> Result<Group> {
    let mut group = Group::empty("loop", 4)?;
    let ids = group.found(size, &json!({"do": "join"}), |_, usual| usual)?;
    let ids: Vec<&str> = ids.iter().filter_map(|event| event["node"].as_str()).collect();
    let partition = format!("{rule}:{}", ids.join(","));
    group.all(&json!({"do": "leave"}), "left")?;
    group.all(&json!({"do": "join", "partition": partition}), "joined")?;
    group.meet()?;
    Ok(group)
}

fn neither_goes_on() -> Result<()> {
    let mut group = group_by("majority", 4)?;
    group.sum(5001, 1)?;
    // Three have called when the network is cut, so the operation is undecided everywhere.
    let call = json!({"do": "all_reduce", "len": 5001, "seed": 2});
    let called = |index: usize| index < 3;
    for peer in &mut group.peers[..3] {
        peer.order(&call)?;
    }
    group.peers[3].status_where(|status| has_members(status, 4), PATIENCE)?;
    cut_in_half(&group.lab)?;
    let answers = group.events(called, "done", Duration::from_secs(12))?;
    all_failed(&answers, "indeterminate")?;
    let text = "2 of 3 here; waiting for one more (the partition rule)";
    for peer in &mut group.peers {
        peer.status_where(|status| status["state"] == text, PATIENCE)?;
        // No View is possible.
        let event =
            peer.ask(&json!({"do": "context", "min": 1, "within_s": 1.0}), "error", PATIENCE)?;
        ensure!(event["code"] == "not-enough-peers", "{event}");
    }
    mend(&group.lab)?;
    synced(&mut group)?;

    // One of four is lost: three are a majority.
    group.peers[0].process().kill()?;
    let others = |index: usize| index != 0;
    group.meet_of(others)?;
    group.sum_of(others, 5001, 3)
}

fn other_roster() -> Result<()> {
    let mut group = group_by("all", 2)?;
    group.sum(5001, 1)?;
    let start = group.start(2);
    let joined = group.add(2, &start)?.ask(&json!({"do": "join", "min": 2}), "joined", PATIENCE)?;
    let told =
        |status: &Value| status["reasons"].to_string().contains("another rule for a cut network");
    let status = group.peers[2].status_where(told, PATIENCE)?;
    ensure!(status["peers"].as_array().is_some_and(Vec::is_empty), "{joined} {status}");
    group.sum_of(first, 5001, 2)
}

fn bad_roster() -> Result<()> {
    let mut group = Group::empty("loop", 1)?;
    let start = group.start(0);
    let stranger = "ab".repeat(32);
    for (partition, code, said) in [
        (format!("majority:{stranger}"), "config", "does not name this node"),
        (format!("all:{stranger},{stranger}"), "config", "twice"),
    ] {
        let peer = group.add(0, &start)?;
        let error = peer.ask(&json!({"do": "join", "partition": partition}), "error", PATIENCE)?;
        ensure!(error["code"] == code, "{error}");
        ensure!(error["message"].as_str().context("a message")?.contains(said), "{error}");
        peer.process().wait(PATIENCE)?;
    }
    Ok(())
}
