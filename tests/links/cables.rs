//! Machines that are joined by direct cables without a switch: each cable is a network of its own,
//! and other machines are reached only through relays.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{MEASURED, PATIENCE, has_members, rated};
use potluck_harness::outcome::all_failed;
use potluck_harness::peer::{Start, now_ms};
use potluck_harness::{Group, Lag, Suite};
use serde_json::{Value, json};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.test_needing(
        "direct3: a cable from each to each is a group, and a mesh of stars",
        &LAN,
        triangle,
    );
    suite.test_needing(
        "chain4: four in a row are one group, and every collective goes through",
        &LAN,
        chain,
    );
    suite.test_needing(
        "chain4: no message goes between two without a cable, and both are told",
        &LAN,
        messages,
    );
    suite.test_needing(
        "chain4: who comes and who leaves is told to the other end",
        &LAN,
        comes_and_leaves,
    );
    suite.test_needing("ring4: four in a ring are one group", &LAN, ring);
    suite.serial(
        "ring4: kill -9 of one: the other three are one group within a second",
        &LAN,
        killed,
    );
    suite.test_needing("ring4: a pulled cable: all four stay one group", &LAN, pulled);
}

/// With Gloo on all machines, and no engine configured.
pub fn add_gloo(suite: &mut Suite) {
    suite.test_needing("chain4: it runs on the native engine, and says why", &LAN, engine);
}

/// Whether the View has all four members again and is not this one.
fn is_of_four_after(status: &Value, view: &Value) -> bool {
    status["view"]["id"] != *view && has_members(status, 4)
}

fn plan_of(status: &Value) -> &str {
    status["view"]["plan"].as_str().unwrap_or_default()
}

/// All collectives, with buffers of all size classes, are bit-exact.
fn all_of_them(group: &mut Group) -> Result<()> {
    for (seed, len) in [1, 1000, 4096, 70_001, 300_000, 1 << 20].into_iter().enumerate() {
        group.sum(len, seed as u64)?;
    }
    for order in
        ["broadcast", "all_gather", "reduce", "reduce_scatter", "gather", "scatter", "all_to_all"]
    {
        for len in [12, 40_000] {
            let call = json!({"do": order, "len": len, "seed": 5, "root": 2});
            for event in group.all(&call, "done")? {
                ensure!(event["verdict"] == "exact", "{order} of {len}: {event}");
            }
        }
    }
    group.exact(&json!({"do": "barrier"}))?;
    group.exact(&json!({"do": "step", "lens": [3, 50_000], "seed": 6}))
}

/// The members with which a machine has a control link, by name, and the number of relays of each
/// link.
fn linked(group: &mut Group, index: usize) -> Result<Vec<(String, usize)>> {
    let linked = group.peers.len() - 1;
    let all = |status: &Value| status["peers"].as_array().map(Vec::len) == Some(linked);
    let status = group.peers[index].status_where(all, PATIENCE)?;
    let peers = status["peers"].as_array().cloned().unwrap_or_default();
    let of_peer = |peer: &Value| {
        let through = peer["through"].as_array().map_or(0, Vec::len);
        (peer["name"].as_str().unwrap_or_default().to_owned(), through)
    };
    let mut linked: Vec<(String, usize)> = peers.iter().map(of_peer).collect();
    linked.sort();
    Ok(linked)
}

fn expect_linked(group: &mut Group, expected: [[usize; 4]; 4]) -> Result<()> {
    for (index, through) in expected.into_iter().enumerate() {
        let others = (0..4)
            .filter(|other| *other != index)
            .map(|other| (format!("p{}", other + 1), through[other]));
        let found = linked(group, index)?;
        ensure!(found == others.collect::<Vec<_>>(), "p{}: {found:?}", index + 1);
    }
    Ok(())
}

fn triangle() -> Result<()> {
    // Slow enough that a busy machine measures the right rates.
    let mut group = Group::up_at("direct3", 3, 100)?;
    all_of_them(&mut group)?;
    for status in group.all_show(|status| plan_of(status).contains("trees to"), MEASURED)? {
        let plan = plan_of(&status);
        ensure!(plan.contains("over trees to 0 (33 %), 1 (33 %), 2 (33 %)"), "{plan}");
    }
    all_of_them(&mut group)
}

fn chain() -> Result<()> {
    let began = now_ms();
    let mut group = Group::up("chain4", 4)?;
    println!(
        "measured: four in a row are one group after {:.0} ms, with the lab and the processes",
        now_ms() - began
    );
    let contexts = group.meet()?;
    expect_linked(&mut group, [[0, 0, 1, 2], [0, 0, 0, 1], [1, 0, 0, 0], [2, 1, 0, 0]])?;
    let status = group.peers[0].status()?;
    ensure!(status["view"]["engine"] == "native", "{status}");
    all_of_them(&mut group)?;
    // Each cable is measured in both directions, and no other pair is. Rank 0 coordinates the
    // measurements, so it knows all rates.
    let leader = contexts.iter().position(|context| context["rank"] == 0).context("a rank 0")?;
    let status = group.peers[leader].status_where(|status| rated(status) >= 6, MEASURED)?;
    ensure!(status["view"]["id"] == contexts[0]["view"], "the View has changed: {status}");
    ensure!(rated(&status) == 6 && plan_of(&status).contains("a tree"), "{status}");
    all_of_them(&mut group)?;
    let misbehaved = group.peers[1].status()?["counters"]["misbehaviours"].clone();
    ensure!(misbehaved == 0, "{misbehaved}");
    Ok(())
}

fn messages() -> Result<()> {
    let mut group = Group::up("chain4", 4)?;
    let ranks = group.ranks()?;
    let send = |to: usize| json!({"do": "send", "peer": ranks[to], "len": 100, "seed": 5});
    let recv = |from: usize| json!({"do": "recv", "peer": ranks[from], "len": 100, "seed": 5});
    for (from, to) in [(0, 2), (3, 0), (1, 3)] {
        let ends = [
            group.peers[from].ask(&send(to), "done", PATIENCE)?,
            group.peers[to].ask(&recv(from), "done", PATIENCE)?,
        ];
        all_failed(&ends, "rejected")?;
        for end in &ends {
            let message = end["message"].as_str().unwrap_or_default();
            let named = [&ranks[from], &ranks[to]]
                .iter()
                .all(|rank| message.contains(&format!("rank {rank}")));
            ensure!(
                named && message.contains("no direct link") && end["retryable"] == false,
                "{end}"
            );
        }
    }
    for (from, to) in [(0, 1), (2, 1), (2, 3)] {
        group.peers[from].order(&send(to))?;
        let received = group.peers[to].ask(&recv(from), "done", PATIENCE)?;
        ensure!(received["ok"] == true && received["verdict"] == "exact", "{received}");
        group.peers[from].event("done", PATIENCE)?;
    }
    group.sum(1000, 1)
}

fn comes_and_leaves() -> Result<()> {
    let mut group = Group::empty("chain4", 4)?;
    let join = json!({"do": "join", "min": 2, "events": true});
    group.found(4, &join, |_, usual| usual)?;
    // The last machine's process ends and another one starts: the first machine learns of both
    // through two relays.
    group.peers[3].process().kill()?;
    let since = now_ms();
    group.peers[0].status_where(|status| has_members(status, 3), PATIENCE)?;
    group.peers[0].event_where("happened", is("lost"), PATIENCE)?;
    println!(
        "measured: an end of a row killed: the other end is in a View without it after {:.0} ms",
        now_ms() - since
    );
    group.restart(3)?.ask(&join, "joined", PATIENCE)?;
    group.peers[0].status_where(|status| has_members(status, 4), PATIENCE)?;
    // It leaves in an orderly way.
    group.peers[3].order(&json!({"do": "leave"}))?;
    let since = now_ms();
    group.peers[0].status_where(|status| has_members(status, 3), PATIENCE)?;
    println!(
        "measured: an end of a row leaves: the other end is in a View without it after {:.0} ms",
        now_ms() - since
    );
    Ok(())
}

fn engine() -> Result<()> {
    let mut group = Group::empty("chain4", 4)?;
    group.found(4, &json!({"do": "join"}), |_, usual| Start { engine: None, ..usual })?;
    let contexts = group.meet()?;
    let reason = contexts[0]["engine_reason"].as_str().unwrap_or_default();
    ensure!(
        contexts[0]["engine"] == "native" && reason.contains("have no direct link"),
        "{reason}"
    );
    group.sum(1000, 1)
}

fn ring() -> Result<()> {
    let mut group = Group::up("ring4", 4)?;
    expect_linked(&mut group, [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]])?;
    all_of_them(&mut group)
}

/// Four nodes in a ring that report events, and the number of Views that each has seen.
fn ring_that_tells() -> Result<(Group, Vec<u64>)> {
    let mut group = Group::empty("ring4", 4)?;
    group.found(4, &json!({"do": "join", "events": true}), |_, usual| usual)?;
    group.sum(5000, 1)?;
    let views = group.all(&json!({"do": "status"}), "status")?.iter().map(views_of).collect();
    Ok((group, views))
}

/// Whether this has happened, in an event that says what has.
fn is(what: &str) -> impl Fn(&Value) -> bool {
    move |event| event["what"] == what
}

/// How many Views a node has seen.
fn views_of(status: &Value) -> u64 {
    status["counters"]["views"].as_u64().unwrap_or(0)
}

fn killed() -> Result<()> {
    // Any node: a relay of two others, or not, depending on the links that were made.
    for victim in 0..4 {
        let (mut group, before) = ring_that_tells()?;
        let others = move |index: usize| index != victim;
        group.peers[victim].process().kill()?;
        let (lag, since) = (Lag::begin(), now_ms());
        for index in (0..4).filter(|index| others(*index)) {
            group.peers[index]
                .status_where(|status| has_members(status, 3), PATIENCE)
                .with_context(|| format!("p{}", index + 1))?;
        }
        let took = now_ms() - since;
        println!("measured: kill -9 of one of a ring: the others are one group after {took:.0} ms");
        let late = lag.ms();
        ensure!(took <= 1000.0 + late, "{took:.0} ms, the machine being {late:.0} ms late");
        group.meet_of(others)?;
        group.sum_of(others, 5000, 2)?;
        for index in (0..4).filter(|index| others(*index)) {
            let status = group.peers[index].status()?;
            let views = views_of(&status) - before[index];
            // One View of three, and no other node was left out in between.
            ensure!(views == 1, "p{}: {views} Views: {status}", index + 1);
            group.peers[index].event_where("happened", is("lost"), PATIENCE)?;
        }
    }
    Ok(())
}

fn pulled() -> Result<()> {
    let (mut group, before) = ring_that_tells()?;
    let old = group.peers[0].status()?["view"]["id"].clone();
    group.lab.cut_between("n1", "n2")?;
    let since = now_ms();
    group.all_show(|status| is_of_four_after(status, &old), PATIENCE)?;
    println!(
        "measured: a cable of a ring pulled: one group of four again after {:.0} ms",
        now_ms() - since
    );
    group.meet()?;
    expect_linked(&mut group, [[0, 2, 1, 0], [2, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]])?;
    for (index, peer) in group.peers.iter_mut().enumerate() {
        let views = views_of(&peer.status()?) - before[index];
        ensure!(views == 1, "p{}: {views} Views", index + 1);
        ensure!(!peer.has_said(is("lost")), "p{}", index + 1);
    }
    all_of_them(&mut group)?;
    // Plugged in again, the direct link replaces the relayed one. When it has been stable, a new
    // View uses it.
    let old = group.peers[0].status()?["view"]["id"].clone();
    group.lab.join_between("n1", "n2")?;
    let direct = |status: &Value| {
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        peers.iter().any(|peer| peer["name"] == "p2" && peer["through"] == json!([]))
    };
    group.peers[0].status_where(direct, Duration::from_secs(40))?;
    group.all_show(|status| is_of_four_after(status, &old), PATIENCE)?;
    group.meet()?;
    expect_linked(&mut group, [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]])?;
    all_of_them(&mut group)
}
