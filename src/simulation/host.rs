//! Layer: Face.
//!
//! One host: a node with the real driver, and the program that uses it.

use super::engine::{Bus, SimEngine};
use super::net::SimNet;
use super::sides;
use super::weather::Weather;
use super::witness::{End, Witness};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::discovery::Medium;
use crate::driver::{self, Doors, NodeConfig, Sleep, Store, Unchanging, Wiring};
use crate::election::{Alone, Durable, ElectionConfig};
use crate::engine::Engines;
use crate::error::{Cause, Error, Result};
use crate::identity::{
    Boot, ClusterKey, Identity, MemberId, Name, Namespace, NamespaceName, NodeId,
};
use crate::link::{Hello, Local, Net, Suite, Wire};
use crate::partition::Partition;
use crate::wire::Decode;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

/// The parts of a host that survive its process, and those shared by all hosts.
#[derive(Clone)]
pub struct Host {
    pub number: usize,
    pub weather: Weather,
    pub medium: Medium,
    pub bus: Bus,
    pub witness: Witness,
    /// The contents of its disk.
    pub disk: Arc<Mutex<Option<Vec<u8>>>>,
    /// Number of starts.
    pub lives: Arc<AtomicU64>,
    /// The host is to leave the group, and to come back a little later.
    pub leave: Arc<AtomicBool>,
    /// How long it was suspended since the last question, in milliseconds.
    pub slept: Arc<AtomicU64>,
    /// The programs call in lanes beside the main one, too. Such a call may be committed without
    /// their knowledge.
    pub has_sides: bool,
    /// Its disk answers nothing.
    pub disk_is_stuck: Arc<AtomicBool>,
    /// The policy on which parts of a partitioned group continue.
    pub partition: Partition,
}

/// The suspend time as its clocks report it.
struct Slept(Arc<AtomicU64>);

/// A disk with random delays.
struct SimDisk {
    jobs: mpsc::UnboundedSender<Write>,
}

/// The state to write, and the callback when it is durable.
type Write = (Vec<u8>, Box<dyn FnOnce() + Send>);

/// The program's state: the number of steps, a digest of all their results, and the number of calls
/// that led to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    steps: u64,
    digest: u64,
    calls: u64,
}

/// Counts the attempts at a step in one View.
#[derive(Default)]
struct Attempts {
    view: String,
    step: u64,
    count: u32,
}

impl Host {
    /// Runs until it is crashed.
    pub async fn run(self) -> turmoil::Result {
        loop {
            let cluster = self.start().await.map_err(|error| format!("{error:?}"))?;
            let left = self.program(&cluster).await;
            match left {
                Ok(()) => cluster.leave().await,
                Err(error) => self.witness.wrong(format!("host {}: {error:?}", self.number)),
            }
            sleep(Duration::from_millis(500 + self.weather.below(2500))).await;
        }
    }

    async fn start(&self) -> Result<Cluster> {
        let ip = turmoil::lookup(name_of(self.number));
        let net: Arc<dyn Net> = Arc::new(SimNet(self.weather.clone()));
        let listener = net
            .listen(&[])
            .await
            .map_err(|e| Error::Config(crate::error::ConfigProblem::NoPort(e.kind())))?;
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let config = self.config(ip, listener.port(), life);
        self.weather.lives(config.local.hello.id, ip);
        let engines =
            vec![Arc::new(SimEngine { bus: self.bus.clone(), weather: self.weather.clone() })
                as Arc<_>];
        let store = Box::new(SimDisk::start(self));
        let doors = Doors {
            net,
            listener,
            discovery: Box::new(self.medium.node()),
            wires: Box::new(Unchanging),
            store,
            engines,
            sleep: Box::new(Slept(Arc::clone(&self.slept))),
        };
        let (handles, outlets) = driver::channels(config.first_status(doors.listener.port()));
        tokio::task::spawn_local(driver::run(config, doors, outlets));
        Ok(Cluster::of(handles))
    }

    fn config(&self, ip: IpAddr, port: u16, life: u64) -> NodeConfig {
        let identity = Arc::new(identity_of(self.number));
        let boot = Boot(1000 * (self.number as u64 + 1) + life);
        let key = ClusterKey::from_bytes(&[7; 32]);
        let namespace = Namespace::keyed(NamespaceName::parse("simulation").expect("a name"), key);
        let hello = Hello {
            id: MemberId { node: identity.id(), boot },
            name: Name::from_lossy(&name_of(self.number)),
            port,
            stateless: false,
            engines: Engines::NATIVE,
            partition: self.partition.digest(),
            wire: Wire::Untrusted,
            suite: Suite::Aes256Gcm,
            endpoints: None,
        };
        let mut private = [self.number as u8 + 1; 32];
        private[..8].copy_from_slice(&boot.0.to_le_bytes());
        let durable = self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let durable = durable.map_or_else(Durable::default, |bytes| {
            Durable::from_bytes(&bytes).expect("what was saved")
        });
        NodeConfig {
            local: Arc::new(Local::new(identity, hello, Zeroizing::new(private), namespace.psk())),
            namespace,
            instance: format!("{:020x}", boot.0),
            durable,
            election: ElectionConfig {
                alone: Alone::Waits,
                partition: self.partition.clone(),
                seed: boot.0,
                ..ElectionConfig::default()
            },
            wiring: Wiring::none(),
            advertised: vec![SocketAddr::new(ip, port)],
            known: Vec::new(),
            min_members: 2,
            seeded: crate::defect::Seeded::NONE,
        }
    }

    /// Runs steps until the host is told to leave.
    async fn program(&self, cluster: &Cluster) -> Result<()> {
        let (mut state, mut attempts) = (State::default(), Attempts::default());
        let mut ctx = self.context(cluster).await?;
        while !self.leave.swap(false, Ordering::Relaxed) {
            self.witness.keeps_out(self.number, !cluster.status().quarantined.is_empty());
            match self.step(&mut ctx, &mut state, &mut attempts).await {
                Ok(()) => {}
                Err(error) if error.is_retryable() || matches!(error, Error::Indeterminate) => {
                    self.witness.failed();
                    ctx = self.context(cluster).await?;
                }
                Err(Error::Aborted { cause: Cause::Deadline { of: None } }) => {
                    self.witness.failed();
                }
                Err(error) => return Err(error),
            }
            // Alternates between full speed and single steps.
            let pace = if self.weather.below(2) == 0 { 3 } else { 300 };
            sleep(Duration::from_millis(self.weather.below(pace))).await;
        }
        Ok(())
    }

    async fn context(&self, cluster: &Cluster) -> Result<Context> {
        let ctx = cluster.context().await?;
        let members: Vec<NodeId> = ctx.members().iter().map(|m| m.node).collect();
        self.witness.joined(self.number, &ctx.view(), &members);
        Ok(ctx)
    }

    async fn step(
        &self,
        ctx: &mut Context,
        state: &mut State,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let mut bytes = state.to_bytes();
        let was_out_of_step = !ctx.is_in_sync();
        self.begins("sync");
        let done = ctx.sync(state.steps, &mut bytes).await;
        self.witness.returns(self.number);
        if done.is_err() && bytes != state.to_bytes() {
            self.witness
                .wrong(format!("host {}: a sync that failed changed the state", self.number));
        }
        done?;
        let synced = State::from_bytes(&bytes);
        if synced != *state {
            self.witness.synced();
        }
        // A history that is longer by such calls may win.
        if synced.calls < state.calls && !self.has_sides {
            let (before, after) = (state.calls, synced.calls);
            self.witness.wrong(format!(
                "host {}: a sync took it from {before} calls to {after}",
                self.number
            ));
        }
        // The sync itself is a call.
        *state = State { calls: synced.calls + u64::from(was_out_of_step), ..synced };
        let own = [1, token(ctx.members()[ctx.rank()].node, state.steps)];
        let mut numbers = own;
        self.begins("all_reduce");
        let attempt = attempts.next(&ctx.view(), state.steps);
        let sides = if self.has_sides { sides::beside(self, ctx, state.steps) } else { Vec::new() };
        let added = sides::together(self.add(ctx, &mut numbers), sides).await;
        self.witness.returns(self.number);
        if added.is_err() && numbers != own {
            self.witness
                .wrong(format!("host {}: a call that failed changed the buffer", self.number));
        }
        match &added {
            Ok(()) => self.witness.ended(self.number, &ctx.view(), state.steps, attempt, End::Ok),
            Err(Error::Aborted { .. }) => {
                self.witness.ended(self.number, &ctx.view(), state.steps, attempt, End::Aborted);
            }
            Err(_) => {}
        }
        added?;
        let tokens =
            ctx.members().iter().fold(0_u64, |sum, m| sum.wrapping_add(token(m.node, state.steps)));
        if numbers != [ctx.size() as u64, tokens] {
            self.witness.wrong(format!(
                "host {}: {numbers:?} is not the sum of step {}",
                self.number, state.steps
            ));
        }
        let digest = xxh3_64(
            &[state.digest.to_le_bytes(), numbers[0].to_le_bytes(), numbers[1].to_le_bytes()]
                .concat(),
        );
        *state = State { steps: state.steps + 1, digest, calls: state.calls + 1 };
        self.witness.committed(
            self.number,
            &ctx.view(),
            state.steps,
            state.digest,
            turmoil::sim_elapsed().unwrap_or_default(),
        );
        Ok(())
    }

    /// The main call of a step. Some have a short deadline, so that operations are given up at any
    /// stage.
    async fn add(&self, ctx: &mut Context, numbers: &mut [u64; 2]) -> Result<()> {
        loop {
            let call = ctx.all_reduce(numbers);
            let added = match self.weather.below(8) {
                0 => call.deadline(Duration::from_millis(self.weather.below(400))).await,
                _ => call.await,
            };
            match added {
                Err(Error::TooManyInFlight) => sleep(sides::ROOM).await,
                added => return added,
            }
        }
    }

    fn begins(&self, what: &'static str) {
        let now = turmoil::sim_elapsed().unwrap_or_default();
        self.witness.begins(self.number, what, now);
    }
}

impl SimDisk {
    fn start(host: &Host) -> SimDisk {
        let (kept, weather) = (Arc::clone(&host.disk), host.weather.clone());
        let is_stuck = Arc::clone(&host.disk_is_stuck);
        let (jobs, mut queue) = mpsc::unbounded_channel::<Write>();
        tokio::spawn(async move {
            while let Some((bytes, done)) = queue.recv().await {
                while is_stuck.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(10)).await;
                }
                // Now and then the disk is busy with something else.
                let busy = if weather.below(50) == 0 { weather.below(2000) } else { 0 };
                sleep(Duration::from_millis(1 + weather.below(5) + busy)).await;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
                // A crash may come between writing and reporting; the ballots must tolerate that.
                sleep(Duration::from_millis(weather.below(2))).await;
                done();
            }
        });
        SimDisk { jobs }
    }
}

impl Store for SimDisk {
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        // The task ends after this sender is dropped.
        let _ = self.jobs.send((state, done));
    }

    fn remember(&mut self, _peers: Vec<SocketAddr>) {}
}

impl Attempts {
    /// Counts one more attempt at this step in this View.
    fn next(&mut self, view: &str, step: u64) -> u32 {
        if (self.view.as_str(), self.step) != (view, step) {
            *self = Attempts { view: view.to_owned(), step, count: 0 };
        }
        self.count += 1;
        self.count
    }
}

impl State {
    fn to_bytes(self) -> Vec<u8> {
        [self.steps.to_le_bytes(), self.digest.to_le_bytes(), self.calls.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> State {
        let number =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        State { steps: number(0), digest: number(8), calls: number(16) }
    }
}

/// The value that a node contributes to a step.
fn token(node: NodeId, step: u64) -> u64 {
    xxh3_64(&[node.0.as_slice(), &step.to_le_bytes()].concat())
}

impl Sleep for Slept {
    fn slept(&mut self) -> Duration {
        Duration::from_millis(self.0.swap(0, Ordering::Relaxed))
    }
}

/// The identity of this host.
pub fn identity_of(number: usize) -> Identity {
    Identity::from_seed(&[number as u8 + 1; 32])
}

/// The name of this host.
pub fn name_of(number: usize) -> String {
    format!("host-{number}")
}
