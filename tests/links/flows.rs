//! Faults of single flows, while hosts and cables work.

use anyhow::{Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::outcome::all_exact;
use potluck_harness::peer::Start;
use potluck_harness::{Flow, Group, Need, Peer, Suite};
use serde_json::json;
use std::time::{Duration, Instant};

use crate::unequal::{knows_all_paths, until_all_paths_are_known};

pub fn add(suite: &mut Suite) {
    let with_ss = [Need::Lab, Need::Command("ss")];
    suite.test_needing(
        "what was measured stays known when a control link breaks and is made anew",
        &with_ss,
        control_link_broken,
    );
    suite.test_needing(
        "large packets are lost: no call waits for long, and why is told",
        &[Need::Lab, Need::Command("nft")],
        mtu,
    );
}

/// The bound for a call whose data is dropped: ten seconds, plus time for the start and the
/// agreement.
const SWALLOWED: Duration = Duration::from_secs(20);

/// As if one machine used jumbo frames and the switch silently dropped them.
fn mtu() -> Result<()> {
    let mut group = Group::empty("gbe4", 2)?;
    let logs = || vec![("POTLUCK_LOG", "potluck=warn".into())];
    group.found(2, &json!({"do": "join"}), |_, usual| Start { variables: logs(), ..usual })?;
    let order = json!({"do": "all_reduce", "len": 1 << 18, "seed": 1});
    group.exact(&order)?;
    group.lab.tell(&["narrow", "n2", "1300"])?;
    let began = Instant::now();
    group.each(|_| order.clone())?;
    let answers = group.events(|_| true, "done", SWALLOWED)?;
    println!(
        "measured: a call ends {:.1} s after large packets are lost: {}",
        began.elapsed().as_secs_f64(),
        answers[0]["message"]
    );
    ensure!(
        answers.iter().all(|answer| answer["ok"] == false && answer["code"] == "aborted"),
        "{answers:?}"
    );
    let logs = group.peers.iter().map(Peer::log).collect::<String>();
    ensure!(logs.contains("MTU"), "nobody says what it may be");
    // Both nodes run and know of each other, so they form a group as soon as packets pass again.
    group.lab.tell(&["narrow", "n2", "0"])?;
    let began = Instant::now();
    loop {
        group.meet()?;
        let answers = group.all(&order, "done")?;
        if answers.iter().all(|answer| answer["ok"] == true) {
            return all_exact(&answers);
        }
        ensure!(began.elapsed() < PATIENCE, "{answers:?}");
    }
}

fn control_link_broken() -> Result<()> {
    let mut group = Group::up_at("gbe4", 4, 200)?;
    let view = group.meet()?[0]["view"].clone();
    until_all_paths_are_known(&mut group)?;
    // Bursts of a busy machine may be short. After this each data link has carried more than a
    // control link does.
    group.exact(&json!({"do": "all_to_all", "len": 1 << 17, "seed": 5}))?;
    let began = Instant::now();
    // Replaced links are closed a few seconds later.
    let before = loop {
        let before = control_links(&group, "n1")?;
        if before.len() == 3 {
            break before;
        }
        ensure!(began.elapsed() < PATIENCE, "not one for each of the others: {before:?}");
    };
    for (port, other) in &before {
        group.lab.tell(&["sever", "n1", &port.to_string(), &other.to_string()])?;
    }
    let began = Instant::now();
    loop {
        let now = control_links(&group, "n1")?;
        if now.len() >= 3 && now.iter().all(|link| !before.contains(link)) {
            break;
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "the links are not made anew: {now:?}, before: {before:?}"
        );
    }
    group.all_show(knows_all_paths, PATIENCE)?;
    group.still_in(&view).inspect_err(|_| {
        println!("logs in {}", group.keep_logs(&format!("broken-{}", std::process::id())));
    })?;
    group.sum(1 << 18, 6)
}

/// The ports of each control link of a machine, including links that are being tried. Connections
/// that have carried more than `LITTLE` are data links.
fn control_links(group: &Group, machine: &str) -> Result<Vec<(u16, u16)>> {
    const LITTLE: u64 = 300_000;
    let flows = Flow::all_of(&group.lab, machine)?;
    let small = flows.iter().filter(|flow| flow.bytes < LITTLE);
    Ok(small.map(|flow| (flow.port, flow.other)).collect())
}
