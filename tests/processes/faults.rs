//! Nodes that die, freeze and come back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::{LAN, LO, all_exact, all_failed, seed};

/// 64 MiB of f32.
const LARGE: usize = 16 << 20;

pub fn add(suite: &mut Suite) {
    suite.serial("kill -9 in the middle, 3 on lo: the others answer and go on", &LO, || killed("lo", 3));
    suite.serial("kill -9 in the middle, 4 on a switch: the others answer and go on", &LAN, || killed("loop", 4));
    suite.serial("kill -9 in the middle, 4 on gigabit cables: the others answer and go on", &LAN, || killed("gbe4", 4));
    suite.serial("kill -9 of one of two: the other waits, and takes it back in", &LO, killed_of_two);
    suite.serial("kill -9 at any moment: one outcome for all others", &LO, killed_any_time);
    suite.serial("kill -9 in the middle of a step: all of it or nothing", &LO, killed_in_a_step);
    suite.serial("kill -9 of either end of a message, and of a third: who is left goes on", &LO, killed_by_a_message);
    suite.serial("kill -9 of two at once: the other two go on", &LO, two_killed);
    suite.serial("a pulled cable: the others answer and go on, and take it back in", &LAN, pulled);
    suite.serial("a cable pulled at any moment: whoever differs has to sync", &LAN, pulled_any_time);
    suite.serial("frozen at any moment: no other outcome than the others'", &LO, frozen_any_time);
    suite.serial("what happens to a group is told: killed, back, frozen, kept out", &LO, told);
    suite.serial("a frozen node is left out, and comes back when it thaws", &LO, frozen);
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// All call a large `all_reduce`; returns when the node at `victim` has a third of what it will receive.
fn in_the_middle(group: &mut Group, victim: usize) -> Result<()> {
    // A common history: without one a newcomer would have nothing to catch up with.
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    on_the_way(group, victim, LARGE, 0.33)
}

/// All call an `all_reduce`; returns when the node at `victim` has this share of what it will receive.
fn on_the_way(group: &mut Group, victim: usize, len: usize, share: f64) -> Result<()> {
    for (index, peer) in group.peers.iter_mut().enumerate() {
        let mut call = json!({"do": "all_reduce", "len": len, "seed": 5});
        if index == victim {
            call["report_at"] = share.into();
        }
        peer.order(&call)?;
    }
    group.peers[victim].event("progress", PATIENCE)?;
    Ok(())
}

/// The answers of all but `victim`: one outcome for all, untouched if it is a failure, within `bound` of `since_ms`.
fn one_outcome(group: &mut Group, victim: usize, since_ms: f64, bound: Duration, what: &str) -> Result<Vec<Value>> {
    let events = group.events(|index| index != victim, "done", PATIENCE)?;
    let answered = events.iter().filter_map(|event| event["at_ms"].as_f64()).fold(0.0, f64::max) - since_ms;
    println!("measured: {what}: all answered after {answered:.0} ms, {}", events[0]["message"]);
    ensure!(answered <= bound.as_secs_f64() * 1e3, "answered after {answered:.0} ms: {events:?}");
    one_outcome_of(&events)?;
    Ok(events)
}

fn killed(profile: &str, size: usize) -> Result<()> {
    let mut group = Group::up(profile, size)?;
    // The places in the View follow from random keys: any machine is as good as any other.
    let victim = 1;
    in_the_middle(&mut group, victim)?;
    group.peers[victim].process().kill()?;
    let since = now_ms();
    one_outcome(&mut group, victim, since, Duration::from_secs(3), &format!("kill -9, {size} on {profile}"))?;
    group.meet_of(|index| index != victim)?;
    all_exact(&group.some(|index| index != victim, &json!({"do": "all_reduce", "len": 100_001}), "done")?)?;
    println!("measured: kill -9, {size} on {profile}: next result after {:.0} ms (with checks)", now_ms() - since);

    group.restart(victim)?.ask(&json!({"do": "join", "min": 2}), "joined", PATIENCE)?;
    synced(&mut group, victim)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001, "seed": 6}), "done")?)
}

/// The node at `newcomer` is in one View with all others, which needs a sync and gets it: their state wins.
fn synced(group: &mut Group, newcomer: usize) -> Result<()> {
    let contexts = group.meet()?;
    ensure!(contexts.iter().all(|c| c["in_sync"] == false), "a newcomer is in sync with veterans: {contexts:?}");
    let refused = group.all(&json!({"do": "all_reduce", "len": 10}), "done")?;
    all_failed(&refused, "needs-sync")?;
    for (index, peer) in group.peers.iter_mut().enumerate() {
        // Its count is higher, its history is not.
        let version = if index == newcomer { 9 } else { 3 };
        peer.order(&json!({"do": "sync", "version": version, "bytes": 4096 * version, "seed": version}))?;
    }
    let events = group.events(|_| true, "synced", PATIENCE)?;
    all_exact(&events)?;
    for (index, event) in events.iter().enumerate() {
        ensure!(event["kept_own"] == (index != newcomer), "the wrong state won: {events:?}");
    }
    Ok(())
}

fn killed_in_a_step() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    let step = json!({"do": "step", "lens": [10, LARGE / 4, 0, LARGE / 2, 1000, LARGE / 4], "seed": 5});
    for (index, peer) in group.peers.iter_mut().enumerate() {
        let mut order = step.clone();
        if index == 1 {
            order["report_at"] = 0.5.into();
        }
        peer.order(&order)?;
    }
    group.peers[1].event("progress", PATIENCE)?;
    group.peers[1].process().kill()?;
    let since = now_ms();
    one_outcome(&mut group, 1, since, Duration::from_secs(3), "kill -9 in a step, 3 on lo")?;
    group.meet_of(|index| index != 1)?;
    all_exact(&group.some(|index| index != 1, &step, "done")?)
}

/// One of three dies while the first has got a part of what the second sends.
fn killed_by_a_message() -> Result<()> {
    for victim in 0..3 {
        let mut group = Group::up("lo", 3)?;
        all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
        let ranks: Vec<Value> = group.meet()?.into_iter().map(|context| context["rank"].clone()).collect();
        group.peers[1].order(&json!({"do": "send", "peer": ranks[0], "len": LARGE, "seed": 5}))?;
        group.peers[0].order(&json!({"do": "recv", "peer": ranks[1], "len": LARGE, "seed": 5, "report_at": 0.3}))?;
        group.peers[0].event("progress", PATIENCE)?;
        group.peers[victim].process().kill()?;
        let since = now_ms();
        let ends = |index: usize| index != victim && index != 2;
        let events = group.events(ends, "done", PATIENCE)?;
        let answered = events.iter().filter_map(|event| event["at_ms"].as_f64()).fold(0.0, f64::max) - since;
        println!("measured: kill -9 of {victim} beside a message: answered after {answered:.0} ms, {}", events[0]["message"]);
        ensure!(answered <= 3000.0, "answered after {answered:.0} ms: {events:?}");
        one_outcome_of(&events)?;
        // Its sender is gone before it had sent all.
        ensure!(victim != 1 || events[0]["ok"] == false, "{events:?}");
        group.meet_of(|index| index != victim)?;
        all_exact(&group.some(|index| index != victim, &json!({"do": "all_reduce", "len": 100_001}), "done")?)?;
    }
    Ok(())
}

fn killed_of_two() -> Result<()> {
    let mut group = Group::up("lo", 2)?;
    in_the_middle(&mut group, 1)?;
    group.peers[1].process().kill()?;
    let since = now_ms();
    one_outcome(&mut group, 1, since, Duration::from_secs(3), "kill -9, one of two")?;
    let alone = |status: &Value| status["state"].as_str().is_some_and(|state| state.contains("waiting for peers (1 of 2)"));
    group.peers[0].status_where(alone, PATIENCE)?;
    let event = group.peers[0].ask(&json!({"do": "context", "min": 2, "within_s": 0.5}), "error", PATIENCE)?;
    ensure!(event["code"] == "not-enough-peers", "{event}");

    group.restart(1)?.ask(&json!({"do": "join", "min": 2}), "joined", PATIENCE)?;
    synced(&mut group, 1)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001, "seed": 6}), "done")?)
}

/// Also when the votes are already on their way, all others must come to the same end.
fn killed_any_time() -> Result<()> {
    let seed = seed("kill -9 at any moment")?;
    let mut group = Group::up("lo", 4)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    for round in 0..6 {
        let chance = (seed.wrapping_add(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let victim = chance as usize % 4;
        // Every other time at the very end.
        let share = if round % 2 == 0 { 1.0 } else { (chance >> 2) as f64 % 100.0 / 100.0 };
        on_the_way(&mut group, victim, 1 << 20, share)?;
        group.peers[victim].process().kill()?;
        let what = format!("kill -9 at {share:.2}, 4 on lo");
        one_outcome(&mut group, victim, now_ms(), Duration::from_secs(3), &what).with_context(|| format!("round {round}"))?;
        group.meet_of(|index| index != victim)?;
        group.restart(victim)?.ask(&json!({"do": "join", "min": 2}), "joined", PATIENCE)?;
        synced(&mut group, victim).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Nothing tells of a closed connection, and both sides decide for themselves. Those that stay together have one outcome.
/// The one that is alone may have another; then its state is another one too, and it must be told so when it is back.
fn pulled_any_time() -> Result<()> {
    let seed = seed("a pulled cable at any moment")?;
    let mut group = Group::up("loop", 3)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    for round in 0..4 {
        let chance = (seed.wrapping_add(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let victim = chance as usize % 3;
        // Pulling takes about as long as half of the call.
        let share = 0.05 + (chance >> 2) as f64 % 50.0 / 100.0;
        on_the_way(&mut group, victim, LARGE, share)?;
        let machine = format!("n{}", victim + 1);
        group.lab.cut(&machine)?;
        let events = group.events(|index| index != victim, "done", PATIENCE)?;
        let own = group.peers[victim].event("done", PATIENCE)?;
        println!("measured: pulled at {share:.2}: the others {}, it says {} {}", events[0]["ok"], own["ok"], own["code"]);
        one_outcome_of(&events).with_context(|| format!("round {round}"))?;
        // Until each side knows that the other one is gone.
        group.meet_of(|index| index != victim)?;
        let alone = |status: &Value| status["view"]["members"].as_array().is_some_and(|members| members.len() == 1);
        group.peers[victim].status_where(alone, PATIENCE)?;
        group.lab.join(&machine)?;
        catch_up(&mut group, &events, &own).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn one_outcome_of(events: &[Value]) -> Result<()> {
    if events[0]["ok"] == true { all_exact(events) } else { all_failed(events, "aborted") }
}

/// All that stayed have one outcome, and the one that was away no other; it may not know.
fn one_story(events: &[Value], own: &Value) -> Result<()> {
    one_outcome_of(events)?;
    let fits = if events[0]["ok"] == true { own["code"] != "aborted" } else { own["ok"] == false };
    ensure!(fits, "{events:?} but {own}");
    Ok(())
}

/// Whoever has seen the same outcomes holds the same state; otherwise a sync is called for.
fn catch_up(group: &mut Group, events: &[Value], own: &Value) -> Result<()> {
    let in_sync = group.meet()?.iter().all(|context| context["in_sync"] == true);
    ensure!(!in_sync || own["ok"] == events[0]["ok"], "in sync, with {events:?} and {own}");
    if !in_sync {
        all_exact(&group.all(&json!({"do": "sync", "version": 1, "bytes": 4096}), "synced")?)?;
    }
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)
}

/// One that was only away tells later what became of its call: it must not have been another outcome than the others'.
fn frozen_any_time() -> Result<()> {
    let seed = seed("frozen at any moment")?;
    let mut group = Group::up("lo", 3)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    for round in 0..6 {
        let chance = (seed.wrapping_add(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let victim = chance as usize % 3;
        let share = 0.9 + (chance >> 2) as f64 % 11.0 / 100.0;
        on_the_way(&mut group, victim, 1 << 20, share)?;
        group.peers[victim].process().stop()?;
        let events = group.events(|index| index != victim, "done", PATIENCE)?;
        // So that it is left out, whether or not it was done in time.
        group.meet_of(|index| index != victim)?;
        group.peers[victim].process().resume()?;
        let own = group.peers[victim].event("done", PATIENCE)?;
        println!("measured: frozen at {share:.2}: the others {}, it says {} {}", events[0]["ok"], own["ok"], own["code"]);
        one_story(&events, &own).with_context(|| format!("round {round}"))?;
        catch_up(&mut group, &events, &own).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Three nodes, of which the last is lost three times.
fn told() -> Result<()> {
    let mut group = Group::empty("lo", 3)?;
    for index in 0..3 {
        let start = group.start(index);
        group.add(index, &start)?;
    }
    let join = json!({"do": "join", "min": 2, "events": true});
    group.all(&join, "joined")?;
    group.meet()?;
    let hears = |group: &mut Group, index: usize, what: &str, whose: &str| {
        let fits = |event: &Value| event["what"] == what && (whose.is_empty() || event["who"]["name"] == whose);
        group.peers[index].event_where("happened", fits, PATIENCE).with_context(|| format!("{what} of {whose}"))
    };
    for (round, ended) in ["its connection ended", "its connection ended", "nothing was heard of it"].into_iter().enumerate() {
        if round < 2 {
            group.peers[2].process().kill()?;
        } else {
            group.peers[2].process().stop()?;
        }
        let since = std::time::Instant::now();
        // Whoever has noticed it first makes the View; the other one may only have heard of that.
        let lost = [hears(&mut group, 0, "lost", "p3")?, hears(&mut group, 1, "lost", "p3")?];
        ensure!(lost.iter().any(|event| event["why"] == ended), "round {round}: {lost:?}");
        if round < 2 {
            group.restart(2)?.ask(&join, "joined", PATIENCE)?;
            for index in 0..2 {
                hears(&mut group, index, "joined", "p3")?;
            }
        } else {
            // Longer than anybody is waited for: this is what is tried, not what is waited for.
            std::thread::sleep(Duration::from_secs(3).saturating_sub(since.elapsed()));
        }
    }
    for index in 0..2 {
        hears(&mut group, index, "quarantined", "p3")?;
        let held = |status: &Value| status["reasons"].to_string().contains("was lost three times within a minute");
        group.peers[index].status_where(held, PATIENCE)?;
    }
    group.peers[2].process().resume()?;
    hears(&mut group, 2, "woke", "")?;
    let since = now_ms();
    // Two are enough, so it has to wait.
    for index in 0..2 {
        hears(&mut group, index, "joined", "p3")?;
    }
    println!("measured: kept out for {:.0} ms after it was back", now_ms() - since);
    group.meet()?;
    Ok(())
}

fn two_killed() -> Result<()> {
    let mut group = Group::up("lo", 4)?;
    in_the_middle(&mut group, 1)?;
    group.peers[1].process().kill()?;
    group.peers[3].process().kill()?;
    let since = now_ms();
    let answers = group.events(|index| index % 2 == 0, "done", PATIENCE)?;
    one_outcome_of(&answers)?;
    let answered = answers.iter().filter_map(|event| event["at_ms"].as_f64()).fold(0.0, f64::max) - since;
    println!("measured: kill -9, two of 4 on lo: all answered after {answered:.0} ms");
    ensure!(answered <= 3000.0, "answered after {answered:.0} ms: {answers:?}");
    group.meet_of(|index| index % 2 == 0)?;
    all_exact(&group.some(|index| index % 2 == 0, &json!({"do": "all_reduce", "len": 100_001}), "done")?)
}

/// No packet tells the others: silence alone.
fn pulled() -> Result<()> {
    let mut group = Group::up("gbe4", 3)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 1001}), "done")?)?;
    // Pulling takes its time too, so this takes seconds.
    group.lab.rate("n2", 200, 200)?;
    on_the_way(&mut group, 1, LARGE, 0.05)?;
    group.lab.cut("n2")?;
    let since = now_ms();
    one_outcome(&mut group, 1, since, Duration::from_secs(4), "a pulled cable, 3 on a switch")?;
    group.meet_of(|index| index != 1)?;
    all_exact(&group.some(|index| index != 1, &json!({"do": "all_reduce", "len": 100_001}), "done")?)?;
    let event = group.peers[1].event("done", PATIENCE)?;
    let code = event["code"].as_str().with_context(|| format!("it cannot have succeeded: {event}"))?.to_owned();
    all_failed(&[event], &code)?;

    group.lab.join("n2")?;
    let since = now_ms();
    synced(&mut group, 1)?;
    println!("measured: a cable put back: in and synced after {:.0} ms", now_ms() - since);
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001, "seed": 6}), "done")?)
}

fn frozen() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    in_the_middle(&mut group, 1)?;
    group.peers[1].process().stop()?;
    let since = now_ms();
    let others = one_outcome(&mut group, 1, since, Duration::from_secs(4), "SIGSTOP, 3 on lo")?;
    group.meet_of(|index| index != 1)?;
    all_exact(&group.some(|index| index != 1, &json!({"do": "all_reduce", "len": 100_001}), "done")?)?;

    // The others have a View without it and a result in that: for them it is gone.
    group.peers[1].process().resume()?;
    let own = group.peers[1].event("done", PATIENCE)?;
    // On a busy machine the call may have been through before the signal came: then it has what the others have.
    one_story(&others, &own)?;
    ensure!(own["ok"] == true || own["verdict"] == "untouched", "{own}");
    synced(&mut group, 1)?;
    all_exact(&group.all(&json!({"do": "all_reduce", "len": 100_001, "seed": 6}), "done")?)
}
