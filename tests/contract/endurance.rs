//! Ten thousand random calls, in sequence and eight in flight: all are correct, and none leaks
//! resources.
//!
//! A separate process that runs one test at a time, because it measures the resources of the
//! process.

#[expect(dead_code, reason = "another suite uses all of it")]
mod ask;
mod numbers;
#[expect(dead_code, reason = "another suite uses all of it")]
mod on;

use anyhow::{Context as _, Result, bail, ensure};
use ask::{Ask, Buffers, What};
use numbers::{Chance, Number, OPS, has_op};
use on::{Network, On, everywhere, group, seed, tell_log};
use potluck::plan::EngineKind;
use potluck::{Context, ReduceOp, bf16, f16};
use potluck_harness::{Need, Resources, Suite};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MEMBERS: usize = 3;

/// Calls in flight on each member, each in its own task and lane.
const LANES: usize = 8;

const OPERATIONS: usize = 10_000;

/// After this many calls all threads are running, and the memory for the largest calls of all lanes
/// is allocated.
const WARM_UP: usize = 1600;

/// The lengths of calls in elements. They repeat, as in real programs: memory for owned buffers is
/// pooled by length.
const LENGTHS: [usize; 16] =
    [0, 1, 2, 3, 5, 8, 17, 64, 65, 100, 333, 1000, 1024, 4097, 5000, 20_000];

/// The allowed growth of the process in one stretch of operations; the allocator does not return
/// all freed memory. A leak of 1 KiB per call and member would be 24 MiB in each stretch.
const GROWTH_KIB: u64 = 16 * 1024;

/// A leak grows in every stretch; the fragments that the allocator keeps do not.
const STRETCHES_MAX: u32 = 3;

fn main() {
    let mut suite = Suite::new();
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    suite.on("native", None);
    suite.serial("ten thousand operations, eight in flight", &[Need::Proc], || {
        run(EngineKind::Native)
    });
    suite.on("gloo", missing);
    suite.serial("ten thousand operations, eight in flight", &[Need::Proc], || {
        run(EngineKind::Gloo)
    });
    suite.run()
}

fn run(engine: EngineKind) -> Result<()> {
    tell_log();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let on = On { network: Network::Process, engine };
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(300), ten_thousand(on))
            .await
            .context("it never ended")?
    })
}

async fn ten_thousand(on: On) -> Result<()> {
    let seed = seed("ten thousand operations")?;
    let nodes = group(on, "endurance", MEMBERS).await?;
    let started = Instant::now();
    let nodes = everywhere(nodes, move |cluster, mut context| async move {
        stretch(&mut context, seed, 0, WARM_UP).await?;
        Ok((cluster, context))
    });
    let mut nodes = nodes.await?;
    let mut before = Resources::settled()?;
    let (threads, descriptors) = (before.threads.clone(), before.descriptors);
    let own_before = threads_of_operations(&before);
    for number in 1..=STRETCHES_MAX {
        let again = everywhere(nodes, move |cluster, mut context| async move {
            stretch(&mut context, seed, number, OPERATIONS - WARM_UP).await?;
            Ok((cluster, context))
        });
        nodes = again.await?;
        let after = Resources::back_to(&before)?;
        println!(
            "measured: {} operations on {}, {:.1?} since the beginning: from {} to {}",
            OPERATIONS - WARM_UP,
            on.engine,
            started.elapsed(),
            told(&before),
            told(&after)
        );
        let (own, ours) = (threads_of_operations(&after), after.threads.len());
        ensure!(ours - own <= threads.len() - own_before, "{threads:?} became {:?}", after.threads);
        ensure!(
            own <= 2 * LANES * MEMBERS,
            "{own} threads of operations, of which {} are under way at most",
            LANES * MEMBERS
        );
        ensure!(after.descriptors <= descriptors, "{descriptors} became {after:?}");
        if after.rss_kib < before.rss_kib + GROWTH_KIB {
            return Ok(());
        }
        before = after;
    }
    bail!("each time so many operations were made the process grew: {before:?}")
}

/// On Gloo each operation has a thread, which may still be ending when the next operation of its
/// lane has begun.
fn threads_of_operations(resources: &Resources) -> usize {
    resources.threads.iter().filter(|name| *name == "potluck-gloo").count()
}

fn told(resources: &Resources) -> String {
    let Resources { threads, descriptors, rss_kib } = resources;
    format!("{} threads, {descriptors} descriptors, {rss_kib} KiB", threads.len())
}

/// Runs this many operations on this member with all lanes busy. The lanes start in another order
/// on every rank.
async fn stretch(context: &mut Context, seed: u64, number: u32, operations: usize) -> Result<()> {
    let mut of_rank = Chance::new(!seed ^ context.rank().index() as u64);
    let mut tags: Vec<u32> = (0..LANES as u32).map(|tag| number * LANES as u32 + tag).collect();
    for place in (1..LANES).rev() {
        tags.swap(place, of_rank.below(place + 1));
    }
    // A failure also ends the others, which would wait for it.
    let mut tasks = JoinSet::new();
    for tag in tags {
        let (lane, of_rank) = (context.lane(tag), Chance::new(of_rank.next()));
        tasks.spawn(in_lane(
            lane,
            Chance::new(seed ^ u64::from(tag) << 32),
            of_rank,
            operations / LANES,
        ));
    }
    while let Some(ended) = tasks.join_next().await {
        // Printed at once: errors of other tasks are consequences.
        ended?.inspect_err(|error| println!("{error:#}"))?;
    }
    Ok(())
}

/// `chance` is the same on every rank and selects the calls; pauses differ between ranks.
async fn in_lane(
    mut lane: Context,
    mut chance: Chance,
    mut of_rank: Chance,
    operations: usize,
) -> Result<()> {
    for number in 0..operations {
        for _ in 0..of_rank.below(3) {
            tokio::task::yield_now().await;
        }
        // The largest calls first, in all lanes at once.
        let largest =
            [What::AllGather, What::AllToAll, What::Scatter, What::AllReduceOwned].get(number);
        let ask = largest
            .map_or_else(|| any(&mut chance), |what| Ask::sum(*what, LENGTHS[LENGTHS.len() - 1]));
        let (seed, element) = (chance.next(), if largest.is_some() { 1 } else { chance.below(13) });
        let called = match element {
            0 => call::<f32>(&mut lane, ask, seed).await,
            1 => call::<f64>(&mut lane, ask, seed).await,
            2 => call::<f16>(&mut lane, ask, seed).await,
            3 => call::<bf16>(&mut lane, ask, seed).await,
            4 => call::<i8>(&mut lane, ask, seed).await,
            5 => call::<i32>(&mut lane, ask, seed).await,
            6 => call::<i64>(&mut lane, ask, seed).await,
            7 => call::<u8>(&mut lane, ask, seed).await,
            8 => call::<u32>(&mut lane, ask, seed).await,
            9 => call::<u64>(&mut lane, ask, seed).await,
            10 => call::<i16>(&mut lane, ask, seed).await,
            11 => call::<u16>(&mut lane, ask, seed).await,
            _ => call::<bool>(&mut lane, ask, seed).await,
        };
        called.with_context(|| {
            format!("rank {}, the lane's call {number}: {ask:?} of element {element}", lane.rank())
        })?;
    }
    Ok(())
}

/// Mostly small lengths.
fn any(chance: &mut Chance) -> Ask {
    let len = chance.of(&LENGTHS);
    let op = chance.of(&OPS);
    Ask {
        what: chance.of(&What::ALL),
        len,
        op,
        root: chance.below(MEMBERS),
        rounded: false,
        best_effort: chance.below(4) == 0,
    }
}

async fn call<T: Number>(lane: &mut Context, ask: Ask, seed: u64) -> Result<()> {
    let op = if has_op(T::DTYPE, ask.op) { ask.op } else { ReduceOp::Max };
    let ask = Ask { op, ..ask };
    let mut buffers: Buffers<T> = ask.buffers(seed, lane.rank().index(), lane.size());
    let result = ask.begin(lane, &mut buffers).await?;
    ask.is_done(lane, seed, &buffers, result.as_deref())
}
