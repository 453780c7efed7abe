//! Machines that are not alike: what the measured plan gains over Gloo's ring, and how far it is from the best that the cables allow.
//!
//! As in `gloo.rs` all groups of a profile are up at the same time, each in a lab of its own, and called by turns.

use crate::Extent;
use crate::machine::{Engine, Machines, PATIENCE, median};
use crate::report::{Report, time};
use anyhow::{Context, Result, bail, ensure};
use potluck_harness::Child;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const LARGE: usize = 64 * MIB;
/// Of a line rate, what is left for TCP's payload on Ethernet.
const PAYLOAD: f64 = 0.9415;
/// Where all are alike nothing can be won, and nothing shall be lost.
const EVEN: f64 = 1.08;
/// Measuring twelve paths takes two seconds where nothing else goes on.
const MEASURED_WITHIN: Duration = Duration::from_secs(30);

/// A profile of the lab, with the line rates of its machines in Mbit/s.
struct Case {
    profile: &'static str,
    rates: [f64; 4],
    rounds: usize,
}

const CASES: [Case; 3] = [
    Case { profile: "mixed4", rates: [1000.0, 1000.0, 300.0, 100.0], rounds: 5 },
    Case { profile: "slow1", rates: [1000.0, 1000.0, 1000.0, 200.0], rounds: 7 },
    Case { profile: "gbe4", rates: [1000.0; 4], rounds: 9 },
];

pub fn measure(extent: Extent) -> Result<ExitCode> {
    let mut report = Report::printed();
    let gloo = bare_program();
    if let Err(reason) = &gloo {
        report.failure(format!("no comparison with Gloo: {reason}"));
    }
    report.line(
        "\n| machines | bound | Gloo's ring | x bound | potluck | x bound | Gloo / potluck | forecast | 1 MiB | forecast | int8 | Gloo / int8 |",
    );
    report.line(&format!("|{}", " --- |".repeat(12)));
    let mut plans = Vec::new();
    for case in &CASES {
        let rounds = if extent == Extent::Quick { 2 } else { case.rounds };
        match compare(case, rounds, gloo.as_deref().ok(), &mut report) {
            Ok(known) => plans.push(format!("{}: {}. {}", case.profile, known.plan, known.rates(&case.rates))),
            Err(error) => report.failure(format!("{}: {error:#}", case.profile)),
        }
    }
    plans.iter().for_each(|plan| report.line(&format!("\n{plan}")));
    report.finish()
}

fn bare_program() -> Result<std::path::PathBuf> {
    let program = std::env::current_exe()?.with_file_name("bare-gloo");
    ensure!(program.is_file(), "there is no `bare-gloo` beside this program; `make bench-topology` builds it where Gloo is");
    Ok(program)
}

/// One row. Gives what the group knew of its links.
fn compare(case: &Case, rounds: usize, gloo: Option<&Path>, report: &mut Report) -> Result<Known> {
    let mut ours = Group::up(case.profile, None)?;
    let mut theirs = gloo.map(|program| Group::up(case.profile, Some(program))).transpose()?;
    let known = ours.until_measured(case)?;
    for group in theirs.iter_mut().chain([&mut ours]) {
        group.check(LARGE, Wire::F32)?;
    }
    ours.check(LARGE, Wire::Int8)?;
    let (mut our_s, mut their_s, mut small_s, mut int8_s) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Who comes first changes.
        for turn in 0..2 {
            match (turn + round) % 2 {
                0 => our_s.push(ours.call(LARGE, Wire::F32)?),
                _ => their_s.extend(theirs.as_mut().map(|theirs| theirs.call(LARGE, Wire::F32)).transpose()?),
            }
        }
        for _ in 0..5 {
            small_s.push(ours.call(MIB, Wire::F32)?);
        }
        int8_s.push(ours.call(LARGE, Wire::Int8)?);
    }
    let (bound, our_s, small_s) = (bound_s(&case.rates), median(&our_s), median(&small_s));
    let int8_s = median(&int8_s);
    let their_s = if their_s.is_empty() { f64::NAN } else { median(&their_s) };
    let forecasts = [known.forecast_s(LARGE)?, known.forecast_s(MIB)?];
    report.line(&format!(
        "| {} | {} | {} | {:.2} | {} | {:.2} | {:.2} | {} | {} | {} | {} | {:.2} |",
        case.profile,
        time(bound),
        time(their_s),
        their_s / bound,
        time(our_s),
        our_s / bound,
        their_s / our_s,
        time(forecasts[0]),
        time(small_s),
        time(forecasts[1]),
        time(int8_s),
        their_s / int8_s
    ));
    let uneven = case.rates.iter().any(|rate| *rate != case.rates[0]);
    report.must(&format!("{}, 64 MiB, x bound", case.profile), our_s / bound, if uneven { 1.15 } else { EVEN });
    if their_s.is_finite() {
        let most = if uneven { 1.0 / 1.38 } else { 1.02 };
        report.must(&format!("{}, 64 MiB, to Gloo's ring", case.profile), our_s / their_s, most);
    }
    if case.profile == "mixed4" && their_s.is_finite() {
        report.must("mixed4, 64 MiB in eight bits, to Gloo's ring", int8_s / their_s, 1.0 / 4.0);
    }
    // What was odd has been measured again while the others had their turns.
    let known_then = ours.until_measured(case)?;
    report.must(&format!("{}, rates measured, farthest off", case.profile), known_then.farthest_off(&case.rates), 0.1);
    for (what, forecast_s, took_s) in [("64 MiB", forecasts[0], our_s), ("1 MiB", forecasts[1], small_s)] {
        report.must(&format!("{}, {what}, forecast off by", case.profile), (forecast_s / took_s - 1.0).abs(), 0.25);
    }
    ours.end()?;
    theirs.map_or(Ok(()), Group::end)?;
    Ok(known_then)
}

/// The least time at line rate: the slowest machine lets its numbers out and the sum in, and all together pass `2 (n - 1)` buffers,
/// none more than `n - 1`.
fn bound_s(mbit: &[f64]) -> f64 {
    let most = mbit.len() as f64 - 1.0;
    let buffer_s = |mbit: f64| LARGE as f64 * 8e-6 / mbit;
    let passed = |s: f64| mbit.iter().map(|mbit| (s / buffer_s(*mbit)).min(most)).sum::<f64>();
    let slowest = mbit.iter().map(|mbit| buffer_s(*mbit)).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, most * slowest);
    while high - low > 1e-9 * high {
        let middle = (low + high) / 2.0;
        if passed(middle) < 2.0 * most { low = middle } else { high = middle }
    }
    high.max(slowest)
}

/// What a group knows of its links.
struct Known {
    plan: String,
    revision: u64,
    /// From, to, kbit/s.
    paths: Vec<(usize, usize, f64)>,
    forecasts: Vec<(u64, f64)>,
}

impl Known {
    fn of(answer: &Value) -> Result<Known> {
        let rows = |name: &str| answer[name].as_array().with_context(|| format!("no {name}: {answer}"));
        let number = |value: &Value| value.as_f64().context("a number");
        let path = |row: &Value| Ok((number(&row[0])? as usize, number(&row[1])? as usize, number(&row[2])?));
        let forecast = |row: &Value| Ok((number(&row[0])? as u64, number(&row[1])?));
        Ok(Known {
            plan: answer["plan"].as_str().context("a plan")?.to_owned(),
            revision: answer["revision"].as_u64().context("a revision")?,
            paths: rows("paths")?.iter().map(path).collect::<Result<_>>()?,
            forecasts: rows("forecasts")?.iter().map(forecast).collect::<Result<_>>()?,
        })
    }

    fn forecast_s(&self, bytes: usize) -> Result<f64> {
        let found = self.forecasts.iter().find(|(of, _)| *of == bytes as u64);
        found.map(|(_, s)| *s).with_context(|| format!("no forecast for {bytes} bytes"))
    }

    /// Each rate in parts of what the cables carry.
    fn of_the_cables(&self, mbit: &[f64]) -> impl Iterator<Item = f64> {
        let carried = |from: usize, to: usize| mbit[from].min(mbit[to]) * 1e3 * PAYLOAD;
        self.paths.iter().map(move |(from, to, kbps)| kbps / carried(*from, *to))
    }

    /// The largest part by which a rate differs from what the cables carry.
    fn farthest_off(&self, mbit: &[f64]) -> f64 {
        self.of_the_cables(mbit).map(|part| (part - 1.0).abs()).fold(0.0, f64::max)
    }

    fn rates(&self, mbit: &[f64]) -> String {
        let least = self.of_the_cables(mbit).fold(f64::INFINITY, f64::min);
        let most = self.of_the_cables(mbit).fold(0.0, f64::max);
        format!("Rates were measured as {least:.2} to {most:.2} of what the cables carry")
    }
}

/// How f32 travels.
#[derive(Clone, Copy)]
enum Wire {
    F32,
    /// In eight bits, which bare Gloo does not know.
    Int8,
}

/// Peers on machines of their own that wait for orders: bare Gloo, or ours.
struct Group {
    peers: Vec<Child>,
    bare: bool,
    _machines: Machines,
}

impl Group {
    fn up(profile: &'static str, bare: Option<&Path>) -> Result<Group> {
        let machines = Machines::up(profile, 4)?;
        let start = |n: usize| match bare {
            Some(program) => machines.bare(n, 4, program),
            None => machines.serve(n, 4, "-", Engine::Native),
        };
        let mut peers: Vec<Child> = (1..=4).map(start).collect::<Result<_>>()?;
        for peer in &mut peers {
            let ready = said(peer)?;
            ensure!(ready["ready"] == true, "not ready: {ready}");
        }
        Ok(Group { peers, bare: bare.is_some(), _machines: machines })
    }

    /// Waits until everybody knows of all paths what they carry, and, where the machines are not alike, goes by a plan made of that.
    fn until_measured(&mut self, case: &Case) -> Result<Known> {
        let (began, pairs) = (Instant::now(), self.peers.len() * (self.peers.len() - 1));
        // By hosts, which are numbered as the profile has them; ranks are not.
        let uneven = u64::from(case.rates.iter().any(|rate| *rate != case.rates[0]));
        loop {
            let answers = self.ask("plan")?;
            let known = answers.iter().map(Known::of).collect::<Result<Vec<Known>>>()?;
            let complete = known.iter().all(|k| k.paths.len() == pairs && k.revision >= uneven && k.plan == known[0].plan);
            if let Some(first) = known.into_iter().next().filter(|_| complete) {
                return Ok(first);
            }
            if began.elapsed() > MEASURED_WITHIN {
                bail!("the links are not measured after {MEASURED_WITHIN:?}: {answers:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A fast wrong sum is worth nothing. Also warms up.
    fn check(&mut self, bytes: usize, wire: Wire) -> Result<()> {
        let answers = self.ask(&self.order(bytes, 0, wire))?;
        ensure!(answers.iter().all(|answer| answer["right"] == true), "a wrong sum at {bytes} bytes");
        Ok(())
    }

    /// Seconds of the member for which the call takes longest.
    fn call(&mut self, bytes: usize, wire: Wire) -> Result<f64> {
        let answers = self.ask(&self.order(bytes, 1, wire))?;
        let times = answers.iter().map(|answer| answer["us"][0].as_f64().with_context(|| format!("no time: {answer}")));
        Ok(times.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max) / 1e6)
    }

    fn order(&self, bytes: usize, calls: usize, wire: Wire) -> String {
        match wire {
            Wire::F32 if self.bare => format!("{bytes} ring {calls}"),
            Wire::F32 => format!("{bytes} {calls}"),
            Wire::Int8 => format!("{bytes} {calls} int8"),
        }
    }

    fn ask(&mut self, order: &str) -> Result<Vec<Value>> {
        self.peers.iter_mut().try_for_each(|peer| peer.tell(order))?;
        self.peers.iter_mut().map(said).collect()
    }

    fn end(mut self) -> Result<()> {
        self.peers.iter_mut().for_each(Child::end_input);
        for peer in &mut self.peers {
            let status = peer.wait(PATIENCE)?;
            ensure!(status.success(), "a peer ended with {status}: {:?}", peer.stderr().last());
        }
        Ok(())
    }
}

/// The next line of JSON.
fn said(peer: &mut Child) -> Result<Value> {
    Ok(serde_json::from_str(&peer.wait_for_line(|line| line.starts_with('{'), PATIENCE)?)?)
}
