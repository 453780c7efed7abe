//! Homes in which many paths share one segment: two switches, a power line, the radio of a mesh,
//! two hosts with several processes. Potluck's plan beside two rings, by turns.
//!
//! A ring crosses a segment as seldom as it can if the machines of each side are neighbours. Gloo's
//! ring goes by the ranks that its user has given, and potluck's by those of the View, so both get
//! this order here: the plan is compared with the best of all rings.

use crate::Extent;
use crate::group::{Group, Who};
use crate::machine::Machines;
use crate::report::{Report, bytes, time};
use crate::topology::{Known, bound_s, ours, until_all_know};
use crate::turns::Turns;
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// A wrong ring is noticed by a buffer of this size, too.
const CHECKED_IN_RINGS: usize = MIB;
/// Only a failing run, or a machine that is busy otherwise, waits so long.
const MEASURED_WITHIN: Duration = Duration::from_secs(120);
const FOUND_WITHIN: Duration = Duration::from_secs(30);
/// A part of the text of a plan for a segment.
const SHARED: &str = "between them";
/// The goals of each row.
const BOUND: f64 = 1.15;
const FORECAST: f64 = 0.25;

/// A profile of the lab.
struct Case {
    profile: &'static str,
    /// The machines' line rates in Mbit/s.
    rates: &'static [f64],
    /// The machine of each process, those of one side together.
    places: &'static [usize],
    /// The number of processes behind the segment, the last ones.
    behind: usize,
    between: Between,
    /// The size for which the time is predicted that keeps a turn below twenty seconds.
    bytes: usize,
    /// Quick, and full.
    rounds: [usize; 2],
}

/// The segment between the first processes and the others, with its rate in Mbit/s.
#[derive(Clone, Copy)]
enum Between {
    /// Each direction has the rate.
    Cable(f64),
    /// Both directions share it.
    Half(f64),
}

const CASES: [Case; 5] = [
    Case {
        profile: "split4",
        rates: &[100.0; 4],
        places: &[1, 3, 2, 4],
        behind: 2,
        between: Between::Cable(40.0),
        bytes: 8 * MIB,
        rounds: [2, 7],
    },
    Case {
        profile: "split8",
        rates: &[50.0; 8],
        places: &[1, 3, 5, 7, 2, 4, 6, 8],
        behind: 4,
        between: Between::Cable(20.0),
        bytes: 8 * MIB,
        rounds: [1, 4],
    },
    Case {
        profile: "power4",
        rates: &[100.0; 4],
        places: &[1, 2, 3, 4],
        behind: 1,
        between: Between::Half(30.0),
        bytes: 8 * MIB,
        rounds: [1, 4],
    },
    Case {
        profile: "backhaul4",
        rates: &[100.0; 4],
        places: &[1, 3, 2, 4],
        behind: 2,
        between: Between::Half(40.0),
        bytes: 8 * MIB,
        rounds: [1, 5],
    },
    Case {
        profile: "hosts2x4",
        rates: &[100.0; 2],
        places: &[1, 1, 1, 1, 2, 2, 2, 2],
        behind: 4,
        between: Between::Cable(100.0),
        bytes: 8 * MIB,
        rounds: [3, 9],
    },
];

pub fn has(profile: &str) -> bool {
    CASES.iter().any(|case| case.profile == profile)
}

/// One row per wanted profile. Returns the plans.
pub fn all(
    extent: Extent,
    is_wanted: impl Fn(&str) -> bool,
    gloo: Option<&Path>,
    report: &mut Report,
) -> Vec<String> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| is_wanted(case.profile)).collect();
    if cases.is_empty() {
        return Vec::new();
    }
    report.line(
        "\n| segments | buffer | bound | Gloo's ring | x bound | potluck's ring | x bound | \
         potluck | x bound | ring / potluck | forecast |",
    );
    report.line(&format!("|{}", " --- |".repeat(11)));
    let mut plans = Vec::new();
    for case in cases {
        let rounds = case.rounds[usize::from(extent == Extent::Full)];
        match compare(case, rounds, gloo, report) {
            Ok(plan) => plans.push(format!("{}: {plan}", case.profile)),
            Err(error) => report.failure(format!("{}: {error:#}", case.profile)),
        }
    }
    plans
}

/// One row. Returns the plan.
fn compare(case: &Case, rounds: usize, gloo: Option<&Path>, report: &mut Report) -> Result<String> {
    let mut contest = Contest::up(case, gloo, rounds)?;
    let known = until_found(&mut contest.plan.group, case)?;
    contest.check(case.bytes)?;
    while contest.go_on() {
        contest.turn(case.bytes)?;
    }
    let (bound, our_s) = (case.bound_s(), contest.plan.turns.median_s());
    let [gloo_s, ring_s] = contest.rings_s();
    let forecast_s = known.forecast_s(case.bytes)?;
    let best_s = gloo_s.min(ring_s);
    report.line(&format!(
        "| {} | {} | {} | {} | {} | {} | {:.2} | {} |",
        case.profile,
        bytes(case.bytes),
        time(bound),
        cells(gloo_s, bound),
        cells(ring_s, bound),
        cells(our_s, bound),
        best_s / our_s,
        time(forecast_s),
    ));
    let of = format!("{}, {}", case.profile, bytes(case.bytes));
    report.must(&format!("{of}, x bound"), our_s / bound, BOUND);
    for (ring, ring_s) in [("Gloo's ring", gloo_s), ("potluck's ring", ring_s)] {
        if ring_s.is_finite() {
            report.must(&format!("{of}, to {ring}"), our_s / ring_s, 1.0);
        }
    }
    report.must(&format!("{of}, forecast off by"), (forecast_s / our_s - 1.0).abs(), FORECAST);
    contest.end()?;
    Ok(known.plan)
}

/// The cells of a time and of its ratio to the bound; empty ones if it was not measured.
fn cells(took_s: f64, bound_s: f64) -> String {
    if took_s.is_finite() {
        format!("{} | {:.2}", time(took_s), took_s / bound_s)
    } else {
        " | ".to_owned()
    }
}

/// Waits for a plan from measured rates, and then, not without end, for one that knows the shared
/// segments. If the group does not find them, the row shows the cost. The link of a single process
/// is no segment but its port, and a half-duplex one is a medium.
fn until_found(group: &mut Group, case: &Case) -> Result<Known> {
    let planned = |known: &Known| known.revision > 0;
    let mut known = until_all_know(group, MEASURED_WITHIN, planned)?;
    let began = Instant::now();
    let is_found = |known: &Known| match (case.behind, case.between) {
        (1, Between::Half(_)) => known.shared > 0,
        (1, Between::Cable(_)) => true,
        _ => known.plan.contains(SHARED),
    };
    while !is_found(&known) && began.elapsed() < FOUND_WITHIN {
        std::thread::sleep(Duration::from_millis(500));
        known = until_all_know(group, MEASURED_WITHIN, planned)?;
    }
    Ok(known)
}

impl Case {
    /// The lower bound at line rate. A segment carries at least one buffer in each direction: the
    /// sum of one side, and the sum of all. On a half-duplex segment these add up to two buffers.
    /// The machines' own cables have the bound of any other home. Processes of one machine exchange
    /// nothing over its cable.
    fn bound_s(&self) -> f64 {
        let (mbit, times) = match self.between {
            Between::Cable(mbit) => (mbit, 1.0),
            Between::Half(mbit) => (mbit, 2.0),
        };
        let crossing_s = times * self.bytes as f64 * 8e-6 / mbit;
        crossing_s.max(bound_s(self.rates, self.bytes))
    }

    fn machines(&self) -> Result<Machines> {
        Ok(Machines::up(self.profile, self.rates.len())?.with_places(self.places))
    }
}

/// Three groups, each in a lab of its own, that are called in turns.
struct Contest {
    plan: Rival,
    gloo: Option<Rival>,
    ring: Option<Rival>,
    round: usize,
}

struct Rival {
    group: Group,
    how: &'static str,
    turns: Turns,
}

impl Contest {
    /// Without `gloo` there is no ring of it, and without the feature none of potluck's.
    fn up(case: &Case, gloo: Option<&Path>, rounds: usize) -> Result<Contest> {
        let size = case.places.len();
        let rival = |group, how| Rival { group, how, turns: Turns::wanted(rounds) };
        let bare = |program| Group::up(case.machines()?, size, Who::Bare(program));
        let ring = || Group::up(case.machines()?, size, Who::Ring);
        Ok(Contest {
            plan: rival(ours(case.machines()?, size)?, ""),
            gloo: gloo.map(bare).transpose()?.map(|group| rival(group, "ring")),
            ring: cfg!(feature = "gloo").then(ring).transpose()?.map(|group| rival(group, "")),
            round: 0,
        })
    }

    fn rings(&mut self) -> impl Iterator<Item = &mut Rival> {
        [&mut self.gloo, &mut self.ring].into_iter().flatten()
    }

    fn check(&mut self, bytes: usize) -> Result<()> {
        self.plan.group.check(bytes, "")?;
        self.rings().try_for_each(|ring| ring.group.check(CHECKED_IN_RINGS, ring.how))
    }

    fn go_on(&mut self) -> bool {
        self.plan.turns.go_on() || self.rings().any(|ring| ring.turns.go_on())
    }

    /// A call of each. The first contender rotates.
    fn turn(&mut self, bytes: usize) -> Result<()> {
        let rings = [&mut self.gloo, &mut self.ring].into_iter().flatten();
        let mut rivals: Vec<&mut Rival> = std::iter::once(&mut self.plan).chain(rings).collect();
        let first = self.round % rivals.len();
        rivals.rotate_left(first);
        for rival in rivals {
            rival.turns.add(rival.group.calls(bytes, 1, rival.how)?);
        }
        self.round += 1;
        Ok(())
    }

    /// The median times of both rings, of Gloo's first; no number for one that is not measured.
    fn rings_s(&self) -> [f64; 2] {
        [&self.gloo, &self.ring]
            .map(|ring| ring.as_ref().map_or(f64::NAN, |ring| ring.turns.median_s()))
    }

    fn end(self) -> Result<()> {
        let rivals = [Some(self.plan), self.gloo, self.ring].into_iter().flatten();
        rivals.map(|rival| rival.group).try_for_each(Group::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound_of(profile: &str) -> f64 {
        CASES.iter().find(|case| case.profile == profile).map_or(f64::NAN, Case::bound_s)
    }

    #[test]
    fn the_bounds_are_those_of_the_segments() {
        let mbit = |bytes: usize| bytes as f64 * 8e-6;
        for (profile, expected) in [
            ("split4", mbit(8 * MIB) / 40.0),
            ("split8", mbit(8 * MIB) / 20.0),
            ("power4", mbit(16 * MIB) / 30.0),
            ("backhaul4", mbit(16 * MIB) / 40.0),
            ("hosts2x4", mbit(8 * MIB) / 100.0),
        ] {
            assert!((bound_of(profile) / expected - 1.0).abs() < 1e-6, "{profile}");
        }
    }

    #[test]
    fn a_wide_segment_leaves_the_bound_of_the_machines() {
        let wide = Case { between: Between::Cable(1000.0), ..CASES[0] };
        // Four equal machines: each sends three halves of the buffer.
        assert!((wide.bound_s() / (1.5 * 8.0 * 8e-6 * MIB as f64 / 100.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn both_rings_cross_the_segment_once_in_each_direction() {
        for case in &CASES {
            // As in the lab: the last machine, or those with even numbers.
            let is_far = |machine: &usize| match case.profile {
                "power4" => *machine == case.rates.len(),
                _ => machine.is_multiple_of(2),
            };
            let (near, far) = case.places.split_at(case.places.len() - case.behind);
            assert!(far.iter().all(is_far) && !near.iter().any(is_far), "{}", case.profile);
        }
    }
}
