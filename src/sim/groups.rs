//! Simulation of whole groups in virtual time: the real node and the native engine on turmoil's
//! hosts, with simulated sockets, disks and discovery, under random faults. The programs are those
//! of the soak. The harness checks their logs.
//!
//! In other runs one node [lies](crate::node::Liar) to the others until it is killed.
//!
//! A run is determined by its seed. A failure is reported with the seed, and `SEED=n make sim`
//! repeats it.

mod conditions;
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
mod observer;
mod seeds;
mod sinks;

use crate::discovery::Medium;
use crate::protocol::{Mutant, Mutation, Partition};
use conditions::Conditions;
use disk::Drive;
use faults::FaultEnd;
use host::{Host, identity_of, name_of};
use observer::Observer;
use potluck_harness::history::Report;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use turmoil::Sim;

/// One run.
struct Run<'a> {
    seed: u64,
    sim: Sim<'a>,
    hosts: Vec<Host>,
    conditions: Conditions,
    observer: Observer,
    /// Pairs without a direct path; they reach each other only over relays.
    walls: BTreeSet<(usize, usize)>,
    /// The ends of the present faults, with their times.
    pending: Vec<(Duration, FaultEnd)>,
    /// Hosts that crash during their next write, and for how long.
    crash_at_write: Vec<(usize, Duration)>,
    /// The end of the last fault.
    quiet_since: Duration,
    /// The faults so far in words, printed after a failure.
    fault_log: Vec<String>,
    /// The number of faults so far, and the numbers of those that have not ended.
    faults: u64,
    open_faults: Vec<u64>,
    /// More segments were lost than [`LOSS_TO_MEET`].
    has_lost: bool,
    /// The number of full queues so far, and the time of the last one.
    overruns: (u64, Duration),
    /// A host that lies.
    liar: Option<usize>,
    /// Tells all programs to end.
    finish: Arc<AtomicBool>,
    /// A call or a program that did not end. It ends the run.
    hang: Option<String>,
}

/// The result of a run.
struct Outcome {
    report: Report,
    /// Everything that is wrong, and the faults before it.
    wrong: Vec<String>,
    /// Equal runs have equal digests.
    digest: u64,
    observer: Observer,
}

/// Duration of the faults, and of the recovery after them.
const FAULTS: Duration = Duration::from_secs(270);
const RECOVERY: Duration = Duration::from_secs(45);
/// Maximum extension of the recovery while a node is in quarantine.
const RECOVERY_EXTRA: Duration = Duration::from_secs(400);
/// The most lost segments per thousand with which all hosts can be expected to meet.
const LOSS_TO_MEET: u32 = 50;
/// Without a fault, a call ends in this time. After the last fault, a stream whose segments did not
/// pass breaks within 10 s. A member whose link is lost is missed within 2 s. The View without it
/// waits 5 s for an acceptor whose disk does not answer. A program may take a second before it
/// calls in the next View.
const HANG: Duration = Duration::from_secs(20);
/// Without a fault, a host that is not kept out is in a View after this time: it may be the last of
/// several that are admitted one after another.
const VIEW: Duration = Duration::from_secs(40);
/// Duration of a time without faults: long enough to find a call that hangs.
const QUIET: Duration = Duration::from_secs(26);
/// Mean duration of the faults before a quiet time.
const FAULTS_BEFORE_QUIET_MS: u64 = 60_000;
/// The last part of the recovery, in which all nodes must have committed in one View.
const TOGETHER: Duration = Duration::from_secs(8);
/// How long a group has a member that lies.
const LIES: Duration = Duration::from_secs(60);
/// The programs end in this time.
const ENDING: Duration = Duration::from_secs(60);
/// Interval between two looks at the open calls.
const LOOK: Duration = Duration::from_millis(100);

/// Each node keeps a path to one random node before it, and by chance to others.
fn walls(size: usize, conditions: &Conditions) -> BTreeSet<(usize, usize)> {
    let mut walls = BTreeSet::new();
    for b in 1..size {
        let kept = conditions.below(b as u64) as usize;
        walls.extend((0..b).filter(|a| *a != kept && conditions.below(4) > 0).map(|a| (a, b)));
    }
    walls
}

impl Run<'_> {
    /// The run of a seed. With a mutant all nodes break that rule; only one withholds its votes, or
    /// lies. The number of hosts is drawn unless it is given.
    fn new<'a>(seed: u64, hosts: Option<usize>, mutant: Option<Mutant>) -> Run<'a> {
        let (conditions, observer) = (Conditions::new(seed), Observer::default());
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .simulation_duration(FAULTS + RECOVERY + RECOVERY_EXTRA + RECOVERY + ENDING)
            .tick_duration(Duration::from_millis(5))
            .min_message_latency(Duration::from_micros(200))
            .max_message_latency(Duration::from_millis(8))
            .tcp_capacity(4096)
            .build();
        let lies = mutant == Some(Mutant::Lies);
        let drawn = if lies { 3 + conditions.below(3) } else { 2 + conditions.below(4) } as usize;
        let size = hosts.unwrap_or(drawn);
        let liar = lies.then(|| conditions.below(size as u64) as usize);
        crate::node::lie_by_seed(seed);
        // An earlier run of this thread may have ended during its faults.
        crate::node::full_by_chance(0, 0);
        liar.into_iter().for_each(|host| observer.set_liar(host));
        let partition = match conditions.below(3) {
            0 => Partition::Majority {
                roster: (0..size).map(|number| identity_of(number).id()).collect(),
            },
            _ => Partition::Continue,
        };
        if matches!(partition, Partition::Majority { .. }) {
            observer.majority();
        }
        let (medium, finish) = (Medium::new(), Arc::new(AtomicBool::new(false)));
        let hosts: Vec<Host> = (0..size)
            .map(|number| Host {
                number,
                seed,
                conditions: conditions.clone(),
                medium: medium.clone(),
                observer: observer.clone(),
                drive: Drive::default(),
                starts: Arc::default(),
                leave: Arc::default(),
                is_away: Arc::default(),
                finish: Arc::clone(&finish),
                suspended_ms: Arc::default(),
                partition: partition.clone(),
                mutation: Mutation::from(mutant.filter(|mutant| match mutant {
                    Mutant::WithholdsVotes => number == 1,
                    Mutant::Lies => liar == Some(number),
                    _ => true,
                })),
            })
            .collect();
        for host in &hosts {
            let host = host.clone();
            sim.host(name_of(host.number), move || host.clone().run());
        }
        // Cables instead of a switch, in every third run.
        let walls = if seed % 3 == 2 && !lies { walls(size, &conditions) } else { BTreeSet::new() };
        for (a, b) in &walls {
            sim.partition(name_of(*a), name_of(*b));
            conditions.hold(sim.lookup(name_of(*a)), sim.lookup(name_of(*b)));
        }
        let fault_log = vec![format!("  {size} hosts, {partition:?}, no path between {walls:?}")];
        let (pending, open_faults, quiet_since) = (Vec::new(), Vec::new(), Duration::ZERO);
        Run {
            seed,
            sim,
            hosts,
            conditions,
            observer,
            walls,
            pending,
            crash_at_write: Vec::new(),
            quiet_since,
            fault_log,
            faults: 0,
            open_faults,
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
            Some(liar) => self.with_liar(liar),
            None => self.inject_faults(),
        };
        let ended = has_gone_on && self.recovers() && self.ends();
        if let Some(hang) = self.hang.take().filter(|_| !ended) {
            self.observer.wrong(hang);
            // The calls that are open now are not reported again.
            let now = self.sim.elapsed();
            (0..self.hosts.len()).for_each(|host| self.observer.killed(host, now));
        }
        self.outcome()
    }

    /// Causes faults, with quiet times between them. False if the run has to end.
    fn inject_faults(&mut self) -> bool {
        let mut next = Duration::from_secs(2);
        let mut quiet_from = self.time_to_quiet();
        while self.sim.elapsed() < FAULTS {
            let now = self.sim.elapsed();
            if now >= quiet_from {
                self.end_all_faults(now);
                if !self.until(now + QUIET) {
                    return false;
                }
                self.fill_queues();
                let now = self.sim.elapsed();
                quiet_from = now + self.time_to_quiet();
                next = now;
            }
            if !self.step() {
                return false;
            }
            let now = self.sim.elapsed();
            self.end_faults(now, |due| due <= now);
            if now >= next {
                self.inject_fault(now);
                next = now + Duration::from_millis(200 + self.conditions.below(10_000));
            }
        }
        true
    }

    /// Time until the next quiet time.
    fn time_to_quiet(&self) -> Duration {
        let ms = FAULTS_BEFORE_QUIET_MS;
        Duration::from_millis(ms / 2 + self.conditions.below(ms))
    }

    /// A host lies to the others, and is killed at the end. False if the run has to end.
    fn with_liar(&mut self, liar: usize) -> bool {
        while self.sim.elapsed() < LIES {
            // A liar can delay all calls but those with a deadline.
            self.quiet_since = self.sim.elapsed();
            if !self.step() {
                return false;
            }
            self.hang = self.observer.overdue(HANG, self.sim.elapsed());
        }
        let now = self.sim.elapsed();
        self.fault_log.push(format!("  {:>7.2} s: the liar {liar} is killed", now.as_secs_f64()));
        self.sim.crash(name_of(liar));
        true
    }

    fn end_all_faults(&mut self, now: Duration) {
        self.fault_log.push(format!("  {:>7.2} s: all faults end", now.as_secs_f64()));
        self.crash_at_write.clear();
        self.end_faults(now, |_| true);
    }

    /// Ends all faults. Then all hosts must form one group.
    fn recovers(&mut self) -> bool {
        let now = self.sim.elapsed();
        self.end_all_faults(now);
        let (mut end, last) = (now + RECOVERY, now + RECOVERY + RECOVERY_EXTRA);
        while self.sim.elapsed() < end {
            if !self.step() {
                return false;
            }
            // A node in quarantine is admitted later, and a full queue is a fault.
            let is_late = self.overruns.1 + LOOK > self.sim.elapsed();
            if is_late || self.observer.is_anybody_out() {
                end = end.max(self.sim.elapsed() + VIEW).min(last);
            }
        }
        let broken: Vec<bool> = self.hosts.iter().map(|host| host.drive.is_broken()).collect();
        if let Some(why) = self.observer.divided(&broken, end - TOGETHER) {
            self.observer.wrong(why);
        }
        true
    }

    /// Tells all programs to end, and waits for them.
    fn ends(&mut self) -> bool {
        self.finish.store(true, Ordering::Relaxed);
        let end = self.sim.elapsed() + ENDING;
        while !self.observer.rest().is_empty() {
            if self.sim.elapsed() > end {
                let rest = self.observer.rest();
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

    /// One step of the simulation, and a check for hangs. False if the run has to end.
    fn step(&mut self) -> bool {
        if let Err(error) = self.sim.step() {
            self.hang = Some(format!("the simulation ended: {error}"));
            return false;
        }
        let now = self.sim.elapsed();
        self.crash_writers(now);
        if now.as_millis() % LOOK.as_millis() == 0 {
            self.watch(now);
        }
        self.hang.is_none()
    }

    /// Tells the observer which hosts reach each other, and checks for hangs.
    fn watch(&mut self, now: Duration) {
        self.note_overruns(now);
        // A node that cannot write cannot promise, so it is in no new View. A node that has left
        // relays nothing.
        let is_there =
            |host: &Host| !host.drive.is_faulty() && !host.is_away.load(Ordering::Relaxed);
        let running: Vec<usize> = (0..self.hosts.len())
            .filter(|host| self.runs(*host) && is_there(&self.hosts[*host]))
            .collect();
        let near = |a: usize, b: usize| !self.conditions.is_cut(self.ip(a), self.ip(b));
        let parts = histories::parts(&running, near);
        // With much loss, a host may be out of reach for a long time.
        let parts = if self.conditions.loss() <= LOSS_TO_MEET { parts } else { Vec::new() };
        self.observer.reach(&parts, now);
        let is_away = |host: &Host| host.is_away.load(Ordering::Relaxed);
        let is_finishing = self.finish.load(Ordering::Relaxed);
        if !self.pending.is_empty() || !is_finishing && self.hosts.iter().any(is_away) {
            self.quiet_since = now;
        }
        let quiet = now - self.quiet_since;
        if quiet > HANG {
            let view = if quiet > VIEW { VIEW } else { Duration::MAX };
            let wrong = self.observer.hang(HANG, view, now);
            self.hang = wrong.map(|what| format!("no fault for {quiet:?}, but {what}"));
        }
    }

    fn runs(&mut self, host: usize) -> bool {
        self.sim.is_host_running(name_of(host))
    }

    fn outcome(self) -> Outcome {
        let mut wrong = self.observer.all_wrong();
        let report = match self.observer.report(self.seed) {
            Ok(mut report) => {
                // With much loss, votes come later than their bound.
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
            wrong.insert(0, self.fault_log.join("\n"));
        }
        let digest = self.observer.digest();
        Outcome { report, wrong, digest, observer: self.observer }
    }
}
