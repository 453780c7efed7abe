//! Layer: Core.
//!
//! The runs of the model: the claims hold, and every seeded defect breaks one.
//!
//! The small runs are ordinary tests. `make model` runs all of them and prints the tables.

use super::memo::Memo;
use super::state::Left;
use super::walk::{Walked, walk};
use super::{Calls, Group, Partition};
use crate::defect::Defect;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// Most states explored in search of a defect.
const HUNT_STATES_MAX: usize = 3_000_000;

/// Walks in search of a defect. Some defects show in one of several hundred walks only.
const HUNT_WALKS: u64 = 4_000;

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
    let left = Left { proposals: left.0, crashes: left.1, aborts: left.2, cut_offs: 0 };
    Group {
        nodes: 3,
        partition,
        left,
        calls: Calls::AtInstall,
        slow_disks: false,
        defect: None,
        memo: Memo::default(),
    }
}

/// A group in which one node may be cut off. Under `Majority` only: there a part may have to stop.
fn cut_off() -> Group {
    let left = Left { proposals: 2, crashes: 0, aborts: 0, cut_offs: 1 };
    Group { left, ..group(Partition::Majority, (0, 0, 0)) }
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
    let names: Vec<&'static str> = group.claims().map(super::Claim::name).collect();
    let found = checker.discoveries();
    let broken = found.iter().filter(|(name, _)| names.contains(name));
    let broken = broken
        .map(|(name, path)| ((*name).to_owned(), path.clone().into_actions().len()))
        .collect();
    let wanted = ["committed by votes", "committed by a View", "aborted"];
    let unseen = wanted.into_iter().filter(|name| !found.contains_key(name)).collect();
    let (states, unique) = (checker.state_count(), checker.unique_state_count());
    Explored { states, unique, seconds: began.elapsed().as_secs_f64(), broken, unseen }
}

/// Explores some groups exhaustively and prints a table.
fn go_through(groups: Vec<Group>, threads: usize) {
    println!(
        "| nodes | Views | proposals | crashes | aborts | cut off | disks | unique states | steps \
         | seconds | broken |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut wrong = Vec::new();
    for group in groups {
        let Left { proposals, crashes, aborts, cut_offs } = group.left;
        let (nodes, partition, disks) =
            (group.nodes, group.partition, if group.slow_disks { "slow" } else { "at once" });
        let Explored { states, unique, seconds, broken, unseen } = explore(&group, threads);
        let what = if broken.is_empty() { "nothing".to_owned() } else { format!("{broken:?}") };
        println!(
            "| {nodes} | {partition:?} | {proposals} | {crashes} | {aborts} | {cut_offs} | {disks} \
             | {unique} | {states} | {seconds:.0} | {what} |"
        );
        wrong.extend(broken.into_iter().map(|(claim, _)| claim));
        wrong.extend(unseen.into_iter().map(|name| format!("never {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn small_groups_keep_the_claims() {
    let two = BOTH.map(|partition| Group { nodes: 2, ..group(partition, (2, 1, 1)) });
    go_through(two.into_iter().chain([group(Partition::Continue, (1, 0, 0))]).collect(), 2);
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
    let mut wrong = Vec::new();
    for partition in BOTH {
        let (began, mut steps) = (Instant::now(), 0);
        for seed in first..first + seeds {
            let mut story = Vec::new();
            let Walked { steps: walked, broken, stuck } =
                walk(seed, None, partition, None, &mut story);
            steps += walked;
            if !broken.is_empty() || stuck {
                wrong.push(format!(
                    "{partition:?}, POTLUCK_SEED={seed} POTLUCK_SEEDS=1: {broken:?}, stuck: {stuck}"
                ));
            }
            if seeds == 1 {
                println!("{}", story.join("\n"));
            }
        }
        println!(
            "{partition:?}: {seeds} walks, {steps} steps, {:.0} s",
            began.elapsed().as_secs_f64()
        );
    }
    assert!(
        wrong.is_empty(),
        "{} walks of {}: {:#?}",
        wrong.len(),
        2 * seeds,
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
        | Defect::WithholdsVotes
        | Defect::CommitsAlone
        | Defect::SaysNothingAgain
        | Defect::SyncKeepsState
        | Defect::HoldsOtherBits
        | Defect::DropsContributions => {
            return None;
        }
    };
    Some(Group { defect: Some(defect), ..group(partition, left) })
}

/// The first walk of five nodes in this range of seeds that shows a defect.
fn first_walk(
    defect: Option<Defect>,
    partition: Partition,
    seeds: std::ops::Range<u64>,
) -> Option<(u64, Walked)> {
    let mut walks =
        seeds.map(|seed| (seed, walk(seed, Some(5), partition, defect, &mut Vec::new())));
    walks.find(|(_, walked)| !walked.broken.is_empty())
}

/// For each defect the seed of a walk of five nodes that shows it. After a change of the rules, a
/// walk of the next 600 seeds should.
const WALKS: [(Defect, Partition, u64); 15] = [
    (Defect::PromiseNotDurable, Partition::Continue, 8),
    (Defect::EarlyInstall, Partition::Continue, 0),
    (Defect::NoTieBreak, Partition::Continue, 36),
    (Defect::AnyoneCommitted, Partition::Continue, 33),
    (Defect::RestartedCounts, Partition::Majority, 44),
    (Defect::NoAdoption, Partition::Majority, 1260),
    (Defect::TipOfInstalled, Partition::Majority, 1212),
    (Defect::AcceptedNotDurable, Partition::Majority, 569),
    (Defect::EarlyAbort, Partition::Majority, 353),
    (Defect::AdoptedCounts, Partition::Continue, 62),
    (Defect::OkWithoutResult, Partition::Continue, 56),
    (Defect::MostMembersWin, Partition::Continue, 0),
    (Defect::CutOffGoesOn, Partition::Majority, 535),
    (Defect::OwnBase, Partition::Continue, 71),
    (Defect::LateIsBehind, Partition::Majority, 247),
];

/// Defects that walks rarely reach; exhaustive search of three nodes finds them.
const EXPLORED: [Defect; 1] = [Defect::KeepsDone];

#[test]
fn each_seeded_defect_is_seen() {
    let seen = |defect| EXPLORED.contains(&defect) || WALKS.iter().any(|walk| walk.0 == defect);
    assert!(Defect::ALL.into_iter().all(seen));
    for (defect, partition, seed) in WALKS {
        let found = first_walk(Some(defect), partition, seed..seed + 600);
        assert!(found.is_some(), "{defect:?} is not found");
        let clean = first_walk(None, partition, seed..seed + 1);
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
        "| defect | all histories of three | walks of five, parts go on | walks of five, \
         majorities |"
    );
    println!("| --- | --- | --- | --- |");
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        let by_model = hunting_ground(defect).map(|group| explore(&group, 1));
        let shown = |e: &Explored| {
            e.broken.first().map(|(claim, steps)| format!("{claim} in {steps} steps"))
        };
        let by_model = by_model.map(|e| shown(&e).unwrap_or("not found".to_owned()));
        let by_walk = BOTH.map(|partition| {
            let found = first_walk(Some(defect), partition, 0..HUNT_WALKS);
            found.map(|(seed, walked)| format!("{} at seed {seed}", walked.broken[0].name()))
        });
        if by_model.as_ref().is_none_or(|found| found == "not found")
            && by_walk.iter().all(Option::is_none)
        {
            missed.push(defect);
        }
        let [parts, majorities] = by_walk.map(|found| found.unwrap_or("not found".to_owned()));
        println!(
            "| {defect:?} | {} | {parts} | {majorities} |",
            by_model.unwrap_or("too small".to_owned())
        );
    }
    for partition in BOTH {
        let found = first_walk(None, partition, 0..HUNT_WALKS);
        assert!(found.is_none(), "nothing was seeded: {found:?}");
    }
    println!("| none | see above | not found | not found |");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
