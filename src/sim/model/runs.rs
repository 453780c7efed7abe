//! The runs of the model: the claims hold, and every mutant breaks one.
//!
//! The small runs are ordinary tests. `make model` runs all of them and prints the tables.

use super::state::Budget;
use super::walk::{WalkKind, WalkResult, walk};
use super::{Calls, Group, Partition};
use crate::collective::LedgerBounds;
use crate::protocol::{Mutant, Sizes};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// Most states explored in search of a mutant.
const SEARCH_STATES_MAX: usize = 3_000_000;

/// Walks in search of a mutant. Some mutants show in one of several thousand walks only.
const SEARCH_WALKS: u64 = 8_000;

const WALK_KINDS: [WalkKind; 2] = [WalkKind::Basic, WalkKind::Extended];

const BOTH: [Partition; 2] = [Partition::Continue, Partition::Majority];

/// Result of an exhaustive run.
struct SearchResult {
    states: usize,
    unique: usize,
    seconds: f64,
    /// Broken claims, each with the length of the execution that shows it.
    broken: Vec<(String, usize)>,
    /// Kinds of outcome that should occur somewhere and do not.
    unseen: Vec<&'static str>,
}

fn group(partition: Partition, budget: (u16, u16, u16)) -> Group {
    let (proposals, crashes, aborts) = budget;
    Group::of(partition, Budget { proposals, crashes, aborts, ..Budget::default() })
}

/// A group in which one node may be cut off. Under `Majority` only: there a part may have to stop.
fn cut_off() -> Group {
    let budget = Budget { proposals: 2, cut_offs: 1, ..Budget::default() };
    Group { budget, ..group(Partition::Majority, (0, 0, 0)) }
}

/// Some of these nodes call so often, in each of these lanes; every call has to be answered.
fn calling(nodes: u8, lanes: u32, budget: Budget) -> Group {
    let calls = if budget.calls > 0 { Calls::ByPrograms(2) } else { Calls::AtInstall };
    Group { nodes, lanes, calls, answers: true, ..Group::of(Partition::Continue, budget) }
}

/// With limits that are reached.
fn bounded(group: Group, (in_flight, listed): (usize, usize)) -> Group {
    Group { bounds: LedgerBounds { in_flight, listed }, ..group }
}

/// Calls of the ranks 0 and 2 only.
fn of_two(group: Group) -> Group {
    Group { has_sub_group: true, ..group }
}

/// Of four nodes the ranks 0 and 2 call, while rank 1 has accepted a View of itself and rank 3.
fn half_made(budget: Budget) -> Group {
    Group { half_made: Some([3, 1]), ..of_two(calling(4, 0, budget)) }
}

/// Of three nodes the ranks 0 and 2 call, and one of them may die between two proposals.
fn left_behind() -> Group {
    let budget = Budget { calls: 2, proposals: 2, crashes: 1, ..Budget::default() };
    of_two(calling(3, 0, budget))
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

/// Three nodes that have met nobody yet and ask for different sizes. Two can begin, and go on with
/// a third one that wants more to begin; or the third one allows only two.
fn beginning(third: [usize; 3], proposals: u16) -> Group {
    let [members, min, max] = third;
    let third = Sizes::new(members, min, max).expect("they are in order");
    let sizes = vec![Sizes::default(), Sizes::default(), third];
    Group { starts_apart: true, sizes, ..group(Partition::Continue, (proposals, 0, 0)) }
}

fn explore(group: &Group, threads: usize) -> SearchResult {
    let began = Instant::now();
    let builder = group.clone().checker().threads(threads);
    if group.mutant.is_some() {
        // Breadth first, for the shortest execution.
        let builder =
            builder.finish_when(HasDiscoveries::AnyFailures).target_state_count(SEARCH_STATES_MAX);
        summed_up(group, &builder.spawn_bfs().join(), began)
    } else {
        // Depth first, because the frontier of a breadth-first search would fill the memory.
        summed_up(group, &builder.spawn_dfs().join(), began)
    }
}

fn summed_up(group: &Group, checker: &impl Checker<Group>, began: Instant) -> SearchResult {
    let names: Vec<&'static str> = group.claims().map(super::super::claims::Claim::name).collect();
    let found = checker.discoveries();
    let broken = found.iter().filter(|(name, _)| names.contains(name));
    let broken = broken
        .map(|(name, path)| {
            if std::env::var_os("POTLUCK_TRACE").is_some() {
                let actions = path.clone().into_actions();
                println!("{name}:\n{}", group.trace_of(&actions).join("\n"));
            }
            ((*name).to_owned(), path.clone().into_actions().len())
        })
        .collect();
    let unseen = group.wanted().filter(|name| !found.contains_key(name)).collect();
    let (states, unique) = (checker.state_count(), checker.unique_state_count());
    SearchResult { states, unique, seconds: began.elapsed().as_secs_f64(), broken, unseen }
}

impl Group {
    /// The kinds of outcome that should occur somewhere.
    fn wanted(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (budget, calls) = (self.budget, self.calls != Calls::ByPrograms(0));
        let wanted = [
            ("committed by votes", calls),
            ("committed by a View", calls && budget.proposals > 0),
            ("aborted", calls && budget.proposals + budget.aborts > 0),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name)
    }

    /// The features of the group beside members and proposals.
    fn describe(&self) -> String {
        let Budget { calls, losses, plans, .. } = self.budget;
        let LedgerBounds { in_flight, listed, .. } = self.bounds;
        let is_small = self.bounds != LedgerBounds::default();
        let parts = [
            (self.lanes > 1, format!("{} lanes", self.lanes)),
            (self.has_sub_group, "a sub-group".to_owned()),
            (calls > 0, format!("{calls} calls")),
            (losses > 0, format!("{losses} links made anew")),
            (plans > 0, format!("{plans} plans")),
            (is_small, format!("{in_flight} in flight, {listed} listed")),
            (self.keeps_together, "outsiders".to_owned()),
            (self.starts_apart, "the beginning".to_owned()),
            (self.half_made.is_some(), "a View half made".to_owned()),
        ];
        let some: Vec<String> =
            parts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, part)| part).collect();
        some.join(", ")
    }

    /// An execution in words.
    fn trace_of(&self, actions: &[super::action::Action]) -> Vec<String> {
        let (mut state, mut trace) = (self.first(), Vec::new());
        for action in actions {
            state = self.after_traced(&state, action, &mut trace);
        }
        trace
    }
}

/// Explores some groups exhaustively and prints a table.
fn explore_all(groups: Vec<Group>, threads: usize) {
    println!(
        "| nodes | Views | proposals | crashes | aborts | cut off | disks | unique states | steps \
         | seconds | also | broken |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut wrong = Vec::new();
    for group in groups {
        let Budget { proposals, crashes, aborts, cut_offs, .. } = group.budget;
        let (nodes, partition, disks) =
            (group.nodes, group.partition, if group.slow_disks { "slow" } else { "at once" });
        let SearchResult { states, unique, seconds, broken, unseen } = explore(&group, threads);
        let what = if broken.is_empty() { "nothing".to_owned() } else { format!("{broken:?}") };
        let also = group.describe();
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
    groups.push(calling(2, 2, Budget { calls: 2, losses: 1, aborts: 1, ..Budget::default() }));
    groups.push(of_two(calling(3, 0, Budget { calls: 2, aborts: 1, ..Budget::default() })));
    groups.push(outside(0));
    groups.push(beginning([4, 2, 16], 2));
    groups.push(beginning([2, 2, 2], 2));
    explore_all(groups, 2);
}

/// Explores each feature alone, in a group that is small otherwise.
#[test]
#[ignore = "minutes: make model"]
fn all_histories_of_rich_groups_keep_the_claims() {
    let none = Budget::default();
    let view_change = Budget { proposals: 1, ..none };
    let mut groups = vec![
        // Two lanes.
        calling(2, 2, Budget { aborts: 1, ..view_change }),
        calling(2, 2, Budget { crashes: 1, ..view_change }),
        calling(3, 2, none),
        calling(3, 2, Budget { aborts: 1, ..none }),
        // A sub-group, alone and beside all.
        of_two(calling(3, 0, Budget { calls: 2, ..view_change })),
        of_two(calling(3, 0, Budget { calls: 3, losses: 1, aborts: 1, ..none })),
        of_two(calling(3, 1, Budget { calls: 3, ..none })),
        half_made(Budget { calls: 2, ..view_change }),
        left_behind(),
        // A link loses messages and is made anew.
        calling(2, 1, Budget { calls: 3, losses: 2, aborts: 1, ..view_change }),
        calling(3, 1, Budget { calls: 3, losses: 1, ..none }),
        // The plan changes, also beside a change of the View.
        planned(calling(2, 1, Budget { calls: 3, plans: 1, losses: 1, ..view_change })),
        planned(calling(2, 2, Budget { calls: 3, plans: 2, ..none })),
        planned(calling(3, 1, Budget { calls: 3, plans: 1, ..none })),
        // Limits that are reached.
        bounded(calling(2, 2, Budget { calls: 4, aborts: 1, ..none }), (2, 2)),
        bounded(calling(2, 2, Budget { calls: 4, aborts: 2, losses: 1, ..none }), (1, 1)),
        bounded(calling(3, 1, Budget { calls: 3, aborts: 1, ..none }), (1, 2)),
    ];
    // Nodes outside a running View.
    groups.push(outside(1));
    explore_all(groups, 2);
}

#[test]
#[ignore = "minutes: make model"]
fn all_histories_of_three_keep_the_claims() {
    // Callers that give up together with a second proposal would take longer than minutes; the
    // walks cover them.
    let budgets = [(2, 1, 0), (1, 1, 1)];
    let mut groups: Vec<Group> = budgets
        .into_iter()
        .flat_map(|budget| BOTH.map(|partition| group(partition, budget)))
        .collect();
    groups.extend(BOTH.map(|partition| Group { slow_disks: true, ..group(partition, (1, 1, 0)) }));
    groups.push(cut_off());
    explore_all(groups, 2);
}

#[test]
fn walks_keep_the_claims() {
    let seeds = number("POTLUCK_SEEDS").unwrap_or(40);
    let first = number("POTLUCK_SEED").unwrap_or(0);
    let nodes = number("POTLUCK_NODES").and_then(|n| u8::try_from(n).ok());
    let mut wrong = Vec::new();
    for (partition, kind) in BOTH.into_iter().flat_map(|p| WALK_KINDS.map(|m| (p, m))) {
        let (began, mut steps) = (Instant::now(), 0);
        for seed in first..first + seeds {
            let mut trace = Vec::new();
            let WalkResult { steps: walked, broken, stuck } =
                walk(seed, nodes, (partition, kind), None, &mut trace);
            steps += walked;
            if !broken.is_empty() || stuck {
                wrong.push(format!(
                    "{partition:?}, {kind:?}, POTLUCK_SEED={seed} POTLUCK_SEEDS=1: {broken:?}, \
                     stuck: {stuck}"
                ));
            }
            if seeds == 1 {
                println!("{partition:?}, {kind:?}:\n{}", trace.join("\n"));
            }
        }
        println!(
            "{partition:?}, {kind:?}: {seeds} walks, {steps} steps, {:.0} s",
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

/// The smallest group in which exhaustive search finds a mutant; `None` for two mutants that need
/// larger groups and longer executions.
fn smallest_group(mutant: Mutant) -> Option<Group> {
    use Partition::{Continue, Majority};
    let (partition, budget) = match mutant {
        Mutant::PromiseNotDurable => (Continue, (2, 1, 0)),
        Mutant::EarlyInstall | Mutant::AnyoneCommitted => (Continue, (1, 0, 0)),
        Mutant::NoTieBreak | Mutant::MostMembersWin | Mutant::OwnBase | Mutant::LateIsBehind => {
            (Continue, (2, 0, 0))
        }
        Mutant::RestartedCounts => (Continue, (1, 1, 0)),
        Mutant::NoAdoption | Mutant::AdoptedCounts | Mutant::OkWithoutResult => {
            (Majority, (2, 0, 0))
        }
        Mutant::CutOffGoesOn => return Some(Group { mutant: Some(mutant), ..cut_off() }),
        Mutant::EarlyAbort | Mutant::KeepsDone => (Majority, (1, 0, 1)),
        Mutant::TipOfInstalled
        | Mutant::AcceptedNotDurable
        | Mutant::WaitsForItsDisk
        | Mutant::CommitsAlone
        | Mutant::SyncKeepsState
        | Mutant::HoldsOtherBits
        | Mutant::DropsContributions => {
            return None;
        }
        rich => {
            return smallest_extended_group(rich)
                .map(|group| Group { mutant: Some(mutant), ..group });
        }
    };
    Some(Group { mutant: Some(mutant), ..group(partition, budget) })
}

/// The smallest group for a mutant that plain groups do not show.
fn smallest_extended_group(mutant: Mutant) -> Option<Group> {
    let none = Budget::default();
    let group = match mutant {
        Mutant::WithholdsVotes => calling(2, 1, Budget { calls: 2, ..none }),
        Mutant::SaysNothingAgain => calling(2, 1, Budget { calls: 2, losses: 1, ..none }),
        Mutant::CallsInAHold | Mutant::KeepsHeld => {
            planned(calling(2, 1, Budget { calls: 2, plans: 1, ..none }))
        }
        Mutant::NarrowAdmission => {
            bounded(calling(3, 2, Budget { calls: 2, aborts: 1, ..none }), (1, 1))
        }
        Mutant::BeginsBeside | Mutant::AgreesBeside => outside(0),
        Mutant::ForgetsBeginning => beginning([4, 2, 16], 2),
        Mutant::AllDecideGroups => of_two(calling(3, 0, Budget { calls: 2, proposals: 1, ..none })),
        Mutant::AdoptsAll => half_made(Budget { calls: 2, proposals: 1, ..none }),
        Mutant::SilenceAborts => left_behind(),
        _ => return None,
    };
    Some(group)
}

/// The first walk of five nodes in this range of seeds that shows a mutant.
fn first_walk(
    mutant: Option<Mutant>,
    kind: (Partition, WalkKind),
    seeds: std::ops::Range<u64>,
) -> Option<(u64, WalkResult)> {
    let mut walks = seeds.map(|seed| (seed, walk(seed, Some(5), kind, mutant, &mut Vec::new())));
    walks.find(|(_, walked)| !walked.broken.is_empty())
}

/// The kinds of walks in which mutants are looked for.
const KINDS: [(Partition, WalkKind); 3] = [
    (Partition::Continue, WalkKind::Basic),
    (Partition::Majority, WalkKind::Basic),
    (Partition::Continue, WalkKind::Extended),
];

/// For each mutant the seed of a walk of five nodes that shows it. After a change of the rules, a
/// walk of the next 600 seeds should, or a new seed is needed.
const WALKS: [(Mutant, Partition, u64); 14] = [
    (Mutant::PromiseNotDurable, Partition::Continue, 8),
    (Mutant::EarlyInstall, Partition::Continue, 0),
    (Mutant::NoTieBreak, Partition::Continue, 207),
    (Mutant::AnyoneCommitted, Partition::Continue, 62),
    (Mutant::RestartedCounts, Partition::Majority, 106),
    (Mutant::TipOfInstalled, Partition::Majority, 384),
    (Mutant::AcceptedNotDurable, Partition::Majority, 394),
    (Mutant::EarlyAbort, Partition::Majority, 691),
    (Mutant::AdoptedCounts, Partition::Continue, 376),
    (Mutant::OkWithoutResult, Partition::Continue, 149),
    (Mutant::MostMembersWin, Partition::Continue, 0),
    (Mutant::CutOffGoesOn, Partition::Majority, 535),
    (Mutant::OwnBase, Partition::Continue, 362),
    (Mutant::LateIsBehind, Partition::Majority, 681),
];

/// Mutants that walks rarely reach, or that show in small groups; exhaustive search finds them.
fn explored() -> impl Iterator<Item = Mutant> {
    let is_walked = |mutant| WALKS.iter().any(|walk| walk.0 == mutant);
    Mutant::ALL.into_iter().filter(move |mutant| !is_walked(*mutant))
}

/// That these walks do not find the mutant, and the first seed that does.
fn missed((mutant, partition, seed): (Mutant, Partition, u64)) -> Option<String> {
    let find = |seeds| first_walk(Some(mutant), (partition, WalkKind::Basic), seeds);
    if find(seed..seed + 600).is_some() {
        return None;
    }
    let other = find(0..SEARCH_WALKS).map(|(seed, _)| seed);
    Some(format!("{mutant:?} is not found from seed {seed} on; the first seed is {other:?}"))
}

#[test]
fn each_mutant_is_seen() {
    let missed: Vec<String> = WALKS.into_iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
    for (_, partition, seed) in WALKS {
        let plain = (partition, WalkKind::Basic);
        let clean = first_walk(None, plain, seed..seed + 1);
        assert!(clean.is_none(), "no rule was broken: {clean:?}");
    }
    for mutant in explored() {
        let found = smallest_group(mutant).map(|group| explore(&group, 1));
        assert!(
            found.is_some_and(|explored| !explored.broken.is_empty()),
            "{mutant:?} is not found"
        );
    }
}

#[test]
#[ignore = "minutes: make model"]
fn every_mutant_is_found() {
    println!(
        "| mutant | all histories | walks of five, parts go on | walks, majorities | rich walks |"
    );
    println!("| --- | --- | --- | --- | --- |");
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let by_model = smallest_group(mutant).map(|group| explore(&group, 1));
        let shown = |e: &SearchResult| {
            e.broken.first().map(|(claim, steps)| format!("{claim} in {steps} steps"))
        };
        let by_model = by_model.map(|e| shown(&e).unwrap_or("not found".to_owned()));
        let by_walk = KINDS.map(|kind| {
            let found = first_walk(Some(mutant), kind, 0..SEARCH_WALKS);
            found.map(|(seed, walked)| format!("{} at seed {seed}", walked.broken[0].name()))
        });
        if by_model.as_ref().is_none_or(|found| found == "not found")
            && by_walk.iter().all(Option::is_none)
        {
            missed.push(mutant);
        }
        let [parts, majorities, rich] =
            by_walk.map(|found| found.unwrap_or("not found".to_owned()));
        println!(
            "| {mutant:?} | {} | {parts} | {majorities} | {rich} |",
            by_model.unwrap_or("too small".to_owned())
        );
    }
    for kind in KINDS {
        let found = first_walk(None, kind, 0..SEARCH_WALKS);
        assert!(found.is_none(), "no rule was broken: {found:?}");
    }
    println!("| none | see above | not found | not found | not found |");
    let all = Mutant::ALL.len();
    println!("{} of {all} mutants found", all - missed.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
