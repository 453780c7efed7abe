//! Hostile connections in great numbers, see `storm.py`: a newcomer still gets in, and calls go on.
//!
//! With `POTLUCK_STORM_JOINS=n` a newcomer joins n times in each storm, and the times are judged as
//! `docs/security.md` states them. Without it the tests are short and judge what a busy machine
//! does not change.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;
use crate::intruder::{Intruder, unharmed};
use crate::port::{link_local, port_of, without_ipv4};

pub fn add(suite: &mut Suite) {
    suite.serial("a storm of connections over IPv4", &LAN, || storm(Family::V4, 1));
    suite.serial("a storm of connections over IPv6 alone", &LAN, || storm(Family::V6, 1));
    suite.serial("a storm of connections from 200 addresses", &LAN, || storm(Family::V4, 200));
}

#[derive(Clone, Copy, PartialEq)]
enum Family {
    V4,
    V6,
}

/// New connections a second and slow ones at a time, at each of the two members; in a short test a
/// tenth of the former and half of the latter, because other tests run beside it.
const RATE: u32 = 500;
const SLOW: u32 = 100;

/// The rate of the cables in Mbit/s: so slow that the calls do not compete with the storm for the
/// processors.
const MBIT: u32 = 30;
/// Elements of a call.
const LEN: usize = 100_000;

/// How often a newcomer joins without `POTLUCK_STORM_JOINS`.
const JOINS: u32 = 1;
/// How long calls are counted; in a short test a second.
const COUNTED: Duration = Duration::from_secs(12);

/// 99 of a hundred newcomers are in after this time.
const JOIN_P99: Duration = Duration::from_secs(2);
/// The rate of the calls in a storm, as a share of that before.
const CALLS_SHARE: f64 = 0.9;

fn storm(family: Family, sources: u32) -> Result<()> {
    let asked = std::env::var("POTLUCK_STORM_JOINS").ok();
    let joins: u32 = asked.as_ref().map_or(Ok(JOINS), |text| text.parse())?;
    let (rate, slow, counted) = match asked {
        Some(_) => (RATE, SLOW, COUNTED),
        None => (RATE / 10, SLOW / 2, Duration::from_secs(1)),
    };
    let group = Group::empty_at("gbe4", 4, MBIT)?;
    if family == Family::V6 {
        without_ipv4(&group)?;
    }
    let mut group = group.filled(2, 2)?;
    // The first calls measure the paths and fill the buffers.
    calls(&mut group, counted)?;
    let before = calls(&mut group, counted)?;
    let node = group.peers[0].process();
    let (memory, files) = (node.memory_kib("VmRSS")?, node.descriptors()?);

    let seconds = (2 * counted).as_secs() as u32 + 6 * joins;
    let mut intruders = Vec::new();
    for (index, machine) in ["n1", "n2"].into_iter().enumerate() {
        let port = port_of(&group.peers[index].status()?)?;
        let address = match family {
            Family::V4 => group.lab.addr(machine).to_string(),
            Family::V6 => link_local(&group, machine)?,
        };
        let words = [rate, slow, seconds, sources].map(|number| number.to_string());
        let [rate, slow, seconds, sources] = words.each_ref().map(String::as_str);
        let python = group.lab.command("n4", "python3");
        let words = [address.as_str(), &port, rate, slow, seconds, sources];
        let mut intruder = Intruder::running("storm.py", python, &words)?;
        intruder.event("storming")?;
        intruders.push(intruder);
    }
    let during = calls(&mut group, counted)?;
    let mut times = Vec::new();
    for _ in 0..joins {
        times.push(join(&mut group)?);
    }
    let node = group.peers[0].process();
    let (grown, opened) = (
        node.memory_kib("VmRSS")?.saturating_sub(memory),
        node.descriptors()?.saturating_sub(files),
    );
    let ended: Vec<Value> =
        intruders.iter_mut().map(|one| one.asked("stormed")).collect::<Result<_>>()?;
    times.sort_unstable();
    let p99 = times[(times.len() * 99).div_ceil(100) - 1];
    println!(
        "measured: {ended:?}; {before:.2} calls per second before and {during:.2} during it; \
         {joins} newcomers, the median after {} ms, 99 % after {} ms; {grown} KiB more memory, \
         {opened} more files",
        times[times.len() / 2].as_millis(),
        p99.as_millis()
    );
    for event in &ended {
        ensure!(event["received"] == 0, "a stranger was answered: {event}");
        let number = |name: &str| event[name].as_f64().unwrap_or(0.0);
        let per_second = number("made") / number("seconds").max(1.0);
        ensure!(per_second > f64::from(rate) / 2.0, "too few: {event}");
    }
    ensure!(grown < 32 * 1024 && opened <= 90, "{grown} KiB, {opened} files");
    if asked.is_some() {
        ensure!(p99 < JOIN_P99, "99 % of the newcomers are in after {p99:?}");
        ensure!(
            during >= CALLS_SHARE * before,
            "{before:.2} calls per second before, {during:.2} during it"
        );
    }
    unharmed(&mut group)
}

/// How many calls of the first two members end per second, counted for a while.
fn calls(group: &mut Group, counted: Duration) -> Result<f64> {
    let (began, mut calls) = (Instant::now(), 0);
    while began.elapsed() < counted {
        group.sum(LEN, 0)?;
        calls += 1;
    }
    Ok(f64::from(calls) / began.elapsed().as_secs_f64())
}

/// The time from the start of a newcomer's node until it has the View of all three. It leaves then.
fn join(group: &mut Group) -> Result<Duration> {
    let start = group.start(2);
    let peer = group.add(2, &start)?;
    let began = Instant::now();
    peer.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    let context = json!({"do": "context", "min": 3, "within_s": PATIENCE.as_secs()});
    peer.ask(&context, "context", PATIENCE)?;
    let took = began.elapsed();
    let mut newcomer = group.peers.pop().context("it was added")?;
    newcomer.ask(&json!({"do": "leave"}), "left", PATIENCE)?;
    group.meet()?;
    Ok(took)
}
