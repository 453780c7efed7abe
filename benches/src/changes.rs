//! How long a group takes to form, and to go on when one of it dies.

use crate::Extent;
use crate::machine::{Machines, PATIENCE, answer, median, number, worst};
use crate::peer::now_s;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use std::time::Duration;

const SIZE: usize = 4;
const BYTES: &str = "1048576";
/// The starts of a group lie within so many seconds.
const SPREAD_S: f64 = 2.0;
/// Before a member is killed, and between a kill and the restart, in seconds.
const CALM_S: (f64, f64) = (0.3, 0.8);

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 2 } else { 10 };
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
    let forming: Result<Vec<f64>> = (0..rounds).map(|_| form(&mut chance)).collect();
    match forming {
        Ok(times) => report.forming(median(&times), worst(&times), rounds),
        Err(error) => report.failure(format!("four starts: {error:#}")),
    }
    match go_on(rounds, &mut chance) {
        Ok(times) => report.dying(median(&times), worst(&times), rounds),
        Err(error) => report.failure(format!("kill -9: {error:#}")),
    }
    Ok(())
}

/// Seconds from the last of four starts, in any order within two seconds, until all are in one View.
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

/// For each kill the seconds until all survivors have completed a call together. Who was killed comes back for the next.
fn go_on(rounds: usize, chance: &mut Chance) -> Result<Vec<f64>> {
    let machines = Machines::up("gbe4", SIZE)?;
    let start = |n: usize| machines.start(n, SIZE, "-", &["loop", BYTES]);
    let mut peers: Vec<Child> = (1..=SIZE).map(start).collect::<Result<_>>()?;
    let mut times = Vec::new();
    for round in 0..rounds {
        for peer in &mut peers {
            done(peer, SIZE).with_context(|| format!("round {round}: all four"))?;
        }
        pause(CALM_S.0 + chance.unit() * 0.1);
        let victim = (chance.unit() * SIZE as f64) as usize % SIZE;
        let killed_s = now_s();
        peers[victim].kill()?;
        let mut last = 0f64;
        for (_, peer) in peers.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
            last = last.max(done(peer, SIZE - 1).with_context(|| format!("round {round}: machine {} died", victim + 1))?);
        }
        times.push(last - killed_s);
        pause(CALM_S.1);
        peers[victim] = start(victim + 1)?;
    }
    Ok(times)
}

/// When the first call of the next View of `size` members ended.
fn done(peer: &mut Child, size: usize) -> Result<f64> {
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words.first() == Some(&"done") && words.get(2) == Some(&size.to_string().as_str())
    };
    let line = peer.wait_for_line(is_it, PATIENCE)?;
    line.split(' ').nth(1).context("a time")?.parse().context("a time")
}

/// Part of what is measured: the order and the distance of events.
fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds.max(0.0)));
}

/// A xorshift generator (Marsaglia 2003); the same run every time.
struct Chance(u64);

impl Chance {
    /// From 0 up to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
