//! Heterogeneous machines: the gain of the measured plan over Gloo's ring, and its distance from
//! the optimum that the cables allow.
//!
//! As in `gloo.rs`, all groups of a profile run at the same time, each in its own lab, and are
//! called in turns. For machines with direct cables and no switch there is no contender. Shared
//! segments are in `segments.rs`, a radio in `radio.rs`.

use crate::Extent;
use crate::group::{Group, Who};
use crate::machine::{Engine, Machines, bare_program};
use crate::radio::{self, RADIO};
use crate::report::{Report, time};
use crate::segments;
use crate::turns::Turns;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Calls with 1 MiB per call with 64 MiB.
const SMALL_CALLS: usize = 5;
/// The algorithm of bare Gloo.
const RING: &str = "ring";
const LARGE: usize = 64 * MIB;
/// The share of an Ethernet line rate that remains for TCP payload.
const PAYLOAD: f64 = 0.9415;
/// The bound where all machines are alike: nothing can be gained, and nothing may be lost.
const EVEN: f64 = 1.08;
/// Measuring twelve paths takes two seconds on an idle machine.
pub const MEASURED_WITHIN: Duration = Duration::from_secs(30);

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

/// Machines that are joined by equal direct cables.
struct Cables {
    profile: &'static str,
    machines: usize,
    cables: usize,
    /// A part of the text of the expected plan.
    plan: &'static str,
}

const CABLES: [Cables; 3] = [
    Cables { profile: "direct3", machines: 3, cables: 3, plan: "over trees to" },
    Cables { profile: "chain4", machines: 4, cables: 3, plan: "a tree" },
    Cables { profile: "ring4", machines: 4, cables: 4, plan: "over trees to" },
];

/// The line rates of the cables in Mbit/s, and how often each is measured. The cables of a ring
/// together carry twice as much as a switch with four gigabit machines, more than two cores can
/// encrypt. At a third of the rate the cables are the bottleneck.
const CABLE_RATES: [(u32, usize); 2] = [(1000, 9), (300, 5)];

pub fn measure(extent: Extent, only: Option<&str>) -> Result<ExitCode> {
    let is_wanted = |profile: &str| only.is_none_or(|only| only == profile);
    ensure!(
        is_wanted(RADIO)
            || CASES.iter().any(|case| is_wanted(case.profile))
            || only.is_some_and(segments::has),
        "no such profile: {only:?}"
    );
    let mut report = Report::printed();
    let gloo = bare_program();
    if let Err(reason) = &gloo {
        report.failure(format!("no comparison with Gloo: {reason}"));
    }
    if CASES.iter().any(|case| is_wanted(case.profile)) {
        report.line(
            "\n| machines | bound | Gloo's ring | x bound | potluck | x bound | Gloo / potluck | \
         forecast | 1 MiB | forecast | int8 | Gloo / int8 |",
        );
        report.line(&format!("|{}", " --- |".repeat(12)));
    }
    let mut plans = Vec::new();
    for case in CASES.iter().filter(|case| is_wanted(case.profile)) {
        let rounds = if extent == Extent::Quick { 2 } else { case.rounds };
        match compare(case, rounds, gloo.as_deref().ok(), &mut report) {
            Ok(known) => plans.push(format!(
                "{}: {}. {}",
                case.profile,
                known.plan,
                known.rates(&case.rates)
            )),
            Err(error) => report.failure(format!("{}: {error:#}", case.profile)),
        }
    }
    if only.is_none() {
        plans.extend(all_cables(extent, &mut report));
    }
    plans.extend(segments::all(extent, is_wanted, gloo.as_deref().ok(), &mut report));
    plans.iter().for_each(|plan| report.line(&format!("\n{plan}")));
    if is_wanted(RADIO)
        && let Err(error) = radio::compare(extent, gloo.as_deref().ok(), &mut report)
    {
        report.failure(format!("{RADIO}: {error:#}"));
    }
    report.finish()
}

/// Runs only the part on machines without a switch.
pub fn measure_cables(extent: Extent) -> Result<ExitCode> {
    let mut report = Report::printed();
    let plans = all_cables(extent, &mut report);
    plans.iter().for_each(|plan| report.line(&format!("\n{plan}")));
    report.finish()
}

/// Runs only the part on homes with shared segments.
pub fn measure_segments(extent: Extent) -> Result<ExitCode> {
    let mut report = Report::printed();
    let gloo = bare_program();
    if let Err(reason) = &gloo {
        report.failure(format!("no comparison with Gloo: {reason}"));
    }
    let plans = segments::all(extent, |_| true, gloo.as_deref().ok(), &mut report);
    plans.iter().for_each(|plan| report.line(&format!("\n{plan}")));
    report.finish()
}

/// One row per profile. Returns the plans.
fn all_cables(extent: Extent, report: &mut Report) -> Vec<String> {
    let mut plans = Vec::new();
    report
        .line("\n| cables, no switch | bound | potluck | x bound | forecast | 1 MiB | forecast |");
    report.line(&format!("|{}", " --- |".repeat(7)));
    for (mbit, rounds) in CABLE_RATES {
        for cables in &CABLES {
            let rounds = if extent == Extent::Quick { 3 } else { rounds };
            match over_cables(cables, mbit, rounds, report) {
                Ok(known) => {
                    plans.push(format!("{} at {mbit} Mbit/s: {}", cables.profile, known.plan));
                }
                Err(error) => report.failure(format!("{}: {error:#}", cables.profile)),
            }
        }
    }
    plans
}

/// One row. Returns the measured links.
fn compare(case: &Case, rounds: usize, gloo: Option<&Path>, report: &mut Report) -> Result<Known> {
    let mut contest = Contest::up(case.profile, gloo, rounds)?;
    let known = until_measured(&mut contest.ours, case)?;
    contest.check(LARGE)?;
    contest.ours.check(LARGE, "int8")?;
    let [mut small, mut int8] = [(); 2].map(|()| Turns::wanted(rounds));
    while contest.go_on() || small.go_on() || int8.go_on() {
        contest.turn(LARGE)?;
        small.add(contest.ours.calls(MIB, SMALL_CALLS, "")?);
        int8.add(contest.ours.calls(LARGE, 1, "int8")?);
    }
    let (bound, small_s, int8_s) = (bound_s(&case.rates, LARGE), small.median_s(), int8.median_s());
    let (our_s, their_s) = contest.medians_s();
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
    report.must(
        &format!("{}, 64 MiB, x bound", case.profile),
        our_s / bound,
        if uneven { 1.15 } else { EVEN },
    );
    if their_s.is_finite() {
        let most = if uneven { 1.0 / 1.38 } else { 1.02 };
        report.must(&format!("{}, 64 MiB, to Gloo's ring", case.profile), our_s / their_s, most);
    }
    if case.profile == "mixed4" && their_s.is_finite() {
        report.must("mixed4, 64 MiB in eight bits, to Gloo's ring", int8_s / their_s, 1.0 / 4.0);
    }
    // Doubtful rates have been measured again during the others' turns.
    let known_then = until_measured(&mut contest.ours, case)?;
    report.must(
        &format!("{}, rates measured, farthest off", case.profile),
        known_then.farthest_off(&case.rates),
        0.1,
    );
    judge_forecasts(report, case.profile, forecasts, [our_s, small_s]);
    contest.end()?;
    Ok(known_then)
}

/// Calls of a potluck group and of bare Gloo, in turns.
pub struct Contest {
    pub ours: Group,
    theirs: Option<Group>,
    turns: [Turns; 2],
    round: usize,
}

impl Contest {
    /// Four machines for each; without `gloo`, potluck is measured alone.
    pub fn up(profile: &'static str, gloo: Option<&Path>, rounds: usize) -> Result<Contest> {
        let ours = ours(Machines::up(profile, 4)?, 4)?;
        let bare = |program| Group::up(Machines::up(profile, 4)?, 4, Who::Bare(program));
        let theirs = gloo.map(bare).transpose()?;
        Ok(Contest { ours, theirs, turns: [(); 2].map(|()| Turns::wanted(rounds)), round: 0 })
    }

    /// Checks a sum of both.
    pub fn check(&mut self, bytes: usize) -> Result<()> {
        self.ours.check(bytes, "")?;
        self.theirs.as_mut().map_or(Ok(()), |theirs| theirs.check(bytes, RING))
    }

    /// Whether another turn is needed.
    pub fn go_on(&self) -> bool {
        self.turns[0].go_on() || self.theirs.is_some() && self.turns[1].go_on()
    }

    /// A call of each. The first contender alternates.
    pub fn turn(&mut self, bytes: usize) -> Result<()> {
        for turn in 0..2 {
            match ((turn + self.round) % 2, &mut self.theirs) {
                (0, _) => self.turns[0].add(self.ours.calls(bytes, 1, "")?),
                (_, Some(theirs)) => self.turns[1].add(theirs.calls(bytes, 1, RING)?),
                (_, None) => {}
            }
        }
        self.round += 1;
        Ok(())
    }

    /// The median times of potluck and of Gloo, which is no number if Gloo is not measured.
    pub fn medians_s(&self) -> (f64, f64) {
        let theirs = if self.theirs.is_some() { self.turns[1].median_s() } else { f64::NAN };
        (self.turns[0].median_s(), theirs)
    }

    pub fn end(self) -> Result<()> {
        self.ours.end()?;
        self.theirs.map_or(Ok(()), Group::end)
    }
}

/// A potluck group on machines of a lab.
pub fn ours(machines: Machines, size: usize) -> Result<Group> {
    Group::up(machines, size, Who::Ours(Engine::Native, "-"))
}

/// Waits until all members know the rates of all paths and, if the machines are heterogeneous, use
/// a plan made from them.
fn until_measured(group: &mut Group, case: &Case) -> Result<Known> {
    let uneven = u64::from(case.rates.iter().any(|rate| *rate != case.rates[0]));
    until_all_know(group, MEASURED_WITHIN, |known| known.revision >= uneven)
}

/// Waits until all members know the rates of all paths and satisfy `more`.
pub fn until_all_know(
    group: &mut Group,
    within: Duration,
    more: impl Fn(&Known) -> bool,
) -> Result<Known> {
    let (began, pairs) = (Instant::now(), group.size() * (group.size() - 1));
    loop {
        let answers = group.ask("plan")?;
        // Identified by the machines' numbers, as in the profile; ranks vary.
        let known = answers.iter().map(Known::of).collect::<Result<Vec<Known>>>()?;
        let complete =
            known.iter().all(|k| k.paths.len() == pairs && more(k) && k.plan == known[0].plan);
        if let Some(first) = known.into_iter().next().filter(|_| complete) {
            return Ok(first);
        }
        if began.elapsed() > within {
            bail!("the links are not measured after {within:?}: {answers:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Machines with equal direct cables. The lower bound: each element must be sent at least `2 (n -
/// 1)` times, and all cables together send as many elements at a time as there are cable
/// directions. For equal cables no other cut of the network is tighter.
fn over_cables(case: &Cables, mbit: u32, rounds: usize, report: &mut Report) -> Result<Known> {
    let machines = Machines::up_at(case.profile, case.machines, mbit)?;
    let mut group = ours(machines, case.machines)?;
    let began = Instant::now();
    let known = loop {
        let known = group.ask("plan")?.iter().map(Known::of).collect::<Result<Vec<Known>>>()?;
        // Rank 0 coordinates the measurements and knows all rates.
        let complete = known.iter().any(|k| k.paths.len() == 2 * case.cables);
        let suits = known.iter().all(|k| k.plan == known[0].plan && k.plan.contains(case.plan));
        if let Some(best) =
            known.into_iter().max_by_key(|k| k.paths.len()).filter(|_| complete && suits)
        {
            break best;
        }
        ensure!(
            began.elapsed() <= MEASURED_WITHIN,
            "the links are not measured after {MEASURED_WITHIN:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    };
    group.check(LARGE, "")?;
    let [mut large, mut small] = [(); 2].map(|()| Turns::wanted(rounds));
    while large.go_on() || small.go_on() {
        large.add(group.calls(LARGE, 1, "")?);
        small.add(group.calls(MIB, SMALL_CALLS, "")?);
    }
    let bound =
        LARGE as f64 * 8e-6 / f64::from(mbit) * (case.machines - 1) as f64 / case.cables as f64;
    let (large_s, small_s) = (large.median_s(), small.median_s());
    let forecasts = [known.forecast_s(LARGE)?, known.forecast_s(MIB)?];
    report.line(&format!(
        "| {}, {mbit} Mbit/s | {} | {} | {:.2} | {} | {} | {} |",
        case.profile,
        time(bound),
        time(large_s),
        large_s / bound,
        time(forecasts[0]),
        time(small_s),
        time(forecasts[1]),
    ));
    let name = format!("{} at {mbit} Mbit/s", case.profile);
    // A gigabit ring exceeds the rate at which two cores encrypt.
    if (case.profile, mbit) != ("ring4", 1000) {
        report.must(&format!("{name}, 64 MiB, x bound"), large_s / bound, 1.15);
    }
    judge_forecasts(report, &name, forecasts, [large_s, small_s]);
    group.end()?;
    Ok(known)
}

/// Compares the predicted times for 64 MiB and 1 MiB with the measured ones.
fn judge_forecasts(report: &mut Report, of: &str, forecasts_s: [f64; 2], took_s: [f64; 2]) {
    for (what, (forecast_s, took_s)) in
        ["64 MiB", "1 MiB"].into_iter().zip(forecasts_s.into_iter().zip(took_s))
    {
        report.must(
            &format!("{of}, {what}, forecast off by"),
            (forecast_s / took_s - 1.0).abs(),
            0.25,
        );
    }
}

/// The lower bound at line rate: the slowest machine sends its contribution and receives the sum,
/// and all machines together send `2 (n - 1)` buffers, none of them more than `n - 1`.
pub fn bound_s(mbit: &[f64], bytes: usize) -> f64 {
    let most = mbit.len() as f64 - 1.0;
    let buffer_s = |mbit: f64| bytes as f64 * 8e-6 / mbit;
    let passed = |s: f64| mbit.iter().map(|mbit| (s / buffer_s(*mbit)).min(most)).sum::<f64>();
    let slowest = mbit.iter().map(|mbit| buffer_s(*mbit)).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, most * slowest);
    while high - low > 1e-9 * high {
        let middle = (low + high) / 2.0;
        if passed(middle) < 2.0 * most { low = middle } else { high = middle }
    }
    high.max(slowest)
}

/// The measured links of a group.
pub struct Known {
    pub plan: String,
    pub revision: u64,
    /// The number of paths that leave by a port of a shared medium.
    pub shared: u64,
    /// From, to, kbit/s.
    pub paths: Vec<(usize, usize, f64)>,
    forecasts: Vec<(u64, f64)>,
}

impl Known {
    fn of(answer: &Value) -> Result<Known> {
        let rows =
            |name: &str| answer[name].as_array().with_context(|| format!("no {name}: {answer}"));
        let number = |value: &Value| value.as_f64().context("a number");
        let path = |row: &Value| {
            Ok((number(&row[0])? as usize, number(&row[1])? as usize, number(&row[2])?))
        };
        let forecast = |row: &Value| Ok((number(&row[0])? as u64, number(&row[1])?));
        Ok(Known {
            plan: answer["plan"].as_str().context("a plan")?.to_owned(),
            revision: answer["revision"].as_u64().context("a revision")?,
            shared: answer["shared"].as_u64().context("how many share")?,
            paths: rows("paths")?.iter().map(path).collect::<Result<_>>()?,
            forecasts: rows("forecasts")?.iter().map(forecast).collect::<Result<_>>()?,
        })
    }

    pub fn forecast_s(&self, bytes: usize) -> Result<f64> {
        let found = self.forecasts.iter().find(|(of, _)| *of == bytes as u64);
        found.map(|(_, s)| *s).with_context(|| format!("no forecast for {bytes} bytes"))
    }

    /// Each rate relative to the cable's rate.
    fn of_the_cables(&self, mbit: &[f64]) -> impl Iterator<Item = f64> {
        let carried = |from: usize, to: usize| mbit[from].min(mbit[to]) * 1e3 * PAYLOAD;
        self.paths.iter().map(move |(from, to, kbps)| kbps / carried(*from, *to))
    }

    /// The largest relative difference of a rate from the cable's rate.
    fn farthest_off(&self, mbit: &[f64]) -> f64 {
        self.of_the_cables(mbit).map(|part| (part - 1.0).abs()).fold(0.0, f64::max)
    }

    fn rates(&self, mbit: &[f64]) -> String {
        let least = self.of_the_cables(mbit).fold(f64::INFINITY, f64::min);
        let most = self.of_the_cables(mbit).fold(0.0, f64::max);
        format!("Rates were measured as {least:.2} to {most:.2} of the cables' rates")
    }
}
