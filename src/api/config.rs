//! How a node joins: presets, and a builder for the rest.

use super::size_settings::SizeSettings;
use crate::identity::{ClusterKey, Trust};
use crate::protocol::{Partition, Sizes};
use crate::report::{ConfigProblem, Error, Result};
use std::path::PathBuf;

/// The configuration of a node. Start from a preset: [`Config::home`] is the default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which network to use.
    pub network: Network,
    /// The namespace. Nodes of different namespaces form separate groups. Default:
    /// `POTLUCK_NAMESPACE`, else `default`.
    pub namespace: Option<String>,
    /// The job: which program this node runs. Nodes of one namespace with the same job form a
    /// group; groups of other jobs are left alone. 1 to 32 characters of `a-z`, `0-9`, `-` and `_`.
    /// Default: `POTLUCK_JOB`, else the name of the running executable, so that the same program on
    /// all machines is one group.
    pub job: Option<String>,
    /// How nodes are admitted to the group. Default: by the cluster key of the namespace, see
    /// [`Admission::Found`].
    pub admission: Admission,
    /// Which of the nodes that prove the cluster key are admitted. Default: all.
    pub trust: Trust,
    /// The directory of key and state files. Default: `POTLUCK_HOME`, else the XDG directories.
    pub home: Option<PathBuf>,
    /// This node's display name, at most 32 printable characters. Default: the host name.
    pub name: Option<String>,
    /// Which parts of the group may continue after a network partition. Default:
    /// `POTLUCK_PARTITION`, else every part of at least `min_members` members.
    pub partition: Option<Partition>,
    /// The members with which the group begins, 1 to 32. Default: `POTLUCK_MEMBERS`, else
    /// `min_members`.
    pub members: Option<usize>,
    /// The members with which the group goes on, 1 to `members`. Default: `POTLUCK_MEMBERS`, else 2
    /// (1 if `members` or `max_members` is 1), or as many as the roster of `partition` demands.
    pub min_members: Option<usize>,
    /// The most members that the group may have, `members` to 32. Default: `POTLUCK_MEMBERS`, else
    /// 32.
    pub max_members: Option<usize>,
    /// This node keeps no state in step with the others. If all members are stateless, no call ever
    /// requires a `sync`. Default: no.
    pub stateless: bool,
    /// Peers to dial in addition to discovered ones, as `host` or `host:port`. Default: none; peers
    /// in `POTLUCK_PEERS` are added in any case.
    pub peers: Vec<String>,
    /// Interfaces to use, as `eth0,en*`, or with a leading `^` interfaces not to use. Default:
    /// `POTLUCK_INTERFACES`, else every interface of a home network (no loopback, VPN or
    /// container).
    pub interfaces: Option<String>,
    /// TCP ports to try in order; if none is free, any port. Default: 47474 to 47489.
    pub ports: Vec<u16>,
    /// Which engine transfers and reduces the data. Default: `POTLUCK_ENGINE`, else
    /// [`EngineOffer::Auto`].
    pub engine: Option<EngineOffer>,
    /// Interfaces on which bulk data travels unencrypted between two nodes that both list theirs.
    /// Default: none.
    pub trusted_links: Vec<String>,
    /// Whether a program without a subscriber for `tracing` is told on stderr why it waits: one
    /// line when a Context takes more than 3 s, one when a call waits 10 s for other members.
    /// Default: yes, unless `POTLUCK_NOTICES` is `0`.
    pub notices: Option<bool>,
}

/// Which network a node uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// The local network: multicast DNS and TCP on this machine's interfaces.
    Lan,
    /// 127.0.0.1 only: several nodes on one machine.
    Loopback,
    /// No sockets and no files: several nodes in one process.
    Process,
}

/// Which engine a node offers. A View runs on Gloo if all its members offer Gloo and have direct
/// links to each other; otherwise on the native engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineOffer {
    /// Gloo, if every member has it, all of them have direct links to each other, and trees over
    /// the measured links would be at most a tenth faster.
    #[default]
    Auto,
    /// The native engine only: no View that contains this node runs on Gloo.
    Native,
    /// Gloo, however heterogeneous the links are, unless another member lacks or declines it or two
    /// members have no direct link. A build without Gloo refuses to join with
    /// [`ConfigProblem::NoGloo`].
    Gloo,
}

impl std::str::FromStr for EngineOffer {
    type Err = ConfigProblem;

    /// Parses `auto`, `native` or `gloo`.
    ///
    /// # Errors
    /// [`ConfigProblem::BadEngine`] for any other text.
    fn from_str(text: &str) -> std::result::Result<EngineOffer, ConfigProblem> {
        match text {
            "auto" => Ok(EngineOffer::Auto),
            "native" => Ok(EngineOffer::Native),
            "gloo" => Ok(EngineOffer::Gloo),
            _ => Err(ConfigProblem::BadEngine(text.to_owned())),
        }
    }
}

/// How nodes are admitted to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// By the cluster key in `POTLUCK_KEY`, else in the namespace's key file. If there is neither,
    /// joining fails with [`ConfigProblem::NoClusterKey`].
    Found,
    /// By this cluster key.
    Key(ClusterKey),
    /// By the namespace's name alone: every node on the network that knows the name is admitted.
    /// Links are still encrypted.
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
            job: None,
            admission: Admission::Found,
            trust: Trust::KeyHolders,
            home: None,
            name: None,
            partition: None,
            members: None,
            min_members: None,
            max_members: None,
            stateless: false,
            peers: Vec::new(),
            interfaces: None,
            ports: (47474..47490).collect(),
            engine: None,
            trusted_links: Vec::new(),
            notices: None,
        }
    }

    /// Several processes on this machine: multicast DNS and TCP on 127.0.0.1 only.
    pub fn loopback() -> Config {
        Config { network: Network::Loopback, ports: Vec::new(), ..Config::home() }
    }

    /// Several nodes inside one process, without sockets or files, for tests. Nodes of the same
    /// namespace find each other.
    pub fn local() -> Config {
        Config {
            network: Network::Process,
            admission: Admission::Open,
            ports: Vec::new(),
            ..Config::home()
        }
    }

    /// The configured sizes of the group, else those of the environment, else the defaults.
    ///
    /// # Errors
    /// Those of the partition rule's text, [`ConfigProblem::BadMembers`] and
    /// [`ConfigProblem::BadSizes`]. Rosters are checked later, against this node's identity.
    pub(crate) fn sizes(&self) -> Result<Sizes> {
        let (members, min_members) = (self.members, self.min_members);
        let own = SizeSettings { members, min_members, max_members: self.max_members };
        let text = std::env::var_os("POTLUCK_MEMBERS").filter(|text| !text.is_empty());
        let others = match text {
            Some(text) => text
                .to_string_lossy()
                .parse()
                .map_err(|why| Error::Config(ConfigProblem::BadMembers(why)))?,
            None => SizeSettings::default(),
        };
        let sizes = own.or(others).under(&self.partition()?);
        sizes.map_err(|why| Error::Config(ConfigProblem::BadSizes(why)))
    }

    /// The configured partition rule, else that of the environment, else the default.
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

/// The configuration built so far.
impl From<Builder> for Config {
    fn from(builder: Builder) -> Config {
        builder.config
    }
}

/// Changes single settings of a preset, then joins.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(super) config: Config,
}

impl Builder {
    /// Starts from a preset.
    pub fn new(config: Config) -> Builder {
        Builder { config }
    }

    /// The namespace: 1 to 32 characters of `a-z`, `0-9` and `-`.
    pub fn namespace(mut self, name: impl Into<String>) -> Builder {
        self.config.namespace = Some(name.into());
        self
    }

    /// The job, see [`Config::job`]: two programs that are to form one group, or two runs of one
    /// program that are not, set it.
    pub fn job(mut self, name: impl Into<String>) -> Builder {
        self.config.job = Some(name.into());
        self
    }

    /// The cluster key, used instead of the environment variable and the key file.
    pub fn key(mut self, key: ClusterKey) -> Builder {
        self.config.admission = Admission::Key(key);
        self
    }

    /// No key: every node on this network that uses the namespace `name` is admitted. The name only
    /// separates groups and protects nothing; links are still encrypted.
    pub fn open_lan(mut self, name: impl Into<String>) -> Builder {
        self.config.namespace = Some(name.into());
        self.config.admission = Admission::Open;
        self
    }

    /// Which of the nodes that prove the cluster key are admitted.
    pub fn trust(mut self, trust: Trust) -> Builder {
        self.config.trust = trust;
        self
    }

    /// The directory of key and state files.
    pub fn home(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.config.home = Some(directory.into());
        self
    }

    /// This node's display name.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.config.name = Some(name.into());
        self
    }

    /// The group begins with this many members, 1 to 32: no Context is handed out before. Of
    /// different numbers the largest one counts. A group that has begun admits latecomers,
    /// whatever they ask for here. Default: [`min_members`](Builder::min_members).
    pub fn members(mut self, members: usize) -> Builder {
        self.config.members = Some(members);
        self
    }

    /// The group goes on with this many members, 1 to 32: this node is handed no Context of a
    /// smaller View. Nodes may differ; each counts for itself. Default: 2, or as many as the roster
    /// of the [`partition`](Builder::partition) rule demands.
    pub fn min_members(mut self, members: usize) -> Builder {
        self.config.min_members = Some(members);
        self
    }

    /// The group has at most this many members, 1 to 32. Of different numbers the smallest one
    /// counts. A node without a place waits, says so ([`State::Full`](crate::report::State::Full)),
    /// and gets in when a member leaves. Default: 32.
    pub fn max_members(mut self, members: usize) -> Builder {
        self.config.max_members = Some(members);
        self
    }

    /// Which parts of the group may continue after a network partition. Must be the same on all
    /// nodes.
    pub fn partition(mut self, partition: Partition) -> Builder {
        self.config.partition = Some(partition);
        self
    }

    /// This node keeps no state in step with the others; see [`Config::stateless`].
    pub fn stateless(mut self) -> Builder {
        self.config.stateless = true;
        self
    }

    /// Adds a peer to dial in addition to discovered ones.
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
    pub fn engine(mut self, engine: EngineOffer) -> Builder {
        self.config.engine = Some(engine);
        self
    }

    /// Whether this program is told on stderr why it waits; see [`Config::notices`].
    pub fn notices(mut self, wanted: bool) -> Builder {
        self.config.notices = Some(wanted);
        self
    }

    /// Bulk data over this interface travels unencrypted to nodes that also trust theirs. For a
    /// physically trusted cable, and for benchmarks.
    pub fn trusted_link(mut self, interface: impl Into<String>) -> Builder {
        self.config.trusted_links.push(interface.into());
        self
    }
}
