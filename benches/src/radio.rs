//! One wired machine and three stations that share a radio channel, which the group detects itself:
//! the gain over Gloo's ring.

use crate::Extent;
use crate::group::Group;
use crate::machine::Machines;
use crate::report::{Report, time};
use crate::topology::{RING, bare, ours, until_all_know};
use crate::turns::Turns;
use anyhow::{Context, Result};
use std::path::Path;

/// The profile of the lab.
pub const RADIO: &str = "wifi4";
const BYTES: usize = 8 << 20;
/// Each of three stations has a path to each of the three other machines.
const SHARED_PATHS: u64 = 9;
const ROUNDS: usize = 7;
/// The required gain.
const FASTER: f64 = 1.35;

pub fn compare(extent: Extent, gloo: Option<&Path>, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 2 } else { ROUNDS };
    let mut ours = ours(Machines::up(RADIO, 4)?, 4)?;
    let mut theirs = gloo.map(|program| bare(RADIO, program)).transpose()?;
    let known =
        until_all_know(&mut ours, |known| known.shared == SHARED_PATHS && known.revision > 0)
            .context("the medium is not found")?;
    ours.check(BYTES, "")?;
    theirs.as_mut().map_or(Ok(()), |theirs| theirs.check(BYTES, RING))?;
    let [mut our_turns, mut their_turns] = [(); 2].map(|()| Turns::wanted(rounds));
    let mut round = 0;
    while our_turns.go_on() || theirs.is_some() && their_turns.go_on() {
        // The first contender alternates.
        for turn in 0..2 {
            match ((turn + round) % 2, &mut theirs) {
                (0, _) => our_turns.add(ours.calls(BYTES, 1, "")?),
                (_, Some(theirs)) => their_turns.add(theirs.calls(BYTES, 1, RING)?),
                (_, None) => {}
            }
        }
        round += 1;
    }
    let our_s = our_turns.median_s();
    let their_s = if theirs.is_some() { their_turns.median_s() } else { f64::NAN };
    let forecast_s = known.forecast_s(BYTES)?;
    report.line("\n| machines | Gloo's ring, 8 MiB | potluck | Gloo / potluck | forecast |");
    report.line(&format!("|{}", " --- |".repeat(5)));
    report.line(&format!(
        "| wifi4 | {} | {} | {:.2} | {} |",
        time(their_s),
        time(our_s),
        their_s / our_s,
        time(forecast_s)
    ));
    report.line(&format!("\nwifi4: {}", known.plan));
    if their_s.is_finite() {
        report.must("wifi4, 8 MiB, to Gloo's ring", our_s / their_s, 1.0 / FASTER);
    }
    report.must("wifi4, 8 MiB, forecast off by", (forecast_s / our_s - 1.0).abs(), 0.25);
    ours.end()?;
    theirs.map_or(Ok(()), Group::end)
}
