//! The contract of a group of nodes as one suite, on every engine: with nodes in one process, and
//! again over TCP and multicast DNS on a loopback interface of its own.

mod any;
mod ask;
mod best_effort;
mod cancel;
mod copies;
mod deadlines;
mod elastic;
mod feedback;
mod finite;
mod gradients;
mod groups;
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
mod uneven;
mod weights;

use anyhow::{Context as _, Result, ensure};
use on::{Network, On, everywhere, group, tell_log};
use potluck::plan::EngineKind;
use potluck::{Cluster, Context};
use potluck_harness::{Lab, Need, Suite};
use std::pin::Pin;
use std::time::Duration;

/// Set if this process is the suite inside a network namespace.
const INSIDE: &str = "POTLUCK_CONTRACT_LOOPBACK";

/// Longer than any test takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

type Story = Box<dyn Fn(On) -> Told + Send>;

type Told = Pin<Box<dyn Future<Output = Result<()>>>>;

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

/// A story that makes its own groups.
fn story<F>(tell: impl Fn(On) -> F + Send + 'static) -> Story
where
    F: Future<Output = Result<()>> + 'static,
{
    Box::new(move |on| Box::pin(tell(on)))
}

/// The story of a program that all members of a group run, in groups of these sizes.
fn among<F>(
    sizes: &'static [usize],
    program: impl Fn(Cluster, Context) -> F + Copy + Send + Sync + 'static,
) -> Story
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    story(move |on| async move {
        for n in sizes {
            let done = everywhere(group(on, "story", *n).await?, program).await;
            done.with_context(|| format!("among {n}"))?;
        }
        Ok(())
    })
}

/// The story of a program of three ranks, in a group of three of five.
fn within<F>(program: impl Fn(Cluster, Context) -> F + Copy + Send + Sync + 'static) -> Story
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    story(move |on| groups::run(on, program))
}

fn stories(network: Network) -> Vec<(&'static str, Story)> {
    let in_process = [
        ("every call is the reference bit for bit, among 5", story(|on| matrix::of(on, 5))),
        ("every call is the reference bit for bit, among 4", story(|on| matrix::of(on, 4))),
        ("every call is the reference bit for bit, among 2", story(|on| matrix::of(on, 2))),
        ("every call is the reference bit for bit, among 1", story(|on| matrix::of(on, 1))),
        ("calls are dropped at every poll", story(cancel::at_every_poll)),
        ("messages are dropped at every poll", story(messages::dropped_at_every_poll)),
        ("syncs are dropped at every poll", story(cancel::syncs_at_every_poll)),
        ("a sync that follows a dropped one brings the state", story(syncs::again_after_a_drop)),
        ("states that are made where needed, after a drop", story(syncs::with_after_a_drop)),
        ("calls are dropped at a moment of chance", story(cancel::at_random)),
        (
            "every call is the reference bit for bit, in groups among 4",
            story(|on| matrix::of_groups(on, 4, &[&[0, 2], &[1, 3], &[1, 2, 3]])),
        ),
        ("many calls at once, in a group", within(order::fewer_at_once)),
        ("lanes in different order, in a group", within(order::lanes)),
        ("messages that do not fit each other, in a group", within(messages::differ)),
        ("a dropped message, in a group", within(messages::dropped)),
        ("a step of every kind of call, in a group", within(steps::of_every_kind)),
        ("steps that differ are a mismatch, in a group", within(steps::differ)),
        ("a step that is given up, in a group", within(steps::given_up)),
        ("best effort is given up too, in a group", within(best_effort::given_up)),
        ("a sum that overflows is given up, in a group", within(finite::overflowing)),
        ("a deadline of every kind of call, in a group", within(deadlines::of_every_kind)),
        ("the same deadline on all ranks, in a group", within(deadlines::the_same_everywhere)),
        ("what is rounded away is kept, in a group", within(feedback::small_numbers_arrive)),
        ("weighted means that travel encoded, in a group", within(weights::encoded)),
        ("parts that do not fit are refused, in a group", within(parts::parts_that_do_not_fit)),
        ("a root that is no rank is refused, in a group", within(reductions::no_root)),
    ];
    let mut stories = vec![
        ("every call is the reference bit for bit, among 3", story(|on| matrix::of(on, 3))),
        ("a call that makes no sense is refused", among(&[3], reductions::rejected)),
        ("a root that is no rank is refused", among(&[3], reductions::no_root)),
        ("copies reach everybody", among(&[3], copies::copies)),
        ("whoever calls something else, all hear who called what", story(mismatches::every_kind)),
        ("six hundred steps that met plain calls", story(mismatches::steps_beside_calls)),
        ("shapes in different order are a mismatch", story(mismatches::shapes_in_different_order)),
        ("parts that do not fit are refused", among(&[3], parts::parts_that_do_not_fit)),
        ("all kinds at once", among(&[4], parts::all_kinds_at_once)),
        ("what travels encoded gives the same bits to all", story(reductions::codecs)),
        ("what is rounded away is kept", among(&[1, 2, 3], feedback::small_numbers_arrive)),
        ("a residual changes with calls that count", among(&[3], feedback::given_up)),
        ("a residual goes along into the next View", story(feedback::over_views)),
        ("what may have counted leaves no residual", among(&[2], feedback::lost)),
        ("feedback is for one buffer and one call at a time", among(&[2], feedback::refused)),
        ("gradients are the means of their buckets", among(&[1, 2, 3], gradients::are_the_means)),
        ("gradients leave while others are computed", among(&[3], gradients::leave_early)),
        ("gradients of many parameters", among(&[2], gradients::of_many_parameters)),
        (
            "gradients that travel encoded are the same bits for all",
            story(gradients::encoded_are_alike),
        ),
        ("gradients of a step that is given up", among(&[3], gradients::given_up)),
        ("gradients of a step that was dropped too late", story(gradients::lost)),
        ("gradients of a step that is begun again", story(gradients::begun_again)),
        ("gradients that do not fit are refused", among(&[2], gradients::refused)),
        ("gradients go from View to View", story(gradients::over_views)),
        (
            "every call is the reference bit for bit, in groups among 5",
            story(|on| matrix::of_groups(on, 5, &[&[0, 3], &[1, 2, 4]])),
        ),
        ("whoever of a group calls something else is named", story(mismatches::in_a_group)),
        ("groups in groups, of one and of all", among(&[5], groups::nest)),
        ("ranks that are no group", among(&[3], groups::refused)),
        ("the engine of a group", story(groups::engine)),
        ("groups in a View that is not in sync", story(groups::out_of_sync)),
        ("one of four leaves, and both groups go on", story(groups::left)),
        ("groups that share ranks", story(groups::overlap)),
        ("a deadline in a group of two of three", among(&[3], groups::late)),
        ("a message reaches the other one alone, in a group", within(messages::reach_one)),
        ("a step counts as one, in a group", within(steps::count_as_one)),
        ("best effort gives the right sums, in a group", within(best_effort::sums)),
        ("a dropped call is aborted for all, in a group", within(outcomes::dropped)),
        ("copies reach everybody, in a group", within(copies::copies)),
        ("many calls at once", among(&[3], order::many_at_once)),
        ("lanes in different order", among(&[3], order::lanes)),
        ("a dropped call is aborted for all", among(&[3], outcomes::dropped)),
        ("a deadline ends the wait for all", among(&[2], outcomes::deadline)),
        ("a message reaches the other one alone", among(&[2, 3, 5], messages::reach_one)),
        ("messages meet in the order of their calls", story(messages::in_order)),
        ("messages that do not fit each other", among(&[3], messages::differ)),
        ("messages to nobody, and too many", among(&[2], messages::refused)),
        ("a dropped message", among(&[3], messages::dropped)),
        ("a receive from any takes all messages", among(&[2, 3, 5], any::takes_all)),
        ("a receive from any chooses by the tag", among(&[3, 4], any::by_tag)),
        ("a receive from any behind another message", among(&[2, 3], any::behind_another)),
        ("a receive from any that is given up takes nothing", among(&[2, 3], any::given_up)),
        ("a receive from any that does not fit", among(&[2, 3], any::differ)),
        ("a receive from ranks that make no sense", among(&[1, 2, 3], any::refused)),
        ("a receive from any ends with its View", story(any::over_views)),
        ("uneven calls are the reference", among(&[1, 2, 3, 5], uneven::are_the_reference)),
        ("uneven calls that differ are a mismatch", among(&[3], uneven::differ)),
        ("uneven calls are the reference, in a group", within(uneven::are_the_reference)),
        ("uneven calls that differ are a mismatch, in a group", within(uneven::differ)),
        ("an uneven call that is given up, in a group", within(uneven::given_up)),
        ("a receive from any takes all messages, in a group", within(any::takes_all)),
        ("a receive from any chooses by the tag, in a group", within(any::by_tag)),
        ("lengths that do not fit are refused", among(&[3], uneven::refused)),
        ("an uneven call that is given up", among(&[2, 3], uneven::given_up)),
        ("an uneven call that was dropped too late", among(&[1], uneven::lost)),
        ("an uneven call goes on without a lost member", story(uneven::without_one)),
        ("a step counts as one", among(&[1, 2, 3, 5], steps::count_as_one)),
        ("a step of every kind of call", among(&[2, 3], steps::of_every_kind)),
        ("steps that differ are a mismatch", among(&[3], steps::differ)),
        ("a step that makes no sense is refused", among(&[3], steps::refused)),
        ("a step that is given up", among(&[3], steps::given_up)),
        ("best effort gives the right sums", among(&[2, 3, 5], best_effort::sums)),
        ("best effort is given up too", among(&[3], best_effort::given_up)),
        ("what is no number is not handed in", among(&[2, 3], finite::handed_in)),
        ("a sum that overflows is given up", among(&[2, 3], finite::overflowing)),
        ("a deadline of every kind of call", among(&[3], deadlines::of_every_kind)),
        ("the same deadline on all ranks", among(&[3], deadlines::the_same_everywhere)),
        ("a deadline counts from the first poll", among(&[2], deadlines::from_the_first_poll)),
        ("a sync in each of two lanes", story(syncs::in_two_lanes)),
        ("a sync of each of two states", story(syncs::of_two_states)),
        ("a state is made and taken where it is needed", story(syncs::made_where_needed)),
        ("no state is made where none is needed", among(&[1, 2, 3], syncs::nothing_is_made)),
        ("a deadline of a sync", story(deadlines::of_a_sync)),
        ("a weighted mean is the reference", among(&[1, 2, 3, 5], weights::are_the_reference)),
        ("weights without a mean are refused", among(&[2, 3], weights::refused)),
        ("a weight of zero hides a NaN", among(&[2, 3], weights::not_finite)),
        ("weighted means that travel encoded", among(&[1, 2, 3], weights::encoded)),
        ("a weighted mean that was dropped too late", among(&[2], weights::lost)),
        ("weighted means in a step", among(&[1, 2, 3], weights::in_a_step)),
        ("weighted means of gradients", among(&[1, 2, 3], weights::of_gradients)),
        ("an elastic loop goes on through a leave and a join", story(elastic::goes_on)),
        ("an elastic loop ends with the error of its step", among(&[2], elastic::ends)),
        ("a result that was dropped too late is kept", among(&[2], outcomes::lost)),
        (
            "a result that was dropped too late is kept when the View changes",
            story(outcomes::lost_and_left),
        ),
        ("what was done is counted", story(metrics::of_operations)),
        ("what is counted outlives its View", story(metrics::over_views)),
        ("a joiner must sync", story(members::joiner)),
        ("who leaves is not waited for", story(members::leaving)),
        ("too many calls take no number", story(order::too_many)),
        ("nobody came", story(members::nobody)),
        ("three begin, a fourth has no place, and two go on", story(members::sizes)),
        ("an owned buffer comes back", among(&[2], outcomes::owned)),
        ("sixteen are a group and the seventeenth waits", story(members::sixteen)),
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
