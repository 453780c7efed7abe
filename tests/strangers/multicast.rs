//! False multicast DNS, see `multicast.py`: made-up nodes by the ten thousand, copied adverts,
//! good-byes for others, and broken packets. Adverts cause dials at most, and few.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use potluck_harness::Suite;

use crate::LAN;
use crate::intruder::{Intruder, unharmed};
use crate::port::{members, undisturbed};

pub fn add(suite: &mut Suite) {
    suite.serial(
        "multicast: ten thousand made-up nodes, copies and good-byes harm nobody",
        &LAN,
        false_adverts,
    );
}

const SECONDS: u32 = 12;

/// The port of the copies.
const PORT: u32 = 8080;

/// Each of three nodes may make four dials a second that adverts cause.
const DIALS: u64 = 3 * 4 * (SECONDS as u64 + 1);

fn false_adverts() -> Result<()> {
    let mut group = members(2)?;
    let before = group.peers[0].status()?;
    undisturbed(&mut group, &before["view"]["id"])?;
    let memory = group.peers[0].process().memory_kib("VmRSS")?;
    let address = group.lab.addr("n4").to_string();
    let words = [address, "1".to_owned(), SECONDS.to_string(), PORT.to_string()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let python = group.lab.command("n4", "python3");
    let mut neighbour = Intruder::running("multicast.py", python, &words)?;
    neighbour.event("flooding")?;
    let mut calls = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(u64::from(SECONDS) / 2) {
        undisturbed(&mut group, &before["view"]["id"])?;
        calls += 1;
    }
    let began = Instant::now();
    group.join(2)?;
    group.meet()?;
    let took = began.elapsed();
    let event = neighbour.event("flooded")?;
    let grown = group.peers[0].process().memory_kib("VmRSS")?.saturating_sub(memory);
    println!(
        "measured: false multicast DNS: {event}; {calls} calls meanwhile, {grown} KiB more memory, \
         a newcomer is in after {} ms",
        took.as_millis()
    );
    let count = |name: &str| event[name].as_u64().unwrap_or_default();
    ensure!(count("fakes") >= 10_000 && count("copied") >= 2, "too little: {event}");
    ensure!(count("connections") <= DIALS, "{event}");
    ensure!(took < Duration::from_secs(5), "a newcomer after {took:?}");
    ensure!(grown < 24 * 1024, "{grown} KiB");
    // Nothing that it said has stayed.
    for peer in &mut group.peers {
        let status = peer.status()?;
        let escape = status.to_string().contains("\\u001b");
        ensure!(!escape && status["peers"].as_array().is_some_and(|p| p.len() == 2), "{status}");
    }
    unharmed(&mut group)
}
