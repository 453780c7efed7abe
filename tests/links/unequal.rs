//! Heterogeneous machines: their links are measured, and the plan follows while the View stays.

use anyhow::{Context, Result, bail, ensure};
use potluck_harness::group::{MEASURED, PATIENCE, rated};
use potluck_harness::outcome::all_exact;
use potluck_harness::peer::now_ms;
use potluck_harness::{Group, Need, Suite};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.serial(
        "links that are not alike are measured and get a plan of their own",
        &LAN,
        measured,
    );
    suite.test_needing(
        "a link that becomes slow gets another plan within ten calls, and one more when it is fast \
         again",
        &LAN,
        slowed_down,
    );
    let needs = [Need::Lab, Need::Command("nft"), Need::Command("iptables")];
    suite.test_needing(
        "the same with eight calls under way and a member whose control links lag",
        &needs,
        slowed_down_in_flight,
    );
    suite.test_needing("who comes later is told what was measured before", &LAN, told_later);
    suite.serial("while links are measured calls go on as ever", &LAN, called_meanwhile);
    suite.serial(
        "calls without a pause get a plan of their own in the first minute, and from the first \
         call after a restart",
        &LAN,
        first_minute,
    );
    suite.serial(
        "two switches share the cable between them: it is found, and crossed as seldom as can be",
        &LAN,
        two_switches,
    );
    suite.serial(
        "stations of a radio that nobody has told of are found",
        &[Need::Lab, Need::Radio],
        radio,
    );
}

/// The number of calls after which the plan fits a link that has become ten times slower.
const CALLS_MAX: usize = 10;

/// Less than a burst at 20 Mbit/s, and more than members exchange otherwise in a second.
const BURST_BYTES: u64 = 50_000;

/// The pause between two calls, like a model's computation. A path is tried again in such a pause
/// after half a minute of calls.
const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(1);
const SPARE_AFTER_MS: f64 = 25_000.0;

/// A burst that shows too little is repeated after half a minute of calls, and on a busy processor
/// several do.
const RISEN_WITHIN: Duration = Duration::from_secs(300);

/// More than a link of 20 Mbit/s carries, and less than one of 200 Mbit/s reaches on a busy
/// processor.
const FAST_KBPS: u64 = 60_000;

/// The share of an Ethernet line rate that remains for TCP payload.
const PAYLOAD: f64 = 0.9415;

fn by_its_own_plan(status: &Value) -> bool {
    status["view"]["plan_revision"].as_u64() >= Some(1)
}

/// For a group of four.
pub fn knows_all_paths(status: &Value) -> bool {
    rated(status) == 12
}

pub fn until_all_paths_are_known(group: &mut Group) -> Result<()> {
    let known = group.all_show(knows_all_paths, MEASURED).map(drop);
    known.inspect_err(|_| {
        println!("logs in {}", group.keep_logs(&format!("unknown-{}", std::process::id())));
    })
}

/// All members begin so many calls, of which several are in flight at a time.
pub fn take_off(group: &mut Group, calls: usize, in_flight: usize) -> Result<()> {
    let len = (1 << 19) + 1;
    group.each(
        |_| json!({"do": "flights", "calls": calls, "in_flight": in_flight, "len": len, "seed": 3}),
    )
}

/// The ends of these calls on each member, all of them exact.
pub fn landed(group: &mut Group, calls: usize) -> Result<Vec<Vec<Value>>> {
    let flown = group.events(|_| true, "flown", 3 * PATIENCE)?;
    let of_one = |told: &Value| {
        let answers = told["answers"].as_array().context("answers")?;
        let are_exact = answers.iter().all(|answer| answer["verdict"] == "exact");
        ensure!(answers.len() == calls && are_exact, "a call failed: {told}");
        Ok(answers.clone())
    };
    flown.iter().map(of_one).collect()
}

/// How many of these calls ended before there was another plan.
pub fn calls_until_moved(answers: &[Value]) -> Option<usize> {
    answers.iter().position(|answer| answer["revision"].as_u64() >= Some(1))
}

fn measured() -> Result<()> {
    let mut group = Group::up("slow1", 4)?;
    let contexts = group.meet()?;
    let view = contexts[0]["view"].clone();
    let rates: Vec<f64> = contexts
        .iter()
        .map(|c| if c["rank"] == rank_of(&contexts, 3) { 200.0 } else { 1000.0 })
        .collect();
    let by_rank = |rank: u64| {
        contexts.iter().position(|c| c["rank"] == rank).map_or(0.0, |index| rates[index])
    };
    let line = |path: &Value| {
        by_rank(path["from"].as_u64().unwrap_or(99)).min(by_rank(path["to"].as_u64().unwrap_or(99)))
    };
    let times =
        |path: &Value| path["rate_kbps"].as_f64().unwrap_or(0.0) / (line(path) * 1000.0 * PAYLOAD);
    // A busy processor may distort the rate of a fast link, and sometimes of a slow one; usually
    // the slow link is found to be slow.
    let are_found = |status: &Value| {
        let paths = status["view"]["paths"].as_array().into_iter().flatten();
        let mut of_the_slow: Vec<f64> =
            paths.filter(|path| line(path) <= 200.0).map(times).collect();
        of_the_slow.sort_by(f64::total_cmp);
        of_the_slow.len() == 6 && of_the_slow[0] > 0.5 && of_the_slow[3] > 0.9
    };
    let is_measured =
        |status: &Value| knows_all_paths(status) && by_its_own_plan(status) && are_found(status);
    for status in group.all_show(is_measured, MEASURED)? {
        ensure!(status["view"]["id"] == view, "the View has changed: {status}");
        for path in status["view"]["paths"].as_array().into_iter().flatten() {
            ensure!(path["medium"].is_null(), "a wire is taken for a radio: {status}");
            ensure!(times(path) < 1.1, "{path} of {} Mbit/s: {}", line(path), times(path));
        }
    }
    group.sum(1 << 20, 1)
}

fn radio() -> Result<()> {
    let mut group = Group::up("wifi4", 4)?;
    stations_are_found(&mut group).map_err(|error| {
        let kept = group.keep_logs(&format!("radio-{}", std::process::id()));
        error.context(format!("what the nodes wrote: {kept}"))
    })
}

fn stations_are_found(group: &mut Group) -> Result<()> {
    let began = Instant::now();
    loop {
        let contexts = group.meet()?;
        let (view, wired) = (contexts[0]["view"].clone(), rank_of(&contexts, 0));
        let is_replaced = |status: &Value| status["view"]["id"] != view;
        let shown = group
            .all_show(|status| is_replaced(status) || is_of_stations(status, &wired), MEASURED)?;
        // To the nodes these are cables, whose silence limits are short: a pause of the processors
        // may replace the View. The next one measures anew.
        if shown.iter().any(is_replaced) {
            ensure!(began.elapsed() < 2 * MEASURED, "the View changes again and again: {shown:?}");
            println!("{view} was replaced before its stations were found");
            continue;
        }
        for status in shown {
            let is_right = |path: &Value| {
                path["medium"] == if path["from"] == wired { Value::Null } else { json!(0) }
            };
            ensure!(paths(&status).iter().all(is_right), "{wired} is the wired one: {status}");
        }
        return group.sum(1 << 18, 5);
    }
}

fn paths(status: &Value) -> Vec<Value> {
    status["view"]["paths"].as_array().cloned().unwrap_or_default()
}

/// The revision of the plan, and the rates in kbit/s, in a line.
fn rates_shown(status: &Value) -> String {
    let rate = |path: &Value| format!("{}>{} {}", path["from"], path["to"], path["rate_kbps"]);
    let rates: Vec<String> = paths(status).iter().map(rate).collect();
    format!("kbit/s {}; plan revision {}", rates.join(", "), status["view"]["plan_revision"])
}

/// Whether each of three stations has a path to each of the three other machines, and the plan is
/// one for a shared channel. An earlier plan may exist before the channel is detected.
fn is_of_stations(status: &Value, wired: &Value) -> bool {
    let of_stations = paths(status).iter().filter(|path| !path["medium"].is_null()).count();
    let hub = format!("over a tree to {wired} take");
    let is_theirs = status["view"]["plan"].as_str().is_some_and(|plan| plan.contains(&hub));
    of_stations == 9 && is_theirs
}

fn slowed_down() -> Result<()> {
    let mut group = Group::up_at("gbe4", 4, 200)?;
    let view = group.meet()?[0]["view"].clone();
    until_all_paths_are_known(&mut group)?;
    let order = json!({"do": "all_reduce", "len": 1 << 19, "seed": 3});
    group.exact(&order)?;
    group.lab.rate("n3", 20, 20)?;
    let mut calls = 0;
    loop {
        calls += 1;
        // No call fails, and the View stays.
        let done = group.all(&order, "done")?;
        all_exact(&done).inspect_err(|_| {
            println!("logs in {}", group.keep_logs(&format!("slowed-{}", std::process::id())));
        })?;
        let told = group.still_in(&view)?;
        if told.iter().all(by_its_own_plan) {
            break;
        }
        ensure!(calls < CALLS_MAX, "no other plan after {CALLS_MAX} calls: {told:?}");
    }
    println!(
        "measured: {calls} calls until the plan fitted a link that had become ten times slower"
    );
    until_all_is_measured(&group)?;
    // Only a trial in a pause can detect that the link is fast again.
    let trees =
        group.peers[0].status_where(by_its_own_plan, PATIENCE)?["view"]["plan_revision"].clone();
    group.lab.rate("n3", 200, 200)?;
    let is_as_before = |status: &Value| {
        let paths = status["view"]["paths"].as_array().into_iter().flatten();
        let are_fast =
            paths.map(|path| path["rate_kbps"].as_u64()).all(|kbps| kbps > Some(FAST_KBPS));
        are_fast && status["view"]["plan_revision"].as_u64() > trees.as_u64()
    };
    let (began, mut served_ms, order) =
        (Instant::now(), 0.0, json!({"do": "all_reduce", "len": 1 << 21, "seed": 4}));
    while let Err(unlike) = group.peers[0]
        .status_where(is_as_before, if served_ms < SPARE_AFTER_MS { SHORT } else { LONG })
    {
        if began.elapsed() >= RISEN_WITHIN {
            let kept = group.keep_logs(&format!("not-risen-{}", std::process::id()));
            let status = group.peers[0].status()?;
            bail!("{}, before it was {trees}; logs in {kept}; {unlike}", rates_shown(&status));
        }
        let done = group.all(&order, "done")?;
        all_exact(&done)?;
        served_ms += done[0]["ms"].as_f64().unwrap_or(0.0);
    }
    println!(
        "measured: {:.0} s of calls until the plan fitted that link as it had been before",
        served_ms / 1e3
    );
    group.all_show(is_as_before, MEASURED)?;
    group.still_in(&view)?;
    group.exact(&order)
}

fn told_later() -> Result<()> {
    let mut group = Group::empty("gbe4", 4)?;
    for index in 0..4 {
        let start = group.start(index);
        group.add(index, &start)?;
        if index == 1 {
            group.all(&json!({"do": "join", "min": 2}), "joined")?;
            group.all_show(|status| rated(status) == 2, MEASURED)?;
        }
    }
    group.some(|index| index > 1, &json!({"do": "join", "min": 2}), "joined")?;
    until_all_paths_are_known(&mut group)
}

/// Of four machines on two switches, each pair sends its sum over the cable between them once, and
/// receives the other one: no plan needs less of it. A plan that does not know of the cable sends
/// three times as much.
fn two_switches() -> Result<()> {
    const LEN: usize = 1 << 20;
    let mut group = Group::up("split4", 4)?;
    let contexts = group.meet()?;
    let view = contexts[0]["view"].clone();
    let at_first: Vec<String> = [0, 2].map(|index| rank_of(&contexts, index).to_string()).to_vec();
    let is_known = |status: &Value| {
        let plan = status["view"]["plan"].as_str().unwrap_or_default();
        let sides =
            [at_first.join(", "), at_first.iter().rev().cloned().collect::<Vec<_>>().join(", ")];
        plan.contains("Mbit/s between them")
            && sides.iter().any(|side| plan.contains(side.as_str()))
    };
    let shown = group.all_show(is_known, MEASURED).inspect_err(|_| {
        println!("logs in {}", group.keep_logs(&format!("split-{}", std::process::id())));
    })?;
    println!("measured: {}", shown[0]["view"]["plan"]);
    let before = group.lab.bytes_between_switches()?;
    group.sum(LEN, 1)?;
    let moved = group.lab.bytes_between_switches()? - before;
    let least = 4 * LEN as u64;
    println!("measured: {moved} bytes over the cable in each direction, at least {least}");
    ensure!(moved < least * 6 / 5, "{moved} bytes over the cable between the switches");
    group.still_in(&view).map(drop)
}

/// A home of five with one slow machine: round a ring, a mebibyte takes 2.3 s at best.
const FIVE: [u32; 5] = [250, 100, 40, 15, 6];

fn first_minute() -> Result<()> {
    const CALLS: usize = 8;
    let mut group = Group::up_rated("gbe4", &FIVE)?;
    let view = group.meet()?[0]["view"].clone();
    let calls = calls_without_a_pause(&mut group, CALLS)?;
    println!("measured: {calls} calls until there was another plan");
    ensure!(calls < CALLS, "no other plan within {CALLS} calls");
    let is_known = |status: &Value| rated(status) == 20;
    group.all_show(is_known, MEASURED)?;
    let planned = |status: &Value| {
        let plan = status["view"]["plan"].as_str().unwrap_or_default();
        is_known(status) && plan.contains("64 MiB over a tree to")
    };
    for status in group.still_in(&view)? {
        ensure!(planned(&status), "the plan does not fit the home: {status}");
    }
    until_it_is_stored(&group)?;

    // All machines lose their power.
    for index in 0..FIVE.len() {
        group.peers[index].process().kill()?;
    }
    for index in 0..FIVE.len() {
        group.restart(index)?;
    }
    group.all(&json!({"do": "join", "min": 5}), "joined")?;
    let begins = group.meet()?[0]["view"].clone();
    ensure!(begins != view, "the View is another one");
    let order = json!({"do": "all_reduce", "len": 1 << 18, "seed": 5});
    group.exact(&order)?;
    for status in group.still_in(&begins)? {
        let is_first = status["view"]["plan_revision"] == 0;
        ensure!(planned(&status) && is_first, "the first plan does not fit the home: {status}");
    }
    Ok(())
}

/// All members make so many calls, one after the other. Returns the most that one of them made
/// before another plan.
fn calls_without_a_pause(group: &mut Group, calls: usize) -> Result<usize> {
    let order = json!({"do": "flights", "calls": calls, "in_flight": 1, "len": 1 << 18, "seed": 3});
    group.each(|_| order.clone())?;
    let answers = landed(group, calls)?;
    let moved = answers.iter().map(|answers| calls_until_moved(answers).unwrap_or(calls));
    moved.max().context("nobody called")
}

/// Waits until nothing new is known of paths, which is two seconds later in each node's file: until
/// no file has changed for three seconds.
fn until_it_is_stored(group: &Group) -> Result<()> {
    let stored = || -> Vec<Option<std::time::SystemTime>> {
        let file = |index| group.start(index).home.join("paths-default.bin");
        let time = |index| std::fs::metadata(file(index)).and_then(|about| about.modified()).ok();
        (0..group.peers.len()).map(time).collect()
    };
    let (began, mut before, mut unchanged_since) = (Instant::now(), stored(), Instant::now());
    while unchanged_since.elapsed() < Duration::from_secs(3) {
        ensure!(began.elapsed() < MEASURED, "it is stored for ever");
        // Polls the files.
        std::thread::sleep(Duration::from_millis(50));
        let now = stored();
        if now != before || now.iter().any(Option::is_none) {
            (before, unchanged_since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Waits until no more bursts come from the slow machine, which is at an end of all uncertain
/// paths: until it sends fewer bytes in a second than a burst has.
fn until_all_is_measured(group: &Group) -> Result<()> {
    let began = Instant::now();
    let mut before = group.lab.bytes_out("n3", "eth0")?;
    loop {
        // The interval over which its bytes are counted.
        std::thread::sleep(Duration::from_secs(1));
        let now = group.lab.bytes_out("n3", "eth0")?;
        if now - std::mem::replace(&mut before, now) < BURST_BYTES {
            return Ok(());
        }
        ensure!(began.elapsed() < MEASURED, "it is measured for ever");
    }
}

/// One member's control messages are delayed by 300 ms: that delays the change of the plan, and
/// nothing else. Calls in flight end under their old plan.
fn slowed_down_in_flight() -> Result<()> {
    const CALLS: usize = 60;
    const IN_FLIGHT: usize = 8;
    let mut group = Group::up_at("gbe4", 4, 200)?;
    let view = group.meet()?[0]["view"].clone();
    until_all_paths_are_known(&mut group)?;
    group.lab.lag("n2", 300)?;
    take_off(&mut group, CALLS, IN_FLIGHT)?;
    // In the middle of the calls.
    let before = group.lab.bytes_out("n3", "eth0")?;
    let began = Instant::now();
    while group.lab.bytes_out("n3", "eth0")? < before + 10 * (3 << 20) {
        ensure!(began.elapsed() < PATIENCE, "the calls do not go on");
    }
    group.lab.rate("n3", 20, 20)?;
    let since = now_ms();
    for answers in landed(&mut group, CALLS)? {
        let is_after = |answer: &Value| answer["at_ms"].as_f64() > Some(since);
        let after: Vec<Value> = answers.into_iter().filter(is_after).collect();
        let calls = calls_until_moved(&after).context("no other plan")?;
        println!("measured: {calls} of {} calls until another plan", after.len());
        // Those that were under way at the change of the rate, and at that of the plan.
        ensure!(calls <= CALLS_MAX + 2 * IN_FLIGHT, "{calls} calls until another plan");
    }
    group.still_in(&view).map(drop)
}

/// The rank of the node on machine `n{index + 1}`.
fn rank_of(contexts: &[Value], index: usize) -> Value {
    contexts[index]["rank"].clone()
}

fn called_meanwhile() -> Result<()> {
    let mut group = Group::up("slow1", 4)?;
    let view = group.meet()?[0]["view"].clone();
    let mut calls = 0;
    // As many calls as needed, large and small, single and in steps.
    loop {
        for order in [
            json!({"do": "all_reduce", "len": 301, "seed": calls}),
            json!({"do": "all_reduce", "len": 200_001, "seed": calls}),
            json!({"do": "step", "lens": [1000, 50_000], "seed": calls}),
        ] {
            group.exact(&order)?;
        }
        calls += 1;
        let told = group.still_in(&view)?;
        if told.iter().all(by_its_own_plan) {
            break;
        }
        ensure!(calls < 2000, "no plan of their own after {calls} rounds of calls: {told:?}");
    }
    println!("measured: {calls} rounds of calls until the plan fitted the links");
    group.sum(200_000, 7)
}
