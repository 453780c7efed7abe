//! Nodes that die, freeze and come back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::outcome::{answered_after, one_outcome, one_story};
use potluck_harness::peer::now_ms;
use potluck_harness::{Chance, Group, Lag, Suite};
use serde_json::{Value, json};

use crate::{LAN, LO, all_exact, all_failed, seed};

/// 64 MiB of f32.
const LARGE: usize = 16 << 20;

pub fn add(suite: &mut Suite) {
    for (where_to, profile, size, needs) in [
        ("lo", "lo", 3, &LO[..]),
        ("a switch", "loop", 4, &LAN),
        ("gigabit cables", "gbe4", 4, &LAN),
    ] {
        let name =
            format!("kill -9 in the middle, {size} on {where_to}: the others answer and go on");
        suite.serial(&name, needs, move || killed(profile, size));
    }
    suite.serial(
        "kill -9 of one of two: the other waits, and takes it back in",
        &LO,
        killed_of_two,
    );
    suite.serial("kill -9 at any moment: one outcome for all others", &LO, killed_any_time);
    suite.serial("kill -9 in the middle of a step: all of it or nothing", &LO, killed_in_a_step);
    suite.serial(
        "kill -9 of either end of a message, and of a third: who is left goes on",
        &LO,
        killed_by_a_message,
    );
    suite.serial("kill -9 of two at once: the other two go on", &LO, two_killed);
    suite.serial("a pulled cable: the others answer and go on, and take it back in", &LAN, pulled);
    suite.serial(
        "a cable pulled at any moment: whoever differs has to sync",
        &LAN,
        pulled_any_time,
    );
    suite.serial("frozen at any moment: no other outcome than the others'", &LO, frozen_any_time);
    suite.serial("what happens to a group is told: killed, back, frozen, kept out", &LO, told);
    suite.serial("a frozen node is left out, and comes back when it thaws", &LO, frozen);
}

/// All members call a large `all_reduce`; returns when the node at `victim` has received a third of
/// its expected bytes.
fn in_the_middle(group: &mut Group, victim: usize) -> Result<()> {
    group.remember()?;
    group.on_the_way(victim, &call_of(LARGE), 0.33)
}

fn call_of(len: usize) -> Value {
    json!({"do": "all_reduce", "len": len, "seed": 5})
}

/// The bounds for an answer, from a death that the kernel reports and from one that is only
/// silence.
const DEATH_MS: f64 = 3000.0;
const SILENCE_MS: f64 = 4000.0;

/// The answers of all but `victim`: one outcome for all, unchanged buffers on failure, within
/// `bound_ms` of `since_ms` and the delay of the machine.
fn answers(
    group: &mut Group,
    victim: usize,
    since_ms: f64,
    bound_ms: f64,
    what: &str,
) -> Result<Vec<Value>> {
    answers_of(group, |index| index != victim, since_ms, bound_ms, what)
}

/// Like `answers`, of the members whose index `answers`.
fn answers_of(
    group: &mut Group,
    answers: impl Fn(usize) -> bool,
    since_ms: f64,
    bound_ms: f64,
    what: &str,
) -> Result<Vec<Value>> {
    let lag = Lag::begin();
    let events = group.events(answers, "done", PATIENCE)?;
    let (answered, late) = (answered_after(&events, since_ms), lag.ms());
    println!("measured: {what}: all answered after {answered:.0} ms, {}", events[0]["message"]);
    ensure!(
        answered <= bound_ms + late,
        "answered after {answered:.0} ms, the machine being {late:.0} ms late: {events:?}"
    );
    one_outcome(&events)?;
    Ok(events)
}

fn killed(profile: &str, size: usize) -> Result<()> {
    let mut group = Group::up(profile, size)?;
    // Ranks follow from random keys, so all machines are equivalent.
    let victim = 1;
    in_the_middle(&mut group, victim)?;
    group.peers[victim].process().kill()?;
    let since = now_ms();
    answers(&mut group, victim, since, DEATH_MS, &format!("kill -9, {size} on {profile}"))?;
    group.go_on(|index| index != victim)?;
    println!(
        "measured: kill -9, {size} on {profile}: next result after {:.0} ms (with checks)",
        now_ms() - since
    );

    group.rejoin(victim)?;
    group.synced(victim)?;
    group.sum(100_001, 6)
}

fn killed_in_a_step() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    group.remember()?;
    let step =
        json!({"do": "step", "lens": [10, LARGE / 4, 0, LARGE / 2, 1000, LARGE / 4], "seed": 5});
    group.on_the_way(1, &step, 0.5)?;
    group.peers[1].process().kill()?;
    let since = now_ms();
    answers(&mut group, 1, since, DEATH_MS, "kill -9 in a step, 3 on lo")?;
    group.meet_of(|index| index != 1)?;
    all_exact(&group.some(|index| index != 1, &step, "done")?)
}

/// One of three dies after the first has received a part of the message from the second.
fn killed_by_a_message() -> Result<()> {
    for victim in 0..3 {
        // On a busy machine the rest of the message may be faster than the kill.
        let mut cut_off = false;
        for _ in 0..5 {
            cut_off = !killed_beside_a_message(victim)?;
            if cut_off || victim != 1 {
                break;
            }
        }
        ensure!(cut_off || victim != 1, "the sender never died before all of it was sent");
    }
    Ok(())
}

/// Whether the message has arrived all the same.
fn killed_beside_a_message(victim: usize) -> Result<bool> {
    let mut group = Group::up("lo", 3)?;
    group.remember()?;
    let ranks = group.ranks()?;
    group.peers[1].order(&json!({"do": "send", "peer": ranks[0], "len": LARGE, "seed": 5}))?;
    group.peers[0].order(
        &json!({"do": "recv", "peer": ranks[1], "len": LARGE, "seed": 5, "report_at": 0.3}),
    )?;
    group.peers[0].event("progress", PATIENCE)?;
    group.peers[victim].process().kill()?;
    let since = now_ms();
    let ends = |index: usize| index != victim && index != 2;
    let what = format!("kill -9 of {victim} beside a message");
    let events = answers_of(&mut group, ends, since, DEATH_MS, &what)?;
    group.go_on(|index| index != victim)?;
    Ok(events[0]["ok"] == true)
}

fn killed_of_two() -> Result<()> {
    let mut group = Group::up("lo", 2)?;
    in_the_middle(&mut group, 1)?;
    group.peers[1].process().kill()?;
    let since = now_ms();
    answers(&mut group, 1, since, DEATH_MS, "kill -9, one of two")?;
    group.waits_alone(0)?;

    group.rejoin(1)?;
    group.synced(1)?;
    group.sum(100_001, 6)
}

/// All other members must have the same outcome, even if votes are already in transit.
fn killed_any_time() -> Result<()> {
    let seed = seed("kill -9 at any moment")?;
    let mut group = Group::up("lo", 4)?;
    group.remember()?;
    for round in 0..6 {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let victim = chance.below(4);
        // Every other round at the very end of the call.
        let share = if round % 2 == 0 { 1.0 } else { chance.unit() };
        group.on_the_way(victim, &call_of(1 << 20), share)?;
        group.peers[victim].process().kill()?;
        let what = format!("kill -9 at {share:.2}, 4 on lo");
        answers(&mut group, victim, now_ms(), DEATH_MS, &what)
            .with_context(|| format!("round {round}"))?;
        group.meet_of(|index| index != victim)?;
        group.rejoin(victim)?;
        group.synced(victim).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// No connection is closed visibly, and both sides decide on their own. The members that stay
/// together have one outcome. The isolated member may have another one; then its state differs, and
/// it must be told so when it is back.
fn pulled_any_time() -> Result<()> {
    let seed = seed("a pulled cable at any moment")?;
    let mut group = Group::up("loop", 3)?;
    group.remember()?;
    for round in 0..4 {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let victim = chance.below(3);
        // Unplugging takes about half as long as the call.
        let share = 0.05 + chance.unit() / 2.0;
        group.on_the_way(victim, &call_of(LARGE), share)?;
        let machine = format!("n{}", victim + 1);
        group.lab.cut(&machine)?;
        let events = group.events(|index| index != victim, "done", PATIENCE)?;
        let own = group.peers[victim].event("done", PATIENCE)?;
        println!(
            "measured: pulled at {share:.2}: the others {}, it says {} {}",
            events[0]["ok"], own["ok"], own["code"]
        );
        one_outcome(&events).with_context(|| format!("round {round}"))?;
        // Until each side knows that the other one is gone.
        group.meet_of(|index| index != victim)?;
        group.peers[victim].status_where(|status| has_members(status, 1), PATIENCE)?;
        group.lab.join(&machine)?;
        group.catch_up(&events, &own).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// A frozen member learns the outcome of its call later: it must not contradict the others'
/// outcome.
fn frozen_any_time() -> Result<()> {
    let seed = seed("frozen at any moment")?;
    let mut group = Group::up("lo", 3)?;
    group.remember()?;
    for round in 0..6 {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let victim = chance.below(3);
        let share = 0.9 + chance.unit() * 0.1;
        group.on_the_way(victim, &call_of(1 << 20), share)?;
        group.peers[victim].process().stop()?;
        let events = group.events(|index| index != victim, "done", PATIENCE)?;
        // Ensures that the victim is left out, whether or not the call completed in time.
        group.meet_of(|index| index != victim)?;
        group.peers[victim].process().resume()?;
        let own = group.peers[victim].event("done", PATIENCE)?;
        println!(
            "measured: frozen at {share:.2}: the others {}, it says {} {}",
            events[0]["ok"], own["ok"], own["code"]
        );
        one_story(&events, &own).with_context(|| format!("round {round}"))?;
        group.catch_up(&events, &own).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Three nodes; the last one is lost three times.
fn told() -> Result<()> {
    let mut group = Group::empty("lo", 3)?;
    let join = json!({"do": "join", "min": 2, "events": true});
    group.found(3, &join, |_, usual| usual)?;
    let hears = |group: &mut Group, index: usize, what: &str, whose: &str| {
        let fits = |event: &Value| {
            event["what"] == what && (whose.is_empty() || event["who"]["name"] == whose)
        };
        group.peers[index]
            .event_where("happened", fits, PATIENCE)
            .with_context(|| format!("{what} of {whose}"))
    };
    for (round, ended) in
        ["its connection ended", "its connection ended", "nothing was heard of it"]
            .into_iter()
            .enumerate()
    {
        if round < 2 {
            group.peers[2].process().kill()?;
        } else {
            group.peers[2].process().stop()?;
        }
        let since = std::time::Instant::now();
        // The node that notices the loss first makes the View; the other one may only learn of it
        // from there.
        let lost = [hears(&mut group, 0, "lost", "p3")?, hears(&mut group, 1, "lost", "p3")?];
        ensure!(lost.iter().any(|event| event["why"] == ended), "round {round}: {lost:?}");
        if round < 2 {
            group.restart(2)?.ask(&join, "joined", PATIENCE)?;
            for index in 0..2 {
                hears(&mut group, index, "joined", "p3")?;
            }
        } else {
            // The duration of the fault: longer than the failure detector's timeout.
            std::thread::sleep(Duration::from_secs(3).saturating_sub(since.elapsed()));
        }
    }
    for index in 0..2 {
        hears(&mut group, index, "quarantined", "p3")?;
        let held = |status: &Value| {
            status["reasons"].to_string().contains("was lost three times within a minute")
        };
        group.peers[index].status_where(held, PATIENCE)?;
    }
    group.peers[2].process().resume()?;
    hears(&mut group, 2, "woke", "")?;
    let since = now_ms();
    // Two members are enough for a View, so the node must wait.
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
    let survive = |index: usize| index.is_multiple_of(2);
    answers_of(&mut group, survive, since, DEATH_MS, "kill -9, two of 4 on lo")?;
    group.go_on(survive)
}

/// No packet reports the loss: it must be detected by silence.
fn pulled() -> Result<()> {
    let mut group = Group::up("gbe4", 3)?;
    group.remember()?;
    // Unplugging takes a while, so the call must take seconds.
    group.lab.rate("n2", 200, 200)?;
    group.on_the_way(1, &call_of(LARGE), 0.05)?;
    group.lab.cut("n2")?;
    let since = now_ms();
    answers(&mut group, 1, since, SILENCE_MS, "a pulled cable, 3 on a switch")?;
    group.go_on(|index| index != 1)?;
    let event = group.peers[1].event("done", PATIENCE)?;
    let code = event["code"]
        .as_str()
        .with_context(|| format!("it cannot have succeeded: {event}"))?
        .to_owned();
    all_failed(&[event], &code)?;

    group.lab.join("n2")?;
    let since = now_ms();
    group.synced(1)?;
    println!("measured: a cable put back: in and synced after {:.0} ms", now_ms() - since);
    group.sum(100_001, 6)
}

fn frozen() -> Result<()> {
    let mut group = Group::up("lo", 3)?;
    in_the_middle(&mut group, 1)?;
    group.peers[1].process().stop()?;
    let since = now_ms();
    let others = answers(&mut group, 1, since, SILENCE_MS, "SIGSTOP, 3 on lo")?;
    group.go_on(|index| index != 1)?;

    // The others have a View and a result without it: it counts as lost.
    group.peers[1].process().resume()?;
    let own = group.peers[1].event("done", PATIENCE)?;
    // On a busy machine the call may complete before the signal arrives; then the node has the same
    // result as the others.
    one_story(&others, &own)?;
    ensure!(own["ok"] == true || own["verdict"] == "untouched", "{own}");
    group.synced(1)?;
    group.sum(100_001, 6)
}
