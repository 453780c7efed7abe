//! The runs of the model: the claims hold, and every seeded defect breaks one.
//!
//! The small runs are ordinary tests. `make model` runs all of them and prints the tables.

use super::state::Left;
use super::walk::{Manner, Walked, walk};
use super::{Calls, Group, Partition};
use crate::collective::LedgerBounds;
use crate::protocol::Defect;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// Most states explored in search of a defect.
const HUNT_STATES_MAX: usize = 3_000_000;

/// Walks in search of a defect. Some defects show in one of several thousand walks only.
const HUNT_WALKS: u64 = 8_000;

/// More entries than a run makes calls.
pub(super) const UNCALLED: usize = 1024;

const MANNERS: [Manner; 2] = [Manner::Plain, Manner::Rich];

const BOTH: [Partition; 2] = [Partition::Continue, Partition::Majority];

/// Result of an exhaustive run.
struct Explored {
    states: usize,
    unique: usize,
    seconds: f64,
    /// Broken claims, each with the length of the execution that shows it.
    broken: Vec<(String, usize)>,
    /// Kinds of outcome that should occur somewhere and do not.
    unseen: Vec<&'static str>,
}

fn group(partition: Partition, left: (u16, u16, u16)) -> Group {
    let (proposals, crashes, aborts) = left;
    Group::of(partition, Left { proposals, crashes, aborts, ..Left::default() })
}

/// A group in which one node may be cut off. Under `Majority` only: there a part may have to stop.
fn cut_off() -> Group {
    let left = Left { proposals: 2, cut_offs: 1, ..Left::default() };
    Group { left, ..group(Partition::Majority, (0, 0, 0)) }
}

/// Some of these nodes call so often, in each of these lanes; every call has to be answered.
fn calling(nodes: u8, lanes: u32, left: Left) -> Group {
    let calls = if left.calls > 0 { Calls::ByPrograms(2) } else { Calls::AtInstall };
    Group { nodes, lanes, calls, answers: true, ..Group::of(Partition::Continue, left) }
}

/// With limits that are reached. Entries of calls that a program has not made are kept, because to
/// forget them is safe only where links keep the order of messages, as real ones do.
fn bounded(group: Group, (in_flight, listed): (usize, usize)) -> Group {
    Group { bounds: LedgerBounds { in_flight, listed, uncalled: UNCALLED }, ..group }
}

fn planned(group: Group) -> Group {
    Group { has_plans: true, ..group }
}

/// Two nodes run a View, two more are outside, all are told of each other's Views and one more View
/// is proposed.
fn outside(crashes: u16) -> Group {
    let group = group(Partition::Continue, (1, crashes, 0));
    let opening = vec![vec![0, 1]];
    Group { nodes: 4, calls: Calls::ByPrograms(0), opening, keeps_together: true, ..group }
}

fn explore(group: &Group, threads: usize) -> Explored {
    let began = Instant::now();
    let builder = group.clone().checker().threads(threads);
    if group.defect.is_some() {
        // Breadth first, for the shortest execution.
        let builder =
            builder.finish_when(HasDiscoveries::AnyFailures).target_state_count(HUNT_STATES_MAX);
        summed_up(group, &builder.spawn_bfs().join(), began)
    } else {
        // Depth first, because the frontier of a breadth-first search would fill the memory.
        summed_up(group, &builder.spawn_dfs().join(), began)
    }
}

fn summed_up(group: &Group, checker: &impl Checker<Group>, began: Instant) -> Explored {
    let names: Vec<&'static str> = group.claims().map(super::super::claims::Claim::name).collect();
    let found = checker.discoveries();
    let broken = found.iter().filter(|(name, _)| names.contains(name));
    let broken = broken
        .map(|(name, path)| {
            if std::env::var_os("POTLUCK_TOLD").is_some() {
                let actions = path.clone().into_actions();
                println!("{name}:\n{}", group.retold(&actions).join("\n"));
            }
            ((*name).to_owned(), path.clone().into_actions().len())
        })
        .collect();
    let unseen = group.wanted().filter(|name| !found.contains_key(name)).collect();
    let (states, unique) = (checker.state_count(), checker.unique_state_count());
    Explored { states, unique, seconds: began.elapsed().as_secs_f64(), broken, unseen }
}

impl Group {
    /// The kinds of outcome that should occur somewhere.
    fn wanted(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (left, calls) = (self.left, self.calls != Calls::ByPrograms(0));
        let wanted = [
            ("committed by votes", calls),
            ("committed by a View", calls && left.proposals > 0),
            ("aborted", calls && left.proposals + left.aborts > 0),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name)
    }

    /// What the group has beside members and proposals.
    fn story(&self) -> String {
        let Left { calls, losses, plans, .. } = self.left;
        let LedgerBounds { in_flight, listed, .. } = self.bounds;
        let is_small = self.bounds != LedgerBounds::default();
        let parts = [
            (self.lanes > 1, format!("{} lanes", self.lanes)),
            (calls > 0, format!("{calls} calls")),
            (losses > 0, format!("{losses} links made anew")),
            (plans > 0, format!("{plans} plans")),
            (is_small, format!("{in_flight} in flight, {listed} listed")),
            (self.keeps_together, "outsiders".to_owned()),
        ];
        let some: Vec<String> =
            parts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, part)| part).collect();
        some.join(", ")
    }

    /// An execution in words.
    fn retold(&self, actions: &[super::action::Action]) -> Vec<String> {
        let (mut state, mut trace) = (self.first(), Vec::new());
        for action in actions {
            state = self.told(&state, action, &mut trace);
        }
        trace
    }
}

/// Explores some groups exhaustively and prints a table.
fn go_through(groups: Vec<Group>, threads: usize) {
    println!(
        "| nodes | Views | proposals | crashes | aborts | cut off | disks | unique states | steps \
         | seconds | also | broken |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut wrong = Vec::new();
    for group in groups {
        let Left { proposals, crashes, aborts, cut_offs, .. } = group.left;
        let (nodes, partition, disks) =
            (group.nodes, group.partition, if group.slow_disks { "slow" } else { "at once" });
        let Explored { states, unique, seconds, broken, unseen } = explore(&group, threads);
        let what = if broken.is_empty() { "nothing".to_owned() } else { format!("{broken:?}") };
        let also = group.story();
        println!(
            "| {nodes} | {partition:?} | {proposals} | {crashes} | {aborts} | {cut_offs} | {disks} \
             | {unique} | {states} | {seconds:.0} | {also} | {what} |"
        );
        wrong.extend(broken.into_iter().map(|(claim, _)| claim));
        wrong.extend(unseen.into_iter().map(|name| format!("never {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn small_groups_keep_the_claims() {
    let two = BOTH.map(|partition| Group { nodes: 2, ..group(partition, (2, 1, 1)) });
    let mut groups: Vec<Group> =
        two.into_iter().chain([group(Partition::Continue, (1, 0, 0))]).collect();
    groups.push(calling(2, 2, Left { calls: 2, losses: 1, aborts: 1, ..Left::default() }));
    groups.push(outside(0));
    go_through(groups, 2);
}

/// What one feature adds, each in a group that is small otherwise.
#[test]
#[ignore = "minutes: make model"]
fn all_histories_of_rich_groups_keep_the_claims() {
    let none = Left::default();
    let view_change = Left { proposals: 1, ..none };
    let mut groups = vec![
        // Two lanes.
        calling(2, 2, Left { aborts: 1, ..view_change }),
        calling(2, 2, Left { crashes: 1, ..view_change }),
        calling(3, 2, none),
        calling(3, 2, Left { aborts: 1, ..none }),
        // A link loses messages and is made anew.
        calling(2, 1, Left { calls: 3, losses: 2, aborts: 1, ..view_change }),
        calling(3, 1, Left { calls: 3, losses: 1, ..none }),
        // The plan changes, also beside a change of the View.
        planned(calling(2, 1, Left { calls: 3, plans: 1, losses: 1, ..view_change })),
        planned(calling(2, 2, Left { calls: 3, plans: 2, ..none })),
        planned(calling(3, 1, Left { calls: 3, plans: 1, ..none })),
        // Limits that are reached.
        bounded(calling(2, 2, Left { calls: 4, aborts: 1, ..none }), (2, 2)),
        bounded(calling(2, 2, Left { calls: 4, aborts: 2, losses: 1, ..none }), (1, 1)),
        bounded(calling(3, 1, Left { calls: 3, aborts: 1, ..none }), (1, 2)),
    ];
    // Nodes outside a running View.
    groups.push(outside(1));
    go_through(groups, 2);
}

#[test]
#[ignore = "minutes: make model"]
fn all_histories_of_three_keep_the_claims() {
    // Callers that give up together with a second proposal would take longer than minutes; the
    // walks cover them.
    let lefts = [(2, 1, 0), (1, 1, 1)];
    let mut groups: Vec<Group> =
        lefts.into_iter().flat_map(|left| BOTH.map(|partition| group(partition, left))).collect();
    groups.extend(BOTH.map(|partition| Group { slow_disks: true, ..group(partition, (1, 1, 0)) }));
    groups.push(cut_off());
    go_through(groups, 2);
}

#[test]
fn walks_keep_the_claims() {
    let seeds = number("POTLUCK_SEEDS").unwrap_or(40);
    let first = number("POTLUCK_SEED").unwrap_or(0);
    let nodes = number("POTLUCK_NODES").and_then(|n| u8::try_from(n).ok());
    let mut wrong = Vec::new();
    for (partition, manner) in BOTH.into_iter().flat_map(|p| MANNERS.map(|m| (p, m))) {
        let (began, mut steps) = (Instant::now(), 0);
        for seed in first..first + seeds {
            let mut story = Vec::new();
            let Walked { steps: walked, broken, stuck } =
                walk(seed, nodes, (partition, manner), None, &mut story);
            steps += walked;
            if !broken.is_empty() || stuck {
                wrong.push(format!(
                    "{partition:?}, {manner:?}, POTLUCK_SEED={seed} POTLUCK_SEEDS=1: {broken:?}, stuck: {stuck}"
                ));
            }
            if seeds == 1 {
                println!("{partition:?}, {manner:?}:\n{}", story.join("\n"));
            }
        }
        println!(
            "{partition:?}, {manner:?}: {seeds} walks, {steps} steps, {:.0} s",
            began.elapsed().as_secs_f64()
        );
    }
    assert!(
        wrong.is_empty(),
        "{} walks of {}: {:#?}",
        wrong.len(),
        4 * seeds,
        &wrong[..wrong.len().min(8)]
    );
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// The smallest group in which exhaustive search finds a defect; `None` for two defects that need
/// larger groups and longer executions.
fn hunting_ground(defect: Defect) -> Option<Group> {
    use Partition::{Continue, Majority};
    let (partition, left) = match defect {
        Defect::PromiseNotDurable => (Continue, (2, 1, 0)),
        Defect::EarlyInstall | Defect::AnyoneCommitted => (Continue, (1, 0, 0)),
        Defect::NoTieBreak | Defect::MostMembersWin | Defect::OwnBase | Defect::LateIsBehind => {
            (Continue, (2, 0, 0))
        }
        Defect::RestartedCounts => (Continue, (1, 1, 0)),
        Defect::NoAdoption | Defect::AdoptedCounts | Defect::OkWithoutResult => {
            (Majority, (2, 0, 0))
        }
        Defect::CutOffGoesOn => return Some(Group { defect: Some(defect), ..cut_off() }),
        Defect::EarlyAbort | Defect::KeepsDone => (Majority, (1, 0, 1)),
        Defect::TipOfInstalled
        | Defect::AcceptedNotDurable
        | Defect::WaitsForItsDisk
        | Defect::CommitsAlone
        | Defect::SyncKeepsState
        | Defect::HoldsOtherBits
        | Defect::DropsContributions => {
            return None;
        }
        rich => return rich_ground(rich).map(|group| Group { defect: Some(defect), ..group }),
    };
    Some(Group { defect: Some(defect), ..group(partition, left) })
}

/// The smallest group for a defect that plain groups do not show.
fn rich_ground(defect: Defect) -> Option<Group> {
    let none = Left::default();
    let group = match defect {
        Defect::WithholdsVotes => calling(2, 1, Left { calls: 2, ..none }),
        Defect::SaysNothingAgain => calling(2, 1, Left { calls: 2, losses: 1, ..none }),
        Defect::CallsInAHold | Defect::KeepsHeld => {
            planned(calling(2, 1, Left { calls: 2, plans: 1, ..none }))
        }
        Defect::NarrowAdmission => {
            bounded(calling(3, 2, Left { calls: 2, aborts: 1, ..none }), (1, 1))
        }
        Defect::ReportsInOrder => {
            bounded(calling(2, 2, Left { calls: 3, aborts: 1, ..none }), (1, 1))
        }
        Defect::BeginsBeside | Defect::AgreesBeside => outside(0),
        _ => return None,
    };
    Some(group)
}

/// The first walk of five nodes in this range of seeds that shows a defect.
fn first_walk(
    defect: Option<Defect>,
    kind: (Partition, Manner),
    seeds: std::ops::Range<u64>,
) -> Option<(u64, Walked)> {
    let mut walks = seeds.map(|seed| (seed, walk(seed, Some(5), kind, defect, &mut Vec::new())));
    walks.find(|(_, walked)| !walked.broken.is_empty())
}

/// The kinds of walks in which defects are looked for.
const KINDS: [(Partition, Manner); 3] = [
    (Partition::Continue, Manner::Plain),
    (Partition::Majority, Manner::Plain),
    (Partition::Continue, Manner::Rich),
];

/// For each defect the seed of a walk of five nodes that shows it. After a change of the rules, a
/// walk of the next 600 seeds should, or a new seed is needed.
const WALKS: [(Defect, Partition, u64); 14] = [
    (Defect::PromiseNotDurable, Partition::Continue, 8),
    (Defect::EarlyInstall, Partition::Continue, 0),
    (Defect::NoTieBreak, Partition::Continue, 207),
    (Defect::AnyoneCommitted, Partition::Continue, 62),
    (Defect::RestartedCounts, Partition::Majority, 106),
    (Defect::TipOfInstalled, Partition::Majority, 1212),
    (Defect::AcceptedNotDurable, Partition::Majority, 6500),
    (Defect::EarlyAbort, Partition::Majority, 691),
    (Defect::AdoptedCounts, Partition::Continue, 376),
    (Defect::OkWithoutResult, Partition::Continue, 149),
    (Defect::MostMembersWin, Partition::Continue, 0),
    (Defect::CutOffGoesOn, Partition::Majority, 535),
    (Defect::OwnBase, Partition::Continue, 362),
    (Defect::LateIsBehind, Partition::Majority, 1160),
];

/// Defects that walks rarely reach, or that show in small groups; exhaustive search finds them.
const EXPLORED: [Defect; 10] = [
    Defect::NoAdoption,
    Defect::KeepsDone,
    Defect::WithholdsVotes,
    Defect::SaysNothingAgain,
    Defect::CallsInAHold,
    Defect::KeepsHeld,
    Defect::NarrowAdmission,
    Defect::ReportsInOrder,
    Defect::BeginsBeside,
    Defect::AgreesBeside,
];

#[test]
fn each_seeded_defect_is_seen() {
    let seen = |defect| EXPLORED.contains(&defect) || WALKS.iter().any(|walk| walk.0 == defect);
    assert!(Defect::ALL.into_iter().all(seen));
    for (defect, partition, seed) in WALKS {
        let plain = (partition, Manner::Plain);
        let found = first_walk(Some(defect), plain, seed..seed + 600);
        assert!(found.is_some(), "{defect:?} is not found");
        let clean = first_walk(None, plain, seed..seed + 1);
        assert!(clean.is_none(), "nothing was seeded: {clean:?}");
    }
    for defect in EXPLORED {
        let found = hunting_ground(defect).map(|group| explore(&group, 1));
        assert!(
            found.is_some_and(|explored| !explored.broken.is_empty()),
            "{defect:?} is not found"
        );
    }
}

#[test]
#[ignore = "minutes: make model"]
fn every_seeded_defect_is_found() {
    println!(
        "| defect | all histories | walks of five, parts go on | walks, majorities | rich walks |"
    );
    println!("| --- | --- | --- | --- | --- |");
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        let by_model = hunting_ground(defect).map(|group| explore(&group, 1));
        let shown = |e: &Explored| {
            e.broken.first().map(|(claim, steps)| format!("{claim} in {steps} steps"))
        };
        let by_model = by_model.map(|e| shown(&e).unwrap_or("not found".to_owned()));
        let by_walk = KINDS.map(|kind| {
            let found = first_walk(Some(defect), kind, 0..HUNT_WALKS);
            found.map(|(seed, walked)| format!("{} at seed {seed}", walked.broken[0].name()))
        });
        if by_model.as_ref().is_none_or(|found| found == "not found")
            && by_walk.iter().all(Option::is_none)
        {
            missed.push(defect);
        }
        let [parts, majorities, rich] =
            by_walk.map(|found| found.unwrap_or("not found".to_owned()));
        println!(
            "| {defect:?} | {} | {parts} | {majorities} | {rich} |",
            by_model.unwrap_or("too small".to_owned())
        );
    }
    for kind in KINDS {
        let found = first_walk(None, kind, 0..HUNT_WALKS);
        assert!(found.is_none(), "nothing was seeded: {found:?}");
    }
    println!("| none | see above | not found | not found | not found |");
    let all = Defect::ALL.len();
    println!("{} of {all} seeded defects found", all - missed.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
