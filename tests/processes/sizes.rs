//! Groups that begin with, go on with, and have at most so many members.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::{Chance, Group, Peer, Suite};
use serde_json::{Value, json};

use crate::{LAN, all_exact, seed};

pub fn add(suite: &mut Suite) {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let name = format!("three of three add up, started in the order {order:?}");
        suite.test_needing(&name, &LAN, move || three_add_up(order));
    }
    suite.test_needing("three of three add up, started at once", &LAN, three_at_once);
    suite.test_needing("three of three add up, started at random times", &LAN, three_at_random);
    suite.test_needing("a fourth waits for a place, and says so", &LAN, fourth_waits);
    suite.test_needing("two of three go on when one is killed", &LAN, two_go_on);
    suite.test_needing("a latecomer that wants more is let in", &LAN, latecomer);
    suite.test_needing("sizes that contradict each other are refused at once", &LAN, bad_sizes);
}

/// Starts a node on this machine, which joins a group of these sizes.
fn joined(group: &mut Group, machine: usize, members: &str) -> Result<()> {
    let mut start = group.start(machine);
    start.variables.push(("POTLUCK_MEMBERS", PathBuf::from(members)));
    group.add(machine, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    Ok(())
}

/// The same, and the node asks for a context of any size.
fn waiting(group: &mut Group, machine: usize, members: &str) -> Result<()> {
    joined(group, machine, members)?;
    let last = group.peers.len() - 1;
    group.peers[last].order(&json!({"do": "context", "min": 1, "within_s": 60}))
}

/// All get a context, each of a View of all, and sum.
fn all_sum(group: &mut Group) -> Result<()> {
    let size = group.peers.len();
    let contexts = group.events(|_| true, "context", PATIENCE)?;
    ensure!(contexts.iter().all(|context| context["size"] == size), "{contexts:?}");
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 5001, "seed": 1}), "done")?)
}

/// Two are in a View that no program gets, until the third one is there.
fn three_add_up(order: [usize; 3]) -> Result<()> {
    let mut group = Group::empty("loop", 3)?;
    waiting(&mut group, order[0], "3")?;
    waiting(&mut group, order[1], "3")?;
    let text = "2 of 3 here; waiting for one more (members = 3)";
    group.all_show(|status| status["state"] == text, PATIENCE)?;
    for peer in &mut group.peers {
        ensure!(
            !peer.has_said(|event| event["event"] == "context"),
            "two of three were handed a context"
        );
    }
    waiting(&mut group, order[2], "3")?;
    all_sum(&mut group)
}

fn three_at_once() -> Result<()> {
    let mut group = Group::empty("loop", 3)?;
    (0..3).try_for_each(|machine| waiting(&mut group, machine, "3"))?;
    all_sum(&mut group)
}

/// `POTLUCK_ROUNDS` times, else three times.
fn three_at_random() -> Result<()> {
    let rounds = std::env::var("POTLUCK_ROUNDS").ok().map(|text| text.parse()).transpose()?;
    let mut chance = Chance::new(seed("three at random times")?);
    for round in 0..rounds.unwrap_or(3) {
        let mut order = vec![0, 1, 2];
        let mut group = Group::empty("loop", 3)?;
        while !order.is_empty() {
            let machine = order.remove(chance.below(order.len()));
            waiting(&mut group, machine, "3")?;
            // Not a wait for anything: the program of the next machine starts later.
            let pause = [0, chance.below(100), chance.below(2500)][chance.below(3)];
            std::thread::sleep(Duration::from_millis(pause as u64));
        }
        all_sum(&mut group).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// The View of each node, and how many it has seen.
fn views(peers: &mut [Peer]) -> Result<Vec<[Value; 2]>> {
    let of = |status: Value| [status["view"]["id"].clone(), status["counters"]["views"].clone()];
    peers.iter_mut().map(|peer| peer.status().map(of)).collect()
}

fn fourth_waits() -> Result<()> {
    let mut group = Group::empty("loop", 4)?;
    (0..3).try_for_each(|machine| waiting(&mut group, machine, "3,2..3"))?;
    all_sum(&mut group)?;
    let before = views(&mut group.peers[..3])?;
    joined(&mut group, 3, "3,2..3")?;
    let text = "full: 3 members run (max_members = 3); waiting for a place";
    group.peers[3].status_where(|status| status["state"] == text, PATIENCE)?;
    let event = group.peers[3].ask(
        &json!({"do": "context", "min": 1, "within_s": 3.0}),
        "error",
        PATIENCE,
    )?;
    ensure!(event["code"] == "not-enough-peers", "{event}");
    // All that time the others stay in their View.
    let after = views(&mut group.peers[..3])?;
    ensure!(before == after, "{before:?} became {after:?}");
    group.sum_of(|index| index < 3, 5001, 2)?;
    group.peers[1].ask(&json!({"do": "leave"}), "left", PATIENCE)?;
    let since = Instant::now();
    let stay = |index: usize| index != 1;
    let contexts = group.meet_of(stay)?;
    println!("measured: the fourth is in {} ms after one has left", since.elapsed().as_millis());
    ensure!(contexts.iter().all(|context| context["in_sync"] == false), "{contexts:?}");
    all_exact(&group.some(stay, &json!({"do": "sync", "version": 1, "bytes": 64}), "synced")?)?;
    group.sum_of(stay, 5001, 3)
}

fn two_go_on() -> Result<()> {
    let mut group = Group::empty("loop", 3)?;
    (0..3).try_for_each(|machine| waiting(&mut group, machine, "3"))?;
    all_sum(&mut group)?;
    group.peers[2].process().kill()?;
    group.go_on(|index| index < 2)
}

fn latecomer() -> Result<()> {
    let mut group = Group::up("loop", 2)?;
    group.sum(5001, 1)?;
    group.peers[0].status_where(|status| has_members(status, 2), PATIENCE)?;
    joined(&mut group, 1, "3")?;
    group.meet()?;
    all_exact(&group.all(&json!({"do": "sync", "version": 1, "bytes": 64}), "synced")?)?;
    group.sum(5001, 2)?;
    // It goes on with the two others' numbers, and they with its own: two are enough for all.
    group.peers[0].process().kill()?;
    group.go_on(|index| index != 0)
}

fn bad_sizes() -> Result<()> {
    let mut group = Group::empty("loop", 1)?;
    for (members, said) in [
        ("many", "POTLUCK_MEMBERS cannot be used: \"many\" is no number of members"),
        ("0", "members is 0; it must be between 1 and 32"),
        ("4,2..3", "max_members is 3; it must not be smaller than members, 4"),
    ] {
        let mut start = group.start(0);
        start.variables.push(("POTLUCK_MEMBERS", PathBuf::from(members)));
        let peer = group.add(0, &start)?;
        let error = peer.ask(&json!({"do": "join"}), "error", PATIENCE)?;
        ensure!(error["code"] == "config", "{error}");
        ensure!(error["message"].as_str().context("a message")?.contains(said), "{error}");
        ensure!(peer.process().wait(Duration::from_secs(10))?.code() == Some(1), "it went on");
    }
    Ok(())
}
