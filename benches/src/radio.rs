//! One wired machine and three stations that share one radio channel, which nobody has told the group: what it gains over Gloo's ring by
//! finding out.

use crate::Extent;
use crate::machine::median;
use crate::report::{Report, time};
use crate::topology::{Group, Wire};
use anyhow::{Context, Result};
use std::path::Path;

/// The profile of the lab.
pub const RADIO: &str = "wifi4";
const BYTES: usize = 8 << 20;
/// Three stations have a path to each of the three others.
const SHARED_PATHS: u64 = 9;
const ROUNDS: usize = 7;
/// The least that is to be gained.
const FASTER: f64 = 1.35;

pub fn compare(extent: Extent, gloo: Option<&Path>, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 2 } else { ROUNDS };
    let mut ours = Group::up(RADIO, None)?;
    let mut theirs = gloo.map(|program| Group::up(RADIO, Some(program))).transpose()?;
    let known =
        ours.until_all_know(|known| known.shared == SHARED_PATHS && known.revision > 0).context("the medium is not found")?;
    for group in theirs.iter_mut().chain([&mut ours]) {
        group.check(BYTES, Wire::F32)?;
    }
    let (mut our_s, mut their_s) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Who comes first changes.
        for turn in 0..2 {
            match (turn + round) % 2 {
                0 => our_s.push(ours.call(BYTES, Wire::F32)?),
                _ => their_s.extend(theirs.as_mut().map(|theirs| theirs.call(BYTES, Wire::F32)).transpose()?),
            }
        }
    }
    let our_s = median(&our_s);
    let their_s = if their_s.is_empty() { f64::NAN } else { median(&their_s) };
    let forecast_s = known.forecast_s(BYTES)?;
    report.line("\n| machines | Gloo's ring, 8 MiB | potluck | Gloo / potluck | forecast |");
    report.line(&format!("|{}", " --- |".repeat(5)));
    report.line(&format!("| wifi4 | {} | {} | {:.2} | {} |", time(their_s), time(our_s), their_s / our_s, time(forecast_s)));
    report.line(&format!("\nwifi4: {}", known.plan));
    if their_s.is_finite() {
        report.must("wifi4, 8 MiB, to Gloo's ring", our_s / their_s, 1.0 / FASTER);
    }
    report.must("wifi4, 8 MiB, forecast off by", (forecast_s / our_s - 1.0).abs(), 0.25);
    ours.end()?;
    theirs.map_or(Ok(()), Group::end)
}
