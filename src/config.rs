//! Layer: Face.
//!
//! How a node joins: presets, and a builder for the rest.

use crate::cluster::Cluster;
use crate::error::{ConfigProblem, Error, Result};
use crate::identity::ClusterKey;
use crate::partition::Partition;
use std::path::PathBuf;

/// What a node needs to know to join. Start from a preset: [`Config::home`] is the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which network to use.
    pub network: Network,
    /// The namespace. Default: `POTLUCK_NAMESPACE`, else `default`. With another one, this node
    /// sees another group.
    pub namespace: Option<String>,
    /// How the group is admitted. Default: the cluster key of the namespace, see
    /// [`Admission::Found`].
    pub admission: Admission,
    /// Where key and state files lie. Default: `POTLUCK_HOME`, else the XDG directories.
    pub home: Option<PathBuf>,
    /// What this node calls itself, at most 32 printable characters. Default: the host name.
    pub name: Option<String>,
    /// Which groups may go on when the network is cut. Default: `POTLUCK_PARTITION`, else every
    /// group of at least two.
    pub partition: Option<Partition>,
    /// This node keeps nothing in step: when all members say so, nobody is ever asked to `sync`.
    /// Default: no.
    pub stateless: bool,
    /// Peers to dial besides those that are found, as `host` or `host:port`. Default:
    /// `POTLUCK_PEERS`.
    pub peers: Vec<String>,
    /// Interfaces to use, as `eth0,en*` or with a leading `^` those not to use. Default:
    /// `POTLUCK_INTERFACES`, else every interface of a home network (no loopback, VPN or
    /// container).
    pub interfaces: Option<String>,
    /// Ports to try, then any. Default: 47474 to 47489.
    pub ports: Vec<u16>,
    /// Which engine moves and adds the bytes. Default: `POTLUCK_ENGINE`, else [`Engine::Auto`].
    pub engine: Option<Engine>,
    /// Interfaces on which bulk data between two nodes that both say so travels unencrypted.
    /// Default: none.
    pub trusted_links: Vec<String>,
}

/// Which network a node uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// The home network: multicast DNS and TCP on this machine's interfaces.
    Lan,
    /// 127.0.0.1 only: several nodes on one machine.
    Loopback,
    /// No sockets and no files: several nodes in one process.
    Process,
}

/// Which engine a node offers. A View runs on Gloo when all its members offer it and reach each
/// other directly; else natively.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// Gloo, where every member has it, all of them reach each other directly, and trees over
    /// measured links would not be faster by more than a tenth.
    #[default]
    Auto,
    /// potluck's own only: no View that this node is in runs on Gloo.
    Native,
    /// Gloo, whatever the links are, unless another member lacks or declines it; a build without it
    /// refuses with [`ConfigProblem::NoGloo`].
    Gloo,
}

impl std::str::FromStr for Engine {
    type Err = ConfigProblem;

    fn from_str(text: &str) -> std::result::Result<Engine, ConfigProblem> {
        match text {
            "auto" => Ok(Engine::Auto),
            "native" => Ok(Engine::Native),
            "gloo" => Ok(Engine::Gloo),
            _ => Err(ConfigProblem::BadEngine(text.to_owned())),
        }
    }
}

/// How a group is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// By the cluster key in `POTLUCK_KEY`, else in the namespace's key file. Neither:
    /// [`ConfigProblem::NoClusterKey`].
    Found,
    /// By this cluster key.
    Key(ClusterKey),
    /// By the namespace's name alone: anybody on the network who knows it is in. Still encrypted.
    Open,
}

impl Default for Config {
    fn default() -> Config {
        Config::home()
    }
}

impl Config {
    /// Machines of one home or lab network.
    pub fn home() -> Config {
        Config {
            network: Network::Lan,
            namespace: None,
            admission: Admission::Found,
            home: None,
            name: None,
            partition: None,
            stateless: false,
            peers: Vec::new(),
            interfaces: None,
            ports: (47474..47490).collect(),
            engine: None,
            trusted_links: Vec::new(),
        }
    }

    /// Several processes on this machine: multicast DNS and TCP on 127.0.0.1 only.
    pub fn loopback() -> Config {
        Config { network: Network::Loopback, ports: Vec::new(), ..Config::home() }
    }

    /// Several nodes inside one process, without sockets and files, for tests: nodes of one
    /// namespace find each other.
    pub fn local() -> Config {
        Config {
            network: Network::Process,
            admission: Admission::Open,
            ports: Vec::new(),
            ..Config::home()
        }
    }

    /// The rules that go across fields.
    pub(crate) fn check(&self) -> Result<()> {
        match self.partition()? {
            Partition::Continue { min_members }
                if !(1..=crate::view::MEMBERS_MAX).contains(&min_members) =>
            {
                Err(Error::Config(ConfigProblem::BadMinMembers(min_members)))
            }
            _ => Ok(()),
        }
    }

    /// What is set, else what the environment says, else the default.
    pub(crate) fn partition(&self) -> Result<Partition> {
        match (&self.partition, std::env::var_os("POTLUCK_PARTITION")) {
            (Some(partition), _) => Ok(partition.clone()),
            (None, Some(text)) if !text.is_empty() => text
                .to_string_lossy()
                .parse()
                .map_err(|why| Error::Config(ConfigProblem::BadPartition(why))),
            (None, _) => Ok(Partition::default()),
        }
    }
}

/// What it has set.
impl From<Builder> for Config {
    fn from(builder: Builder) -> Config {
        builder.config
    }
}

/// Sets what differs from a preset, then joins.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    config: Config,
}

impl Builder {
    /// Starts from a preset.
    pub fn new(config: Config) -> Builder {
        Builder { config }
    }

    /// The namespace: 1 to 32 of `a-z`, `0-9` and `-`.
    pub fn namespace(mut self, name: impl Into<String>) -> Builder {
        self.config.namespace = Some(name.into());
        self
    }

    /// The cluster key, in place of the environment and the key file.
    pub fn key(mut self, key: ClusterKey) -> Builder {
        self.config.admission = Admission::Key(key);
        self
    }

    /// No key: anybody on this network who uses `name` is in. Separation by name only; still
    /// encrypted.
    pub fn open_lan(mut self, name: impl Into<String>) -> Builder {
        self.config.namespace = Some(name.into());
        self.config.admission = Admission::Open;
        self
    }

    /// Where key and state files lie.
    pub fn home(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.config.home = Some(directory.into());
        self
    }

    /// What this node calls itself.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.config.name = Some(name.into());
        self
    }

    /// Members a View needs before it is handed out: [`Partition::Continue`].
    pub fn min_members(self, members: usize) -> Builder {
        self.partition(Partition::Continue { min_members: members })
    }

    /// Which groups may go on when the network is cut. The same on all nodes.
    pub fn partition(mut self, partition: Partition) -> Builder {
        self.config.partition = Some(partition);
        self
    }

    /// This node keeps nothing in step; see [`Config::stateless`].
    pub fn stateless(mut self) -> Builder {
        self.config.stateless = true;
        self
    }

    /// A peer to dial besides those that are found.
    pub fn peer(mut self, address: impl Into<String>) -> Builder {
        self.config.peers.push(address.into());
        self
    }

    /// Interfaces to use; see [`Config::interfaces`].
    pub fn interfaces(mut self, filter: impl Into<String>) -> Builder {
        self.config.interfaces = Some(filter.into());
        self
    }

    /// Which engine this node offers.
    pub fn engine(mut self, engine: Engine) -> Builder {
        self.config.engine = Some(engine);
        self
    }

    /// Bulk data over this interface travels unencrypted to nodes that say the same. For a cable
    /// one trusts, and benchmarks.
    pub fn trusted_link(mut self, interface: impl Into<String>) -> Builder {
        self.config.trusted_links.push(interface.into());
        self
    }

    /// Joins. See [`Cluster::join`].
    pub async fn join(self) -> Result<Cluster> {
        Cluster::join_with(self.config).await
    }
}
