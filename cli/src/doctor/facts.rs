//! The facts that `doctor` judges: of this machine, of the nodes around, and their looks back.

use crate::document::hex;
use crate::output::Output;
use crate::selection::LOOK_JOB;
use anyhow::Result;
use potluck::keys::{Keys, StoredKey};
use potluck::report::document::StatusDocument;
use potluck::report::{
    Activity, InterfaceAddress, InterfaceReport, LookedBack, MachineFaults, Neighbour, Unlinked,
    UnlinkedReason,
};
use potluck::{Config, Observer, local_nodes, machine_faults, scan};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to look around at least and at most: dials of a silent host end after three seconds,
/// and answers that do not come are missed after six.
const LOOK: (Duration, Duration) = (Duration::from_millis(3500), Duration::from_secs(9));

/// How often the others are asked to look back until all have heard this machine: an announcement
/// may be lost or late.
const ROUNDS: usize = 3;

/// How long a dial of a node may take.
const DIAL: Duration = Duration::from_secs(3);

/// After a failed dial: how long a node may take to say that it leaves.
const DEPARTURE: Duration = Duration::from_secs(1);

/// Most addresses of a node that are dialled.
const DIALS_MAX: usize = 4;

/// All that the checks judge.
pub struct Facts {
    /// The option of the namespace as typed after a command.
    pub flag: String,
    /// Where the cluster key is; `None` if there is none.
    pub key: Option<&'static str>,
    /// Where the files are.
    pub folder: String,
    /// The faults of this machine.
    pub faults: MachineFaults,
    /// Programs on this machine, and sockets of those that do not answer.
    pub here: Vec<StatusDocument>,
    pub silent: usize,
    /// The report of discovery on each interface.
    pub interfaces: Vec<InterfaceReport>,
    /// The nodes of other machines that have told their status.
    pub nodes: Vec<StatusDocument>,
    /// The names of these nodes and of those that have left meanwhile, by key. A node that only
    /// looks has the name of another one on its machine.
    pub names: BTreeMap<String, String>,
    /// Those nodes that are in no subnet of this machine, by key.
    pub routed: BTreeSet<String>,
    /// Their answers when they looked back.
    pub looked: Vec<LookedBack>,
    /// How dials of their addresses have ended.
    pub dials: Vec<Dial>,
    /// Nodes without a link, each with the reason.
    pub unlinked: Vec<Unlinked>,
    /// The findings of a machine without the key.
    pub neighbours: Vec<Neighbour>,
    /// Identities of which this observer has met two processes, by key.
    pub duplicates: Vec<String>,
    /// Whether another process uses the identity of this observer.
    pub is_duplicate: bool,
}

/// The dials of a node.
pub struct Dial {
    /// Its key.
    pub node: String,
    pub name: String,
    pub to: Vec<SocketAddr>,
    /// The last error, if none of them has connected.
    pub error: Option<io::Error>,
}

impl Facts {
    /// Looks at this machine, around, and asks the others to look back.
    ///
    /// # Errors
    /// A configuration that cannot be used.
    pub async fn collect(config: Config, flag: String, output: &Output) -> Result<Facts> {
        let keys = Keys::of(&config)?;
        let key = keys.cluster_key()?.as_ref().map(place_of);
        let file = keys.cluster_key_file();
        let folder = file.parent().unwrap_or(&file);
        let faults = machine_faults(&config).await?;
        let local = local_nodes(config.clone()).await?;
        let mut facts = Facts {
            flag,
            key,
            folder: folder.display().to_string(),
            faults,
            here: local.nodes,
            silent: local.silent.len(),
            interfaces: Vec::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            routed: BTreeSet::new(),
            looked: Vec::new(),
            dials: Vec::new(),
            unlinked: Vec::new(),
            neighbours: Vec::new(),
            duplicates: Vec::new(),
            is_duplicate: false,
        };
        if key.is_some() && facts.faults.disk.is_none() {
            output.say("Looking around, and asking the others to look back (about 10 s) ...");
            facts.observe(config).await?;
        } else {
            output.say("Looking around (4 s) ...");
            let seen = scan(config, LOOK.0).await?;
            (facts.interfaces, facts.neighbours) = (seen.interfaces, seen.neighbours);
        }
        Ok(facts)
    }

    /// This machine's addresses on the interfaces that are used.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        addresses_on(&self.interfaces).map(|at| at.ip).collect()
    }

    async fn observe(&mut self, mut config: Config) -> Result<()> {
        // Not that of `potluck up`, which says that it runs already where another one does.
        config.job = Some(LOOK_JOB.to_owned());
        let mut observer = Observer::start(config).await?;
        let (least, most) = (Instant::now() + LOOK.0, Instant::now() + LOOK.1);
        loop {
            let until = if self.is_settled(&observer) { least } else { most };
            // An error means that the time is over.
            if timeout_at(until, observer.changed()).await.is_err() && Instant::now() >= until {
                break;
            }
        }
        let (mut names, mut met) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..ROUNDS {
            let nodes = self.elsewhere(&observer);
            met.extend(nodes.iter().map(|node| (node.node.clone(), addresses_of(node))));
            names.extend(nodes.iter().map(|node| (node.node.clone(), name_of(node, &nodes))));
            let mut looked = observer.look_back().await;
            looked.retain(|of| names.contains_key(&hex(of.peer.node)));
            self.looked = with_unanswered(std::mem::take(&mut self.looked), looked);
            let is_unanswered =
                |node: &StatusDocument| self.looked.iter().any(|of| is_missing(of, &node.node));
            self.nodes
                .retain(|old| is_unanswered(old) && nodes.iter().all(|node| node.node != old.node));
            self.nodes.extend(nodes);
            let is_deaf = |of: &LookedBack| of.sight.as_ref().is_some_and(|sight| !sight.hears);
            if !self.looked.iter().any(is_deaf) {
                break;
            }
        }
        self.names = names;
        self.dials = dialled(&self.nodes).await;
        // A machine that is not reached any more has not lost packets of full size alone.
        let is_gone = |of: &LookedBack| {
            self.dials.iter().any(|dial| dial.error.is_some() && is_missing(of, &dial.node))
        };
        self.looked.retain(|of| !is_gone(of));
        self.forget_departed(&mut observer).await;
        let status = observer.status();
        self.is_duplicate = status.duplicates.contains(&status.node);
        self.duplicates = status.duplicates.iter().map(|node| hex(*node)).collect();
        (self.interfaces, self.unlinked) = (status.interfaces, status.others);
        let is_routed = |node: &&StatusDocument| is_routed(node, &self.interfaces);
        self.routed = self.nodes.iter().filter(is_routed).map(|of| of.node.clone()).collect();
        // A dial in vain to the address of a node that has left is no fault either.
        let there = observer.nodes();
        met.retain(|key, _| there.iter().all(|node| node.node != *key));
        let left: BTreeSet<SocketAddr> = met.into_values().flatten().collect();
        let has_left = |of: &Unlinked| {
            use UnlinkedReason as R;
            let mut at = of.addresses.iter();
            !of.addresses.is_empty()
                && match of.why {
                    R::Announced { .. } => at.all(|at| left.contains(at)),
                    // A named peer without a port is sought at several ports.
                    R::ByHand { error: io::ErrorKind::ConnectionRefused } => {
                        at.all(|at| left.iter().any(|left| left.ip() == at.ip()))
                    }
                    _ => false,
                }
        };
        self.unlinked.retain(|of| !has_left(of));
        let own = self.own_addresses();
        let is_own = |of: &Unlinked| {
            !of.addresses.is_empty() && of.addresses.iter().all(|at| own.contains(&at.ip()))
        };
        self.unlinked.retain(|of| !is_own(of));
        observer.leave().await;
        Ok(())
    }

    /// Forgets the failed dials of nodes that leave: another doctor ends by itself, and then
    /// nothing listens at its addresses.
    async fn forget_departed(&mut self, observer: &mut Observer) {
        let until = Instant::now() + DEPARTURE;
        loop {
            let there = observer.nodes();
            let is_there = |dial: &Dial| there.iter().any(|node| node.node == dial.node);
            self.dials.retain(|dial| dial.error.is_none() || is_there(dial));
            let has_failed = self.dials.iter().any(|dial| dial.error.is_some());
            if !has_failed || !matches!(timeout_at(until, observer.changed()).await, Ok(true)) {
                return;
            }
        }
    }

    /// Whether a longer look is not expected to show more.
    fn is_settled(&self, observer: &Observer) -> bool {
        let status = observer.status();
        let is_used = |on: &InterfaceReport| matches!(on.activity, Activity::Active { .. });
        let has_heard = |on: &InterfaceReport| match on.activity {
            Activity::Active { adverts, .. } => adverts > 0,
            _ => false,
        };
        let has_network = status.interfaces.is_empty() || status.interfaces.iter().any(is_used);
        // A node that has just started is linked before it is heard.
        let all_linked = status.others.is_empty()
            && !self.elsewhere(observer).is_empty()
            && status.interfaces.iter().any(has_heard);
        all_linked || !has_network
    }

    /// The nodes that run on other machines. One that has started since, or runs in another home,
    /// is known by its addresses; on the loopback interface all have the same.
    fn elsewhere(&self, observer: &Observer) -> Vec<StatusDocument> {
        let interfaces = observer.status().interfaces;
        let own: Vec<IpAddr> = addresses_on(&interfaces).map(|at| at.ip).collect();
        let is_own = |at: &SocketAddr| own.contains(&at.ip()) && !at.ip().is_loopback();
        let mut nodes = observer.nodes();
        nodes.retain(|node| {
            let at = addresses_of(node);
            let is_here = !at.is_empty() && at.iter().all(is_own);
            !is_here && self.here.iter().all(|own| own.node != node.node)
        });
        nodes
    }
}

/// Whether the answer of the node with this key is missing.
fn is_missing(of: &LookedBack, key: &str) -> bool {
    of.sight.is_none() && hex(of.peer.node) == key
}

/// The answers of a round, and the missing ones of rounds before it: a node whose answer was
/// missing has lost its link, and may not be asked again.
fn with_unanswered(before: Vec<LookedBack>, mut looked: Vec<LookedBack>) -> Vec<LookedBack> {
    let is_asked_again = |of: &LookedBack| looked.iter().any(|new| new.peer.node == of.peer.node);
    let mut unanswered = before;
    unanswered.retain(|of| of.sight.is_none() && !is_asked_again(of));
    looked.append(&mut unanswered);
    looked
}

/// This machine's addresses on those of these interfaces that are used.
fn addresses_on(interfaces: &[InterfaceReport]) -> impl Iterator<Item = &InterfaceAddress> {
    let used = interfaces.iter().filter_map(|on| match &on.activity {
        Activity::Active { addresses, .. } => Some(addresses),
        _ => None,
    });
    used.flatten()
}

/// Whether no address of a node lies in a subnet of these interfaces.
fn is_routed(node: &StatusDocument, interfaces: &[InterfaceReport]) -> bool {
    let at = shared_addresses(node);
    let is_near = |at: &IpAddr| addresses_on(interfaces).any(|own| own.subnet_has(*at));
    !at.is_empty() && !at.iter().any(is_near)
}

/// The name of a node; that of one that only looks is the name of another one with the same
/// addresses, for example of `potluck up`.
fn name_of(node: &StatusDocument, nodes: &[StatusDocument]) -> String {
    let (own, looks) = (shared_addresses(node), |of: &StatusDocument| of.job == LOOK_JOB);
    let is_for_both =
        |of: &&StatusDocument| looks(node) && !looks(of) && shared_addresses(of) == own;
    nodes.iter().find(is_for_both).unwrap_or(node).name.clone()
}

fn place_of(key: &StoredKey) -> &'static str {
    crate::document::key_source(key)
}

/// Dials each node at its addresses, until one connects.
async fn dialled(nodes: &[StatusDocument]) -> Vec<Dial> {
    let mut dials = JoinSet::new();
    for (place, node) in nodes.iter().enumerate() {
        let (key, name, to) = (node.node.clone(), node.name.clone(), addresses_of(node));
        if !to.is_empty() {
            dials.spawn(async move {
                (place, Dial { node: key, name, error: first_error(&to).await, to })
            });
        }
    }
    let mut all = dials.join_all().await;
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, dial)| dial).collect()
}

/// Those of its addresses that mean the same on this machine, as many as are dialled.
fn addresses_of(node: &StatusDocument) -> Vec<SocketAddr> {
    let mut shared = shared_addresses(node);
    shared.sort_by_key(IpAddr::is_ipv6);
    shared.into_iter().take(DIALS_MAX).map(|ip| SocketAddr::new(ip, node.port)).collect()
}

fn shared_addresses(node: &StatusDocument) -> Vec<IpAddr> {
    let all = node.interfaces.iter().flat_map(|on| &on.addresses);
    let ips = all.filter_map(|text| text.parse::<IpAddr>().ok());
    let is_shared = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    ips.filter(is_shared).collect()
}

/// `None` if one of them connects.
async fn first_error(to: &[SocketAddr]) -> Option<io::Error> {
    let mut last = None;
    for at in to {
        let dialled = timeout(DIAL, TcpStream::connect(at)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(_) => return None,
            Err(error) => last = Some(error),
        }
    }
    last
}
