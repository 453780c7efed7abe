//! A network with a limit that no measurement of paths shows: plans are compared on real calls.

use anyhow::{Context, Result, ensure};
use potluck_harness::outcome::all_exact;
use potluck_harness::{Group, Need, Suite};
use serde_json::{Value, json};
use std::time::Instant;

use crate::unequal::until_all_paths_are_known;

pub fn add(suite: &mut Suite) {
    suite.serial(
        "a plan that is slow for a reason that nothing measured shows is compared with others, and \
         the fastest stays",
        &[Need::Lab, Need::Command("nft")],
        squeezed,
    );
}

/// The line rate of the machines. The paths of the ring carry as much together as one of them
/// alone, plus what keeps a single burst below the limit.
const MBIT: u32 = 200;
const SQUEEZED_MBIT: u32 = 215;

/// Calls take about half a second, and links are measured again in between.
const CALLS_MAX: usize = 120;

/// Twice as many calls as a plan is judged by.
const CALLS_AFTER: usize = 10;

fn squeezed() -> Result<()> {
    let mut group = Group::up_at("gbe4", 4, MBIT)?;
    let contexts = group.meet()?;
    let view = contexts[0]["view"].clone();
    until_all_paths_are_known(&mut group)?;
    let order = json!({"do": "all_reduce", "len": 1 << 19, "seed": 3});
    let ms = |answers: &[Value]| answers[0]["ms"].as_f64().unwrap_or(f64::NAN);
    for _ in 0..6 {
        all_exact(&group.all(&order, "done")?)?;
    }
    let before = group.still_in(&view)?.swap_remove(0)["view"].clone();
    let machine = |rank: u64| -> Result<String> {
        let index = contexts.iter().position(|context| context["rank"] == rank);
        Ok(format!("n{}", index.context("a rank of nobody")? + 1))
    };
    let ring = ring_of(&before)?;
    let next = ring.iter().cycle().skip(1);
    let paths: Result<Vec<(String, String)>> =
        ring.iter().zip(next).map(|(from, to)| Ok((machine(*from)?, machine(*to)?))).collect();
    group.lab.squeeze(&paths?, SQUEEZED_MBIT)?;
    let (began, mut slow_ms, mut calls) = (Instant::now(), 0.0, 0);
    let found = loop {
        let answers = group.all(&order, "done")?;
        all_exact(&answers)?;
        slow_ms = f64::max(slow_ms, ms(&answers));
        calls += 1;
        let told = group.still_in(&view)?;
        if told.iter().all(|status| is_by_trial(&status["view"])) {
            break told[0]["view"]["plan"].clone();
        }
        ensure!(calls < CALLS_MAX, "no plan by trial after {calls} calls: {}", told[0]["view"]);
    };
    println!("measured: after {calls} calls and {} s: {found}", began.elapsed().as_secs());
    let answers = group.all(&order, "done")?;
    all_exact(&answers)?;
    println!("measured: {:.0} ms a call, {slow_ms:.0} at most before", ms(&answers));
    // It stays when it has been judged itself.
    for _ in 0..CALLS_AFTER {
        all_exact(&group.all(&order, "done")?)?;
        for status in group.still_in(&view)? {
            ensure!(status["view"]["plan"] == found, "{}", status["view"]);
        }
    }
    Ok(())
}

fn is_by_trial(view: &Value) -> bool {
    view["plan"].as_str().is_some_and(|plan| plan.starts_with("by trial"))
}

/// The ranks of the ring that a plan goes round, each before the one that it sends to.
fn ring_of(view: &Value) -> Result<Vec<u64>> {
    if view["engine"] == "gloo" {
        return Ok((0..4).rev().collect());
    }
    let plan = view["plan"].as_str().unwrap_or_default();
    let order = plan.split_once("in a ring (").and_then(|(_, rest)| rest.split_once([',', ')']));
    let (order, _) = order.with_context(|| format!("no ring: {plan}"))?;
    order.split('-').map(|rank| rank.parse().context("a rank")).collect()
}
