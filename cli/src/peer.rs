//! `potluck peer`: a node controlled by JSON commands, one object per line, which answers with JSON
//! events, one per line.
//!
//! Commands run one after the other on the program's own thread, as in a training program. Only
//! `status` is answered at once, even while a call waits or the program is blocked. At the end of
//! the input, or on SIGTERM, the node leaves. Every failure is reported as an event; only a node
//! that cannot join ends with exit code 1.

mod call;
mod coded;
mod flights;
mod gradients;
mod message;
mod milestone;
mod numbers;
mod report;
mod scarce;
mod step;
mod train;

use call::Calls;
use potluck::{Builder, Cluster, Config, Context, Error, Partition};
use report::emit;
use serde::Deserialize;
use serde_json::json;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How the node joins. Key, namespace and home come from the environment (`POTLUCK_KEY`,
/// `POTLUCK_HOME`, …).
#[derive(clap::Args)]
pub struct Options {
    /// Use 127.0.0.1 only
    #[arg(long)]
    loopback: bool,
    /// Interfaces to use, as `eth0,en*`
    #[arg(long)]
    interface: Option<String>,
    /// A peer to dial, as host or host:port
    #[arg(long)]
    peer: Vec<String>,
    /// What the node calls itself
    #[arg(long)]
    name: Option<String>,
    /// The node keeps nothing in step
    #[arg(long)]
    stateless: bool,
    /// An interface over which bulk data goes unencrypted
    #[arg(long)]
    trusted: Vec<String>,
}

/// One command, a line of the input.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Order {
    Join {
        min: Option<usize>,
        /// In the syntax of `POTLUCK_PARTITION`; overrides `min`.
        partition: Option<String>,
        /// Report the events of the group as `happened`.
        #[serde(default)]
        events: bool,
    },
    Context {
        min: Option<usize>,
        within_s: Option<f64>,
        /// Report the status right after the context.
        #[serde(default)]
        status_at_once: bool,
    },
    AllReduce(call::Reduction),
    /// Many `all_reduce` calls, several in flight.
    Flights(flights::Flights),
    DropAllReduce(call::Reduction),
    ForgetAllReduce(call::Reduction),
    Broadcast(call::Copying),
    AllGather(call::Copying),
    Reduce(call::Reduction),
    ReduceScatter(call::Reduction),
    Gather(call::Copying),
    Scatter(call::Copying),
    AllToAll(call::Copying),
    Send(message::Message),
    Recv(message::Message),
    Step(step::Step),
    Barrier,
    Sync {
        version: u64,
        bytes: usize,
        #[serde(default)]
        seed: u64,
        /// Leave this many bytes of address space to the call.
        room: Option<u64>,
    },
    Train(train::Training),
    Gradients(gradients::Gradients),
    Status,
    Block {
        s: f64,
    },
    Leave,
}

/// The time limit for a context if the command sets none.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shared by the reading thread and the working thread.
type Shared = Arc<Mutex<Option<Cluster>>>;

/// Reads and executes commands until the end of the input.
pub fn run(options: Options) -> ExitCode {
    // Fails only if there is a subscriber already; there is none.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG"))
        .with_writer(std::io::stderr)
        .try_init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed("runtime", &error.to_string()),
    };
    let shared = Shared::default();
    let (orders, todo) = mpsc::unbounded_channel();
    let reader = Arc::clone(&shared);
    let spawned =
        std::thread::Builder::new().name("orders".to_owned()).spawn(move || read(&reader, &orders));
    if let Err(error) = spawned {
        return failed("thread", &error.to_string());
    }
    runtime.block_on(Peer { options, shared, context: None }.live(todo))
}

fn failed(code: &str, message: &str) -> ExitCode {
    emit(&json!({"event": "error", "code": code, "message": message}));
    ExitCode::FAILURE
}

/// The reading thread. The end of the input closes the channel.
fn read(shared: &Shared, orders: &mpsc::UnboundedSender<Order>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Order::Status) => tell_status(shared),
            Ok(order) => {
                if orders.send(order).is_err() {
                    return;
                }
            }
            Err(error) => {
                emit(&json!({"event": "error", "code": "order", "message": error.to_string()}));
            }
        }
    }
}

fn tell_status(shared: &Shared) {
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match cluster {
        Some(cluster) => emit(&report::status(&cluster.status())),
        None => not_joined(),
    }
}

fn not_joined() {
    emit(&json!({"event": "error", "code": "not-joined", "message": "join first"}));
}

/// Reports events on a thread of its own, which ends with the node.
fn tell_events(cluster: &Cluster) {
    let events = potluck::blocking::Cluster::from(cluster.clone()).events();
    let thread = std::thread::Builder::new().name("events".to_owned());
    let spawned = thread.spawn(move || events.for_each(|event| emit(&report::happened(&event))));
    if let Err(error) = spawned {
        emit(&json!({"event": "error", "code": "thread", "message": error.to_string()}));
    }
}

struct Peer {
    options: Options,
    shared: Shared,
    context: Option<Context>,
}

/// Why a node stops executing commands.
enum End {
    /// The end of the input, or SIGTERM.
    Over,
    /// The node could not join.
    Unjoined,
}

impl Peer {
    async fn live(mut self, mut todo: mpsc::UnboundedReceiver<Order>) -> ExitCode {
        let mut terminated = std::pin::pin!(terminated());
        let mut waiting = std::collections::VecDeque::new();
        let end = loop {
            let order = match waiting.pop_front() {
                Some(order) => order,
                None => tokio::select! {
                    order = todo.recv() => match order { Some(order) => order, None => break End::Over },
                    () = &mut terminated => break End::Over,
                },
            };
            // While a call waits, further commands are queued. The end of the input cancels the
            // call.
            let ended = async {
                while let Some(order) = todo.recv().await {
                    waiting.push_back(order);
                }
            };
            tokio::select! {
                done = self.obey(order) => if let Some(end) = done { break end },
                () = ended => break End::Over,
                () = &mut terminated => break End::Over,
            }
        };
        self.leave().await;
        match end {
            End::Over => ExitCode::SUCCESS,
            End::Unjoined => ExitCode::FAILURE,
        }
    }

    async fn obey(&mut self, order: Order) -> Option<End> {
        match order {
            Order::Join { min, partition, events } => {
                let end = self.join(min.unwrap_or(2), partition).await;
                if let Some(cluster) = self.cluster().filter(|_| events) {
                    tell_events(&cluster);
                }
                return end;
            }
            Order::Context { min, within_s, status_at_once } => {
                self.take_context(min.unwrap_or(2), within_s).await;
                if status_at_once {
                    tell_status(&self.shared);
                }
            }
            Order::Block { s } => self.block(s),
            Order::Leave => {
                self.leave().await;
                emit(&json!({"event": "left"}));
            }
            Order::Train(training) => self.train(&training).await,
            Order::Gradients(gradients) => match self.cluster() {
                Some(cluster) => gradients.run(&cluster).await,
                None => not_joined(),
            },
            Order::Status => tell_status(&self.shared),
            order => match &mut self.context {
                Some(context) => Calls { context }.make(order).await,
                None => emit(
                    &json!({"event": "error", "code": "no-context", "message": "ask for a context first"}),
                ),
            },
        }
        None
    }

    async fn join(&mut self, min: usize, partition: Option<String>) -> Option<End> {
        let options = &self.options;
        let mut config = if options.loopback { Config::loopback() } else { Config::home() };
        config.interfaces.clone_from(&options.interface);
        config.peers.clone_from(&options.peer);
        config.name.clone_from(&options.name);
        config.stateless = options.stateless;
        config.trusted_links.clone_from(&options.trusted);
        let partition = match partition.map(|text| text.parse()) {
            None => Partition::Continue { min_members: min },
            Some(Ok(partition)) => partition,
            Some(Err(why)) => {
                emit(&json!({"event": "error", "code": "order", "message": why}));
                return None;
            }
        };
        match Builder::new(config).partition(partition).join().await {
            Ok(cluster) => {
                let status = cluster.status();
                *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
                // Whether this program was compiled to use AVX2 without checking the processor.
                let avx2 = cfg!(target_feature = "avx2");
                // Whether a library has switched this thread to flush subnormal numbers to zero.
                let flushes =
                    std::hint::black_box(f32::MIN_POSITIVE) / std::hint::black_box(2.0) == 0.0;
                let (node, port) = (report::hex(&status.node), status.port);
                emit(
                    &json!({"event": "joined", "node": node, "port": port, "avx2": avx2, "flushes": flushes}),
                );
                None
            }
            Err(error) => {
                emit(&report::error(&error));
                Some(End::Unjoined)
            }
        }
    }

    fn cluster(&self) -> Option<Cluster> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn take_context(&mut self, min: usize, within_s: Option<f64>) {
        let Some(cluster) = self.cluster() else {
            return not_joined();
        };
        let started = Instant::now();
        let within = within_s.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(PATIENCE);
        match tokio::time::timeout(within, context_of(&cluster, min)).await {
            Ok(Ok(context)) => {
                let event = report::context(&context, started.elapsed());
                self.context = Some(context);
                emit(&event);
            }
            Ok(Err(error)) => emit(&report::error(&error)),
            Err(_) => {
                let present = cluster.status().view.map_or(1, |view| view.members.len());
                emit(&report::error(&Error::NotEnoughPeers {
                    present,
                    wanted: min,
                    waited: started.elapsed(),
                }));
            }
        }
    }

    /// Blocks the program's thread, like a long computation without an `await`.
    fn block(&self, seconds: f64) {
        std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        emit(&json!({"event": "unblocked"}));
    }

    async fn train(&mut self, training: &train::Training) {
        let Some(cluster) = self.cluster() else {
            return not_joined();
        };
        // The training loop takes its own contexts.
        self.context = None;
        match training.run(&cluster).await {
            Ok(event) => emit(&event),
            Err(error) => emit(&report::error(&error)),
        }
    }

    async fn leave(&mut self) {
        self.context = None;
        let cluster = self.shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
    }
}

/// The Context of the newest View, once it has at least `min` members.
async fn context_of(cluster: &Cluster, min: usize) -> potluck::Result<Context> {
    let mut context = cluster.context().await?;
    while context.size() < min {
        context = context_after(cluster, &context.view()).await?;
    }
    Ok(context)
}

/// The Context of a newer View than `view`.
async fn context_after(cluster: &Cluster, view: &str) -> potluck::Result<Context> {
    let mut changes = cluster.watch();
    loop {
        let context = cluster.context().await?;
        if context.view() != view {
            return Ok(context);
        }
        changes.next().await.ok_or(Error::Closed)?;
    }
}

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => std::future::pending().await,
    }
}
