//! A group of four changes its cluster key, and denies a member, while it computes.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::{KEY, Start};
use potluck_harness::program::{command_line, isolate};
use potluck_harness::{Group, Lag, Suite};
use serde_json::{Value, json};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.serial("four change their key and no call fails", &LAN, rotated);
    suite.serial("a denied member is out in two seconds and stays out", &LAN, denied);
}

/// Every node reads the files of its home in this time, and ends links by the old key in ten
/// seconds more.
const READ: Duration = Duration::from_millis(700);
const RENEWED: Duration = Duration::from_secs(12);
/// A denied member is out after this time.
const OUT: Duration = Duration::from_secs(2);
/// The time for which it is watched, to see that it does not return.
const STAYS_OUT: Duration = Duration::from_secs(4);

/// Four nodes that take the key from their own files.
fn four() -> Result<Group> {
    let mut group = Group::empty("gbe4", 4)?;
    for index in 0..4 {
        potluck(&home(&group, index), &["join"], KEY)?;
    }
    group.found(4, &json!({"do": "join"}), |_, usual| Start { key: None, ..usual })?;
    Ok(group)
}

/// Runs a command in this home. Returns its output.
fn potluck(home: &Path, arguments: &[&str], input: &str) -> Result<Value> {
    let mut command = std::process::Command::new(command_line()?);
    isolate(command.args(arguments).arg("--json"), home);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    child.stdin.take().context("piped")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_str(&told)?)
}

fn home(group: &Group, index: usize) -> std::path::PathBuf {
    group.start(index).home
}

/// Sums for this long; returns how many.
fn sums(group: &mut Group, lasts: Duration) -> Result<u64> {
    let (began, mut calls) = (Instant::now(), 0);
    while began.elapsed() < lasts {
        group.sum(20_001, calls)?;
        calls += 1;
    }
    Ok(calls)
}

fn links(group: &mut Group) -> Result<Vec<u64>> {
    let of = |status: Value| status["counters"]["links"].as_u64().context("no such counter");
    group.peers.iter_mut().map(|peer| of(peer.status()?)).collect()
}

fn rotated() -> Result<()> {
    let mut group = four()?;
    let view = group.peers[0].status()?["view"]["id"].clone();
    let mut calls = sums(&mut group, READ)?;
    potluck(&home(&group, 0), &["keys", "rotate"], "")?;
    let next = potluck(&home(&group, 0), &["key", "--show"], "")?["key"].clone();
    let next = next.as_str().context("no key")?;
    for index in 1..4 {
        potluck(&home(&group, index), &["join", "--next"], next)?;
        calls += sums(&mut group, READ)?;
    }
    let before = links(&mut group)?;
    for index in 0..4 {
        potluck(&home(&group, index), &["keys", "finish"], "")?;
        calls += sums(&mut group, READ)?;
    }
    calls += sums(&mut group, RENEWED)?;
    let after = links(&mut group)?;
    println!("measured: {calls} calls while four changed their key, links {before:?} to {after:?}");
    ensure!(before.iter().zip(&after).all(|(b, a)| *a >= b + 3), "{before:?}, {after:?}");
    group.still_in(&view).map(drop)
}

fn denied() -> Result<()> {
    let mut group = four()?;
    let eve = group.peers[3].status()?["node"].as_str().context("no id")?.to_owned();
    sums(&mut group, READ)?;
    for index in 0..3 {
        potluck(&home(&group, index), &["deny", &eve], "")?;
    }
    let (lag, began) = (Lag::begin(), Instant::now());
    let without = |status: &Value| {
        let members = status["view"]["members"].as_array();
        members.is_some_and(|m| m.len() == 3 && m.iter().all(|m| m["node"] != eve.as_str()))
    };
    for index in 0..3 {
        group.peers[index].status_where(without, PATIENCE)?;
    }
    let (took, late) = (began.elapsed(), Duration::from_millis(lag.ms() as u64));
    println!("measured: a denied member is out after {} ms", took.as_millis());
    ensure!(took < OUT + late, "out after {took:?}, the machine being {late:?} late");
    // The claim is about a time, in which nothing happens.
    let began = Instant::now();
    while began.elapsed() < STAYS_OUT {
        for index in 0..3 {
            let status = group.peers[index].status()?;
            ensure!(without(&status), "it is back: {status}");
        }
        // The pause keeps the nodes from only answering.
        std::thread::sleep(Duration::from_millis(50));
    }
    group.meet_of(|index| index < 3)?;
    group.sum_of(|index| index < 3, 5001, 0)
}
