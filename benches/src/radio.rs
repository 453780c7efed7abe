//! One wired machine and three stations that share a radio channel, which the group detects itself:
//! the gain over Gloo's ring.

use crate::Extent;
use crate::report::{Report, time};
use crate::topology::{Contest, Known, MEASURED_WITHIN, until_all_know};
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
    let mut contest = Contest::up(RADIO, gloo, rounds)?;
    let is_found = |known: &Known| known.shared == SHARED_PATHS && known.revision > 0;
    let known = until_all_know(&mut contest.ours, MEASURED_WITHIN, is_found)
        .context("the medium is not found")?;
    contest.check(BYTES)?;
    while contest.go_on() {
        contest.turn(BYTES)?;
    }
    let (our_s, their_s) = contest.medians_s();
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
    contest.end()
}
