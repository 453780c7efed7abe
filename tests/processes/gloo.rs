//! Properties that only nodes on Gloo have.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::outcome::answered_after;
use potluck_harness::peer::{Start, now_ms};
use potluck_harness::{Group, Lag, Need, Suite};
use serde_json::json;

use crate::{LO, all_failed};

/// 256 MiB of f32.
const HUGE: usize = 64 << 20;

pub fn add(suite: &mut Suite) {
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    suite.on("gloo", missing);
    suite.serial("a mismatch costs nothing, a hundred times", &LO, mismatches);
    suite.serial("kill -9 in the middle of 256 MiB: all answer within a second", &LO, || {
        lost(Loss::Killed)
    });
    suite.serial("SIGSTOP in the middle of 256 MiB: all answer within three seconds", &LO, || {
        lost(Loss::Stopped)
    });
    suite.test_needing(
        "one that declines Gloo makes the group native, until it leaves",
        &LO,
        || mixed(&Odd::Declines),
    );
    let odd = std::env::var_os("POTLUCK_BIN_WITHOUT_GLOO").map(PathBuf::from);
    let without: &[Need] = match odd {
        Some(_) => &LO,
        None => &[Need::Missing("POTLUCK_BIN_WITHOUT_GLOO names no build without Gloo")],
    };
    let odd = Odd::Lacks(odd.unwrap_or_default());
    suite.test_needing(
        "one without Gloo makes the group native, until it leaves",
        without,
        move || mixed(&odd),
    );
}

/// The difference of the fourth node.
enum Odd {
    Declines,
    /// This program was built without Gloo.
    Lacks(PathBuf),
}

fn mixed(odd: &Odd) -> Result<()> {
    let mut group = Group::empty("lo", 4)?;
    group.found(4, &json!({"do": "join", "min": 2}), |index, usual| match odd {
        _ if index < 3 => usual,
        Odd::Declines => Start { engine: Some("native".to_owned()), ..usual },
        Odd::Lacks(program) => Start { engine: None, program: Some(program.clone()), ..usual },
    })?;
    let contexts = group.meet()?;
    let reason = contexts[0]["engine_reason"].as_str().unwrap_or_default().to_owned();
    ensure!(contexts[0]["engine"] == "native", "{}", contexts[0]);
    let expected = if matches!(odd, Odd::Declines) {
        "was told not to use Gloo"
    } else {
        "was built without Gloo"
    };
    ensure!(reason.contains("p4") && reason.contains(expected), "{reason}");
    let status = group.peers[0].status()?;
    ensure!(
        status["view"]["engine"] == "native" && status["view"]["engine_reason"] == reason.as_str(),
        "{status}"
    );
    group.sum(100_001, 0)?;

    group.peers[3].ask(&json!({"do": "leave"}), "left", PATIENCE)?;
    let contexts = group.meet_of(|index| index < 3)?;
    ensure!(contexts[0]["engine"] == "gloo", "{}", contexts[0]);
    group.sum_of(|index| index < 3, 100_001, 2)
}

fn mismatches() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let view = group.peers[0].status()?["view"]["id"].clone();
    let mut before = None;
    for round in 0..100usize {
        let len = |index| if index == round % 3 { 2000 } else { 1000 };
        group.each(|index| json!({"do": "all_reduce", "len": len(index)}))?;
        let events = group.events(|_| true, "done", PATIENCE)?;
        all_failed(&events, "mismatch").with_context(|| format!("round {round}"))?;
        let slowest = events.iter().filter_map(|event| event["ms"].as_f64()).fold(0.0, f64::max);
        ensure!(slowest < 5000.0, "told after {slowest} ms");
        group.sum(3001, round as u64)?;
        if round == 10 {
            before = Some(resources(&mut group)?);
        }
    }
    let before = before.context("there were eleven rounds")?;
    let after = resources(&mut group)?;
    println!(
        "measured: threads and descriptors after 10 mismatches {before:?}, after 100 {after:?}"
    );
    // While an aborted operation unwinds, the next ones need other threads, which are kept: a few,
    // not one for each of the ninety operations.
    let grown = before
        .iter()
        .zip(&after)
        .any(|(before, after)| after.0 > before.0 + 4 || after.1 > before.1);
    ensure!(!grown, "{before:?} became {after:?}");
    let status = group.peers[0].status()?;
    ensure!(status["view"]["id"] == view && status["counters"]["misbehaviours"] == 0, "{status}");
    Ok(())
}

/// The numbers of threads and descriptors of each node.
fn resources(group: &mut Group) -> Result<Vec<(usize, usize)>> {
    group
        .peers
        .iter_mut()
        .map(|peer| Ok((peer.process().threads()?, peer.process().descriptors()?)))
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Killed,
    Stopped,
}

fn lost(loss: Loss) -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    group.sum(1001, 0)?;
    group.on_the_way(1, &json!({"do": "all_reduce", "len": HUGE, "seed": 5}), 0.33)?;
    let since = now_ms();
    let bound_ms = match loss {
        Loss::Killed => {
            group.peers[1].process().kill()?;
            1000.0
        }
        Loss::Stopped => {
            group.peers[1].process().stop()?;
            3000.0
        }
    };
    let lag = Lag::begin();
    let events = group.events(|index| index != 1, "done", PATIENCE)?;
    let (answered, late) = (answered_after(&events, since), lag.ms());
    println!(
        "measured: {loss:?} in the middle of 256 MiB on gloo: all answered after {answered:.0} ms"
    );
    ensure!(
        answered <= bound_ms + late,
        "answered after {answered:.0} ms, the machine being {late:.0} ms late: {events:?}"
    );
    all_failed(&events, "aborted").context("not a third of it was there")?;
    let contexts = group.meet_of(|index| index != 1)?;
    ensure!(contexts[0]["engine"] == "gloo", "{}", contexts[0]);
    group.sum_of(|index| index != 1, 100_001, 0)
}
