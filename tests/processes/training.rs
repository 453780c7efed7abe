//! The training loop of the documentation under all kinds of faults.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LO, seed};

pub fn add(suite: &mut Suite) {
    suite.serial("training goes on through a death, a return and a newcomer", &LO, train);
}

const STEPS: u64 = 200;
/// At this step all members wait for each other, so that both late members join even on a slow
/// machine.
const HOLD: u64 = 150;

fn train() -> Result<()> {
    let seed = seed("training")?;
    let (victim, killed_at, newcomer_at) = (seed % 3, 10 + seed / 3 % 40, 60 + seed / 120 % 60);

    let mut group = Group::empty("lo", 4)?.filled(3, 2)?;
    let order = json!({
        "do": "train", "steps": STEPS, "len": 10_000, "seed": seed, "step_ms": 5,
        "report_every": 1, "hold_at": HOLD, "hold_for": 4,
    });
    group.each(|_| order.clone())?;
    let victim = victim as usize;
    group.peers[victim].event_where("step", |e| e["step"].as_u64() >= Some(killed_at), PATIENCE)?;
    group.peers[victim].process().kill()?;
    group.rejoin(victim)?.order(&order)?;

    let other = (victim + 1) % 3;
    group.peers[other].event_where(
        "step",
        |e| e["step"].as_u64() >= Some(newcomer_at),
        PATIENCE,
    )?;
    group.join(3)?;
    group.peers[3].order(&order)?;

    let ends = match group.events(|_| true, "trained", Duration::from_secs(60)) {
        Ok(ends) => ends,
        Err(error) => {
            let said =
                group.peers.iter_mut().map(|peer| Ok(format!("\n  status: {}", peer.status()?)));
            bail!("{error:#}{}", said.collect::<Result<String>>()?);
        }
    };
    println!(
        "measured: training with {} retries by its longest member, {} ms",
        ends[other]["retries"], ends[other]["ms"]
    );
    same_end(&ends)?;
    made_where_needed(&ends, victim)
}

/// Two members came without the state: the one that was killed, in its second life, and the last
/// one. The others made its bytes for these, and again where a View ended before all had them.
fn made_where_needed(ends: &[Value], victim: usize) -> Result<()> {
    let sum = |what: &str| ends.iter().filter_map(|end| end[what].as_u64()).sum::<u64>();
    // A member that a busy machine has cut off for a moment needs it, too.
    let few = |times: u64| (2..=8).contains(&times);
    ensure!(few(sum("saves")) && few(sum("loads")), "made or taken too often: {ends:?}");
    for late in [victim, 3] {
        ensure!(ends[late]["loads"].as_u64() >= Some(1), "{late} has no state: {ends:?}");
    }
    Ok(())
}

fn same_end(ends: &[Value]) -> Result<()> {
    for end in ends {
        ensure!(end["step"] == STEPS && end["size"] == 4, "{ends:?}");
        ensure!(end["hash"] == ends[0]["hash"], "different parameters: {ends:?}");
    }
    Ok(())
}
