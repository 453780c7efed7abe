//! A member that is linked, sends heartbeats, answers pings and never votes: a build of the program
//! in which that rule can be broken.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::outcome::answered_after;
use potluck_harness::peer::{Start, now_ms};
use potluck_harness::{Group, Lag, Need, Suite};
use serde_json::{Value, json};

use crate::{LAN, all_exact, all_failed};

/// The deadline of the calls, and how much later they may end.
const DEADLINE_MS: f64 = 1000.0;
const GRACE_MS: f64 = 5000.0;

pub fn add(suite: &mut Suite) {
    let broken = std::env::var_os("POTLUCK_BIN_WITH_MUTANTS").map(PathBuf::from);
    let needs: Vec<Need> = match &broken {
        None => vec![Need::Missing("POTLUCK_BIN_WITH_MUTANTS names no build with mutants")],
        Some(_) => LAN.to_vec(),
    };
    let broken = broken.unwrap_or_default();
    for (name, calls) in [
        ("a member that calls and never votes is named, and the others go on", true),
        ("a member that neither calls nor votes is named, and the others go on", false),
    ] {
        let broken = broken.clone();
        suite.test_needing(name, &needs, move || withholds(&broken, calls));
    }
}

/// p3 never votes; `calls` says whether it makes the call that the others make.
fn withholds(broken: &Path, calls: bool) -> Result<()> {
    const HONEST: fn(usize) -> bool = |index| index < 2;
    let mut group = Group::empty("loop", 3)?;
    group.found(3, &json!({"do": "join", "events": true}), |index, usual| {
        if HONEST(index) { usual } else { silent(usual, broken) }
    })?;
    let call =
        json!({"do": "all_reduce", "len": 100_001, "seed": 3, "deadline_ms": DEADLINE_MS as u64});
    let (lag, since_ms) = (Lag::begin(), now_ms());
    group.chosen(|at| calls || HONEST(at)).try_for_each(|peer| peer.order(&call))?;
    let events = group.events(HONEST, "done", PATIENCE)?;
    let after_ms = answered_after(&events, since_ms);
    println!("measured: a member that never votes: answered after {after_ms:.0} ms, {events:?}");
    ensure!(
        after_ms <= DEADLINE_MS + GRACE_MS + lag.ms(),
        "answered after {after_ms:.0} ms, the machine being {:.0} ms late: {events:?}",
        lag.ms()
    );
    if calls {
        // It has contributed, and all members that continue have the sum.
        all_exact(&events)?;
    } else {
        all_failed(&events, "aborted")?;
        let names_it = |event: &Value| event["message"].to_string().contains("p3");
        ensure!(events.iter().all(names_it), "it is not named: {events:?}");
    }
    // The lost member is named, with the reason. Its place is gone, and stays so for a while.
    for peer in group.chosen(HONEST) {
        let is_it = |event: &Value| event["what"] == "lost" && event["who"]["name"] == "p3";
        let lost = peer.event_where("happened", is_it, PATIENCE).context("its loss is not told")?;
        ensure!(lost["why"] == "it is there and does not vote", "{lost}");
        let told = |status: &Value| {
            let reasons = status["reasons"].to_string();
            has_members(status, 2)
                && reasons.contains("p3")
                && reasons.contains("answered and did not vote")
        };
        peer.status_where(told, PATIENCE)?;
    }
    group.go_on(HONEST)
}

fn silent(usual: Start, broken: &Path) -> Start {
    Start {
        program: Some(broken.to_owned()),
        variables: vec![("POTLUCK_MUTANT", "silent".into())],
        ..usual
    }
}
