//! One host: a real node, and the program of the soak that uses it.

use super::conditions::Conditions;
use super::disk::{Drive, SimDisk};
use super::engine::SimEngine;
use super::net::SimNet;
use super::node::log::Log;
use super::node::{Node, Pace, Program, leave};
use super::observer::Observer;
use crate::api::Cluster;
use crate::collective::NativeEngine;
use crate::discovery::Medium;
use crate::election::{Alone, Durable, ElectionConfig};
use crate::identity::{
    Boot, ClusterKey, Identity, JobName, MemberId, Name, Namespace, NamespaceName, Trust,
};
use crate::link::{DataEncryption, Hello, Local, Net, Suite};
use crate::memory::Pool;
use crate::node::{Admission, Doors, NodeConfig, Settled, Tools};
use crate::os::{FixedInterfaces, InterfaceSet, Sleep};
use crate::protocol::{Engines, Mutant, Mutation, Partition, Sizes};
use crate::report::{ConfigProblem, Error, Result};
use crate::topology::KnownPaths;
use crate::wire::Decode;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use zeroize::Zeroizing;

/// The state of a host that survives its process, and the state that all hosts share.
#[derive(Clone)]
pub struct Host {
    pub number: usize,
    pub seed: u64,
    pub conditions: Conditions,
    pub medium: Medium,
    pub observer: Observer,
    pub drive: Drive,
    /// Number of starts.
    pub starts: Arc<AtomicU64>,
    /// Tells the program to leave the group and to return a little later.
    pub leave: Arc<AtomicBool>,
    /// The program is leaving, or has left and not started again.
    pub is_away: Arc<AtomicBool>,
    /// Tells all programs to end.
    pub finish: Arc<AtomicBool>,
    /// How long it was suspended since the last query, in milliseconds.
    pub suspended_ms: Arc<AtomicU64>,
    /// The policy on which parts of a partitioned group continue.
    pub partition: Partition,
    /// A rule that its node breaks.
    pub mutation: Mutation,
}

/// The time that a host was suspended, as its clocks report it.
struct SuspendTime(Arc<AtomicU64>);

/// Mostly short buffers, and a few calls per second in each lane, so that a run takes seconds.
const PACE: Pace = Pace { shorter: 16, slower: 20 };

/// Interval between two checks of `leave` and `finish`.
const LOOK: Duration = Duration::from_millis(50);

impl Host {
    /// Runs until it is crashed.
    pub async fn run(self) -> turmoil::Result {
        loop {
            let (name, life) = (name_of(self.number), self.starts.fetch_add(1, Ordering::Relaxed));
            let log = self.log();
            log.tell(json!({"e": "start", "node": name, "life": life}));
            let cluster = self.start(life).await.map_err(|error| format!("{error:?}"))?;
            log.tell(json!({"e": "joined", "id": cluster.status().node.to_string()}));
            let program = Program { seed: self.seed, name, life, pace: PACE };
            let node = Arc::new(Node::new(cluster, log, program));
            let (watches, mut lanes) = (node.watches(), node.lanes());
            self.is_away.store(false, Ordering::Relaxed);
            self.until_told(&node, &mut lanes).await;
            self.is_away.store(true, Ordering::Relaxed);
            if let Err(error) = leave(&node, &mut lanes).await {
                self.observer.wrong(format!("host {}: {error:#}", self.number));
            }
            watches.iter().for_each(JoinHandle::abort);
            drop(node);
            if self.finish.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            sleep(Duration::from_millis(500 + self.conditions.below(2500))).await;
        }
    }

    fn log(&self) -> Log {
        let (observer, number) = (self.observer.clone(), self.number);
        Log::new(move |mut event| {
            let now = turmoil::sim_elapsed().expect("a program runs on a host");
            event["t"] = (now.as_micros() as u64).into();
            observer.record(number, &event);
        })
    }

    /// Waits until the host is told to leave, or all lanes have ended.
    async fn until_told(&self, node: &Node, lanes: &mut JoinSet<()>) {
        while !self.leave.swap(false, Ordering::Relaxed) && !lanes.is_empty() {
            if self.finish.load(Ordering::Relaxed) {
                node.ask();
            }
            while let Some(ended) = lanes.try_join_next() {
                if let Err(error) = ended {
                    self.observer.wrong(format!("host {}: a lane: {error}", self.number));
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn start(&self, life: u64) -> Result<Cluster> {
        let ip = turmoil::lookup(name_of(self.number));
        let net: Arc<dyn Net> = Arc::new(SimNet {
            conditions: self.conditions.clone(),
            ip,
            lies: self.mutation.has(Mutant::Lies),
        });
        let listener =
            net.listen(&[]).await.map_err(|e| Error::Config(ConfigProblem::NoPort(e.kind())))?;
        let config = self.config(ip, listener.port(), life);
        let engine = SimEngine(NativeEngine::new(Pool::new()).with(self.mutation));
        let tools = Tools {
            net,
            interface_source: Box::new(FixedInterfaces),
            admissions: Box::new(Settled),
            store: Box::new(SimDisk::start(self.drive.clone(), self.conditions.clone())),
            engines: vec![Arc::new(engine) as Arc<_>],
            sleep: Box::new(SuspendTime(Arc::clone(&self.suspended_ms))),
            faults: Arc::new(|| Box::pin(async { Vec::new() })),
        };
        let (discovery, status_socket) = (Box::new(self.medium.node()), None);
        let doors = Doors { listener, discovery, status_socket, tools };
        let (handles, outlets) = crate::node::channels(config.first_status(doors.listener.port()));
        tokio::task::spawn_local(crate::node::run(config, doors, outlets));
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
            job: JobName::of_program(Path::new("simulation")),
            port,
            stateless: false,
            observer: false,
            engines: Engines::NATIVE,
            partition: self.partition.digest(),
            encryption: DataEncryption::Required,
            suite: Suite::Aes256Gcm,
            endpoints: None,
            host: None,
        };
        let mut private = [self.number as u8 + 1; 32];
        private[..8].copy_from_slice(&boot.0.to_le_bytes());
        let durable = self.drive.contents().map_or_else(Durable::default, |bytes| {
            Durable::from_bytes(&bytes).expect("what was saved")
        });
        NodeConfig {
            local: Arc::new(Local::new(identity, hello, Zeroizing::new(private), namespace.psks())),
            admission: Admission::to(namespace),
            trust: Trust::KeyHolders,
            instance: format!("{:020x}", boot.0),
            durable,
            election: ElectionConfig {
                alone: Alone::Waits,
                partition: self.partition.clone(),
                seed: boot.0,
                ..ElectionConfig::default()
            },
            interface_set: InterfaceSet::none(),
            advertised: vec![SocketAddr::new(ip, port)],
            renew_after: crate::node::RENEW_AFTER,
            grace: crate::node::GRACE,
            known: Vec::new(),
            names: Vec::new(),
            known_paths: KnownPaths::default(),
            sizes: Sizes::default(),
            gloo: None,
            notices: false,
            mutation: self.mutation,
        }
    }
}

impl Sleep for SuspendTime {
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
