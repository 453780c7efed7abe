//! `demo` in a network namespace of the lab. If it cannot create its own namespace, it runs in this
//! one.

use crate::run::clean;
use crate::shape::is_as_listed;
use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Lab, Scratch};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time limit: five phases of at most 90 seconds for each engine.
const ALL: Duration = Duration::from_secs(910);

fn demo(lab: &Lab, scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = lab.command("n1", env!("CARGO_BIN_EXE_potluck"));
    command.arg("demo").args(arguments).env("TMPDIR", scratch.path());
    clean(&mut command, scratch.path());
    command
}

pub fn verified() -> Result<()> {
    let (lab, scratch) = (Lab::up_with("lo", 1)?, Scratch::new()?);
    let mut child = Child::spawn(&mut demo(&lab, &scratch, &["--json", "--peers", "3"]))?;
    let status = child.wait(ALL)?;
    let out = child.stdout();
    ensure!(out.len() == 1, "not one document: {out:?} {:?}", child.stderr());
    let document: Value = serde_json::from_str(&out[0])?;
    ensure!(status.success() && document["ok"] == true, "{document:#} {:?}", child.stderr());
    let phases = document["phases"].as_array().context("a list")?;
    let engines: &[&str] =
        if document["gloo"].is_null() { &["native"] } else { &["gloo", "native"] };
    ensure!(phases.len() == 5 * engines.len(), "{document:#}");
    for (phases, engine) in phases.chunks(5).zip(engines) {
        let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
        ensure!(names == ["find", "sum", "kill", "go-on", "return"], "{names:?}");
        let ranks: Vec<u64> = phases.iter().filter_map(|phase| phase["ranks"].as_u64()).collect();
        ensure!(ranks == [3, 3, 3, 2, 3], "{ranks:?}");
        ensure!(phases.iter().all(|phase| phase["engine"] == *engine), "{document:#}");
        ensure!(phases[1]["bus_gb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{document}");
    }
    ensure!(fs::read_dir(scratch.path())?.next().is_none(), "directories are left");
    is_as_listed("demo", include_str!("../golden/json/demo.txt"), &[document])
}

pub fn interrupted() -> Result<()> {
    let (lab, scratch) = (Lab::up_with("lo", 1)?, Scratch::new()?);
    let mut child = Child::spawn(&mut demo(&lab, &scratch, &["--json"]))?;
    let peers = wait_for_peers(&child)?;
    child.terminate()?;
    let status = child.wait(Duration::from_secs(10))?;
    ensure!(status.code() == Some(130), "it ended with {status}: {:?}", child.stderr());
    let document: Value = serde_json::from_str(&child.stdout().concat())?;
    ensure!(document["ok"] == false && document["code"] == "interrupted", "{document}");
    for peer in peers {
        let still = fs::read_to_string(format!("/proc/{peer}/cmdline")).unwrap_or_default();
        ensure!(!still.contains("demo-member"), "a peer is left: {still:?}");
    }
    ensure!(fs::read_dir(scratch.path())?.next().is_none(), "directories are left");
    Ok(())
}

/// The process ids of all four peers, once they run.
fn wait_for_peers(demo: &Child) -> Result<Vec<String>> {
    let until = Instant::now() + Duration::from_secs(20);
    let list = format!("/proc/{0}/task/{0}/children", demo.id());
    while Instant::now() < until {
        let children = fs::read_to_string(&list).unwrap_or_default();
        let is_peer = |pid: &&str| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| contains(&line, b"\0demo-member\0"))
        };
        let peers: Vec<String> =
            children.split_whitespace().filter(is_peer).map(str::to_owned).collect();
        if peers.len() == 4 {
            return Ok(peers);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("the peers do not start: {:?}", demo.stderr())
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}
