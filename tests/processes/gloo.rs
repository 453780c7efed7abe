//! Properties that only nodes on Gloo have.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::Start;
use potluck_harness::{Group, Need, Suite};
use serde_json::{Value, json};

use crate::{LO, all_exact, all_failed};

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
    for index in 0..4 {
        let usual = group.start(index);
        let start = match odd {
            _ if index < 3 => usual,
            Odd::Declines => Start { engine: Some("native".to_owned()), ..usual },
            Odd::Lacks(program) => Start { engine: None, program: Some(program.clone()), ..usual },
        };
        group.add(index, &start)?;
    }
    group.all(&json!({"do": "join", "min": 2}), "joined")?;
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
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001}), "done")?)?;

    group.peers[3].ask(&json!({"do": "leave"}), "left", PATIENCE)?;
    let contexts = group.meet_of(|index| index < 3)?;
    ensure!(contexts[0]["engine"] == "gloo", "{}", contexts[0]);
    all_exact(&group.some(
        |index| index < 3,
        &json!({"do": "all_reduce", "len": 100_001, "seed": 2}),
        "done",
    )?)
}

fn mismatches() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    let view = group.peers[0].status()?["view"]["id"].clone();
    let mut before = None;
    for round in 0..100usize {
        for (index, peer) in group.peers.iter_mut().enumerate() {
            let len = if index == round % 3 { 2000 } else { 1000 };
            peer.order(&json!({"do": "all_reduce", "len": len}))?;
        }
        let events = group.events(|_| true, "done", PATIENCE)?;
        all_failed(&events, "mismatch").with_context(|| format!("round {round}"))?;
        let slowest = events.iter().filter_map(|event| event["ms"].as_f64()).fold(0.0, f64::max);
        ensure!(slowest < 1000.0, "told after {slowest} ms");
        all_exact(&group.all(&json!({"do": "all_reduce", "len": 3001, "seed": round}), "done")?)?;
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
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    for (index, peer) in group.peers.iter_mut().enumerate() {
        let mut call = json!({"do": "all_reduce", "len": HUGE, "seed": 5});
        if index == 1 {
            call["report_at"] = json!(0.33);
        }
        peer.order(&call)?;
    }
    group.peers[1].event("progress", PATIENCE)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e3;
    let bound = match loss {
        Loss::Killed => {
            group.peers[1].process().kill()?;
            Duration::from_secs(1)
        }
        Loss::Stopped => {
            group.peers[1].process().stop()?;
            Duration::from_secs(3)
        }
    };
    let events = group.events(|index| index != 1, "done", PATIENCE)?;
    let answered =
        events.iter().filter_map(|event| event["at_ms"].as_f64()).fold(0.0, f64::max) - since;
    println!(
        "measured: {loss:?} in the middle of 256 MiB on gloo: all answered after {answered:.0} ms"
    );
    ensure!(answered <= bound.as_secs_f64() * 1e3, "answered after {answered:.0} ms: {events:?}");
    let is_aborted = |event: &Value| {
        event["ok"] == false && event["code"] == "aborted" && event["verdict"] == "untouched"
    };
    ensure!(events.iter().all(is_aborted), "not a third of it was there: {events:?}");
    let contexts = group.meet_of(|index| index != 1)?;
    ensure!(contexts[0]["engine"] == "gloo", "{}", contexts[0]);
    all_exact(&group.some(
        |index| index != 1,
        &json!({"do": "all_reduce", "len": 100_001}),
        "done",
    )?)
}
