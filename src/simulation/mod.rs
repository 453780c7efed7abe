//! Layer: Face.
//!
//! Whole groups in virtual time: the real driver of several nodes on turmoil's hosts, with
//! simulated sockets, disks, discovery and engine, under random faults.
//!
//! A run is determined by its seed. A failure is reported with the seed, and `SEED=n make sim`
//! repeats it.

mod engine;
mod histories;
mod host;
mod net;
mod seeds;
mod sides;
mod weather;
mod witness;

use crate::discovery::Medium;
use crate::partition::Partition;
use engine::Bus;
use host::{Host, identity_of, name_of};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use turmoil::Sim;
use weather::Weather;
use witness::{Counts, Witness};

/// One run.
struct Run<'a> {
    sim: Sim<'a>,
    hosts: Vec<Host>,
    weather: Weather,
    witness: Witness,
    /// Pairs without a direct path; they reach each other only over relays.
    walls: BTreeSet<(usize, usize)>,
    /// The ends of the present faults, with their times.
    pending: Vec<(Duration, Relief)>,
    /// The faults so far, reported after a failure.
    story: Vec<String>,
}

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum Relief {
    Start(usize),
    Join(usize, usize),
    Wake(usize, Duration),
    Disk(usize),
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    counts: Counts,
    faults: Vec<String>,
}

/// How long faults occur, and how long the group then has to recover.
const TROUBLE: Duration = Duration::from_secs(270);
const CALM: Duration = Duration::from_secs(30);
/// Maximum extension of the recovery while a node is in quarantine.
const KEPT_OUT: Duration = Duration::from_secs(400);
/// The most lost segments per thousand with which all hosts can be expected to meet.
const LOSS_TO_MEET: u32 = 50;
/// Longest duration of a call. It may wait for members that are being given up, one after another,
/// while three of ten segments are lost.
const CALL_MAX: Duration = Duration::from_secs(150);
/// Length of the last part of the recovery, in which all nodes must have made progress together.
const TOGETHER: Duration = Duration::from_secs(5);

/// Each node keeps a path to one random node before it, and by chance to others.
fn walls(size: usize, weather: &Weather) -> BTreeSet<(usize, usize)> {
    let mut walls = BTreeSet::new();
    for b in 1..size {
        let kept = weather.below(b as u64) as usize;
        walls.extend((0..b).filter(|a| *a != kept && weather.below(4) > 0).map(|a| (a, b)));
    }
    walls
}

impl Run<'_> {
    fn new<'a>(seed: u64) -> Run<'a> {
        let weather = Weather::new(seed);
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .simulation_duration(TROUBLE + CALM + KEPT_OUT + CALM)
            .tick_duration(Duration::from_millis(5))
            .min_message_latency(Duration::from_micros(200))
            .max_message_latency(Duration::from_millis(8))
            .tcp_capacity(4096)
            .build();
        let size = 2 + weather.below(4) as usize;
        let partition = match weather.below(3) {
            0 => Partition::Majority {
                roster: (0..size).map(|number| identity_of(number).id()).collect(),
            },
            _ => Partition::Continue { min_members: 2 },
        };
        let one_group = matches!(partition, Partition::Majority { .. });
        let (medium, bus, witness) = (Medium::new(), Bus::default(), Witness::new(one_group));
        let hosts: Vec<Host> = (0..size)
            .map(|number| Host {
                number,
                weather: weather.clone(),
                medium: medium.clone(),
                bus: bus.clone(),
                witness: witness.clone(),
                disk: Arc::default(),
                lives: Arc::default(),
                leave: Arc::default(),
                slept: Arc::default(),
                has_sides: seed % 2 == 1,
                disk_is_stuck: Arc::default(),
                partition: partition.clone(),
            })
            .collect();
        for host in &hosts {
            let host = host.clone();
            sim.host(name_of(host.number), move || host.clone().run());
        }
        // Cables instead of a switch, in every third run.
        let walls = if seed % 3 == 2 { walls(size, &weather) } else { BTreeSet::new() };
        for (a, b) in &walls {
            sim.partition(name_of(*a), name_of(*b));
            weather.cut(sim.lookup(name_of(*a)), sim.lookup(name_of(*b)), true);
        }
        let story = vec![format!("  {size} hosts, {partition:?}, no way between {walls:?}")];
        Run { sim, hosts, weather, witness, walls, pending: Vec::new(), story }
    }

    fn go(mut self) -> Outcome {
        let mut next = Duration::from_secs(2);
        while self.sim.elapsed() < TROUBLE {
            if let Err(error) = self.sim.step() {
                self.witness.wrong(format!("the simulation ended: {error}"));
                return self.outcome();
            }
            let now = self.sim.elapsed();
            self.watch(now);
            self.relieve(|due| due <= now);
            if now >= next {
                self.disturb(now);
                next = now + Duration::from_millis(200 + self.weather.below(12_000));
            }
        }
        self.relieve(|_| true);
        self.weather.set_loss(0);
        let mut end = TROUBLE + CALM;
        while self.sim.elapsed() < end {
            if let Err(error) = self.sim.step() {
                self.witness.wrong(format!("the simulation ended: {error}"));
                return self.outcome();
            }
            self.watch(self.sim.elapsed());
            // A node that was lost too often is admitted again, but later.
            if self.witness.is_anybody_out() {
                end = end.max(self.sim.elapsed() + 2 * TOGETHER).min(TROUBLE + CALM + KEPT_OUT);
            }
        }
        if let Some(why) = self.witness.divided(self.hosts.len(), end - TOGETHER) {
            self.witness.wrong(why);
        }
        self.outcome()
    }

    /// Tells the witness which hosts run and reach each other, and looks for calls that hang.
    fn watch(&mut self, now: Duration) {
        let runs = |host: &usize| self.sim.is_host_running(name_of(*host));
        let running: Vec<usize> = (0..self.hosts.len()).filter(runs).collect();
        let near = |a: usize, b: usize| !self.weather.is_cut(self.ip(a), self.ip(b));
        let parts = histories::parts(&running, near);
        // Where many segments are lost, a host may be out of reach for long.
        let parts = if self.weather.loss() <= LOSS_TO_MEET { parts } else { Vec::new() };
        self.witness.reach(&parts, now);
        self.witness.look_for_hangs(CALL_MAX, now);
    }

    fn outcome(self) -> Outcome {
        let mut faults = self.witness.faults();
        if !faults.is_empty() {
            faults.insert(0, self.story.join("\n"));
        }
        Outcome { counts: self.witness.counts(), faults }
    }

    /// Causes a random fault between random hosts.
    fn disturb(&mut self, now: Duration) {
        let (a, b) = self.two();
        let lasts = Duration::from_millis(match self.weather.below(3) {
            0 => 100 + self.weather.below(900),
            1 => 1000 + self.weather.below(4000),
            _ => 5000 + self.weather.below(25_000),
        });
        match self.weather.below(10) {
            0 | 1 => {
                if self.sim.is_host_running(name_of(a)) {
                    self.tell(now, format_args!("{a} crashes for {lasts:?}"));
                    self.sim.crash(name_of(a));
                    self.pending.push((now + lasts, Relief::Start(a)));
                }
            }
            2 => {
                self.tell(now, format_args!("{a} leaves"));
                self.hosts[a].leave.store(true, Ordering::Relaxed);
            }
            3 => {
                self.tell(now, format_args!("{a} and {b} are held for {lasts:?}"));
                self.hold(a, b, now + lasts);
            }
            4 => {
                self.tell(now, format_args!("{a} is held from all for {lasts:?}"));
                (0..self.hosts.len())
                    .filter(|other| *other != a)
                    .for_each(|other| self.hold(a, other, now + lasts));
            }
            5 => {
                // Splits the group in two.
                let side = self.weather.below(1 << self.hosts.len());
                self.tell(now, format_args!("parted along {side:b} for {lasts:?}"));
                for (x, y) in self.pairs() {
                    if (side >> x ^ side >> y) & 1 == 1 {
                        self.hold(x, y, now + lasts);
                    }
                }
            }
            6 if self.walls.contains(&(a.min(b), a.max(b))) => {}
            6 => {
                self.tell(now, format_args!("what {a} says to {b} is dropped for {lasts:?}"));
                self.sim.partition_oneway(name_of(a), name_of(b));
                self.weather.cut(self.ip(a), self.ip(b), true);
                self.pending.push((now + lasts, Relief::Join(a, b)));
            }
            7 => {
                self.tell(now, format_args!("{a} sleeps for {lasts:?}"));
                (0..self.hosts.len())
                    .filter(|other| *other != a)
                    .for_each(|other| self.hold(a, other, now + lasts));
                self.pending.push((now + lasts, Relief::Wake(a, lasts)));
            }
            8 => {
                self.tell(now, format_args!("the disk of {a} answers nothing for {lasts:?}"));
                self.hosts[a].disk_is_stuck.store(true, Ordering::Relaxed);
                self.pending.push((now + lasts, Relief::Disk(a)));
            }
            _ => {
                let loss = self.weather.below(300) as u32;
                self.tell(now, format_args!("{loss} of a thousand segments are lost"));
                self.weather.set_loss(loss);
            }
        }
    }

    fn hold(&mut self, a: usize, b: usize, until: Duration) {
        if self.walls.contains(&(a.min(b), a.max(b))) {
            return;
        }
        self.sim.hold(name_of(a), name_of(b));
        self.weather.cut(self.ip(a), self.ip(b), true);
        self.pending.push((until, Relief::Join(a, b)));
    }

    fn relieve(&mut self, is_due: impl Fn(Duration) -> bool) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| is_due(*at));
        self.pending = later;
        for (_, relief) in due {
            match relief {
                Relief::Start(host) => self.sim.bounce(name_of(host)),
                Relief::Join(a, b) => self.join(a, b),
                Relief::Disk(a) => self.hosts[a].disk_is_stuck.store(false, Ordering::Relaxed),
                Relief::Wake(host, slept) => {
                    self.hosts[host].slept.fetch_add(slept.as_millis() as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// Ends the faults of a pair, unless another one goes on.
    fn join(&mut self, a: usize, b: usize) {
        let is_same = |x: usize, y: usize| (x.min(y), x.max(y)) == (a.min(b), a.max(b));
        let goes_on = |(_, relief): &(Duration, Relief)| matches!(relief, Relief::Join(x, y) if is_same(*x, *y));
        if !self.pending.iter().any(goes_on) {
            self.sim.release(name_of(a), name_of(b));
            self.sim.repair(name_of(a), name_of(b));
            self.weather.cut(self.ip(a), self.ip(b), false);
        }
    }

    fn two(&self) -> (usize, usize) {
        let size = self.hosts.len() as u64;
        let a = self.weather.below(size);
        let b = (a + 1 + self.weather.below(size - 1)) % size;
        (a as usize, b as usize)
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        (0..self.hosts.len()).flat_map(|a| (0..a).map(move |b| (a, b))).collect()
    }

    fn ip(&self, host: usize) -> std::net::IpAddr {
        self.sim.lookup(name_of(host))
    }

    fn tell(&mut self, now: Duration, what: fmt::Arguments<'_>) {
        self.story.push(format!("  {:>7.2} s: {what}", now.as_secs_f64()));
    }
}
