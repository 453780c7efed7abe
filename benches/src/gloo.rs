//! Compares potluck's engines with bare Gloo in one run, in turns.
//!
//! All groups of a row run at the same time, each in its own lab, and make some calls one after the
//! other. So other load on the machine affects all of them. The groups that are not called are
//! idle.

use crate::Extent;
use crate::beside::{Beside, Series, Taken, begin, row};
use crate::group::{Group, Who};
use crate::machine::{Engine, Machines, bare_program};
use crate::report::Report;
use crate::turns::Turns;
use anyhow::{Context, Result, ensure};
use std::path::Path;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Buffers of one length: the number of calls per turn, and the number of rounds.
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

/// The largest buffer for which bcube is measured: it is meant for small buffers, and potluck uses
/// it up to this size.
const SMALL: usize = MIB;

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    let program = match with_gloo().and_then(|()| bare_program()) {
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
        // Printed below the table, because they would interrupt it.
        let mut failures = Vec::new();
        for size in sizes.iter().copied() {
            let (rivals, failed) = rivals(profile, size, &program);
            failures.extend(failed);
            if let Err(error) = beside(rivals, works, report) {
                failures.push(format!("Gloo beside Gloo, {profile}, {size} machines: {error:#}"));
            }
        }
        failures.into_iter().for_each(|failure| report.failure(failure));
    }
    Ok(())
}

fn with_gloo() -> Result<()> {
    ensure!(cfg!(feature = "gloo"), "this program was built without the feature `gloo`");
    Ok(())
}

/// If one contender cannot start, the others are measured anyway.
fn rivals(profile: &'static str, size: usize, program: &Path) -> (Vec<Rival>, Vec<String>) {
    let (mut up, mut failures) = (Vec::new(), Vec::new());
    for kind in [Kind::Bare, Kind::Plain, Kind::Encrypted, Kind::Native] {
        match Rival::up(kind, profile, size, program) {
            Ok(rival) => up.push(rival),
            Err(error) => failures.push(format!("{kind:?}, {profile}, {size} machines: {error:#}")),
        }
    }
    (up, failures)
}

fn beside(mut rivals: Vec<Rival>, works: &[Work], report: &mut Report) -> Result<()> {
    let Some((profile, size)) = rivals.first().map(|rival| (rival.profile, rival.group.size()))
    else {
        return Ok(());
    };
    for work in works {
        let taken = by_turns(&mut rivals, *work)?;
        row(report, &Beside { profile, size, bytes: work.bytes, taken });
    }
    rivals.into_iter().try_for_each(|rival| rival.group.end())
}

/// All series for one length of buffer, round by round.
fn by_turns(rivals: &mut [Rival], work: Work) -> Result<Vec<(Series, Taken)>> {
    let mut series_of = Vec::new();
    for series in
        Series::ALL.into_iter().filter(|series| *series != Series::BareBcube || work.bytes <= SMALL)
    {
        if let Some(at) = rivals.iter().position(|rival| rival.kind == Kind::of(series)) {
            rivals[at]
                .group
                .check(work.bytes, series.how())
                .with_context(|| format!("{series:?}"))?;
            series_of.push((series, at, Turns::wanted(work.rounds)));
        }
    }
    let mut round = 0;
    while series_of.iter().any(|(_, _, turns)| turns.go_on()) {
        // The first contender rotates; the order is fixed.
        let first = round % series_of.len();
        let (late, early) = series_of.split_at_mut(first);
        for (series, at, turns) in early.iter_mut().chain(late) {
            let turn = rivals[*at].group.calls(work.bytes, work.calls, series.how());
            turns.add(turn.with_context(|| format!("{series:?}"))?);
        }
        round += 1;
    }
    let gib = work.bytes as f64 / (1u64 << 30) as f64;
    let taken = |turns: &Turns| Taken { seconds: turns.median_s(), cpu: turns.cpu_s() / gib };
    Ok(series_of.iter().map(|(series, _, turns)| (*series, taken(turns))).collect())
}

/// The kind of a group.
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

/// A group of one kind, on its own machines.
struct Rival {
    kind: Kind,
    profile: &'static str,
    group: Group,
}

impl Rival {
    fn up(kind: Kind, profile: &'static str, size: usize, program: &Path) -> Result<Rival> {
        let machines = Machines::up(profile, size)?;
        let trusted = machines.interface();
        let who = match kind {
            Kind::Bare => Who::Bare(program),
            Kind::Plain => Who::Ours(Engine::Gloo, trusted),
            Kind::Encrypted => Who::Ours(Engine::Gloo, "-"),
            Kind::Native => Who::Ours(Engine::Native, trusted),
        };
        Ok(Rival { kind, profile, group: Group::up(machines, size, who)? })
    }
}

impl Series {
    /// The algorithm that bare Gloo is told to use; potluck's groups use their plan.
    fn how(self) -> &'static str {
        match self {
            Series::BareRing => "ring",
            Series::BareBcube => "bcube",
            Series::Plain | Series::Encrypted | Series::Native => "",
        }
    }
}
