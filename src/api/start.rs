//! Builds a running node from a configuration: keys, files, port, discovery.

use super::admissions::MachineAdmissions;
use super::config::{Admission as Wanted, Config, EngineOffer as Choice, Network};
use super::environment::{home_of, interface_text, job_of, lookup, namespace_of, notices};
use super::machine_faults::machine_faults;
use super::machine_interfaces::MachineInterfaces;
use crate::collective::{Engine, NativeEngine};
use crate::discovery::{Advert, Discovery, FixedPeer, MdnsDiscovery, MdnsScope, Medium, Origin};
use crate::election::{Alone, Durable, ElectionConfig};
#[cfg(feature = "gloo")]
use crate::gloo_ffi::{GlooEngine, GlooOrNative};
use crate::identity::{
    Boot, Identity, IdentityProblem, MemberId, Name, Namespace, NodesFile, PeersFile, StateFile,
    load_or_create_identity, new_boot,
};
use crate::link::{Bind, DataEncryption, Hello, Local, MemoryWorld, Net, Suite, TcpNet};
use crate::memory::Pool;
use crate::node::{
    Admission, Doors, FaultsOf, GRACE, NodeConfig, RENEW_AFTER, Settled, StatusSocket, Tools,
    no_port,
};
use crate::os::{
    Disk, Files, FixedInterfaces, HostId, Interface, InterfaceSet, MachineSleep, Store, inventory,
};
#[cfg(potluck_mutants)]
use crate::protocol::Mutant;
use crate::protocol::{Engines, Mutation};
use crate::report::{ConfigProblem, Error, Result};
use crate::topology::KnownPaths;
use crate::trace;
use crate::wire::Decode;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// The role of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// It is a member of the group of its job.
    Member,
    /// It is told the status of the others.
    Observer,
}

/// Opens the resources of a node. Runs on the control loop's thread, inside its runtime.
pub(crate) async fn open(config: Config, role: NodeRole) -> Result<(NodeConfig, Doors)> {
    match config.network {
        Network::Process => open_in_process(&config, role).await,
        Network::Lan | Network::Loopback => open_on_network(&config, role).await,
    }
}

async fn open_on_network(config: &Config, role: NodeRole) -> Result<(NodeConfig, Doors)> {
    let home = home_of(config)?;
    let admissions = MachineAdmissions::of(config, home.clone())?;
    let namespace = &admissions.admission().namespace;
    let interfaces = inventory().unwrap_or_default();
    // If the filter leaves no interface, joining fails. If all links go down later, the node waits.
    let chosen = choose(config, &interfaces)?;
    let interface_source = MachineInterfaces::of(config)?;
    let interface_set = interface_source.interface_set(interfaces);
    let job = job_of(config)?;
    let held = load_or_create_identity(&home)?;
    let boot = new_boot()?;

    let net: Arc<dyn Net> = Arc::new(network_of(config));
    let listener = net.listen(&config.ports).await.map_err(|error| no_port(&error))?;
    let discovery = discover(config, &chosen)?;

    let state = held.state_file(&home, namespace.name(), &job);
    let durable = match state.load()? {
        Some(bytes) => Durable::from_bytes(&bytes).map_err(|_| unreadable(&state))?,
        None => Durable::default(),
    };
    let peers_file = PeersFile::at(home.peers_path(namespace.name(), &job));
    let mut known: Vec<(SocketAddr, Origin)> =
        peers_file.load().into_iter().map(|a| (a, Origin::Cache)).collect();
    let peers = fixed_peers(config)?;
    known.extend(peers.iter().flat_map(FixedPeer::addresses).map(|at| (at, Origin::Fixed)));
    let known_nodes = NodesFile::known(&home, namespace.name());
    let paths = held.paths_file(&home, namespace.name());
    let known_paths = known_paths(&paths);
    let files = Files { state, peers: peers_file, known: known_nodes, paths };

    let socket = held.status_socket(&home, namespace.name(), &job);
    let status_socket = StatusSocket::bind(socket.clone()).map_err(|error| {
        trace::warn!(%error, path = %socket.display(), "`potluck status` will not reach this node");
    });
    let identity = Arc::new(Identity::from_seed(&held.identity().seed()));
    let (offered, engines) = engines(config)?;
    let hello = hello(config, role, MemberId { node: identity.id(), boot }, offered)?;
    let hello = Hello { port: listener.port(), ..hello };
    let local = Local::new(identity, hello, random()?, namespace.psks());
    let admission = admissions.admission().clone();
    let mut node = node_config(config, local, admission, boot, durable, interface_set, known)?;
    node.names = peers.into_iter().filter(FixedPeer::is_name).collect();
    node.known_paths = known_paths;
    // The identity stays locked until its last write.
    let store = Box::new(Disk::start(files, held).map_err(|error| no_port(&error))?);
    let (interface_source, sleep) = (Box::new(interface_source), Box::new(MachineSleep::start()));
    let admissions = Box::new(admissions);
    let faults = faults_of(config.clone());
    let tools = Tools { net, interface_source, admissions, store, sleep, faults, engines };
    Ok((node, Doors { listener, discovery, status_socket: status_socket.ok(), tools }))
}

/// The paths that the last run knew. Without them paths are measured again, so a bad file is no
/// error.
fn known_paths(file: &StateFile) -> KnownPaths {
    let bytes = file.load().unwrap_or_else(|problem| {
        trace::warn!(%problem, "the known rates of paths are ignored");
        None
    });
    let known =
        bytes.map_or_else(|| Ok(KnownPaths::default()), |bytes| KnownPaths::from_bytes(&bytes));
    known.unwrap_or_else(|problem| {
        trace::warn!(%problem, path = %file.path().display(), "the known rates of paths are \
            ignored");
        KnownPaths::default()
    })
}

/// All in memory: the nodes of one namespace in one process share a simulated network.
async fn open_in_process(config: &Config, role: NodeRole) -> Result<(NodeConfig, Doors)> {
    static WORLDS: Mutex<BTreeMap<String, (MemoryWorld, Medium)>> = Mutex::new(BTreeMap::new());
    static HOSTS: AtomicU32 = AtomicU32::new(1);
    let name = namespace_of(config)?;
    let namespace = match &config.admission {
        Wanted::Key(key) => Namespace::keyed(name.clone(), key.clone()),
        _ => Namespace::open(name.clone()),
    };
    let (world, medium) = {
        let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
        worlds
            .entry(name.as_str().to_owned())
            .or_insert_with(|| (MemoryWorld::new(), Medium::new()))
            .clone()
    };
    let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + HOSTS.fetch_add(1, Ordering::Relaxed)));
    let net: Arc<dyn Net> = Arc::new(world.host(ip));
    let listener = net.listen(&[]).await.map_err(|error| no_port(&error))?;
    let boot = new_boot()?;
    let identity = Arc::new(Identity::from_seed(&*random()?));
    let (offered, engines) = engines(config)?;
    let hello = hello(config, role, MemberId { node: identity.id(), boot }, offered)?;
    let hello = Hello { port: listener.port(), ..hello };
    let local = Local::new(identity, hello, random()?, namespace.psks());
    let mut node = node_config(
        config,
        local,
        Admission::to(namespace),
        boot,
        Durable::default(),
        InterfaceSet::none(),
        Vec::new(),
    )?;
    node.advertised = vec![SocketAddr::new(ip, listener.port())];
    let (discovery, store, sleep) =
        (Box::new(medium.node()), Box::new(Nowhere), Box::new(MachineSleep::start()));
    let (interface_source, admissions) = (Box::new(FixedInterfaces), Box::new(Settled));
    let faults = faults_of(config.clone());
    let tools = Tools { net, interface_source, admissions, store, sleep, faults, engines };
    Ok((node, Doors { listener, discovery, status_socket: None, tools }))
}

/// Finds the faults of this machine, in one sentence each.
fn faults_of(config: Config) -> FaultsOf {
    let config = Arc::new(config);
    Arc::new(move || {
        let config = Arc::clone(&config);
        Box::pin(async move {
            // The configuration was valid when the node started.
            let faults = machine_faults(&config).await.unwrap_or_default();
            let routes = faults.routes.iter().map(ToString::to_string);
            faults.disk.into_iter().chain(routes).collect()
        })
    })
}

fn node_config(
    config: &Config,
    local: Local,
    admission: Admission,
    boot: Boot,
    durable: Durable,
    interface_set: InterfaceSet,
    known: Vec<(SocketAddr, Origin)>,
) -> Result<NodeConfig> {
    let partition = config.partition()?;
    let sizes = config.sizes()?;
    let forms_alone = sizes.members() == 1 && !local.hello.observer;
    let alone = if forms_alone { Alone::Forms } else { Alone::Waits };
    Ok(NodeConfig {
        local: Arc::new(local),
        admission,
        trust: config.trust.clone(),
        instance: Advert::instance_of(*random()?),
        durable,
        sizes,
        gloo: gloo_version(),
        notices: notices(config),
        election: ElectionConfig { alone, partition, seed: boot.0, ..ElectionConfig::default() },
        interface_set,
        known,
        names: Vec::new(),
        known_paths: KnownPaths::default(),
        advertised: Vec::new(),
        renew_after: RENEW_AFTER,
        grace: GRACE,
        mutation: mutation(),
    })
}

/// The host of this process. In a build with mutants it may be named by `POTLUCK_HOST`.
fn host() -> Option<HostId> {
    #[cfg(potluck_mutants)]
    if let Some(name) = lookup("POTLUCK_HOST").filter(|name| !name.is_empty()) {
        return HostId::named(&name);
    }
    HostId::of_this_process()
}

/// The mutant that `POTLUCK_MUTANT` names, in a build that has them; `POTLUCK_LIES` is the
/// seed of one that lies. A name that is unknown is a panic: a test must not run without its
/// mutant.
fn mutation() -> Mutation {
    #[cfg(potluck_mutants)]
    if let Some(name) = lookup("POTLUCK_MUTANT").filter(|name| !name.is_empty()) {
        let mutant = Mutant::named(&name.to_string_lossy());
        assert!(mutant.is_some(), "POTLUCK_MUTANT names no mutant: {}", name.display());
        if let Some(seed) = lookup("POTLUCK_LIES") {
            let seed = seed.to_string_lossy().parse().expect("POTLUCK_LIES is no number");
            crate::node::lie_by_seed(seed);
        }
        return mutant.into();
    }
    Mutation::NONE
}

/// The version of Gloo in this build, as `Gloo 0.5.0 (2022 interface)`; `None` without the feature
/// `gloo`.
pub fn gloo_version() -> Option<String> {
    #[cfg(feature = "gloo")]
    return Some(crate::gloo_ffi::version());
    #[cfg(not(feature = "gloo"))]
    None
}

/// The engines that this node offers, and their implementations.
fn engines(config: &Config) -> Result<(Engines, Vec<Arc<dyn Engine>>)> {
    let wanted = match (config.engine, lookup("POTLUCK_ENGINE").filter(|text| !text.is_empty())) {
        (Some(engine), _) => engine,
        (None, Some(text)) => text.to_string_lossy().parse().map_err(Error::Config)?,
        (None, None) => Choice::Auto,
    };
    let pool = Pool::new();
    let native = NativeEngine::new(pool.clone()).with(mutation());
    #[cfg(feature = "gloo")]
    {
        let offered = match wanted {
            Choice::Auto => Engines::GLOO,
            Choice::Native => Engines::GLOO.declining_gloo(),
            Choice::Gloo => Engines::GLOO.wanting_gloo(),
        };
        let gloo = GlooOrNative::new(GlooEngine::new(pool), native.clone());
        Ok((offered, vec![Arc::new(native), Arc::new(gloo)]))
    }
    #[cfg(not(feature = "gloo"))]
    match wanted {
        Choice::Gloo => Err(Error::Config(ConfigProblem::NoGloo)),
        Choice::Auto | Choice::Native => Ok((Engines::NATIVE, vec![Arc::new(native)])),
    }
}

/// The hello of a node that does not listen yet.
fn hello(config: &Config, role: NodeRole, id: MemberId, engines: Engines) -> Result<Hello> {
    let partition = config.partition()?;
    partition
        .check_roster(id.node)
        .map_err(|problem| Error::Config(ConfigProblem::BadRoster(problem)))?;
    Ok(Hello {
        id,
        name: name_of(config),
        job: job_of(config)?,
        port: 0,
        stateless: config.stateless,
        observer: role == NodeRole::Observer,
        engines,
        partition: partition.digest(),
        encryption: DataEncryption::Required,
        suite: Suite::of_this_processor(),
        endpoints: None,
        host: host(),
    })
}

pub(crate) fn name_of(config: &Config) -> Name {
    let name = config
        .name
        .clone()
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Name::from_lossy(&name)
}

/// The interfaces to announce on.
pub(crate) fn choose(config: &Config, all: &[Interface]) -> Result<Vec<Interface>> {
    let chosen = MachineInterfaces::of(config)?.chosen(all);
    match interface_text(config) {
        // Without any network this may be the filter of one that comes up later.
        Some(filter)
            if chosen.is_empty()
                && config.network == Network::Lan
                && all.iter().any(Interface::usable) =>
        {
            let have: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
            let why = format!("\"{filter}\" leaves none of {}", have.join(", "));
            Err(Error::Config(ConfigProblem::BadInterfaces(why)))
        }
        _ => Ok(chosen),
    }
}

/// The network on which connections are opened.
pub(crate) fn network_of(config: &Config) -> TcpNet {
    TcpNet::new(match config.network {
        Network::Loopback => Bind::At(Ipv4Addr::LOCALHOST.into()),
        _ => Bind::Everywhere,
    })
}

/// Multicast discovery. If it cannot start, configured peers suffice.
pub(crate) fn discover(config: &Config, chosen: &[Interface]) -> Result<Box<dyn Discovery>> {
    let scope = match config.network {
        Network::Loopback => MdnsScope::Loopback,
        _ => MdnsScope::Interfaces(chosen.iter().map(|i| i.name.clone()).collect()),
    };
    match MdnsDiscovery::start(scope) {
        Ok(discovery) => Ok(Box::new(discovery)),
        Err(problem) if peer_texts(config).is_empty() => {
            Err(Error::Config(ConfigProblem::NoDiscovery(problem.to_string())))
        }
        Err(problem) => {
            trace::warn!(%problem, "only the peers named by hand are tried");
            Ok(Box::new(Medium::new().node()))
        }
    }
}

/// The texts of the configured peers, those of `POTLUCK_PEERS` last.
pub(crate) fn peer_texts(config: &Config) -> Vec<String> {
    let from_env =
        lookup("POTLUCK_PEERS").and_then(|v| v.into_string().ok()).filter(|v| !v.trim().is_empty());
    config.peers.iter().cloned().chain(from_env).collect()
}

/// The configured peers.
fn fixed_peers(config: &Config) -> Result<Vec<FixedPeer>> {
    let mut peers = Vec::new();
    for text in peer_texts(config) {
        let listed = FixedPeer::parse_list(&text)
            .map_err(|e| Error::Config(ConfigProblem::BadPeer(format!("{text}: {e}"))))?;
        peers.extend(listed);
    }
    Ok(peers)
}

fn unreadable(state: &crate::identity::StateFile) -> Error {
    Error::Identity(IdentityProblem::Damaged {
        path: state.path().to_owned(),
        content: crate::identity::FileContent::State,
    })
}

/// Bytes from the operating system's randomness.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes).map_err(|_| Error::Identity(IdentityProblem::NoRandomness))?;
    Ok(bytes)
}

/// The store of nodes in memory, whose state ends with the process.
struct Nowhere;

impl Store for Nowhere {
    fn save(&mut self, _state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        done();
    }

    fn remember(&mut self, _peers: Vec<SocketAddr>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;
    use crate::protocol::{Partition, RosterProblem};

    async fn refused(partition: Partition) -> Error {
        let config = Config { partition: Some(partition), ..Config::local() };
        match open(config, NodeRole::Member).await {
            Err(error) => error,
            Ok(_) => panic!("it was taken"),
        }
    }

    #[tokio::test]
    async fn a_roster_that_cannot_work_is_a_typed_error() {
        let stranger = NodeId([7; 32]);
        let error = refused(Partition::Majority { roster: vec![stranger] }).await;
        assert!(
            matches!(
                error,
                Error::Config(ConfigProblem::BadRoster(RosterProblem::WithoutThisNode(_)))
            ),
            "{error:?}"
        );
        let error = refused(Partition::All { roster: vec![stranger; 2] }).await;
        assert!(
            matches!(
                error,
                Error::Config(ConfigProblem::BadRoster(RosterProblem::Twice(node)))
                    if node == stranger
            ),
            "{error:?}"
        );
        let error = refused(Partition::All { roster: Vec::new() }).await;
        assert!(
            matches!(error, Error::Config(ConfigProblem::BadRoster(RosterProblem::Empty))),
            "{error:?}"
        );
    }
}
