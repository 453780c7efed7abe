//! The identity and configuration of a node.

use super::admission::Admission;
use crate::discovery::{FixedPeer, Origin};
use crate::election::{Durable, ElectionConfig};
use crate::identity::Trust;
use crate::link::Local;
use crate::os::InterfaceSet;
use crate::protocol::{Mutation, Sizes};
use crate::report::{Counters, State, Status};
use crate::topology::KnownPaths;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The identity and configuration of a node.
pub struct NodeConfig {
    /// Its keys and the hello it sends in handshakes.
    pub local: Arc<Local>,
    /// Its cluster, and the denied nodes, when the node starts.
    pub admission: Admission,
    /// Which of the nodes that prove the cluster key are admitted.
    pub trust: Trust,
    /// The instance name of its announcement.
    pub instance: String,
    /// Durable state of the node's previous run.
    pub durable: Durable,
    /// Timing of the election.
    pub election: ElectionConfig,
    /// Network interfaces when the node started.
    pub interface_set: InterfaceSet,
    /// Own addresses to announce; empty if discovery determines them.
    pub advertised: Vec<SocketAddr>,
    /// Addresses known at the start.
    pub known: Vec<(SocketAddr, Origin)>,
    /// Peers that the user has given by name.
    pub names: Vec<FixedPeer>,
    /// The paths that the node's previous run knew.
    pub known_paths: KnownPaths,
    /// The sizes of the group that it asks for. A View that has not begun, or is too small to go
    /// on, is not shown to callers.
    pub sizes: Sizes,
    /// The version of Gloo in this build, for the status.
    pub gloo: Option<String>,
    /// Whether the program is told on stderr why it waits.
    pub notices: bool,
    /// When a link gets fresh keys.
    pub(crate) renew_after: Duration,
    /// How long links by a key that is not accepted any more stand while they are renewed.
    pub(crate) grace: Duration,
    /// The rules that a test breaks in this node.
    pub(crate) mutation: Mutation,
}

impl NodeConfig {
    pub(crate) fn first_status(&self, port: u16) -> Status {
        Status {
            node: self.local.hello.id.node,
            name: self.local.hello.name.clone(),
            namespace: self.admission.namespace.name().as_str().to_owned(),
            job: self.local.hello.job.as_str().to_owned(),
            open: self.admission.namespace.is_open(),
            port,
            observer: self.local.hello.observer,
            state: State::Alone { interfaces: Vec::new() },
            sizes: self.sizes,
            view: None,
            peers: Vec::new(),
            interfaces: Vec::new(),
            others: Vec::new(),
            other_jobs: Vec::new(),
            duplicates: Vec::new(),
            quarantined: Vec::new(),
            disk_waits: None,
            waiting: None,
            counters: Counters::default(),
            process: std::process::id(),
            gloo: self.gloo.clone(),
        }
    }
}
