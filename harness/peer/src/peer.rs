//! The node, and its actions for each command.

use crate::call::Calls;
use crate::order::Order;
use crate::report::{self, emit, refuse};
use crate::train::Training;
use clap::Parser;
use potluck::{Builder, Cluster, Config, Context, Error, Observer};
use serde_json::json;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A node that executes the commands in JSON lines on its input.
///
/// Key, namespace and home come from the environment (`POTLUCK_KEY`, `POTLUCK_HOME`, …).
#[derive(Parser)]
#[command(name = "potluck-peer")]
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
    /// The name of the node
    #[arg(long)]
    name: Option<String>,
    /// The node keeps nothing in step
    #[arg(long)]
    stateless: bool,
    /// An interface over which bulk data goes unencrypted
    #[arg(long)]
    trusted: Vec<String>,
}

/// The node, which the reading thread asks for its status.
pub type Shared = Arc<Mutex<Option<Cluster>>>;

/// The node, and the Context that it has taken last.
pub struct Peer {
    options: Options,
    shared: Shared,
    context: Option<Context>,
    observer: Option<Observer>,
}

/// Why a node stops executing commands.
enum End {
    /// The end of the input, or SIGTERM.
    Over,
    /// The node could not join.
    Unjoined,
}

/// The time limit for a context if the command sets none.
const PATIENCE: Duration = Duration::from_secs(30);

impl Peer {
    /// A node that has not joined.
    pub fn new(options: Options, shared: Shared) -> Peer {
        Peer { options, shared, context: None, observer: None }
    }

    /// Executes commands until they end; then the node leaves.
    pub async fn live(mut self, mut todo: mpsc::UnboundedReceiver<Order>) -> ExitCode {
        let mut terminated = std::pin::pin!(terminated());
        let mut waiting = VecDeque::new();
        let end = loop {
            let order = match waiting.pop_front() {
                Some(order) => order,
                None => tokio::select! {
                    order = todo.recv() => match order {
                        Some(order) => order,
                        None => break End::Over,
                    },
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
                let end = self.join(min, partition).await;
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
            Order::Observe => return self.observe().await,
            Order::Observed => match &self.observer {
                Some(observer) => emit(&report::observed(&observer.nodes())),
                None => not_joined(),
            },
            order => match &mut self.context {
                Some(context) => Calls { context }.make(order).await,
                None => refuse("no-context", "ask for a context first"),
            },
        }
        None
    }

    fn config(&self) -> Config {
        let options = &self.options;
        let mut config = if options.loopback { Config::loopback() } else { Config::home() };
        config.interfaces.clone_from(&options.interface);
        config.peers.clone_from(&options.peer);
        config.name.clone_from(&options.name);
        config.stateless = options.stateless;
        config.trusted_links.clone_from(&options.trusted);
        config
    }

    async fn observe(&mut self) -> Option<End> {
        match Observer::start(self.config()).await {
            Ok(observer) => {
                self.observer = Some(observer);
                emit(&json!({"event": "observing"}));
                None
            }
            Err(error) => {
                emit(&report::error(&error));
                Some(End::Unjoined)
            }
        }
    }

    async fn join(&mut self, min: Option<usize>, partition: Option<String>) -> Option<End> {
        let mut config = self.config();
        config.min_members = min;
        config.partition = match partition.map(|text| text.parse()).transpose() {
            Ok(partition) => partition,
            Err(why) => {
                refuse("order", &why);
                return None;
            }
        };
        match Builder::new(config).join().await {
            Ok(cluster) => {
                let status = cluster.status();
                *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
                // Whether this program was compiled to use AVX2 without checking the processor.
                let avx2 = cfg!(target_feature = "avx2");
                // Whether a library has switched this thread to flush subnormal numbers to zero.
                let flushes =
                    std::hint::black_box(f32::MIN_POSITIVE) / std::hint::black_box(2.0) == 0.0;
                let (node, port) = (report::hex(&status.node), status.port);
                emit(&json!({
                    "event": "joined",
                    "node": node,
                    "port": port,
                    "avx2": avx2,
                    "flushes": flushes,
                }));
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

    async fn train(&mut self, training: &Training) {
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
        if let Some(observer) = self.observer.take() {
            observer.leave().await;
        }
    }
}

/// Reports the status of the node.
pub fn tell_status(shared: &Shared) {
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match cluster {
        Some(cluster) => emit(&report::status(&cluster.status())),
        None => not_joined(),
    }
}

fn not_joined() {
    refuse("not-joined", "join first");
}

/// Reports events on a thread of its own, which ends with the node.
fn tell_events(cluster: &Cluster) {
    let events = potluck::blocking::Cluster::from(cluster.clone()).events();
    let thread = std::thread::Builder::new().name("events".to_owned());
    let spawned = thread.spawn(move || events.for_each(|event| emit(&report::happened(&event))));
    if let Err(error) = spawned {
        refuse("thread", &error.to_string());
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
pub async fn context_after(cluster: &Cluster, view: &str) -> potluck::Result<Context> {
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
