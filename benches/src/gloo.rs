//! Gloo beside Gloo: potluck's Gloo engine against Gloo's own transport, in one run, by turns.
//!
//! All groups of one row are up at the same time, each in a lab of its own, and one after the other is told to do some calls;
//! so whatever else the machine does meets all of them. Who is not called waits.

use crate::Extent;
use crate::beside::{Beside, Series, Taken, begin, row};
use crate::machine::{Engine, Machines, PATIENCE, median};
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use serde_json::Value;
use std::path::{Path, PathBuf};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Buffers of one length: so many calls in a row for each group, in so many rounds.
#[derive(Clone, Copy)]
struct Work {
    bytes: usize,
    calls: usize,
    rounds: usize,
}

const fn work(bytes: usize, calls: usize, rounds: usize) -> Work {
    Work { bytes, calls, rounds }
}

const QUICK: [Work; 3] = [work(4 * KIB, 30, 3), work(MIB, 5, 3), work(64 * MIB, 1, 3)];
const FULL: [Work; 7] = [
    work(4 * KIB, 50, 9),
    work(16 * KIB, 50, 9),
    work(32 * KIB, 50, 9),
    work(64 * KIB, 30, 9),
    work(MIB, 10, 9),
    work(16 * MIB, 2, 7),
    work(64 * MIB, 1, 7),
];

/// Up to here bcube is worth a look: it is for small buffers, and potluck takes it so far.
const SMALL: usize = MIB;

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    let program = match bare_program() {
        Ok(program) => program,
        Err(reason) => {
            report.line(&format!("\n### Gloo beside Gloo\n\nNot measured: {reason}."));
            return Ok(());
        }
    };
    let (sizes, works): (&[usize], &[Work]) = match extent {
        Extent::Quick => (&[2, 4], &QUICK),
        Extent::Full => (&[2, 3, 4], &FULL),
    };
    for profile in ["lo", "gbe4"] {
        begin(report, profile);
        // Told below the table, which they would break.
        let mut failures = Vec::new();
        for size in sizes.iter().copied() {
            let (groups, failed) = groups(profile, size, &program);
            failures.extend(failed);
            if let Err(error) = beside(groups, works, report) {
                failures.push(format!("Gloo beside Gloo, {profile}, {size} machines: {error:#}"));
            }
        }
        failures.into_iter().for_each(|failure| report.failure(failure));
    }
    Ok(())
}

/// Bare Gloo, which `scripts/bench.sh` puts beside this program; or why there is nothing to compare.
fn bare_program() -> Result<PathBuf, &'static str> {
    if !cfg!(feature = "gloo") {
        return Err("this program was built without the feature `gloo`");
    }
    let program = std::env::current_exe().map_err(|_| "this program's path is unknown")?.with_file_name("bare-gloo");
    if program.is_file() { Ok(program) } else { Err("there is no `bare-gloo` beside this program; `make bench` builds it") }
}

/// One that does not come up leaves the others worth a look.
fn groups(profile: &'static str, size: usize, program: &Path) -> (Vec<Group>, Vec<String>) {
    let (mut up, mut failures) = (Vec::new(), Vec::new());
    for kind in [Kind::Bare, Kind::Plain, Kind::Encrypted, Kind::Native] {
        match Group::up(kind, profile, size, program) {
            Ok(group) => up.push(group),
            Err(error) => failures.push(format!("{kind:?}, {profile}, {size} machines: {error:#}")),
        }
    }
    (up, failures)
}

fn beside(mut groups: Vec<Group>, works: &[Work], report: &mut Report) -> Result<()> {
    let Some((profile, size)) = groups.first().map(|group| (group.profile, group.peers.len())) else { return Ok(()) };
    for work in works {
        let taken = by_turns(&mut groups, *work)?;
        row(report, &Beside { profile, size, bytes: work.bytes, taken });
    }
    groups.into_iter().try_for_each(Group::end)
}

/// All series with one length of buffer, round after round.
fn by_turns(groups: &mut [Group], work: Work) -> Result<Vec<(Series, Taken)>> {
    let mut turns = Vec::new();
    for series in Series::ALL.into_iter().filter(|series| *series != Series::BareBcube || work.bytes <= SMALL) {
        if let Some(at) = groups.iter().position(|group| group.kind == Kind::of(series)) {
            groups[at].check(series, work.bytes).with_context(|| format!("{series:?}"))?;
            turns.push((series, at, Calls::default()));
        }
    }
    for round in 0..work.rounds {
        // Who comes first changes; who comes behind whom stays.
        let first = round % turns.len();
        let (late, early) = turns.split_at_mut(first);
        for (series, at, calls) in early.iter_mut().chain(late) {
            calls.add(&groups[*at].call(*series, work.bytes, work.calls).with_context(|| format!("{series:?}"))?);
        }
    }
    Ok(turns.iter().map(|(series, _, calls)| (*series, calls.taken(work.bytes))).collect())
}

/// Who does the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bare,
    Plain,
    Encrypted,
    Native,
}

impl Kind {
    fn of(series: Series) -> Kind {
        match series {
            Series::BareRing | Series::BareBcube => Kind::Bare,
            Series::Plain => Kind::Plain,
            Series::Encrypted => Kind::Encrypted,
            Series::Native => Kind::Native,
        }
    }
}

/// A group of one kind, on machines of its own, that waits for orders.
struct Group {
    kind: Kind,
    profile: &'static str,
    peers: Vec<Child>,
    /// Goes after the processes on it.
    _machines: Machines,
}

impl Group {
    fn up(kind: Kind, profile: &'static str, size: usize, program: &Path) -> Result<Group> {
        let machines = Machines::up(profile, size)?;
        let start = |n: usize| match kind {
            Kind::Bare => machines.bare(n, size, program),
            Kind::Plain => machines.serve(n, size, machines.interface(), Engine::Gloo),
            Kind::Encrypted => machines.serve(n, size, "-", Engine::Gloo),
            Kind::Native => machines.serve(n, size, machines.interface(), Engine::Native),
        };
        let mut peers: Vec<Child> = (1..=size).map(start).collect::<Result<_>>()?;
        let engine = match kind {
            Kind::Bare => Value::Null,
            Kind::Plain | Kind::Encrypted => Engine::Gloo.word().into(),
            Kind::Native => Engine::Native.word().into(),
        };
        for peer in &mut peers {
            let ready = said(peer)?;
            // A figure under the wrong name is worse than none.
            ensure!(ready["ready"] == true && ready["engine"] == engine, "not ready with engine {engine}: {ready}");
        }
        Ok(Group { kind, profile, peers, _machines: machines })
    }

    /// A fast wrong sum is worth nothing. Also warms up.
    fn check(&mut self, series: Series, bytes: usize) -> Result<()> {
        let answers = self.ask(series, bytes, 0)?;
        ensure!(answers.iter().all(|answer| answer["right"] == true), "a wrong sum at {bytes} bytes");
        Ok(())
    }

    fn call(&mut self, series: Series, bytes: usize, calls: usize) -> Result<Calls> {
        let answers = self.ask(series, bytes, calls)?;
        let mut sum = Calls { slowest_us: vec![0.0; calls], cpu_s: 0.0 };
        for answer in &answers {
            let times = answer["us"].as_array().filter(|times| times.len() == calls).context("a time for every call")?;
            for (slowest, time) in sum.slowest_us.iter_mut().zip(times) {
                *slowest = slowest.max(time.as_f64().context("a time")?);
            }
            sum.cpu_s += answer["cpu_s"].as_f64().context("processor time")?;
        }
        Ok(sum)
    }

    fn ask(&mut self, series: Series, bytes: usize, calls: usize) -> Result<Vec<Value>> {
        let order = match series {
            Series::BareRing => format!("{bytes} ring {calls}"),
            Series::BareBcube => format!("{bytes} bcube {calls}"),
            Series::Plain | Series::Encrypted | Series::Native => format!("{bytes} {calls}"),
        };
        self.peers.iter_mut().try_for_each(|peer| peer.tell(&order))?;
        self.peers.iter_mut().map(said).collect()
    }

    fn end(mut self) -> Result<()> {
        self.peers.iter_mut().for_each(Child::end_input);
        for peer in &mut self.peers {
            let status = peer.wait(PATIENCE)?;
            ensure!(status.success(), "{:?} ended with {status}: {:?}", self.kind, peer.stderr().last());
        }
        Ok(())
    }
}

/// The next line of JSON.
fn said(peer: &mut Child) -> Result<Value> {
    Ok(serde_json::from_str(&peer.wait_for_line(|line| line.starts_with('{'), PATIENCE)?)?)
}

/// What one series has done so far with one length of buffer.
#[derive(Default)]
struct Calls {
    /// Of each call the time of the member for which it took longest.
    slowest_us: Vec<f64>,
    /// Of all members.
    cpu_s: f64,
}

impl Calls {
    fn add(&mut self, more: &Calls) {
        self.slowest_us.extend(&more.slowest_us);
        self.cpu_s += more.cpu_s;
    }

    fn taken(&self, bytes: usize) -> Taken {
        let gib = (bytes * self.slowest_us.len()) as f64 / (1u64 << 30) as f64;
        Taken { seconds: median(&self.slowest_us) / 1e6, cpu: self.cpu_s / gib }
    }
}
