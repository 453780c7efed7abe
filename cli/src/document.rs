//! The JSON documents that several commands print, and their text form. The format is stable:
//! fields are only added, never renamed or removed.

use crate::graph_document::GraphDocument;
use potluck::keys::StoredKey;
use potluck::report::{
    Activity, Counters, InterfaceFinding, InterfaceReport, Membership, Neighbour, NoLinkReason,
    Quarantined, State, ViewStatus,
};
use potluck::{NodeId, Peer, Status};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The status of a running node: the answer of `potluck status`, and one line of `potluck up`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusDocument {
    pub ok: bool,
    /// Whether a node runs here: always true in this document.
    pub running: bool,
    pub node: String,
    pub name: String,
    pub namespace: String,
    /// The nodes of a namespace with the same job form a group.
    pub job: String,
    /// Whether the namespace is open: it admits every node that knows its name.
    pub open: bool,
    pub port: u16,
    /// alone, forming, in, not-enough-peers, needs-sync, full, one-way, kept-out, duplicate or
    /// closed.
    pub state: String,
    /// The state as text.
    pub state_text: String,
    pub view: Option<ViewDocument>,
    /// Nodes with a control link.
    pub peers: Vec<PeerDocument>,
    pub interfaces: Vec<InterfaceDocument>,
    /// Why members are missing or calls wait, one sentence each.
    pub reasons: Vec<String>,
    /// The result of discovery on each interface, while the state is `alone`.
    #[serde(default)]
    pub alone: Vec<AloneDocument>,
    /// Identities that two running processes share.
    #[serde(default)]
    pub duplicates: Vec<String>,
    /// Nodes in quarantine because they were lost repeatedly.
    #[serde(default)]
    pub quarantined: Vec<QuarantinedDocument>,
    /// The View as a graph of members and links; null while there is no View.
    #[serde(default)]
    pub topology: Option<GraphDocument>,
    pub counters: Counters,
    /// The version of Gloo in this build; null without Gloo.
    pub gloo: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewDocument {
    pub id: String,
    pub engine: String,
    /// The reason for this engine.
    pub engine_reason: String,
    pub plan: String,
    pub in_sync: bool,
    pub committed: u64,
    /// In rank order.
    pub members: Vec<MemberDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberDocument {
    pub rank: usize,
    pub name: String,
    pub node: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerDocument {
    pub name: String,
    pub node: String,
    pub address: String,
    /// The keys of the relays of the control link, in order from this node; empty if it is direct.
    #[serde(default)]
    pub through: Vec<String>,
    /// Something on the way forwards the connection, for example address translation.
    #[serde(default)]
    pub forwarded: bool,
    /// Round-trip time in microseconds: the minimum of the last seconds.
    pub rtt_us: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AloneDocument {
    pub interface: String,
    pub sent: Option<u64>,
    pub heard: u64,
    /// skipped, nothing-heard, only-others or no-link.
    pub why: String,
    /// The same as text.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuarantinedDocument {
    pub name: Option<String>,
    pub node: String,
    /// The remaining time in seconds.
    pub left_s: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceDocument {
    pub interface: String,
    /// Why the interface is not used; null if it is used.
    pub skipped: Option<String>,
    /// This node's addresses announced there.
    pub addresses: Vec<String>,
    pub queries: Option<u64>,
    pub heard: u64,
    pub dropped: u64,
    /// The whole report as text.
    pub text: String,
}

/// A node of which announcements were received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourDocument {
    pub version: u8,
    pub addresses: Vec<String>,
    /// ours, other, other-version or none.
    pub cluster: String,
}

impl From<&Status> for StatusDocument {
    fn from(status: &Status) -> StatusDocument {
        StatusDocument {
            ok: true,
            running: true,
            node: hex(status.node),
            name: status.name.as_str().to_owned(),
            namespace: status.namespace.clone(),
            job: status.job.clone(),
            open: status.open,
            port: status.port,
            state: state_code(&status.state).to_owned(),
            state_text: status.state.to_string(),
            view: status.view.as_ref().map(ViewDocument::from),
            peers: status.peers.iter().map(peer).collect(),
            interfaces: status.interfaces.iter().map(InterfaceDocument::from).collect(),
            reasons: status.reasons(),
            alone: alone(&status.state),
            duplicates: status.duplicates.iter().copied().map(hex).collect(),
            quarantined: status.quarantined.iter().map(QuarantinedDocument::from).collect(),
            topology: status.topology().as_ref().map(GraphDocument::from),
            counters: status.counters,
            gloo: potluck::gloo_version(),
        }
    }
}

impl From<&ViewStatus> for ViewDocument {
    fn from(view: &ViewStatus) -> ViewDocument {
        ViewDocument {
            id: view.id.to_string(),
            engine: view.engine.to_string(),
            engine_reason: view.engine_reason.clone(),
            plan: view.plan.clone(),
            in_sync: view.in_sync,
            committed: view.committed,
            members: view.members.iter().map(member).collect(),
        }
    }
}

impl From<&Quarantined> for QuarantinedDocument {
    fn from(quarantined: &Quarantined) -> QuarantinedDocument {
        let name = quarantined.name.as_ref().map(|name| name.as_str().to_owned());
        QuarantinedDocument {
            name,
            node: hex(quarantined.node),
            left_s: quarantined.left.as_secs(),
        }
    }
}

impl From<&InterfaceReport> for InterfaceDocument {
    fn from(report: &InterfaceReport) -> InterfaceDocument {
        let mut document = InterfaceDocument {
            interface: report.interface.clone(),
            skipped: None,
            addresses: Vec::new(),
            queries: None,
            heard: 0,
            dropped: 0,
            text: report.to_string(),
        };
        match &report.activity {
            Activity::Skipped(skip) => document.skipped = Some(skip.to_string()),
            Activity::Active { addresses, queries, adverts, dropped, .. } => {
                document.addresses = addresses.iter().map(ToString::to_string).collect();
                (document.queries, document.heard, document.dropped) =
                    (*queries, *adverts, *dropped);
            }
        }
        document
    }
}

impl From<&Neighbour> for NeighbourDocument {
    fn from(neighbour: &Neighbour) -> NeighbourDocument {
        let cluster = match neighbour.membership {
            Membership::Ours => "ours",
            Membership::OtherVersion => "other-version",
            Membership::None => "none",
            Membership::Invitation => "invitation",
            _ => "other",
        };
        let addresses = neighbour.addresses.iter().map(ToString::to_string).collect();
        NeighbourDocument { version: neighbour.version, addresses, cluster: cluster.to_owned() }
    }
}

impl StatusDocument {
    /// The status as several lines of text.
    pub fn text(&self) -> String {
        let mut text =
            format!("\"{}\" {} in namespace {}", self.name, short(&self.node), self.namespace);
        let _ = write!(text, ", job {}", self.job);
        let open = if self.open { ", open to everybody who knows that name" } else { "" };
        let _ = write!(text, "{open}, port {}\n{}", self.port, self.state_text);
        if let Some(view) = &self.view {
            let _ = write!(text, ": view {}, {} operations", view.id, view.committed);
            let _ = write!(text, "\n  engine {}: {}", view.engine, view.engine_reason);
            for member in &view.members {
                let _ = write!(
                    text,
                    "\n  {}  \"{}\" {}{}",
                    member.rank,
                    member.name,
                    short(&member.node),
                    self.way_to(member)
                );
            }
        }
        for reason in &self.reasons {
            let _ = write!(text, "\n  {reason}");
        }
        let _ = write!(text, "\n  {}", gloo_line(self.gloo.as_deref()));
        text
    }

    /// The status as one line of text.
    pub fn line(&self) -> String {
        let Some(view) = &self.view else { return self.state_text.clone() };
        let members: Vec<String> =
            view.members.iter().map(|m| format!("\"{}\" {}", m.name, short(&m.node))).collect();
        format!(
            "{}: view {} of {}: {}",
            self.state_text,
            view.id,
            view.members.len(),
            members.join(", ")
        )
    }

    fn way_to(&self, member: &MemberDocument) -> String {
        if member.node == self.node {
            return "  this node".to_owned();
        }
        let Some(peer) = self.peers.iter().find(|peer| peer.node == member.node) else {
            return String::new();
        };
        let rtt =
            peer.rtt_us.map(|us| format!("  {:.1} ms", f64::from(us) / 1e3)).unwrap_or_default();
        let through = match peer.through.len() {
            0 if peer.forwarded => "  forwarded by something on the way".to_owned(),
            0 => String::new(),
            1 => "  through another node".to_owned(),
            more => format!("  through {more} others"),
        };
        format!("  {}{rtt}{through}", peer.address)
    }
}

/// The version of Gloo in a build, as text.
pub fn gloo_line(gloo: Option<&str>) -> String {
    gloo.map_or_else(
        || "this build has no Gloo".to_owned(),
        |version| format!("this build has {version}"),
    )
}

/// All 64 hexadecimal digits of a node's key.
pub fn hex(node: NodeId) -> String {
    node.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The source of a key, in one word.
pub fn key_source(key: &StoredKey) -> &'static str {
    match key {
        StoredKey::Environment(_) => "environment",
        StoredKey::File(_) => "file",
    }
}

fn short(node: &str) -> &str {
    node.get(..8).unwrap_or(node)
}

fn member(peer: &Peer) -> MemberDocument {
    MemberDocument {
        rank: peer.rank.index(),
        name: peer.name.as_str().to_owned(),
        node: hex(peer.node),
    }
}

fn peer(peer: &potluck::report::PeerStatus) -> PeerDocument {
    let name = peer.name.as_str().to_owned();
    let through = peer.through.iter().map(|who| hex(who.node)).collect();
    PeerDocument {
        name,
        node: hex(peer.node),
        address: peer.address.to_string(),
        through,
        forwarded: peer.forwarded,
        rtt_us: peer.rtt_us,
    }
}

fn alone(state: &State) -> Vec<AloneDocument> {
    let State::Alone { interfaces } = state else { return Vec::new() };
    let code = |why| match why {
        NoLinkReason::Skipped(_) => "skipped",
        NoLinkReason::NothingHeard => "nothing-heard",
        NoLinkReason::OnlyOthers => "only-others",
        NoLinkReason::NotConnected => "no-link",
        _ => "other",
    };
    let document = |on: &InterfaceFinding| AloneDocument {
        interface: on.interface.clone(),
        sent: on.sent,
        heard: on.heard,
        why: code(on.why).to_owned(),
        text: on.why.to_string(),
    };
    interfaces.iter().map(document).collect()
}

fn state_code(state: &State) -> &'static str {
    match state {
        State::Alone { .. } => "alone",
        State::Forming => "forming",
        State::In => "in",
        State::NotEnoughPeers { .. } => "not-enough-peers",
        State::NeedsSync => "needs-sync",
        State::Full => "full",
        State::OneWay { .. } => "one-way",
        State::KeptOut { .. } => "kept-out",
        State::Duplicate => "duplicate",
        State::Closed => "closed",
        _ => "other",
    }
}
