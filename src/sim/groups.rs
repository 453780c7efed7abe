//! Whole groups in virtual time: the real driver and the native engine of several nodes on
//! turmoil's hosts, with simulated sockets, disks and discovery, under random faults. The programs
//! are those of the soak, and the harness judges their logs.
//!
//! In other runs one of the nodes [lies](crate::node::Liar) to the others, until it is killed.
//!
//! A run is determined by its seed. A failure is reported with the seed, and `SEED=n make sim`
//! repeats it.

mod disk;
mod engine;
mod faults;
mod histories;
mod host;
mod link;
mod net;
#[path = "../../tests/soak/node/mod.rs"]
#[allow(dead_code, unreachable_patterns, reason = "the soak uses the rest, from outside")]
mod node;
mod seeds;
mod sinks;
mod weather;
mod witness;

use crate::discovery::Medium;
use crate::protocol::{Defect, Partition, Seeded};
use disk::Drive;
use faults::Relief;
use host::{Host, identity_of, name_of};
use potluck_harness::history::Report;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use turmoil::Sim;
use weather::Weather;
use witness::Witness;

/// One run.
struct Run<'a> {
    seed: u64,
    sim: Sim<'a>,
    hosts: Vec<Host>,
    weather: Weather,
    witness: Witness,
    /// Pairs without a direct path; they reach each other only over relays.
    walls: BTreeSet<(usize, usize)>,
    /// The ends of the present faults, with their times.
    pending: Vec<(Duration, Relief)>,
    /// Since when nothing has been wrong.
    well_since: Duration,
    /// The faults so far, reported after a failure.
    story: Vec<String>,
    /// The number of faults, and those that have not ended.
    told: u64,
    unhealed: Vec<u64>,
    /// Many segments were lost.
    has_lost: bool,
    /// How many queues were full, and when one was last.
    overruns: (u64, Duration),
    /// A host that lies.
    liar: Option<usize>,
    /// All programs are to end.
    finish: Arc<AtomicBool>,
    /// What did not end, with which the run ends.
    hang: Option<String>,
}

/// The result of a run.
struct Outcome {
    report: Report,
    /// Everything that is wrong, and the faults before it.
    wrong: Vec<String>,
    /// Equal runs have equal digests.
    digest: u64,
    witness: Witness,
}

/// How long faults occur, and how long the group then has to recover.
const TROUBLE: Duration = Duration::from_secs(270);
const CALM: Duration = Duration::from_secs(45);
/// Maximum extension of the recovery while a node is in quarantine.
const KEPT_OUT: Duration = Duration::from_secs(400);
/// The most lost segments per thousand with which all hosts can be expected to meet.
const LOSS_TO_MEET: u32 = 50;
/// While all is well, a call ends in this time. From the end of the last fault on, a stream whose
/// segments did not pass breaks after 10 s at most; a member whose link is lost is missed within
/// 2 s; the View without it waits 5 s for an acceptor whose disk answers nothing, and a call of the
/// next View a second for a program that thinks.
const HANG: Duration = Duration::from_secs(20);
/// While all is well, a host that nobody keeps out is in a View after this time: it may be the last
/// one of several that are admitted one after another.
const VIEW: Duration = Duration::from_secs(40);
/// Now and then all faults end for so long, that a hang is seen before the next one.
const WELL: Duration = Duration::from_secs(26);
/// A period of faults before.
const ILL: u64 = 60_000;
/// Length of the last part of the recovery, in which all nodes must have made progress together.
const TOGETHER: Duration = Duration::from_secs(8);
/// How long the group has a member that lies.
const LIES: Duration = Duration::from_secs(60);
/// The programs end in this time.
const ENDING: Duration = Duration::from_secs(60);
/// Interval between two looks at the open calls.
const LOOK: Duration = Duration::from_millis(100);

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
    /// The run of a seed, whose nodes break a rule if `defect` names one. Of those that are silent,
    /// or lie, one is enough.
    fn new<'a>(seed: u64, defect: Option<Defect>) -> Run<'a> {
        let (weather, witness) = (Weather::new(seed), Witness::default());
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .simulation_duration(TROUBLE + CALM + KEPT_OUT + CALM + ENDING)
            .tick_duration(Duration::from_millis(5))
            .min_message_latency(Duration::from_micros(200))
            .max_message_latency(Duration::from_millis(8))
            .tcp_capacity(4096)
            .build();
        let lies = defect == Some(Defect::Lies);
        let size = if lies { 3 + weather.below(3) } else { 2 + weather.below(4) } as usize;
        let liar = lies.then(|| weather.below(size as u64) as usize);
        crate::node::lie_by_seed(seed);
        // An earlier run of this thread may have ended in its trouble.
        crate::node::full_by_chance(0, 0);
        liar.into_iter().for_each(|host| witness.lies(host));
        let partition = match weather.below(3) {
            0 => Partition::Majority {
                roster: (0..size).map(|number| identity_of(number).id()).collect(),
            },
            _ => Partition::Continue { min_members: 2 },
        };
        if matches!(partition, Partition::Majority { .. }) {
            witness.majority();
        }
        let (medium, finish) = (Medium::new(), Arc::new(AtomicBool::new(false)));
        let hosts: Vec<Host> = (0..size)
            .map(|number| Host {
                number,
                seed,
                weather: weather.clone(),
                medium: medium.clone(),
                witness: witness.clone(),
                drive: Drive::default(),
                lives: Arc::default(),
                leave: Arc::default(),
                is_away: Arc::default(),
                finish: Arc::clone(&finish),
                slept: Arc::default(),
                partition: partition.clone(),
                seeded: Seeded::from(defect.filter(|defect| match defect {
                    Defect::WithholdsVotes => number == 1,
                    Defect::Lies => liar == Some(number),
                    _ => true,
                })),
            })
            .collect();
        for host in &hosts {
            let host = host.clone();
            sim.host(name_of(host.number), move || host.clone().run());
        }
        // Cables instead of a switch, in every third run.
        let walls = if seed % 3 == 2 && !lies { walls(size, &weather) } else { BTreeSet::new() };
        for (a, b) in &walls {
            sim.partition(name_of(*a), name_of(*b));
            weather.hold(sim.lookup(name_of(*a)), sim.lookup(name_of(*b)));
        }
        let story = vec![format!("  {size} hosts, {partition:?}, no way between {walls:?}")];
        let (pending, unhealed, well_since) = (Vec::new(), Vec::new(), Duration::ZERO);
        Run {
            seed,
            sim,
            hosts,
            weather,
            witness,
            walls,
            pending,
            well_since,
            story,
            told: 0,
            unhealed,
            has_lost: false,
            overruns: (crate::node::overruns(), Duration::ZERO),
            liar,
            finish,
            hang: None,
        }
    }

    fn go(mut self) -> Outcome {
        self.fill_queues();
        let has_gone_on = match self.liar {
            Some(liar) => self.lies(liar),
            None => self.trouble(),
        };
        let ended = has_gone_on && self.recovers() && self.ends();
        if let Some(hang) = self.hang.take().filter(|_| !ended) {
            self.witness.wrong(hang);
            // What is open now is no news.
            let now = self.sim.elapsed();
            (0..self.hosts.len()).for_each(|host| self.witness.killed(host, now));
        }
        self.outcome()
    }

    /// Faults, and now and then a time without any. False if the run has to end.
    fn trouble(&mut self) -> bool {
        let mut next = Duration::from_secs(2);
        let mut well_from = Duration::from_millis(ILL / 2 + self.weather.below(ILL));
        while self.sim.elapsed() < TROUBLE {
            let now = self.sim.elapsed();
            if now >= well_from {
                self.tell_well(now);
                if !self.until(now + WELL) {
                    return false;
                }
                self.fill_queues();
                let now = self.sim.elapsed();
                well_from = now + Duration::from_millis(ILL / 2 + self.weather.below(ILL));
                next = now;
            }
            if !self.step() {
                return false;
            }
            let now = self.sim.elapsed();
            self.relieve(now, |due| due <= now);
            if now >= next {
                self.disturb(now);
                next = now + Duration::from_millis(200 + self.weather.below(10_000));
            }
        }
        true
    }

    /// A host lies to the others, in the end it is killed. False if the run has to end.
    fn lies(&mut self, liar: usize) -> bool {
        while self.sim.elapsed() < LIES {
            // The liar holds up everything but calls that have a deadline.
            self.well_since = self.sim.elapsed();
            if !self.step() {
                return false;
            }
            self.hang = self.witness.overdue(HANG, self.sim.elapsed());
        }
        let now = self.sim.elapsed();
        self.story.push(format!("  {:>7.2} s: the liar {liar} is killed", now.as_secs_f64()));
        self.sim.crash(name_of(liar));
        true
    }

    fn tell_well(&mut self, now: Duration) {
        self.story.push(format!("  {:>7.2} s: all faults end", now.as_secs_f64()));
        self.relieve(now, |_| true);
    }

    /// All hosts come together when there are no more faults.
    fn recovers(&mut self) -> bool {
        let now = self.sim.elapsed();
        self.tell_well(now);
        let (mut end, last) = (now + CALM, now + CALM + KEPT_OUT);
        while self.sim.elapsed() < end {
            if !self.step() {
                return false;
            }
            // A node that was lost too often is admitted again, but later. A full queue was a fault.
            let is_late = self.overruns.1 + LOOK > self.sim.elapsed();
            if is_late || self.witness.is_anybody_out() {
                end = end.max(self.sim.elapsed() + VIEW).min(last);
            }
        }
        let broken: Vec<bool> = self.hosts.iter().map(|host| host.drive.is_broken()).collect();
        if let Some(why) = self.witness.divided(&broken, end - TOGETHER) {
            self.witness.wrong(why);
        }
        true
    }

    /// All programs end together.
    fn ends(&mut self) -> bool {
        self.finish.store(true, Ordering::Relaxed);
        let end = self.sim.elapsed() + ENDING;
        while !self.witness.rest().is_empty() {
            if self.sim.elapsed() > end {
                let rest = self.witness.rest();
                self.hang = Some(format!("the programs of {rest:?} do not end"));
                return false;
            }
            if !self.step() {
                return false;
            }
        }
        true
    }

    fn until(&mut self, end: Duration) -> bool {
        while self.sim.elapsed() < end {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// One step of the simulation, and a look at what hangs. False if the run has to end.
    fn step(&mut self) -> bool {
        if let Err(error) = self.sim.step() {
            self.hang = Some(format!("the simulation ended: {error}"));
            return false;
        }
        let now = self.sim.elapsed();
        if now.as_millis() % LOOK.as_millis() == 0 {
            self.watch(now);
        }
        self.hang.is_none()
    }

    /// Tells the witness which hosts run and reach each other, and looks for what hangs.
    fn watch(&mut self, now: Duration) {
        self.tell_overruns(now);
        // Who cannot write can promise nothing, and be in no new View. A node that has left forwards
        // nothing either.
        let is_there = |host: &Host| !host.drive.is_ill() && !host.is_away.load(Ordering::Relaxed);
        let running: Vec<usize> = (0..self.hosts.len())
            .filter(|host| self.runs(*host) && is_there(&self.hosts[*host]))
            .collect();
        let near = |a: usize, b: usize| !self.weather.is_cut(self.ip(a), self.ip(b));
        let parts = histories::parts(&running, near);
        // Where many segments are lost, a host may be out of reach for long.
        let parts = if self.weather.loss() <= LOSS_TO_MEET { parts } else { Vec::new() };
        self.witness.reach(&parts, now);
        let is_away = |host: &Host| host.is_away.load(Ordering::Relaxed);
        let is_finishing = self.finish.load(Ordering::Relaxed);
        if !self.pending.is_empty() || !is_finishing && self.hosts.iter().any(is_away) {
            self.well_since = now;
        }
        let well = now - self.well_since;
        if well > HANG {
            // A View is looked for only after as long.
            let view = if well > VIEW { VIEW } else { Duration::MAX };
            let wrong = self.witness.hang(HANG, view, now);
            self.hang = wrong.map(|what| format!("nothing is wrong for {well:?}, but {what}"));
        }
    }

    fn runs(&mut self, host: usize) -> bool {
        self.sim.is_host_running(name_of(host))
    }

    fn outcome(self) -> Outcome {
        let mut wrong = self.witness.all_wrong();
        let report = match self.witness.report(self.seed) {
            Ok(mut report) => {
                // Where many segments are lost, votes come later than the bound for them.
                report.violations.retain(|found| found.claim != "vote" || !self.has_lost);
                report
            }
            Err(error) => {
                wrong.push(format!("the logs: {error:#}"));
                Report::default()
            }
        };
        wrong.extend(report.violations.iter().take(20).map(ToString::to_string));
        if !wrong.is_empty() {
            wrong.insert(0, self.story.join("\n"));
        }
        let digest = self.witness.digest();
        Outcome { report, wrong, digest, witness: self.witness }
    }
}
