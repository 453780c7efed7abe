//! What a group of nodes promises, as one suite: on every engine, here over nodes of one process, and the same again over
//! TCP and multicast DNS on a loopback interface of its own.

mod deadlines;
mod finite;
mod metrics;
mod numbers;
mod parts;

use anyhow::{Context as _, Result, bail, ensure};
use numbers::{Number, differs, input};
use potluck::{
    Bf16, Builder, Cause, Cluster, Codec, Config, Context, DType, Engine, EngineKind, Error, F16, ReduceOp, Rejection, State,
};
use potluck_harness::{Lab, Need, Suite};
use std::sync::Arc;
use std::time::Duration;

/// Says that this process is the suite inside a network namespace.
const INSIDE: &str = "POTLUCK_CONTRACT_LOOPBACK";

/// Longer than any story takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);

type Story = fn(On) -> Told;

type Told = std::pin::Pin<Box<dyn Future<Output = Result<()>>>>;

#[derive(Clone, Copy, PartialEq)]
enum Network {
    Process,
    Loopback,
}

/// Where a story is told.
#[derive(Clone, Copy)]
struct On {
    network: Network,
    engine: EngineKind,
}

fn main() {
    let network = if std::env::var_os(INSIDE).is_some() { Network::Loopback } else { Network::Process };
    let mut suite = Suite::new();
    for engine in [EngineKind::Native, EngineKind::Gloo] {
        for (name, story) in stories() {
            let place = if network == Network::Process { "process" } else { "loopback" };
            let missing = engine == EngineKind::Gloo && potluck::gloo_version().is_none();
            let needs: &[Need] = if missing { &[Need::Missing("this build has no Gloo")] } else { &[] };
            suite.test_needing(&format!("{engine}/{place}/{name}"), needs, move || run(story(On { network, engine })));
        }
    }
    if network == Network::Process {
        suite.test_needing("loopback", &[Need::Lab], the_same_over_loopback);
    }
    suite.run()
}

fn stories() -> Vec<(&'static str, Story)> {
    vec![
        ("reductions are the reference bit for bit", |n| Box::pin(reductions(n))),
        ("a call that makes no sense is refused", |n| Box::pin(rejected(n))),
        ("copies reach everybody", |n| Box::pin(copies(n))),
        ("a reduction for the root", |n| Box::pin(parts::reduce(n))),
        ("each gets its shard", |n| Box::pin(parts::reduce_scatter(n))),
        ("the root gathers and scatters", |n| Box::pin(parts::gather_and_scatter(n))),
        ("parts for everybody", |n| Box::pin(parts::all_to_all(n))),
        ("different roots are a mismatch", |n| Box::pin(parts::roots_differ(n))),
        ("parts that do not fit are refused", |n| Box::pin(parts::parts_that_do_not_fit(n))),
        ("all kinds at once", |n| Box::pin(parts::all_kinds_at_once(n))),
        ("what is no number is not handed in", |n| Box::pin(finite::handed_in(n))),
        ("a sum that overflows is given up", |n| Box::pin(finite::overflowing(n))),
        ("bf16 gives the same bits to all", |n| Box::pin(bf16(n))),
        ("many calls at once", |n| Box::pin(many_at_once(n))),
        ("lanes in different order", |n| Box::pin(lanes(n))),
        ("a mismatch names both sides", |n| Box::pin(mismatch(n))),
        ("a dropped call is aborted for all", |n| Box::pin(dropped(n))),
        ("a deadline ends the wait for all", |n| Box::pin(deadline(n))),
        ("a deadline of every kind of call", |n| Box::pin(deadlines::of_every_kind(n))),
        ("a deadline counts from the first poll", |n| Box::pin(deadlines::from_the_first_poll(n))),
        ("a deadline of a sync", |n| Box::pin(deadlines::of_a_sync(n))),
        ("a result that was dropped too late is kept", |n| Box::pin(lost(n))),
        ("what was done is counted", |n| Box::pin(metrics::of_operations(n))),
        ("what is counted outlives its View", |n| Box::pin(metrics::over_views(n))),
        ("a joiner must sync", |n| Box::pin(joiner(n))),
        ("who leaves is not waited for", |n| Box::pin(leaving(n))),
        ("too many calls take no number", |n| Box::pin(too_many(n))),
        ("nobody came", |n| Box::pin(nobody(n))),
        ("an owned buffer comes back", |n| Box::pin(owned(n))),
        ("sixteen are a group and the seventeenth waits", |n| Box::pin(sixteen(n))),
    ]
}

fn run(story: impl Future<Output = Result<()>>) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG");
    // Only the first story of the process sets it up.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, story).await.context("the story never ended")? })
}

/// Runs this very suite inside a namespace with nothing but `lo`.
fn the_same_over_loopback() -> Result<()> {
    let lab = Lab::up("lo")?;
    let output = lab.command("n1", std::env::current_exe()?).env(INSIDE, "1").arg("--test-threads=2").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{text}");
    ensure!(output.status.success(), "the suite failed over loopback:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    ensure!(text.contains("test result: ok"), "the suite did not run");
    Ok(())
}

/// A namespace that no other story uses.
fn fresh(story: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{story}-{}-{}", std::process::id() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed))
}

fn builder(on: On, namespace: &str, min: usize) -> Builder {
    let builder = match on.network {
        Network::Process => Builder::new(Config::local()),
        Network::Loopback => {
            let home = std::env::temp_dir().join("potluck-contract").join(namespace);
            Builder::new(Config::loopback()).home(home)
        }
    };
    let engine = if on.engine == EngineKind::Gloo { Engine::Gloo } else { Engine::Native };
    builder.open_lan(namespace).min_members(min).engine(engine)
}

/// `n` nodes in one View, in rank order.
async fn group(on: On, story: &str, n: usize) -> Result<Vec<(Cluster, Context)>> {
    let namespace = fresh(story);
    let mut clusters = Vec::new();
    for _ in 0..n {
        clusters.push(builder(on, &namespace, n).join().await?);
    }
    let mut nodes = Vec::new();
    for cluster in clusters {
        let context = cluster.context().await?;
        nodes.push((cluster, context));
    }
    // A member may have been handed the View before the last one: all must be in the same.
    let newest = nodes.iter().map(|(_, c)| c.view()).max().unwrap_or_default();
    for (cluster, context) in &mut nodes {
        while context.view() != newest {
            *context = cluster.context().await?;
        }
    }
    nodes.sort_by_key(|(_, c)| c.rank());
    // One member has nobody to talk to, so its View is native.
    let engine = if n == 1 { EngineKind::Native } else { on.engine };
    ensure!(nodes.iter().all(|(_, c)| c.engine() == engine), "not on {engine}: {}", nodes[0].1.engine_reason());
    Ok(nodes)
}

/// Runs one program on every node and gives the results in rank order.
async fn everywhere<R: Send + 'static, F: Future<Output = R> + Send>(
    nodes: Vec<(Cluster, Context)>,
    program: impl Fn(Cluster, Context) -> F + Send + Sync + Clone + 'static,
) -> Result<Vec<R>> {
    let tasks: Vec<_> = nodes
        .into_iter()
        .map(|(cluster, context)| {
            let program = program.clone();
            tokio::spawn(async move { program(cluster, context).await })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await?);
    }
    Ok(results)
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

async fn reductions(on: On) -> Result<()> {
    for n in 1..=5 {
        let mut nodes = group(on, "reduce", n).await?;
        nodes = reduce_all::<f32>(nodes, &OPS).await?;
        nodes = reduce_all::<f64>(nodes, &OPS).await?;
        nodes = reduce_all::<F16>(nodes, &OPS).await?;
        nodes = reduce_all::<Bf16>(nodes, &OPS).await?;
        let of_integers = OPS.map(|op| if op == ReduceOp::Mean { ReduceOp::Sum } else { op });
        nodes = reduce_all::<i8>(nodes, &of_integers).await?;
        nodes = reduce_all::<i32>(nodes, &of_integers).await?;
        nodes = reduce_all::<i64>(nodes, &of_integers).await?;
        nodes = reduce_all::<u8>(nodes, &of_integers).await?;
        nodes = reduce_all::<u32>(nodes, &of_integers).await?;
        reduce_all::<u64>(nodes, &of_integers).await?;
    }
    Ok(())
}

/// Every operation on every length, on all nodes; the reference is worked out once for all of them.
async fn reduce_all<T: Number>(nodes: Vec<(Cluster, Context)>, ops: &[ReduceOp]) -> Result<Vec<(Cluster, Context)>> {
    let size = nodes.len();
    let mut cases = Vec::new();
    for len in [0, 1, size - 1, size, 1000, 65537] {
        let inputs: Arc<Vec<Vec<T>>> = Arc::new((0..size).map(|rank| input(len as u64, rank, len)).collect());
        let order = nodes[0].1.fold_order::<T>(len);
        // The reference is slow: of large buffers each group size takes every other operation.
        let asked = ops.iter().skip(if len > 1000 { size % 2 } else { 0 }).step_by(if len > 1000 { 2 } else { 1 });
        cases.extend(asked.map(|op| (*op, Arc::clone(&inputs), potluck::reference_sum(&order, *op, &inputs))));
    }
    let cases = Arc::new(cases);
    let results = everywhere(nodes, move |cluster, mut context| {
        let cases = Arc::clone(&cases);
        async move {
            for (op, inputs, expected) in cases.iter() {
                let mut buffer = inputs[context.rank()].clone();
                context.all_reduce(&mut buffer).op(*op).await?;
                let (rank, len, dtype) = (context.rank(), buffer.len(), T::DTYPE);
                let wrong = differs(&buffer, expected);
                ensure!(wrong.is_none(), "rank {rank} of {size}, {op} of {len} x {dtype}: {wrong:?} is not the reference");
            }
            Ok((cluster, context))
        }
    });
    results.await?.into_iter().collect()
}

async fn rejected(on: On) -> Result<()> {
    let nodes = group(on, "rejected", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let mut buffer = vec![7i32; 100];
        let error = context.all_reduce(&mut buffer).mean().await.err().context("the mean of integers")?;
        ensure!(matches!(error, Error::Rejected(Rejection::MeanOfIntegers(DType::I32))), "{error:?}");
        ensure!(error.code() == "rejected" && !error.is_retryable() && buffer == [7; 100], "{error}");
        // One alone calls it so: its place in the lane is used up on every rank.
        let one = context.all_reduce(&mut buffer);
        let error = if context.rank() == 1 { one.mean().await } else { one.await };
        let error = error.err().context("added without rank 1")?;
        ensure!(matches!(error, Error::Rejected(_)) == (context.rank() == 1) && buffer == [7; 100], "{error}");
        context.all_reduce(&mut buffer).product().await?;
        ensure!(buffer == [343; 100], "the next call is wrong");
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn copies(on: On) -> Result<()> {
    let nodes = group(on, "copies", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        for (root, len) in [(0, 0), (1, 1), (2, 5), (0, 100_003), (2, 300_000)] {
            let mut buffer: Vec<f32> = input(root as u64, context.rank(), len);
            let expected: Vec<f32> = input(root as u64, root, len);
            context.broadcast(root, &mut buffer).await?;
            ensure!(
                buffer.iter().map(|x| x.to_bits()).eq(expected.iter().map(|x| x.to_bits())),
                "broadcast from {root} of {len}"
            );
            let mine: Vec<f64> = input(7, context.rank(), len);
            let all = context.all_gather(&mine).await?;
            let expected = (0..3).flat_map(|rank| input::<f64>(7, rank, len));
            ensure!(all.iter().map(|x| x.to_bits()).eq(expected.map(f64::to_bits)), "all_gather of {len}");
        }
        context.barrier().await?;
        let nowhere = context.broadcast(9, &mut [0f32; 4]).await;
        ensure!(nowhere.is_err(), "there is no rank 9");
        context.barrier().await?;
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn bf16(on: On) -> Result<()> {
    for n in [2, 3] {
        let nodes = group(on, "bf16", n).await?;
        let results = everywhere(nodes, move |_cluster, mut context| async move {
            let mut buffer: Vec<f32> = (0..10_001).map(|i| (i as f32 / 17.0).sin() * (context.rank() + 1) as f32).collect();
            let exact: Vec<f32> = (0..10_001).map(|i| (i as f32 / 17.0).sin() * (n * (n + 1) / 2) as f32).collect();
            context.all_reduce(&mut buffer).compress(&mut Codec::bf16()).await?;
            let off = buffer.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            ensure!(off > 0.0 && off < 0.1, "off by {off}");
            Ok(buffer.iter().map(|x| x.to_bits()).collect::<Vec<u32>>())
        });
        let bits: Vec<Vec<u32>> = results.await?.into_iter().collect::<Result<_>>()?;
        ensure!(bits.windows(2).all(|w| w[0] == w[1]), "ranks differ");
    }
    Ok(())
}

async fn many_at_once(on: On) -> Result<()> {
    let nodes = group(on, "many", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        for _ in 0..20 {
            let mut buffers: Vec<Vec<f32>> = (0..32).map(|i| vec![i as f32; 1 + 37 * i]).collect();
            let calls: Vec<_> = buffers.iter_mut().map(|b| context.all_reduce(b)).collect();
            for call in calls.into_iter().rev() {
                call.await?;
            }
            ensure!(buffers.iter().enumerate().all(|(i, b)| b.iter().all(|x| *x == 3.0 * i as f32)), "a wrong sum");
        }
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn lanes(on: On) -> Result<()> {
    let nodes = group(on, "lanes", 3).await?;
    let results = everywhere(nodes, |_cluster, context| async move {
        let rank = context.rank();
        let mut tasks = Vec::new();
        for i in 0..4u32 {
            // Another order of starting on every rank.
            let tag = (i + rank as u32) % 4;
            let mut lane = context.lane(tag);
            tasks.push(tokio::spawn(async move {
                for round in 0..25 {
                    let mut buffer = vec![(tag * 100 + round) as f32; 50_000];
                    lane.all_reduce(&mut buffer).await?;
                    ensure!(buffer.iter().all(|x| *x == 3.0 * (tag * 100 + round) as f32), "lanes were mixed");
                }
                Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn mismatch(on: On) -> Result<()> {
    let nodes = group(on, "mismatch", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let len = if context.rank() == 2 { 11 } else { 10 };
        let mut buffer = vec![1.0f32; len];
        let error = context.all_reduce(&mut buffer).await.err().context("different lengths were added")?;
        let Error::Mismatch(calls) = &error else { bail!("{error:?}") };
        ensure!(calls.one.0.rank.index() < 2 && calls.other.0.rank.index() == 2, "{error}");
        ensure!(error.to_string().contains("11 x f32") && !error.is_retryable(), "{error}");
        ensure!(buffer == vec![1.0; len], "the buffer was touched");
        let mut buffer = vec![1.0f64; 100];
        context.all_reduce(&mut buffer).await?;
        ensure!(buffer == vec![3.0; 100], "the next call is wrong");
        Ok((error.to_string(), context.view()))
    });
    let told: Vec<(String, String)> = results.await?.into_iter().collect::<Result<_>>()?;
    ensure!(told.windows(2).all(|w| w[0] == w[1]), "all must hear the same, and a mismatch must not cost the View: {told:?}");
    Ok(())
}

async fn dropped(on: On) -> Result<()> {
    let nodes = group(on, "dropped", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let mut buffer = vec![context.rank() as f32; 200_000];
        if context.rank() == 1 {
            // Never polled.
            drop(context.all_reduce(&mut buffer));
        } else {
            let error = context.all_reduce(&mut buffer).await.err().context("added without rank 1")?;
            let Error::Aborted { cause: Cause::Dropped { by: Some(peer) } } = &error else { bail!("{error:?}") };
            ensure!(peer.rank.index() == 1 && error.is_retryable(), "{error}");
        }
        ensure!(buffer == vec![context.rank() as f32; 200_000], "the buffer was touched");
        context.all_reduce(&mut buffer).await?;
        ensure!(buffer == vec![3.0; 200_000], "the next call is wrong");
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn lost(on: On) -> Result<()> {
    let nodes = group(on, "lost", 2).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let mut buffer = vec![1.0f32; 70_000];
        if context.rank() == 0 {
            let mut call = context.all_reduce(&mut buffer);
            // Begun, and not looked at again: its data and its vote do without.
            let begun = std::future::poll_fn(|task| std::task::Poll::Ready(std::pin::Pin::new(&mut call).poll(task)));
            ensure!(begun.await.is_pending(), "rank 1 has not called yet");
            context.lane(1).barrier().await?;
            // Rank 1 has its sum, so this rank has voted for it.
            context.lane(2).barrier().await?;
            drop(call);
            ensure!(buffer == vec![1.0; 70_000], "the buffer was touched");
            let refused = context.all_reduce(&mut buffer).await;
            ensure!(matches!(refused, Err(Error::LostResult { .. })), "{refused:?}");
            let sum = loop {
                // Decided as soon as the vote of rank 1 is in.
                match context.take_result::<f32>() {
                    Some(sum) => break sum,
                    None => tokio::task::yield_now().await,
                }
            };
            ensure!(sum == vec![2.0; 70_000] && !context.discard_result(), "not the lost sum");
        } else {
            context.lane(1).barrier().await?;
            context.all_reduce(&mut buffer).await?;
            ensure!(buffer == vec![2.0; 70_000], "wrong");
            context.lane(2).barrier().await?;
        }
        let mut next = vec![3.0f64; 10];
        context.all_reduce(&mut next).await?;
        ensure!(next == vec![6.0; 10], "the next call is wrong");
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn deadline(on: On) -> Result<()> {
    let nodes = group(on, "deadline", 2).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let mut buffer = vec![1.0f32; 1000];
        if context.rank() == 0 {
            let waiting = tokio::spawn(async move {
                let mut changes = cluster.watch();
                while let Some(status) = changes.next().await {
                    if let Some(waiting) = status.waiting {
                        return waiting.ranks.first().map(|p| p.rank.index());
                    }
                }
                None
            });
            let error =
                context.all_reduce(&mut buffer).deadline(Duration::from_millis(500)).await.err().context("no deadline")?;
            ensure!(matches!(&error, Error::Aborted { cause: Cause::Deadline { of: None } }), "{error:?}");
            ensure!(!error.is_retryable());
            ensure!(waiting.await? == Some(1), "the status does not say who was waited for");
            // Tells rank 1 in its own lane that the deadline has passed.
            context.lane(1).barrier().await?;
        } else {
            context.lane(1).barrier().await?;
            let error = context.all_reduce(&mut buffer).await.err().context("the operation is over")?;
            ensure!(
                matches!(&error, Error::Aborted { cause: Cause::Deadline { of: Some(p) } } if p.rank.index() == 0),
                "{error:?}"
            );
        }
        context.all_reduce(&mut buffer).await?;
        ensure!(buffer == vec![2.0; 1000], "the next call is wrong");
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn joiner(on: On) -> Result<()> {
    let namespace = fresh("joiner");
    let mut veterans = Vec::new();
    for _ in 0..2 {
        veterans.push(builder(on, &namespace, 2).join().await?);
    }
    let mut tasks = Vec::new();
    for cluster in veterans {
        let namespace = namespace.clone();
        tasks.push(tokio::spawn(async move {
            let mut context = cluster.context().await?;
            let mut buffer = vec![1.0f32; 10];
            context.all_reduce(&mut buffer).await?;
            let third = if context.rank() == 0 { Some(builder(on, &namespace, 2).join().await?) } else { None };
            let newcomer = third.map(|third| tokio::spawn(newcomer(third)));
            while context.size() < 3 {
                let mut changes = cluster.watch();
                while changes.next().await.is_some_and(|s| s.view.is_none_or(|v| v.members.len() < 3)) {}
                context = context.renewed().await?;
            }
            let refused = context.all_reduce(&mut buffer).await;
            ensure!(matches!(refused, Err(Error::NeedsSync)), "{refused:?}");
            ensure!(cluster.status().state == State::NeedsSync, "{:?}", cluster.status().state);
            let mut state = b"what the veterans know".to_vec();
            context.sync(1, &mut state).await?;
            ensure!(state == b"what the veterans know");
            context.all_reduce(&mut buffer).await?;
            ensure!(buffer == vec![5.0; 10], "{buffer:?}");
            if let Some(newcomer) = newcomer {
                newcomer.await??;
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn newcomer(cluster: Cluster) -> Result<()> {
    let mut context = cluster.context().await?;
    ensure!(!context.is_in_sync(), "a newcomer cannot know what the others know");
    // The highest version does not win over the longer history.
    let mut state = vec![0; 100_000];
    context.sync(99, &mut state).await?;
    ensure!(state == b"what the veterans know");
    context.all_reduce(&mut [1.0f32; 10]).await?;
    Ok(())
}

async fn leaving(on: On) -> Result<()> {
    let nodes = group(on, "leaving", 3).await?;
    let mut nodes = nodes.into_iter();
    let (last, context) = nodes.next_back().context("three nodes")?;
    drop(context);
    let mut tasks = Vec::new();
    for (cluster, mut context) in nodes {
        tasks.push(tokio::spawn(async move {
            let mut buffer = vec![1.0f32; 1000];
            // Rank 2 never calls; it leaves instead.
            let error = context.all_reduce(&mut buffer).await.err().context("added without rank 2")?;
            ensure!(error.is_retryable() && buffer == vec![1.0; 1000], "{error:?}");
            ensure!(context.all_reduce(&mut buffer).await.is_err(), "the View is over");
            drop(cluster);
            context
                .renewed()
                .await
                .err()
                .map_or(Ok(()), |e| Err(anyhow::anyhow!("min_members is 3, so there is no View to be had: {e}")))
        }));
    }
    last.leave().await;
    for task in tasks {
        // Two are fewer than the three they asked for: renewed() waits.
        let waited = tokio::time::timeout(Duration::from_secs(3), task).await;
        ensure!(waited.is_err() || waited.is_ok_and(|w| w.is_ok_and(|r| r.is_ok())), "a View below min_members was handed out");
    }
    Ok(())
}

async fn too_many(on: On) -> Result<()> {
    let mut nodes = group(on, "too-many", 2).await?;
    let (_cluster, context) = &mut nodes[0];
    let mut buffers = vec![[0f32; 4]; 65];
    let mut calls: Vec<_> = buffers.iter_mut().map(|b| context.all_reduce(b)).collect();
    let last = calls.pop().context("65 calls")?.await;
    ensure!(matches!(last, Err(Error::TooManyInFlight)), "{last:?}");
    Ok(())
}

async fn nobody(on: On) -> Result<()> {
    let cluster = builder(on, &fresh("nobody"), 2).join().await?;
    let error = cluster.context_within(Duration::from_millis(300)).await.err().context("a group of one")?;
    ensure!(matches!(error, Error::NotEnoughPeers { present: 1, wanted: 2, .. }), "{error:?}");
    ensure!(cluster.status().state == State::Alone, "{:?}", cluster.status().state);
    cluster.clone().leave().await;
    ensure!(matches!(cluster.context().await, Err(Error::Closed)));
    Ok(())
}

async fn owned(on: On) -> Result<()> {
    let nodes = group(on, "owned", 2).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let sum = context.all_reduce_owned(vec![2.0f64; 70_000]).await.map_err(Error::from)?;
        ensure!(sum == vec![4.0; 70_000], "wrong");
        let buffer = vec![1.0f32; 5 + context.rank()];
        let failed = context.all_reduce_owned(buffer.clone()).await.err().context("different lengths")?;
        ensure!(failed.buffer == buffer && failed.error.code() == "mismatch", "{failed:?}");
        Ok(())
    });
    results.await?.into_iter().collect()
}

async fn sixteen(on: On) -> Result<()> {
    let namespace = fresh("sixteen");
    let mut clusters = Vec::new();
    for _ in 0..16 {
        clusters.push(builder(on, &namespace, 16).join().await?);
    }
    let mut tasks = Vec::new();
    for cluster in &clusters {
        let cluster = cluster.clone();
        tasks.push(tokio::spawn(async move {
            let mut context = cluster.context().await?;
            let mut buffer = vec![1.0f32; 10_000];
            context.all_reduce(&mut buffer).await?;
            ensure!(buffer == vec![16.0; 10_000], "wrong");
            Ok(context.view())
        }));
    }
    let mut views = Vec::new();
    for task in tasks {
        views.push(task.await??);
    }
    ensure!(views.windows(2).all(|w| w[0] == w[1]), "{views:?}");
    let late = builder(on, &namespace, 16).join().await?;
    let mut changes = late.watch();
    while changes.next().await.context("the node ended")?.peers.len() < 16 {}
    ensure!(late.context_within(Duration::from_millis(1500)).await.is_err(), "a View of seventeen");
    let mut again = clusters[0].context().await?;
    ensure!(again.view() == views[0], "the seventeenth has disturbed the View");
    drop(again.barrier());
    Ok(())
}
