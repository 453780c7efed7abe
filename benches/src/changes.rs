//! The time to form a group, and to continue after the loss of a member.

use crate::Extent;
use crate::machine::{Machines, PATIENCE, answer, median, number, worst};
use crate::peer::now_s;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use potluck_harness::{Chance, Child};
use std::time::Duration;

const SIZE: usize = 4;
const BYTES: &str = "1048576";
/// The members of a group start within this many seconds.
const SPREAD_S: f64 = 2.0;
/// The pauses before a member is lost and before a replacement joins, in seconds.
const CALM_S: (f64, f64) = (0.3, 0.8);
/// Fixed, so that every run makes the same choices.
pub const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 2 } else { 10 };
    let mut chance = Chance::new(SEED);
    match forming(rounds, &mut chance) {
        Ok(times) => report.forming(median(&times), worst(&times), rounds),
        Err(error) => report.failure(format!("four starts: {error:#}")),
    }
    match losses(Loss::Killed, rounds, &mut chance) {
        Ok(times) => report.dying(median(&times.next_s), worst(&times.next_s), rounds),
        Err(error) => report.failure(format!("kill -9: {error:#}")),
    }
    Ok(())
}

/// How a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// SIGKILL: the kernel closes its connections.
    Killed,
    /// SIGSTOP: detected only by silence.
    Stopped,
}

/// Seconds from each loss, on the slowest survivor.
#[derive(Default)]
pub struct Times {
    /// Until the interrupted call was answered.
    pub answer_s: Vec<f64>,
    /// Until the first call without the lost member was completed.
    pub next_s: Vec<f64>,
}

/// The times of `rounds` groups, see [`form`].
pub fn forming(rounds: usize, chance: &mut Chance) -> Result<Vec<f64>> {
    (0..rounds).map(|round| form(chance).with_context(|| format!("round {round}"))).collect()
}

/// Seconds from the last of four starts, which come in random order within two seconds, until all
/// are in one View.
fn form(chance: &mut Chance) -> Result<f64> {
    let machines = Machines::up("gbe4", SIZE)?;
    let mut starts: Vec<(f64, usize)> = (1..=SIZE).map(|n| (chance.unit() * SPREAD_S, n)).collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let begin = now_s();
    let mut peers = Vec::new();
    for (after, n) in starts {
        pause(begin + after - now_s());
        peers.push(machines.start(n, SIZE, "-", &["form"])?);
    }
    let (mut last_start, mut last_view, mut views) = (0f64, 0f64, Vec::new());
    for peer in &mut peers {
        let words = answer(peer, "view")?;
        last_start = last_start.max(number(&words, 0)?);
        last_view = last_view.max(number(&words, 1)?);
        views.push(words[2].clone());
    }
    views.dedup();
    ensure!(views.len() == 1, "the peers are in different views: {views:?}");
    Ok(last_view - last_start)
}

/// Four members call continuously. Now and then one is lost and another one replaces it.
pub fn losses(loss: Loss, rounds: usize, chance: &mut Chance) -> Result<Times> {
    let machines = Machines::up("gbe4", SIZE)?;
    let start = |n: usize| machines.start(n, SIZE, "-", &["loop", BYTES]);
    let mut peers: Vec<Child> = (1..=SIZE).map(start).collect::<Result<_>>()?;
    let mut times = Times::default();
    for round in 0..rounds {
        for peer in &mut peers {
            done(peer, SIZE).with_context(|| format!("round {round}: all four"))?;
        }
        pause(CALM_S.0 + chance.unit() * 0.1);
        let victim = chance.below(SIZE);
        let lost_s = now_s();
        match loss {
            Loss::Killed => peers[victim].kill()?,
            Loss::Stopped => peers[victim].stop()?,
        }
        let (mut answer, mut next) = (0f64, 0f64);
        for (_, peer) in peers.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
            let lost = || format!("round {round}: machine {} is lost", victim + 1);
            answer =
                answer.max(number(&crate::machine::answer(peer, "answer").with_context(lost)?, 0)?);
            next = next.max(done(peer, SIZE - 1).with_context(lost)?);
        }
        ensure!(answer >= lost_s, "round {round}: a call was given up before anybody was lost");
        times.answer_s.push(answer - lost_s);
        times.next_s.push(next - lost_s);
        pause(CALM_S.1);
        // A node that is lost repeatedly is put into quarantine. That is not measured here, so a
        // new node replaces it.
        if loss == Loss::Stopped {
            peers[victim].kill()?;
        }
        peers[victim].wait(PATIENCE)?;
        machines.forget(victim + 1)?;
        peers[victim] = start(victim + 1)?;
    }
    Ok(times)
}

/// The time at which the first call in the next View of `size` members ended.
fn done(peer: &mut Child, size: usize) -> Result<f64> {
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words.first() == Some(&"done") && words.get(2) == Some(&size.to_string().as_str())
    };
    let line = peer.wait_for_line(is_it, PATIENCE)?;
    line.split(' ').nth(1).context("a time")?.parse().context("a time")
}

/// A part of the measured scenario: it sets the order and the distance of events.
fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds.max(0.0)));
}
