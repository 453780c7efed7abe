//! The memory that a large call takes.

use anyhow::{Result, ensure};
use potluck_harness::{Group, Suite};
use serde_json::json;

use crate::{LO, all_exact};

/// 64 MiB of f32.
const LEN: usize = 16 << 20;

pub fn add(suite: &mut Suite) {
    suite.serial("64 MiB take a bounded multiple of memory, borrowed and owned", &LO, bounded);
}

fn bounded() -> Result<()> {
    for owned in [false, true] {
        let mut group = Group::up("lo", 3)?;
        all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001, "owned": owned}), "done")?)?;
        let before: Vec<u64> = group
            .peers
            .iter_mut()
            .map(|peer| peer.process().memory_kib("VmRSS"))
            .collect::<Result<_>>()?;
        all_exact(&group.all(&json!({"do": "all_reduce", "len": LEN, "owned": owned}), "done")?)?;
        for (peer, before) in group.peers.iter_mut().zip(before) {
            let buffer = LEN as u64 * 4 / 1024;
            let over = (peer.process().memory_kib("VmHWM")? - before).saturating_sub(buffer);
            let engine = potluck_harness::engine::current().unwrap_or_default();
            let times = over as f64 / buffer as f64;
            let how = if owned { "owned" } else { "borrowed" };
            println!(
                "measured: {}: all_reduce of 64 MiB, {how}, on {engine}: {times:.2} times the buffer over the buffer at the peak",
                peer.name()
            );
            let most = if engine == "gloo" { OVER_MAX_GLOO } else { OVER_MAX_NATIVE };
            ensure!(times < most, "{times:.2} times the buffer besides it");
        }
    }
    Ok(())
}

/// Peak memory besides the buffer, as a multiple of the buffer: sent chunks, the result, and chunks
/// that arrived early.
const OVER_MAX_NATIVE: f64 = 3.0;

/// Gloo works in one block of memory.
const OVER_MAX_GLOO: f64 = 1.5;
