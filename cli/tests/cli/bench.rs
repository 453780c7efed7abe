//! `bench` on machines of the lab.

use crate::keys::KEY;
use crate::run::{Network, SOON, told};
use crate::shape::is_as_listed;
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// How long a short run may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const NAMES: [&str; 3] = ["ada", "bob", "cyd"];

/// Starts `bench` on three machines, each with its own name.
fn start(network: &Network, arguments: &[&str]) -> Result<Vec<Child>> {
    let start = |(i, name): (usize, &&str)| {
        told(&network.home(name), &["join"], KEY)?;
        let arguments = [&["--name", name, "--members", "3"], arguments].concat();
        Child::spawn(&mut network.json(&format!("n{}", i + 1), name, "bench", &arguments))
    };
    NAMES.iter().enumerate().map(start).collect()
}

fn document(child: &mut Child) -> Result<Value> {
    let status = child.wait(PATIENCE)?;
    let (out, err) = (child.stdout(), child.stderr());
    ensure!(status.code() == Some(0) && out.len() == 1, "{status}: {out:?} {err:?}");
    Ok(serde_json::from_str(&out[0])?)
}

/// One of the machines has a cable of a tenth of the others' rate.
pub fn unequal_machines() -> Result<()> {
    let network = Network::machines("mixed4", 3)?;
    let svg = network.scratch.path().join("bench.svg");
    let file = svg.to_str().context("a path of text")?;
    let sizes = ["--sizes", "64K,1M", "--seconds", "0.3", "--svg", file];
    let mut machines = start(&network, &sizes)?;
    let documents: Vec<Value> = machines.iter_mut().map(document).collect::<Result<_>>()?;
    is_as_listed("bench", include_str!("../golden/json/bench.txt"), &documents)?;
    let report = &documents[0];
    // Each machine has the same figures; the View's name and plan are theirs too.
    for part in ["view", "members", "links", "sums"] {
        ensure!(documents.iter().all(|other| other[part] == report[part]), "{part}: {documents:?}");
    }
    let list = |part: &str| report[part].as_array().cloned().context("a list");
    let (links, sums) = (list("links")?, list("sums")?);
    ensure!(list("members")?.len() == 3 && links.len() == 6, "{report}");
    let has = |link: &Value, name: &str| link[name].as_u64().is_some_and(|bps| bps > 0);
    ensure!(links.iter().all(|link| has(link, "measured_bps")), "{links:?}");
    // The plan needs the rates of some links only.
    ensure!(links.iter().any(|link| has(link, "predicted_bps")), "{links:?}");
    let bytes: Vec<Option<u64>> = sums.iter().map(|sum| sum["bytes"].as_u64()).collect();
    ensure!(bytes == [Some(64 << 10), Some(1 << 20)], "{sums:?}");
    for sum in &sums {
        let us = |name: &str| sum[name].as_u64().unwrap_or(0);
        ensure!(us("min_us") > 0 && us("min_us") <= us("median_us"), "{sum}");
        ensure!(us("median_us") <= us("max_us") && us("rounds") >= 3, "{sum}");
    }
    ensure!(sums[0]["predicted_us"].is_null() && sums[1]["predicted_us"].is_u64(), "{sums:?}");
    let chart = fs::read_to_string(svg)?;
    ensure!(chart.starts_with("<svg") && chart.contains("1 MiB"), "{chart}");
    Ok(())
}

pub fn too_few() -> Result<()> {
    let network = Network::machines("loop", 1)?;
    told(&network.home("ada"), &["join"], KEY)?;
    let ran = network.run("n1", "ada", "bench", &["--wait", "4"])?;
    ensure!(ran.json(3)?["code"] == "not-enough-peers", "{ran:?}");
    ensure!(ran.err.lines().filter(|line| line.starts_with("still ")).count() == 1, "{ran:?}");
    let wrong = network.run("n1", "ada", "bench", &["--sizes", "3"])?;
    ensure!(wrong.code == 2 && wrong.err.contains("multiple of 4"), "{wrong:?}");
    Ok(())
}

/// The others name it, and end.
pub fn one_is_killed() -> Result<()> {
    let network = Network::machines("loop", 3)?;
    let mut machines = start(&network, &["--sizes", "1M", "--seconds", "60"])?;
    // The group has begun when its members are in one View.
    let in_group = || -> Result<bool> {
        let ran = network.run("n1", "ada", "status", &["--job", "potluck-bench"])?;
        let document: Value = serde_json::from_str(&ran.out)?;
        Ok(document["view"]["members"].as_array().is_some_and(|members| members.len() == 3))
    };
    let until = std::time::Instant::now() + SOON;
    while !in_group()? {
        ensure!(std::time::Instant::now() < until, "no group");
    }
    machines[2].kill()?;
    for machine in &mut machines[..2] {
        let status = machine.wait(PATIENCE)?;
        let out = machine.stdout().join("\n");
        ensure!(status.code() == Some(4) && out.contains("cyd"), "{status}: {out}");
    }
    Ok(())
}
