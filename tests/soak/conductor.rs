//! A run: processes that start and end, faults at random times, and a look at what hangs.
//!
//! Two jobs run beside each other, and an observer of both. Each job has logs of its own, in which
//! a fault of a process of the other job does not occur: so it explains no error.
//!
//! A call that is open for long is looked at before anything more happens: while there is one, no
//! new fault strikes. When no fault is left, all processes run, and it is still open after
//! [`hangs::HANG`], the run ends and reports what each node waits for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::history::{History, Report, claims};
use potluck_harness::peer::KEY;
use potluck_harness::program::isolate;
use potluck_harness::{Chance, Child, Lab, Scratch};
use serde_json::{Value, json};

use crate::file::{self, now_us};
use crate::hangs;
use crate::machine::{Job, Machine};
use crate::nemesis::{Command, Fault, strike};
use crate::watch::Tail;

/// The choices of a run.
pub struct Plan {
    /// The processes of the first job, each on a machine of its own.
    pub nodes: usize,
    /// The processes of the second job, on the first of these machines.
    pub beside: usize,
    pub lasts: Duration,
    pub seed: u64,
    pub engine: String,
    /// A broken rule that must be found, of a build that has them.
    pub mutant: Option<String>,
    /// Only these faults, if any are named.
    pub faults: Vec<String>,
}

/// The end of a run.
pub struct Outcome {
    pub report: Report,
    /// The nodes' logs; removed if all is well.
    pub folder: PathBuf,
}

/// The two jobs, by which also their folders are named.
const JOBS: [&str; 2] = ["soak", "beside"];
/// The time without faults before the program ends.
const QUIET: Duration = Duration::from_secs(8);
/// The program ends in this time.
const ENDING: Duration = Duration::from_secs(45);
/// The interval at which faults begin and end, and at which the run looks at its nodes. Not a wait
/// for anything: a run has a given length.
const TICK: Duration = Duration::from_millis(40);
/// While a mutant is sought, the logs are checked so often, or less often if that takes long.
const LOOK: Duration = Duration::from_secs(10);

/// A fault that has not ended.
struct Struck {
    n: u64,
    fault: Fault,
    victim: usize,
    /// The jobs that it strikes.
    jobs: Vec<usize>,
    until: Instant,
    /// What ends it, if it does not end by itself.
    cure: Vec<Command>,
}

struct Soak {
    plan: Plan,
    chance: Chance,
    machines: Vec<Machine>,
    struck: Vec<Struck>,
    jobs: Vec<Job>,
    observer: Child,
    folder: PathBuf,
    count: u64,
    /// The end of the last fault.
    whole_since: u64,
    next: Instant,
    calls: u64,
    longest_us: u64,
    hang: Option<String>,
    lab: Lab,
    _homes: Scratch,
}

/// Makes a run and checks its logs.
pub fn run(plan: Plan) -> Result<Outcome> {
    let seed = plan.seed;
    let mut soak = Soak::begin(plan)?;
    let folder = soak.folder.clone();
    let found = soak.go()?;
    drop(soak);
    let mut report = match found {
        Some(report) => report,
        None => check(&folder, seed)?,
    };
    report.violations.truncate(1000);
    if report.violations.is_empty() && std::env::var_os("POTLUCK_SOAK_KEEP").is_none() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(Outcome { report, folder })
}

/// The findings in the logs of both jobs.
fn check(folder: &Path, seed: u64) -> Result<Report> {
    let (mut all, mut faults) = (Report::default(), BTreeMap::new());
    for job in JOBS {
        let history = History::read(&folder.join(job))?;
        // A fault of a machine is in both logs.
        faults.extend(history.faults.iter().map(|fault| (fault.n, fault.kind.clone())));
        let report = claims::check(&history, seed);
        all.violations.extend(report.violations);
        (all.calls, all.succeeded) = (all.calls + report.calls, all.succeeded + report.succeeded);
        (all.views, all.forks) = (all.views + report.views, all.forks + report.forks);
        all.longest_us = all.longest_us.max(report.longest_us);
    }
    for kind in faults.into_values() {
        *all.faults.entry(kind).or_default() += 1;
    }
    Ok(all)
}

impl Soak {
    fn begin(plan: Plan) -> Result<Soak> {
        let lab = Lab::up_with("loop", plan.nodes)?;
        let homes = Scratch::new()?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/soak").join(format!(
            "{}-{}",
            plan.seed,
            std::process::id()
        ));
        let mut jobs = Vec::new();
        for name in JOBS {
            let folder = folder.join(name);
            fs::create_dir_all(&folder)?;
            jobs.push(Job { name, log: file::log(&folder.join("faults.jsonl"))?, folder });
        }
        let mut machines = Vec::new();
        for (job, (letter, count)) in
            [("p", plan.nodes), ("q", plan.beside)].into_iter().enumerate()
        {
            for at in 1..=count {
                let (name, machine) = (format!("{letter}{at}"), format!("n{at}"));
                let home = homes.path().join(&name);
                if job == 0 {
                    lab.tell(&["disk", &machine, &home.to_string_lossy(), "full"])?;
                }
                machines.push(Machine {
                    name,
                    machine,
                    job,
                    child: None,
                    home,
                    life: 0,
                    watch: None,
                    is_stopped: false,
                    leaves: false,
                });
            }
        }
        let mut command = lab.command("n1", std::env::current_exe()?);
        isolate(command.arg("observe"), &homes.path().join("observer"));
        let observer = Child::spawn_told(command.env("POTLUCK_KEY", KEY))?;
        let chance = Chance::named(plan.seed, "faults");
        let (now, next) = (now_us(), Instant::now() + Duration::from_secs(3));
        let mut soak = Soak {
            plan,
            chance,
            machines,
            struck: Vec::new(),
            jobs,
            observer,
            folder,
            count: 0,
            whole_since: now,
            next,
            calls: 0,
            longest_us: 0,
            hang: None,
            lab,
            _homes: homes,
        };
        (0..soak.machines.len()).try_for_each(|at| soak.start(at))?;
        Ok(soak)
    }

    /// The report, if a mutant was sought and found before the end.
    fn go(&mut self) -> Result<Option<Report>> {
        let end = Instant::now() + self.plan.lasts;
        let (mut told, mut look_at) = (Instant::now(), Instant::now() + LOOK);
        while Instant::now() < end && self.hang.is_none() {
            self.turn()?;
            if Instant::now() >= self.next && !hangs::is_suspect(&self.machines) {
                self.strike()?;
            }
            if self.plan.mutant.is_some() && Instant::now() > look_at {
                let began = Instant::now();
                if let Some(report) = self.look()? {
                    return Ok(Some(report));
                }
                // No fault begins or ends meanwhile, so it takes only a small part of the time.
                look_at = Instant::now() + LOOK.max(10 * began.elapsed());
            }
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                let (calls, faults) = (self.calls(), self.count);
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                println!(
                    "{calls} calls, {faults} faults, longest wait {:.1} s, {left} s left",
                    self.longest_us as f64 / 1e6
                );
            }
        }
        self.quiet()?;
        if self.hang.is_none() {
            self.end()?;
        }
        if let Some(hang) = &self.hang {
            self.jobs[0].log.tell(json!({"e": "hang", "text": hang}));
            // They end with this process, and their open calls are no further findings.
            for Machine { job, name, life, .. } in &self.machines {
                self.jobs[*job].log.tell(json!({"e": "killed", "node": name, "life": life}));
            }
        }
        self.machines.iter().try_for_each(|m| m.keep_words(&self.jobs[m.job]))?;
        Ok(None)
    }

    /// Ends the faults and starts the machines that are due, and looks for hangs.
    fn turn(&mut self) -> Result<()> {
        thread::sleep(TICK);
        for machine in &mut self.machines {
            if let Some(watch) = &mut machine.watch {
                watch.look()?;
                // A stopped process does not wait.
                if !machine.is_stopped {
                    self.longest_us = self.longest_us.max(watch.longest(now_us()));
                }
            }
        }
        let (due, later) = std::mem::take(&mut self.struck)
            .into_iter()
            .partition(|struck: &Struck| struck.until <= Instant::now());
        self.struck = later;
        due.into_iter().try_for_each(|struck| self.heal(struck))?;
        self.nobody_ended()?;
        if self.struck.is_empty() && self.hang.is_none() {
            self.hang = hangs::found(&self.machines, self.whole_since);
        }
        Ok(())
    }

    fn heal(&mut self, struck: Struck) -> Result<()> {
        let machine = &mut self.machines[struck.victim];
        match struck.fault {
            Fault::Kill => self.start_again(struck.victim)?,
            Fault::Leave => {
                let child = machine.child.as_mut().context("it was asked to leave")?;
                if let Ok(status) = child.wait(Duration::ZERO) {
                    let node = &machine.name;
                    ensure!(status.success(), "{node}, asked to leave, ended with {status}");
                    self.start_again(struck.victim)?;
                } else if struck.until.elapsed() > ENDING {
                    self.hang = Some(format!("{} does not leave", machine.name));
                } else {
                    self.struck.push(struck);
                    return Ok(());
                }
            }
            Fault::Stop => {
                machine.child.as_mut().context("it was stopped")?.resume()?;
                machine.is_stopped = false;
            }
            _ => self.tell_lab(&struck.cure)?,
        }
        for job in struck.jobs {
            self.jobs[job].log.tell(json!({"e": "healed", "n": struck.n}));
        }
        self.whole_since = now_us();
        Ok(())
    }

    /// Writes this into the logs of all jobs.
    fn tell_jobs(&self, event: &Value) {
        self.jobs.iter().for_each(|job| job.log.tell(event.clone()));
    }

    /// Runs commands of the lab.
    fn tell_lab(&self, commands: &[Command]) -> Result<()> {
        commands.iter().try_for_each(|command| {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.lab.tell(&words).map(drop)
        })
    }

    fn start(&mut self, at: usize) -> Result<()> {
        // The silent member is one and the same for the whole run.
        let mutant = self.plan.mutant.as_deref().filter(|mutant| *mutant != "silent" || at == 1);
        let machine = &mut self.machines[at];
        machine.start(&self.lab, &self.jobs[machine.job], &self.plan, mutant)
    }

    fn start_again(&mut self, at: usize) -> Result<()> {
        let machine = &mut self.machines[at];
        machine.keep_words(&self.jobs[machine.job])?;
        self.calls += machine.watch.take().map_or(0, |watch| watch.calls);
        machine.life += 1;
        self.start(at)
    }

    fn strike(&mut self) -> Result<()> {
        let fault = loop {
            let fault = Fault::drawn(&mut self.chance);
            if self.plan.faults.is_empty()
                || self.plan.faults.iter().any(|name| name == fault.name())
            {
                break fault;
            }
        };
        self.next = Instant::now() + self.pause();
        let victim = self.chance.below(self.machines.len());
        let (job, at) = (self.machines[victim].job, self.machines[victim].machine.clone());
        let is_of_job = |machine: &&Machine| machine.job == job;
        let away = self
            .machines
            .iter()
            .filter(is_of_job)
            .filter(|machine| machine.child.is_none() || machine.is_stopped || machine.leaves);
        let is_busy = self.struck.iter().any(|struck| self.machines[struck.victim].machine == at);
        let has_begun = self.machines[victim].watch.as_ref().is_some_and(Tail::has_begun);
        // Two others at least go on, and there are not more faults than a few at a time.
        if is_busy
            || fault == Fault::Leave && !has_begun
            || self.struck.len() > 1
            || fault_of_process(fault)
                && away.count() + 3 > self.machines.iter().filter(is_of_job).count()
            // Only the first job has disks of its own.
            || fault == Fault::DiskFull && job != 0
        {
            return Ok(());
        }
        let n = self.count;
        let elsewhere: Vec<&Machine> = self.machines.iter().filter(|m| m.machine != at).collect();
        let other = elsewhere[self.chance.below(elsewhere.len())].machine.clone();
        let jobs = self.tell_struck(fault, victim);
        let machine = &mut self.machines[victim];
        let (node, life) = (machine.name.clone(), machine.life);
        let mut cure = Vec::new();
        match fault {
            Fault::Kill => {
                let child = machine.child.as_mut().context("it runs")?;
                child.kill()?;
                let killed = json!({"e": "killed", "node": node, "life": life});
                self.jobs[machine.job].log.tell(killed);
                // It writes nothing more; its earlier output is kept.
                child.wait(Duration::from_secs(10))?;
                machine.leaves = true;
            }
            Fault::Leave => {
                machine.child.as_mut().context("it runs")?.terminate()?;
                machine.leaves = true;
            }
            Fault::Stop => {
                machine.child.as_mut().context("it runs")?.stop()?;
                machine.is_stopped = true;
            }
            _ => {
                let begin;
                (begin, cure) = strike(fault, &self.lab, (&at, &other), &mut self.chance)?;
                self.tell_lab(&begin)?;
            }
        }
        self.count += 1;
        let until = Instant::now() + fault.lasts(&mut self.chance);
        self.struck.push(Struck { n, fault, victim, jobs, until, cure });
        Ok(())
    }

    /// Logs a fault in the jobs that it strikes, and returns these: a fault of a machine strikes
    /// its processes of all jobs.
    fn tell_struck(&self, fault: Fault, victim: usize) -> Vec<usize> {
        let is_alone = fault_of_process(fault) || fault == Fault::DiskFull;
        let at = &self.machines[victim].machine;
        let mut jobs = Vec::new();
        for (place, Machine { name, job, machine, .. }) in self.machines.iter().enumerate() {
            if place == victim || !is_alone && machine == at {
                let (n, kind) = (self.count, fault.name());
                let struck = json!({"e": "struck", "n": n, "kind": kind, "who": [name]});
                self.jobs[*job].log.tell(struck);
                jobs.push(*job);
            }
        }
        jobs
    }

    /// Until the next fault: mostly short, now and then long enough for a group without faults.
    fn pause(&mut self) -> Duration {
        let ms = match self.chance.below(10) {
            0 => 8000 + self.chance.below(6000),
            1..4 => 2000 + self.chance.below(3000),
            _ => self.chance.below(1500),
        };
        Duration::from_millis(ms as u64)
    }

    /// A process that the conductor did not end has not ended.
    fn nobody_ended(&mut self) -> Result<()> {
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            let (Some(child), false) = (&mut machine.child, machine.leaves) else { continue };
            if let Ok(status) = child.wait(Duration::ZERO) {
                let said = child.stderr();
                let last = said[said.len().saturating_sub(5)..].join("; ");
                self.hang = Some(format!("{} has ended by itself: {status}: {last}", machine.name));
            }
        }
        Ok(())
    }

    /// Waits until all faults have ended, and then until nothing is suspect.
    fn quiet(&mut self) -> Result<()> {
        let mut calm: Option<Instant> = None;
        while self.hang.is_none() {
            self.turn()?;
            let all = self.struck.is_empty() && !hangs::is_suspect(&self.machines);
            if !all {
                calm = None;
            } else if calm.get_or_insert_with(Instant::now).elapsed() > QUIET {
                return self.ask_observer();
            }
        }
        Ok(())
    }

    /// The observer sees every process of both jobs.
    fn ask_observer(&mut self) -> Result<()> {
        let names: Vec<&str> = self.machines.iter().map(|machine| machine.name.as_str()).collect();
        self.observer.tell(&names.join(" "))?;
        if let Err(error) = self.observer.wait_for_line(|line| line == "seen", hangs::VIEW) {
            self.hang = Some(format!("the observer does not see all processes: {error:#}"));
        }
        Ok(())
    }

    /// Asks all to end together.
    fn end(&mut self) -> Result<()> {
        // The group does not continue after this point.
        let who = Vec::<Value>::new();
        self.tell_jobs(&json!({"e": "struck", "n": self.count, "kind": "end", "who": who}));
        for machine in &mut self.machines {
            machine.child.as_mut().context("it runs")?.tell("finish")?;
            machine.leaves = true;
        }
        let until = Instant::now() + ENDING;
        for machine in &mut self.machines {
            let child = machine.child.as_mut().context("it runs")?;
            let left = until.saturating_duration_since(Instant::now());
            match child.wait(left) {
                Ok(status) if status.success() => {}
                Ok(status) => self.hang = Some(format!("{} ended with {status}", machine.name)),
                Err(_) => self.hang = Some(format!("{} does not end when asked to", machine.name)),
            }
        }
        self.tell_jobs(&json!({"e": "healed", "n": self.count}));
        Ok(())
    }

    /// Checks what is there so far for the mutant that is sought.
    fn look(&mut self) -> Result<Option<Report>> {
        let mut report = check(&self.folder, self.plan.seed)?;
        // The run goes on, so calls are open.
        report.violations.retain(|violation| violation.claim != "open");
        Ok((!report.violations.is_empty()).then_some(report))
    }

    fn calls(&self) -> u64 {
        let running = self.machines.iter().filter_map(|machine| machine.watch.as_ref());
        self.calls + running.map(|watch| watch.calls).sum::<u64>()
    }
}

fn fault_of_process(fault: Fault) -> bool {
    fault.ends_process() || fault == Fault::Stop
}
