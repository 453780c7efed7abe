//! Codecs that the plan chooses: from the measured links, and the same on all members.

use std::time::Instant;

use anyhow::{Result, ensure};
use potluck_harness::group::MEASURED;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LAN, LO, all_exact};

pub fn add(suite: &mut Suite) {
    suite.test_needing("slow links are measured, and all take the same codec", &LAN, on_slow_links);
    suite.test_needing("two members with a slow link take a codec too", &LAN, between_two);
    suite.test_needing(
        "on one machine nothing is encoded where a codec is left to the plan",
        &LO,
        on_one_machine,
    );
}

/// For the native engine only: Gloo has no trees.
pub fn add_native(suite: &mut Suite) {
    suite.serial("a fast cable goes without the codec that a slow one has", &LAN, fast_and_slow);
}

/// 1 MiB.
const LEN: usize = 1 << 18;

/// Calls whose codec the plan chooses.
fn auto(len: usize, seed: u64) -> Value {
    json!({"do": "all_reduce", "len": len, "codec": "auto", "seed": seed})
}

/// All calls succeeded, with bit-identical results close to the exact ones. Returns the codec that
/// the plan uses from now on.
fn all_alike(events: &[Value]) -> Result<String> {
    for event in events {
        ensure!(event["ok"] == true && event["verdict"] == "close", "{events:?}");
        ensure!(event["hash"] == events[0]["hash"], "different results: {events:?}");
    }
    Ok(events[0]["auto"].as_str().unwrap_or_default().to_owned())
}

/// Makes calls without a pause, so that there is no idle time, until the plan encodes them.
fn until_taken(group: &mut Group) -> Result<()> {
    let (began, mut seed) = (Instant::now(), 0);
    loop {
        seed += 1;
        let events = group.all(&auto(LEN, seed), "done")?;
        let taken = all_alike(&events)?;
        if taken != "no codec" && events.iter().all(|event| event["auto"] == taken) {
            println!("measured: {taken} after {seed} calls: {}", events[0]["plan"]);
            return Ok(());
        }
        ensure!(began.elapsed() < MEASURED, "still none: {events:?}");
    }
}

/// Makes one call, then waits idle until all members would use this codec.
fn until_told(group: &mut Group, codec: &str) -> Result<()> {
    all_alike(&group.all(&auto(1000, 0), "done")?)?;
    until_shown(group, codec)
}

/// Waits until the plans of all members have this codec.
fn until_shown(group: &mut Group, codec: &str) -> Result<()> {
    let takes = format!("Codec::auto takes {codec}");
    let is_told =
        |status: &Value| status["view"]["plan"].as_str().is_some_and(|plan| plan.contains(&takes));
    group.all_show(is_told, MEASURED).map(drop)
}

/// The time of the slowest call in milliseconds.
fn ms(events: &[Value]) -> f64 {
    events.iter().filter_map(|event| event["ms"].as_f64()).fold(0.0, f64::max)
}

/// The calls use the chosen codec, give the same bits as calls that name it, and take less time.
fn pays(group: &mut Group) -> Result<()> {
    let plain = group.all(&json!({"do": "all_reduce", "len": LEN, "seed": 5}), "done")?;
    all_exact(&plain)?;
    let coded = group.all(&auto(LEN, 5), "done")?;
    let codec = all_alike(&coded)?;
    ensure!(codec == "int8" || codec == "bf16", "{coded:?}");
    let by_name =
        group.all(&json!({"do": "all_reduce", "len": LEN, "seed": 5, "codec": codec}), "done")?;
    all_alike(&by_name)?;
    ensure!(by_name[0]["hash"] == coded[0]["hash"], "{codec} by name gives other bits");
    println!("measured: 1 MiB takes {:.0} ms, {:.0} ms by {codec}", ms(&plain), ms(&coded));
    // The benchmarks measure the gain of an optimized build.
    ensure!(ms(&coded) < ms(&plain) / 1.2, "{coded:?} after {plain:?}");
    Ok(())
}

/// An unoptimized build encodes slowly. On a busy machine only a very slow link is certain to
/// justify eight bits.
fn on_slow_links() -> Result<()> {
    let mut group = Group::up_at("gbe4", 4, 8)?;
    let view = group.meet()?[0]["view"].clone();
    until_told(&mut group, "int8")?;
    pays(&mut group)?;
    group.still_in(&view).map(drop)
}

fn between_two() -> Result<()> {
    let mut group = Group::up_at("gbe4", 2, 20)?;
    let view = group.meet()?[0]["view"].clone();
    until_taken(&mut group)?;
    pays(&mut group)?;
    group.still_in(&view).map(drop)
}

/// The bytes that each machine has sent.
fn sent_by(group: &Group) -> Result<Vec<u64>> {
    group.lab.nodes().iter().map(|node| group.lab.bytes_out(node, "eth0")).collect()
}

/// One of four machines has a slow cable. The contributions of the fast machines are exact.
fn fast_and_slow() -> Result<()> {
    const MBIT: [u32; 4] = [200, 200, 200, 10];
    const SLOW: usize = 3;
    const LEN: usize = 600_000;
    let mut group = Group::up_rated("gbe4", &MBIT)?;
    let view = group.meet()?[0]["view"].clone();
    until_shown(&mut group, "int8")?;
    // Two of the fast machines send their whole buffer once and no more, the slow one a quarter of
    // that. The root of the tree sends the result to all, with eight bits per element.
    let whole = 4 * LEN as u64;
    let fits = |sent: &[u64]| {
        let fast =
            sent[..SLOW].iter().filter(|sent| (whole..whole + whole / 5).contains(sent)).count();
        fast == 2 && (whole / 4..whole / 3).contains(&sent[SLOW])
    };
    let began = Instant::now();
    let done = loop {
        let before = sent_by(&group)?;
        let order =
            json!({"do": "all_reduce", "len": LEN, "seed": 7, "codec": "auto", "reference": true});
        let done = group.all(&order, "done")?;
        let sent: Vec<u64> =
            sent_by(&group)?.iter().zip(before).map(|(after, before)| after - before).collect();
        ensure!(
            all_alike(&done)? == "int8" && done.iter().all(|event| event["as_reference"] == true),
            "{done:?}"
        );
        if fits(&sent) {
            println!(
                "measured: of {whole} bytes those with {MBIT:?} Mbit/s have sent {sent:?}: {}",
                done[0]["plan"]
            );
            break done;
        }
        // A burst was counted too, because links are still being measured.
        ensure!(began.elapsed() < MEASURED, "{sent:?} bytes: {}", done[0]["plan"]);
    };
    let own: Vec<&Value> = done.iter().map(|event| &event["own"]).collect();
    ensure!(own == ["no codec", "no codec", "no codec", "int8"], "{own:?}");
    let explained = done[0]["plan"].as_str().unwrap_or_default();
    ensure!(explained.contains("Codec::auto takes int8, but as it is from "), "{explained}");
    group.still_in(&view).map(drop)
}

fn on_one_machine() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    for seed in 0..5 {
        let order = auto(300_000, seed);
        ensure!(
            all_alike(&group.all(&order, "done")?)? == "no codec",
            "nothing is known of these links"
        );
        let plain = json!({"do": "all_reduce", "len": 300_000, "seed": seed});
        let hashes = [
            group.all(&order, "done")?[0]["hash"].clone(),
            group.all(&plain, "done")?[0]["hash"].clone(),
        ];
        ensure!(hashes[0] == hashes[1], "something was encoded");
    }
    Ok(())
}
