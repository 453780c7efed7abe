//! The known facts about a node: by itself, by the nodes of this machine, and by its group.

use crate::selection::Found;
use potluck::report::LinkDirection;
use potluck::report::document::{GraphDocument, GraphLink, StatusDocument};
use serde::Serialize;
use std::collections::BTreeMap;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerDocument {
    pub name: Option<String>,
    /// Its public key.
    pub node: String,
    pub job: Option<String>,
    /// Whether it runs on this machine with the same home.
    pub here: bool,
    /// Null if it is not known.
    pub observer: Option<bool>,
    pub process: Option<u32>,
    /// Those that it announces, and that of the link.
    pub addresses: Vec<String>,
    pub link: Option<LinkDocument>,
    pub port: Option<PortDocument>,
    pub view: Option<PlaceDocument>,
    /// The codes of `potluck status`; null if the node has told nothing.
    pub state: Option<String>,
    pub state_text: Option<String>,
    /// Why there is no link.
    pub why: Option<String>,
}

/// The connection of a node of this machine with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkDocument {
    /// The node of this machine.
    pub from: String,
    pub address: String,
    /// The keys of the relays.
    pub through: Vec<String>,
    pub forwarded: bool,
    pub interface: Option<String>,
    /// For example ethernet or wifi, at this end.
    pub kind: Option<String>,
    /// Whether only one end may send at a time.
    pub shared: bool,
    pub rtt_us: Option<u32>,
    /// Of the slower direction.
    pub rate_bps: Option<u64>,
}

/// The measurements of its group at its network port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortDocument {
    pub kind: Option<String>,
    /// To the nearest other member.
    pub rtt_us: Option<u32>,
    pub rate_bps: Option<u64>,
}

/// Its place in a View.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceDocument {
    pub id: String,
    pub rank: usize,
    /// The number of members.
    pub members: usize,
}

impl PeerDocument {
    /// Whether it is, or may become, a member of a group.
    pub fn is_program(&self) -> bool {
        self.observer != Some(true)
    }

    fn unknown(node: &str) -> PeerDocument {
        PeerDocument {
            name: None,
            node: node.to_owned(),
            job: None,
            here: false,
            observer: None,
            process: None,
            addresses: Vec::new(),
            link: None,
            port: None,
            view: None,
            state: None,
            state_text: None,
            why: None,
        }
    }

    /// The data that the node states of itself.
    fn own(&mut self, document: &StatusDocument) {
        self.name = Some(document.name.clone());
        self.job = Some(document.job.clone());
        self.observer = Some(document.observer);
        self.process = Some(document.process);
        self.state = Some(document.state.clone());
        self.state_text = Some(document.state_text.clone());
        let announced = document.interfaces.iter().flat_map(|interface| &interface.addresses);
        self.addresses.extend(announced.map(|ip| with_port(ip, document.port)));
    }
}

/// All nodes that these documents name, by job, name and key.
pub fn peers_of(found: &Found) -> Vec<PeerDocument> {
    let mut all: BTreeMap<String, PeerDocument> = BTreeMap::new();
    for node in &found.nodes {
        entry(&mut all, &node.node, None).own(node);
    }
    for node in &found.nodes {
        known_by(node, &mut all);
    }
    for node in &found.here {
        entry(&mut all, &node.node, None).here = true;
        linked_with(node, &mut all);
    }
    let reasons = reasons_of(found);
    for peer in all.values_mut().filter(|peer| peer.link.is_none() && !peer.here) {
        peer.why = reasons.iter().find(|reason| names(reason, peer)).cloned();
    }
    let mut peers: Vec<PeerDocument> = all.into_values().collect();
    let place = |peer: &PeerDocument| (peer.job.clone(), peer.view.as_ref().map(|v| v.rank));
    peers.sort_by(|a, b| (place(a), &a.name, &a.node).cmp(&(place(b), &b.name, &b.node)));
    peers
}

/// Why members are missing and calls wait, as the nodes say, each sentence once.
pub fn reasons_of(found: &Found) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    let of = if found.here.is_empty() { &found.nodes } else { &found.here };
    for reason in of.iter().flat_map(|node| &node.reasons) {
        if !reasons.contains(reason) {
            reasons.push(reason.clone());
        }
    }
    reasons
}

fn entry<'a>(
    all: &'a mut BTreeMap<String, PeerDocument>,
    node: &str,
    name: Option<&String>,
) -> &'a mut PeerDocument {
    let peer = all.entry(node.to_owned()).or_insert_with(|| PeerDocument::unknown(node));
    if peer.name.is_none() {
        peer.name = name.cloned();
    }
    peer
}

/// The members, linked nodes and nodes of other jobs that a node knows.
fn known_by(node: &StatusDocument, all: &mut BTreeMap<String, PeerDocument>) {
    for other in &node.peers {
        entry(all, &other.node, Some(&other.name)).job.get_or_insert_with(|| node.job.clone());
    }
    for other in &node.other_jobs {
        for known in &other.nodes {
            let job = &mut entry(all, &known.node, known.name.as_ref()).job;
            job.get_or_insert_with(|| other.job.clone());
        }
    }
    let Some(view) = &node.view else { return };
    for member in &view.members {
        let peer = entry(all, &member.node, Some(&member.name));
        peer.job.get_or_insert_with(|| node.job.clone());
        let place = || PlaceDocument {
            id: view.id.clone(),
            rank: member.rank,
            members: view.members.len(),
        };
        peer.view.get_or_insert_with(place);
        if peer.port.is_none() {
            peer.port = node.topology.as_ref().and_then(|graph| port(graph, member.rank));
        }
    }
}

/// The links of a node of this machine. The first that has measured one tells of it.
fn linked_with(node: &StatusDocument, all: &mut BTreeMap<String, PeerDocument>) {
    for other in &node.peers {
        let way = node.topology.as_ref().and_then(|graph| way(graph, &other.node));
        let kind = |(_, end): &(&GraphLink, &LinkDirection)| Some(end.kind?.to_string());
        let link = LinkDocument {
            from: node.node.clone(),
            address: other.address.clone(),
            through: other.through.clone(),
            forwarded: other.forwarded,
            interface: way.and_then(|(link, _)| link.path.as_ref()?.interface.clone()),
            kind: way.as_ref().and_then(kind),
            shared: way.is_some_and(|(_, end)| end.medium.is_some()),
            rtt_us: other.rtt_us,
            rate_bps: way.and_then(|(link, _)| link.rate_bps()),
        };
        let peer = entry(all, &other.node, Some(&other.name));
        if !peer.addresses.contains(&link.address) && link.through.is_empty() {
            peer.addresses.push(link.address.clone());
        }
        if peer.link.as_ref().is_none_or(|known| known.rate_bps < link.rate_bps) {
            peer.link = Some(link);
        }
    }
}

/// The link between the node that drew this graph and another member, and its own end of it.
fn way<'a>(graph: &'a GraphDocument, node: &str) -> Option<(&'a GraphLink, &'a LinkDirection)> {
    let rank = graph.members.iter().find(|member| member.node == node)?.rank;
    graph.links.iter().find_map(|link| match (link.a, link.b) {
        (a, b) if (a, b) == (graph.me, rank) => Some((link, &link.there)),
        (a, b) if (a, b) == (rank, graph.me) => Some((link, &link.back)),
        _ => None,
    })
}

fn port(graph: &GraphDocument, rank: usize) -> Option<PortDocument> {
    let member = graph.members.iter().find(|member| member.rank == rank)?;
    let links = || graph.links.iter().filter(move |link| link.a == rank || link.b == rank);
    let own = |link: &GraphLink| if link.a == rank { link.there } else { link.back };
    Some(PortDocument {
        kind: links().find_map(|link| own(link).kind).map(|kind| kind.to_string()),
        rtt_us: links().filter_map(GraphLink::rtt_us).min(),
        rate_bps: member.rate_bps,
    })
}

/// Whether a sentence is about a node: it contains one of its addresses, or its short id.
fn names(reason: &str, peer: &PeerDocument) -> bool {
    let short = peer.node.get(..8).unwrap_or(&peer.node);
    let mut words = reason.split(|c: char| c.is_whitespace() || "(),;`".contains(c));
    words.any(|word| {
        let word = word.trim_end_matches([':', '.']);
        word == short || peer.addresses.iter().any(|address| address == word)
    })
}

fn with_port(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
