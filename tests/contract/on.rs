//! The environment of a test: network, engine, groups of nodes.

use anyhow::{Context as _, Result, bail, ensure};
use potluck::plan::EngineKind;
use potluck::{Builder, Cluster, Config, Context, EngineOffer};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

#[derive(Clone, Copy, PartialEq)]
pub enum Network {
    Process,
    Loopback,
}

/// The network and the engine of a test.
#[derive(Clone, Copy)]
pub struct On {
    pub network: Network,
    pub engine: EngineKind,
}

/// Nodes, each with its context of the View that they are in.
pub type Nodes = Vec<(Cluster, Context)>;

/// The time limit for what comes at once, on a machine that may be busy.
pub const SOON: Duration = Duration::from_secs(5);

/// A namespace that no other test uses.
pub fn fresh(story: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{story}-{}-{}", std::process::id() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn builder(on: On, namespace: &str, min: usize) -> Builder {
    let builder = match on.network {
        Network::Process => Builder::new(Config::local()),
        Network::Loopback => {
            let home = std::env::temp_dir().join("potluck-contract").join(namespace);
            Builder::new(Config::loopback()).home(home)
        }
    };
    let engine =
        if on.engine == EngineKind::Gloo { EngineOffer::Gloo } else { EngineOffer::Native };
    builder.open_lan(namespace).min_members(min).engine(engine)
}

/// `n` nodes of a namespace, which want `min` members.
pub async fn joined(on: On, namespace: &str, n: usize, min: usize) -> Result<Vec<Cluster>> {
    let mut clusters = Vec::new();
    for _ in 0..n {
        clusters.push(builder(on, namespace, min).join().await?);
    }
    Ok(clusters)
}

/// `n` nodes in one View, in rank order.
pub async fn group(on: On, story: &str, n: usize) -> Result<Nodes> {
    let mut nodes = Vec::new();
    for cluster in joined(on, &fresh(story), n, n).await? {
        let context = cluster.context().await?;
        nodes.push((cluster, context));
    }
    // Members may have been given an earlier View: wait until all are in the newest.
    let newest = nodes.iter().map(|(_, c)| c.view()).max().unwrap_or_default();
    for (cluster, context) in &mut nodes {
        while context.view() != newest {
            *context = cluster.context().await?;
        }
    }
    nodes.sort_by_key(|(_, c)| c.rank());
    // A View of one member is always native.
    let engine = if n == 1 { EngineKind::Native } else { on.engine };
    ensure!(
        nodes.iter().all(|(_, c)| c.engine() == engine),
        "not on {engine}: {}",
        nodes[0].1.engine_reason()
    );
    Ok(nodes)
}

/// Three nodes in a View that is not in sync: two with a common history, and one that came later.
/// The latecomer has the highest rank.
pub async fn out_of_step(on: On, story: &str) -> Result<Nodes> {
    for _ in 0..10 {
        let namespace = fresh(story);
        let mut clusters = joined(on, &namespace, 2, 2).await?;
        let (mut a, mut b) = tokio::try_join!(clusters[0].context(), clusters[1].context())?;
        tokio::try_join!(a.barrier(), b.barrier())?;
        drop((a, b));
        let latecomer = builder(on, &namespace, 2).join().await?;
        let id = latecomer.status().node;
        clusters.push(latecomer);
        let nodes = together(clusters).await?;
        ensure!(
            nodes.iter().all(|(_, context)| !context.is_in_sync()),
            "a newcomer cannot know what the others know"
        );
        if nodes.last().is_some_and(|(cluster, _)| cluster.status().node == id) {
            return Ok(nodes);
        }
        // The machine has stood still for so long that the View of the two was replaced, first by
        // one of the latecomer and one of them.
    }
    bail!("the latecomer never has the highest rank")
}

/// These nodes in a View of all of them, in rank order.
pub async fn together(clusters: Vec<Cluster>) -> Result<Nodes> {
    let (size, mut nodes) = (clusters.len(), Vec::new());
    for cluster in clusters {
        let context = of_size(&cluster, size).await?;
        nodes.push((cluster, context));
    }
    nodes.sort_by_key(|(_, context)| context.rank());
    Ok(nodes)
}

pub async fn of_size(cluster: &Cluster, size: usize) -> Result<Context> {
    let mut changes = cluster.watch();
    while changes
        .next()
        .await
        .context("the node ended")?
        .view
        .is_none_or(|view| view.members.len() != size)
    {}
    Ok(cluster.context().await?)
}

/// How long the other ranks may go on after one has failed. They may wait for it.
const AFTER_A_FAILURE: Duration = Duration::from_secs(20);

/// Runs one program on every node. No node leaves before all programs have ended or one has failed.
/// Returns the results in the order of the nodes, or the errors of all: the first error may be a
/// consequence of another rank's.
pub async fn everywhere<R: Send + 'static, F: Future<Output = Result<R>> + Send>(
    nodes: Nodes,
    program: impl Fn(Cluster, Context) -> F + Send + Sync + Clone + 'static,
) -> Result<Vec<R>> {
    let mut tasks = JoinSet::new();
    for (rank, (cluster, context)) in nodes.into_iter().enumerate() {
        let program = program.clone();
        tasks.spawn(async move {
            let handle = cluster.clone();
            (rank, program(cluster, context).await.map(|result| (result, handle)))
        });
    }
    let (mut results, mut met) = (BTreeMap::new(), Vec::new());
    let mut until = None;
    while let Some(task) = next_before(&mut tasks, until).await {
        match task? {
            (rank, Ok(ended)) => _ = results.insert(rank, ended),
            (rank, Err(error)) => {
                met.push(format!("rank {rank}: {error:#}"));
                until.get_or_insert(Instant::now() + AFTER_A_FAILURE);
            }
        }
    }
    ensure!(met.is_empty(), "{}", met.join("\n"));
    Ok(results.into_values().map(|(result, _)| result).collect())
}

/// The next task that ends, unless none does in time.
async fn next_before<T: 'static>(
    tasks: &mut JoinSet<T>,
    until: Option<Instant>,
) -> Option<Result<T, JoinError>> {
    match until {
        Some(until) => timeout_at(until, tasks.join_next()).await.ok().flatten(),
        None => tasks.join_next().await,
    }
}

/// Polls a call once.
pub async fn once<F: Future + Unpin>(call: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|task| Poll::Ready(Pin::new(&mut *call).poll(task))).await
}

/// Drops a call too late: all others have its result by then, so that this rank has voted for it.
/// They [call it meanwhile](meanwhile).
pub async fn drop_too_late<F: Future + Unpin>(context: &mut Context, mut call: F) -> Result<()> {
    // It is not polled again: its data and its vote need no polls.
    ensure!(once(&mut call).await.is_pending(), "the others have not called yet");
    context.lane(1).barrier().await?;
    context.lane(2).barrier().await?;
    drop(call);
    Ok(())
}

/// The same call on the other ranks.
pub async fn meanwhile(
    context: &mut Context,
    call: impl Future<Output = potluck::Result<()>>,
) -> Result<()> {
    context.lane(1).barrier().await?;
    call.await?;
    context.lane(2).barrier().await?;
    Ok(())
}

/// Awaits `call`, and sends to `told` after its first poll: from then on it is open in its View.
pub async fn begun<F: Future + Unpin>(mut call: F, told: oneshot::Sender<()>) -> F::Output {
    let mut told = Some(told);
    std::future::poll_fn(move |task| {
        let polled = Pin::new(&mut call).poll(task);
        if let Some(told) = told.take() {
            // The receiver is gone if the test has failed elsewhere.
            let _ = told.send(());
        }
        polled
    })
    .await
}

/// The seed of random choices: `POTLUCK_SEED`, else the time. It is printed, so that the run can be
/// reproduced.
pub fn seed(story: &str) -> Result<u64> {
    let seed = match std::env::var("POTLUCK_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()),
    };
    println!("{story}: POTLUCK_SEED={seed}");
    Ok(seed)
}

/// Sends the log that `POTLUCK_LOG` enables to standard error.
pub fn tell_log() {
    let filter = tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG");
    // Only the first test of the process succeeds.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
