//! The memory that a large call takes, and calls for which there is none.

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::with_if;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LO, all_exact, all_failed};

/// 64 MiB of f32.
const LEN: usize = 16 << 20;
const MIB: u64 = 1 << 20;
/// The member whose address space is limited.
const POOR: usize = 1;

pub fn add(suite: &mut Suite) {
    suite.serial("64 MiB take a bounded multiple of memory, borrowed and owned", &LO, bounded);
    suite.serial("a call without memory ends alike for all, and smaller ones go on", &LO, lacking);
    suite.serial(
        "with however little memory, a call succeeds or fails for all",
        &LO,
        however_little,
    );
    suite.serial("a state that there is no memory for fails its sync, not its member", &LO, state);
}

fn bounded() -> Result<()> {
    for owned in [false, true] {
        let mut group = Group::up("lo", 3)?;
        group.exact(&json!({"do": "all_reduce", "len": 1001, "owned": owned}))?;
        let before: Vec<u64> = group
            .peers
            .iter_mut()
            .map(|peer| peer.process().memory_kib("VmRSS"))
            .collect::<Result<_>>()?;
        group.exact(&json!({"do": "all_reduce", "len": LEN, "owned": owned}))?;
        for (peer, before) in group.peers.iter_mut().zip(before) {
            let buffer = LEN as u64 * 4 / 1024;
            let over = (peer.process().memory_kib("VmHWM")? - before).saturating_sub(buffer);
            let engine = potluck_harness::engine::current().unwrap_or_default();
            let times = over as f64 / buffer as f64;
            let how = if owned { "owned" } else { "borrowed" };
            println!(
                "measured: {}: all_reduce of 64 MiB, {how}, on {engine}: {times:.2} times the \
                 buffer over the buffer at the peak",
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

/// Gives all members an order; one of them may take only so much address space more for it.
fn scarce(group: &mut Group, order: &Value, room: u64) -> Result<Vec<Value>> {
    group.each(|index| with_if(index == POOR, order, "room", room))?;
    group.events(|_| true, "done", PATIENCE)
}

/// Each kind of call, in a size for which the member has no memory; the caller's own buffers exist
/// before its address space is limited.
fn lacking() -> Result<()> {
    let large = [
        json!({"do": "all_reduce", "len": LEN}),
        json!({"do": "all_reduce", "len": LEN, "owned": true}),
        json!({"do": "all_reduce", "len": LEN, "codec": "int8"}),
        json!({"do": "reduce", "len": LEN, "root": "the poor one"}),
        json!({"do": "reduce_scatter", "len": 3 * LEN}),
        json!({"do": "broadcast", "len": LEN}),
        json!({"do": "all_gather", "len": LEN / 2}),
        json!({"do": "gather", "len": LEN, "root": "the poor one"}),
        json!({"do": "scatter", "len": LEN, "root": 0}),
        json!({"do": "all_to_all", "len": LEN / 2}),
        json!({"do": "step", "lens": [1000, LEN, 1000]}),
        json!({"do": "gradients", "lens": [1000, LEN, 1000]}),
        json!({"do": "gradients", "lens": [1000, LEN], "coded": true}),
    ];
    for mut order in large {
        // A new group for each order: memory that a pool kept from one call would suffice for the
        // next.
        let mut group = Group::up("lo", 3)?;
        let contexts = group.meet()?;
        if order["root"].is_string() {
            order["root"] = contexts[POOR]["rank"].clone();
        }
        group.sum(1001, 0)?;
        let before = group.peers[0].status()?;
        let events = scarce(&mut group, &order, 32 * MIB)?;
        all_failed(&events, "memory").with_context(|| format!("{order}"))?;
        for event in &events {
            let message = event["message"].as_str().unwrap_or_default();
            ensure!(message == events[0]["message"], "told differently: {events:?}");
            ensure!(message.contains("p2") && message.contains("bytes of memory"), "{message}");
            ensure!(event["retryable"] == false, "{event}");
        }
        // The same with memory for it, but smaller.
        all_exact(&scarce(&mut group, &smaller(&order), 32 * MIB)?)
            .with_context(|| format!("after {order}"))?;
        let after = group.peers[POOR].status()?;
        let is_same = after["view"]["id"] == before["view"]["id"];
        ensure!(is_same, "the View was replaced: {before} {after}");
        ensure!(after["counters"]["misbehaviours"] == 0, "{after}");
    }
    Ok(())
}

fn smaller(order: &Value) -> Value {
    let mut order = order.clone();
    // Rounded results are compared by their hash alone.
    for word in ["codec", "coded"] {
        order.as_object_mut().map(|words| words.remove(word));
    }
    if order["len"].is_u64() {
        order["len"] = 5001.into();
    } else {
        order["lens"] = json!([1000, 5001]);
    }
    order
}

/// The room grows until the call succeeds, so that on the way each of its allocations is one that
/// there is no memory for.
fn however_little() -> Result<()> {
    for (codec, owned) in [("plain", false), ("plain", true), ("int8", false)] {
        let mut group = Group::up("lo", 3)?;
        // More than the C library reserves for each thread, which a limit does not touch.
        let order = json!({"do": "all_reduce", "len": 3 * LEN / 2, "codec": codec, "owned": owned});
        let (mut room, mut failed) = (8 * MIB, 0);
        loop {
            let events = scarce(&mut group, &order, room)?;
            if events.iter().all(|event| event["ok"] == true) {
                break;
            }
            all_failed(&events, "memory").with_context(|| format!("{order} with {room}"))?;
            failed += 1;
            room += 27 * MIB;
            ensure!(room < 1024 * MIB, "it never has enough");
        }
        println!("measured: {order} fails {failed} times and succeeds with {} MiB", room / MIB);
        ensure!(failed > 0, "it takes no memory");
        group.sum(5001, 0)?;
    }
    Ok(())
}

/// The others hold a state of 64 MiB; the one that comes back has room for half of it.
fn state() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    group.sum(1001, 0)?;
    group.peers[POOR].process().kill()?;
    group.rejoin(POOR)?;
    group.meet()?;
    let order = json!({"do": "sync", "version": 1, "bytes": 4 * LEN, "seed": 3});
    let own = json!({"do": "sync", "version": 0, "bytes": 10, "seed": 4});
    for room in [Some(32 * MIB), None] {
        let own = with_if(room.is_some(), &own, "room", room);
        group.each(|index| if index == POOR { &own } else { &order }.clone())?;
        let events = group.events(|_| true, "synced", PATIENCE)?;
        if room.is_some() { all_failed(&events, "memory") } else { all_exact(&events) }?;
    }
    group.sum(5001, 0)
}
