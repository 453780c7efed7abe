//! A neighbour without the key that copies adverts and forwards the connections to the genuine
//! nodes, see `proxy.py`. It reads nothing; and no link of members may move through it.

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::outcome::all_exact;
use potluck_harness::{Group, Need, Suite};
use serde_json::{Value, json};

use crate::LAN;
use crate::intruder::{Intruder, unharmed};

pub fn add(suite: &mut Suite) {
    suite.serial(
        "a neighbour that copies adverts and forwards faster than the own cables moves no link, \
         and no newcomer",
        &LAN,
        beside_a_faster_proxy,
    );
    let needs = [Need::Lab, Need::Command("python3"), Need::Command("nft")];
    suite.serial(
        "a newcomer that meets only a proxy is in the group, and leaves it for the first path of \
         its own",
        &needs,
        only_a_proxy,
    );
}

/// The rate of the members' own paths to each other in Mbit/s. The cables carry 200 times as much.
const SLOW_MBIT: u32 = 5;

/// How long the members compute beside the proxy: three wishes for trials of paths are five seconds
/// apart.
const BESIDE: Duration = Duration::from_secs(17);

/// The machine of the neighbour; the nodes are on the machines before it.
const NEIGHBOUR: &str = "n4";

/// Slows a machine's traffic to these addresses, and its IPv6 traffic.
fn slow_between_members(group: &Group, machine: &str, to: &[IpAddr]) -> Result<()> {
    let class = format!(
        "class add dev eth0 parent 1: classid 1:9 htb rate {SLOW_MBIT}mbit ceil {SLOW_MBIT}mbit \
         burst 64k cburst 64k quantum 16384"
    );
    let mut commands = vec![
        class,
        "qdisc add dev eth0 parent 1:9 handle 90: bfifo limit 262144".to_owned(),
        "filter add dev eth0 parent 1: protocol ipv6 prio 2 u32 match u32 0 0 flowid 1:9"
            .to_owned(),
    ];
    commands.extend(to.iter().map(|ip| {
        format!(
            "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst {ip}/32 flowid 1:9"
        )
    }));
    for words in commands {
        group.lab.run(machine, &format!("tc {words}"))?;
    }
    Ok(())
}

/// Starts the neighbour, and waits until it has copied so many nodes.
fn neighbour(group: &Group, copies: usize) -> Result<Intruder> {
    let address = group.lab.addr(NEIGHBOUR).to_string();
    let mut proxy =
        Intruder::running("proxy.py", group.lab.command(NEIGHBOUR, "python3"), &[&address])?;
    proxy.event("listening")?;
    for _ in 0..copies {
        let event = proxy.event("copied")?;
        println!("the neighbour announces itself as {}", event["target"]);
    }
    Ok(proxy)
}

/// The bytes that it has forwarded.
fn forwarded(proxy: &mut Intruder) -> Result<u64> {
    let counted = proxy.asked("counted")?;
    println!(
        "measured: the neighbour forwarded {} bytes of {} connections",
        counted["bytes"], counted["connections"]
    );
    counted["bytes"].as_u64().context("a number")
}

/// A sum of all, which must be exact.
fn sum(group: &mut Group, len: usize) -> Result<()> {
    let answers = sum_or_abort(group, len)?;
    let Some(answers) = answers else { return Ok(()) };
    let statuses = group.all(&json!({"do": "status"}), "status")?;
    bail!("an aborted sum: {answers:?}, then {statuses:?}")
}

/// A sum of all, which is exact, or aborted because the View changed meanwhile: then the answers.
fn sum_or_abort(group: &mut Group, len: usize) -> Result<Option<Vec<Value>>> {
    let answers = group.all(&json!({"do": "all_reduce", "len": len}), "done")?;
    for answer in &answers {
        let (verdict, outcome) = (&answer["verdict"], &answer["outcome"]);
        ensure!(*verdict == "exact" || *verdict == "untouched", "{verdict}, {outcome}: {answer}");
    }
    let are_exact = answers.iter().all(|answer| answer["verdict"] == "exact");
    Ok((!are_exact).then_some(answers))
}

/// The home directories remember no address of the neighbour.
fn nothing_is_remembered(group: &Group) -> Result<()> {
    let neighbour = group.lab.addr(NEIGHBOUR).to_string();
    for index in 0..group.peers.len() {
        let file = group.start(index).home.join("peers-default.toml");
        let text = fs::read_to_string(&file).unwrap_or_default();
        ensure!(!text.contains(&format!("{neighbour}:")), "{}: {text}", file.display());
    }
    Ok(())
}

/// Whether no control link of this node goes through the neighbour.
fn is_clean(status: &Value, neighbour: IpAddr) -> bool {
    let through = |peer: &Value| {
        let at = peer["address"].as_str().unwrap_or_default();
        peer["forwarded"] == true || at.starts_with(&format!("{neighbour}:"))
    };
    status["peers"].as_array().is_some_and(|peers| !peers.iter().any(through))
}

fn no_link_is_forwarded(group: &mut Group) -> Result<()> {
    let neighbour = group.lab.addr(NEIGHBOUR);
    for peer in &mut group.peers {
        let status = peer.status()?;
        ensure!(is_clean(&status, neighbour), "{}: {}", peer.name(), status["peers"]);
    }
    Ok(())
}

fn beside_a_faster_proxy() -> Result<()> {
    let group = Group::empty("gbe4", 4)?;
    let members = ["n1", "n2", "n3"];
    for machine in members {
        let others = members.iter().filter(|other| **other != machine);
        let others: Vec<IpAddr> = others.map(|other| group.lab.addr(other)).collect();
        slow_between_members(&group, machine, &others)?;
    }
    let mut group = group.filled(2, 2)?;
    let view = group.meet()?[0]["view"].clone();
    let mut proxy = neighbour(&group, 2)?;
    let began = Instant::now();
    let mut calls = 0;
    while began.elapsed() < BESIDE {
        sum(&mut group, 5001)?;
        no_link_is_forwarded(&mut group)?;
        nothing_is_remembered(&group)?;
        calls += 1;
    }
    group.still_in(&view)?;
    let moved = forwarded(&mut proxy)?;
    println!("measured: {calls} sums beside a proxy that carries far more than the own path");
    // Handshakes of trials at most.
    ensure!(moved < 64 * 1024, "{moved} bytes went through the neighbour");

    group.join(2)?;
    group.meet()?;
    // It may have met the neighbour first.
    let neighbour = group.lab.addr(NEIGHBOUR);
    group.all_show(|status| is_clean(status, neighbour), PATIENCE)?;
    // It has not taken part in the sums so far.
    all_exact(&group.all(&json!({"do": "sync", "version": 1, "bytes": 4096}), "synced")?)?;
    let began = Instant::now();
    while began.elapsed() < BESIDE / 2 {
        sum(&mut group, 5001)?;
        no_link_is_forwarded(&mut group)?;
        nothing_is_remembered(&group)?;
    }
    forwarded(&mut proxy)?;
    unharmed(&mut group)
}

/// Elements of a sum whose bytes stand out among those of control links.
const LONG: usize = 50_001;

fn only_a_proxy() -> Result<()> {
    let mut group = Group::empty("gbe4", 4)?.filled(2, 2)?;
    let mut proxy = neighbour(&group, 2)?;
    group.lab.cut_between("n1,n2", "n3")?;
    group.join(2)?;
    group.meet()?;
    // There is no other way.
    let newcomer = group.peers[2].status()?;
    let peers = newcomer["peers"].as_array().context("no list")?;
    ensure!(peers.len() == 2 && peers.iter().all(|peer| peer["forwarded"] == true), "{newcomer}");
    sum(&mut group, LONG)?;
    ensure!(forwarded(&mut proxy)? > 4 * LONG as u64, "the sum went another way");
    nothing_is_remembered(&group)?;

    group.lab.join_between("n1,n2", "n3")?;
    let (neighbour, began) = (group.lab.addr(NEIGHBOUR), Instant::now());
    group.all_show(|status| is_clean(status, neighbour), PATIENCE)?;
    println!("measured: on own paths {} ms after they are there", began.elapsed().as_millis());
    // The bulk data follow.
    loop {
        let before = forwarded(&mut proxy)?;
        match sum_or_abort(&mut group, LONG)? {
            None if forwarded(&mut proxy)? - before < 64 * 1024 => break,
            None => {}
            Some(aborted) => println!("a sum that was aborted: {aborted:?}"),
        }
        ensure!(began.elapsed() < 2 * PATIENCE, "the data still go through the neighbour");
        group.meet()?;
    }
    println!("measured: the data, too, after {} ms", began.elapsed().as_millis());
    nothing_is_remembered(&group)?;
    no_link_is_forwarded(&mut group)?;
    unharmed(&mut group)
}
