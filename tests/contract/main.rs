//! The contract of a group of nodes as one suite, on every engine: with nodes in one process, and
//! again over TCP and multicast DNS on a loopback interface of its own.

mod ask;
mod best_effort;
mod cancel;
mod copies;
mod deadlines;
mod feedback;
mod finite;
mod gradients;
mod matrix;
mod members;
mod messages;
mod metrics;
mod mismatches;
mod numbers;
mod on;
mod order;
mod outcomes;
mod parts;
mod reductions;
mod steps;
mod syncs;

use anyhow::{Context as _, Result, ensure};
use on::{Network, On, tell_log};
use potluck::plan::EngineKind;
use potluck_harness::{Lab, Need, Suite};
use std::time::Duration;

/// Set if this process is the suite inside a network namespace.
const INSIDE: &str = "POTLUCK_CONTRACT_LOOPBACK";

/// Longer than any test takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);

type Story = fn(On) -> Told;

type Told = std::pin::Pin<Box<dyn Future<Output = Result<()>>>>;

fn main() {
    let network =
        if std::env::var_os(INSIDE).is_some() { Network::Loopback } else { Network::Process };
    let mut suite = Suite::new();
    // Most tests wait for messages between their members.
    suite.at_once(4);
    if network == Network::Process {
        // The longest test starts first.
        suite.test_needing("loopback", &[Need::Lab], the_same_over_loopback);
        suite.test("inputs have the awkward numbers", matrix::inputs_are_awkward);
    }
    for engine in [EngineKind::Native, EngineKind::Gloo] {
        for (name, story) in stories(network) {
            let place = if network == Network::Process { "process" } else { "loopback" };
            let missing = engine == EngineKind::Gloo && potluck::gloo_version().is_none();
            let needs: &[Need] =
                if missing { &[Need::Missing("this build has no Gloo")] } else { &[] };
            suite.test_needing(&format!("{engine}/{place}/{name}"), needs, move || {
                run(story(On { network, engine }))
            });
        }
    }
    suite.run()
}

fn stories(network: Network) -> Vec<(&'static str, Story)> {
    let in_process: &[(&str, Story)] = &[
        ("every call is the reference bit for bit, among 5", |n| Box::pin(matrix::of(n, 5))),
        ("every call is the reference bit for bit, among 4", |n| Box::pin(matrix::of(n, 4))),
        ("every call is the reference bit for bit, among 2", |n| Box::pin(matrix::of(n, 2))),
        ("every call is the reference bit for bit, among 1", |n| Box::pin(matrix::of(n, 1))),
        ("calls are dropped at every poll", |n| Box::pin(cancel::at_every_poll(n))),
        ("messages are dropped at every poll", |n| Box::pin(messages::dropped_at_every_poll(n))),
        ("syncs are dropped at every poll", |n| Box::pin(cancel::syncs_at_every_poll(n))),
        ("a sync that follows a dropped one brings the state", |n| {
            Box::pin(syncs::again_after_a_drop(n))
        }),
        ("calls are dropped at a moment of chance", |n| Box::pin(cancel::at_random(n))),
    ];
    let mut stories: Vec<(&str, Story)> = vec![
        ("every call is the reference bit for bit, among 3", |n| Box::pin(matrix::of(n, 3))),
        ("a call that makes no sense is refused", |n| Box::pin(reductions::rejected(n))),
        ("a root that is no rank is refused", |n| Box::pin(reductions::no_root(n))),
        ("copies reach everybody", |n| Box::pin(copies::copies(n))),
        ("whoever calls something else, all hear who called what", |n| {
            Box::pin(mismatches::every_kind(n))
        }),
        ("shapes in different order are a mismatch", |n| {
            Box::pin(mismatches::shapes_in_different_order(n))
        }),
        ("parts that do not fit are refused", |n| Box::pin(parts::parts_that_do_not_fit(n))),
        ("all kinds at once", |n| Box::pin(parts::all_kinds_at_once(n))),
        ("what travels encoded gives the same bits to all", |n| Box::pin(reductions::codecs(n))),
        ("what is rounded away is owed", |n| Box::pin(feedback::small_numbers_arrive(n))),
        ("what is owed changes with calls that count", |n| Box::pin(feedback::given_up(n))),
        ("what is owed goes along into the next View", |n| Box::pin(feedback::over_views(n))),
        ("what may have counted is owed no more", |n| Box::pin(feedback::lost(n))),
        ("feedback is for one buffer and one call at a time", |n| Box::pin(feedback::refused(n))),
        ("gradients are the means of their buckets", |n| Box::pin(gradients::are_the_means(n))),
        ("gradients leave while others are computed", |n| Box::pin(gradients::leave_early(n))),
        ("gradients of many parameters", |n| Box::pin(gradients::of_many_parameters(n))),
        ("gradients that travel encoded are the same bits for all", |n| {
            Box::pin(gradients::encoded_are_alike(n))
        }),
        ("gradients of a step that is given up", |n| Box::pin(gradients::given_up(n))),
        ("gradients of a step that was dropped too late", |n| Box::pin(gradients::lost(n))),
        ("gradients of a step that is begun again", |n| Box::pin(gradients::begun_again(n))),
        ("gradients that do not fit are refused", |n| Box::pin(gradients::refused(n))),
        ("gradients go from View to View", |n| Box::pin(gradients::over_views(n))),
        ("many calls at once", |n| Box::pin(order::many_at_once(n))),
        ("lanes in different order", |n| Box::pin(order::lanes(n))),
        ("a dropped call is aborted for all", |n| Box::pin(outcomes::dropped(n))),
        ("a deadline ends the wait for all", |n| Box::pin(outcomes::deadline(n))),
        ("a message reaches the other one alone", |n| Box::pin(messages::reach_one(n))),
        ("messages meet in the order of their calls", |n| Box::pin(messages::in_order(n))),
        ("messages that do not fit each other", |n| Box::pin(messages::differ(n))),
        ("messages to nobody, and too many", |n| Box::pin(messages::refused(n))),
        ("a dropped message", |n| Box::pin(messages::dropped(n))),
        ("a step counts as one", |n| Box::pin(steps::count_as_one(n))),
        ("a step of every kind of call", |n| Box::pin(steps::of_every_kind(n))),
        ("steps that differ are a mismatch", |n| Box::pin(steps::differ(n))),
        ("a step that makes no sense is refused", |n| Box::pin(steps::refused(n))),
        ("a step that is given up", |n| Box::pin(steps::given_up(n))),
        ("best effort gives the right sums", |n| Box::pin(best_effort::sums(n))),
        ("best effort is given up too", |n| Box::pin(best_effort::given_up(n))),
        ("what is no number is not handed in", |n| Box::pin(finite::handed_in(n))),
        ("a sum that overflows is given up", |n| Box::pin(finite::overflowing(n))),
        ("a deadline of every kind of call", |n| Box::pin(deadlines::of_every_kind(n))),
        ("the same deadline on all ranks", |n| Box::pin(deadlines::the_same_everywhere(n))),
        ("a deadline counts from the first poll", |n| Box::pin(deadlines::from_the_first_poll(n))),
        ("a sync in each of two lanes", |n| Box::pin(syncs::in_two_lanes(n))),
        ("a sync of each of two states", |n| Box::pin(syncs::of_two_states(n))),
        ("a deadline of a sync", |n| Box::pin(deadlines::of_a_sync(n))),
        ("a result that was dropped too late is kept", |n| Box::pin(outcomes::lost(n))),
        ("a result that was dropped too late is kept when the View changes", |n| {
            Box::pin(outcomes::lost_and_left(n))
        }),
        ("what was done is counted", |n| Box::pin(metrics::of_operations(n))),
        ("what is counted outlives its View", |n| Box::pin(metrics::over_views(n))),
        ("a joiner must sync", |n| Box::pin(members::joiner(n))),
        ("who leaves is not waited for", |n| Box::pin(members::leaving(n))),
        ("too many calls take no number", |n| Box::pin(order::too_many(n))),
        ("nobody came", |n| Box::pin(members::nobody(n))),
        ("an owned buffer comes back", |n| Box::pin(outcomes::owned(n))),
        ("sixteen are a group and the seventeenth waits", |n| Box::pin(members::sixteen(n))),
    ];
    if network == Network::Process {
        stories.extend(in_process);
    }
    stories
}

fn run(story: impl Future<Output = Result<()>>) -> Result<()> {
    tell_log();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, story).await.context("the story never ended")?
    })
}

/// Runs this suite again inside a network namespace that has only `lo`.
fn the_same_over_loopback() -> Result<()> {
    let lab = Lab::up("lo")?;
    let output = lab.command("n1", std::env::current_exe()?).env(INSIDE, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{text}");
    ensure!(
        output.status.success(),
        "the suite failed over loopback:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(text.contains("test result: ok"), "the suite did not run");
    Ok(())
}
