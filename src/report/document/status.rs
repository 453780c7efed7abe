//! The status of one node, as JSON.

use super::super::error::Peer;
use super::super::status::{
    Counters, InterfaceFinding, NoLinkReason, OtherJob, PeerStatus, Quarantined, State, Status,
    ViewStatus,
};
use super::super::unlinked::Unlinked;
use super::graph::GraphDocument;
use super::hex;
use crate::discovery::{Activity, InterfaceReport};
use crate::identity::NodeId;
use crate::protocol::Sizes;
use serde::{Deserialize, Serialize};

/// The status of one node, see [`Status`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StatusDocument {
    /// Always true, as in the other results of the command.
    pub ok: bool,
    /// Whether a node runs: always true in this document.
    pub running: bool,
    /// The 64 hexadecimal digits of its public key.
    pub node: String,
    /// Its display name.
    pub name: String,
    /// The number of its process.
    pub process: u32,
    /// Its namespace.
    pub namespace: String,
    /// Its job. The nodes of a namespace with the same job form a group.
    pub job: String,
    /// Whether the namespace is open: it admits every node that knows its name.
    pub open: bool,
    /// The TCP port that it listens on.
    pub port: u16,
    /// Whether it only observes the others: then it is a member of no group.
    #[serde(default)]
    pub observer: bool,
    /// alone, forming, in, not-enough-peers, needs-sync, full, one-way, kept-out, duplicate,
    /// observing or closed.
    pub state: String,
    /// The state as text.
    pub state_text: String,
    /// The sizes of the group that this node asks for.
    #[serde(default)]
    pub sizes: Option<SizesDocument>,
    /// The View it is in; null without one.
    pub view: Option<ViewDocument>,
    /// Nodes with a control link.
    pub peers: Vec<PeerDocument>,
    /// The state of discovery on each interface.
    pub interfaces: Vec<InterfaceDocument>,
    /// Why members are missing or calls wait, one sentence each.
    pub reasons: Vec<String>,
    /// Nodes of this cluster that run other jobs, by job.
    pub other_jobs: Vec<OtherJobDocument>,
    /// The result of discovery on each interface, while the state is `alone`.
    #[serde(default)]
    pub alone: Vec<AloneDocument>,
    /// Identities that two running processes share.
    #[serde(default)]
    pub duplicates: Vec<String>,
    /// Nodes that are seen, and addresses that are dialled, without a link.
    #[serde(default)]
    pub unlinked: Vec<UnlinkedDocument>,
    /// Nodes in quarantine: they were lost repeatedly, withheld a vote or broke the protocol.
    #[serde(default)]
    pub quarantined: Vec<QuarantinedDocument>,
    /// The View as a graph of members and links; null while there is no View.
    #[serde(default)]
    pub topology: Option<GraphDocument>,
    /// The newest documents of the other nodes of the cluster, if this node is an observer: by job,
    /// name, key.
    #[serde(default)]
    pub observed: Vec<StatusDocument>,
    /// Counters since the start.
    pub counters: Counters,
    /// The version of Gloo in this build; null without Gloo.
    pub gloo: Option<String>,
}

/// A View, see [`ViewStatus`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ViewDocument {
    /// Its identifier.
    pub id: String,
    /// The engine that new calls run on: native or gloo.
    pub engine: String,
    /// The reason for this engine.
    pub engine_reason: String,
    /// The reason for the plan.
    pub plan: String,
    /// Whether the members share one history.
    pub in_sync: bool,
    /// The group has begun; otherwise it waits for more members.
    #[serde(default)]
    pub begun: bool,
    /// Operations that this member has committed in the View.
    pub committed: u64,
    /// In rank order.
    pub members: Vec<MemberDocument>,
}

/// A node that is seen, or an address that is dialled, without a link, see [`Unlinked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnlinkedDocument {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// other-cluster, other-version, other-network, not-reached, ended, no-address,
    /// no-answer, no-answer-where-it-was, not-admitted, silent or refused.
    pub why: String,
    /// The same as a sentence.
    pub text: String,
}

/// A member of a View.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberDocument {
    /// Its rank.
    pub rank: usize,
    /// Its display name.
    pub name: String,
    /// Its public key.
    pub node: String,
    /// The sizes of the group that this member asks for.
    #[serde(default)]
    pub sizes: Option<SizesDocument>,
}

/// How many members a node wants its group to have, see [`Sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SizesDocument {
    /// The group begins with so many.
    pub members: usize,
    /// It goes on with at least so many.
    pub min_members: usize,
    /// It has at most so many.
    pub max_members: usize,
}

/// A node, and its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeDocument {
    /// Its display name; null if it is not known.
    pub name: Option<String>,
    /// Its public key.
    pub node: String,
}

/// Another job of this cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OtherJobDocument {
    /// Its name.
    pub job: String,
    /// The nodes that run it.
    pub nodes: Vec<NodeDocument>,
}

/// A node with a control link, see [`PeerStatus`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerDocument {
    /// Its display name.
    pub name: String,
    /// Its public key.
    pub node: String,
    /// Its address; for a relayed link, the address of the first relay.
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

/// Why no link has come about over an interface, see [`InterfaceFinding`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AloneDocument {
    /// The name of the interface.
    pub interface: String,
    /// Queries sent there; null if they are not counted.
    pub sent: Option<u64>,
    /// Announcements of other nodes received there.
    pub heard: u64,
    /// skipped, nothing-heard, only-others, ended or no-link.
    pub why: String,
    /// The same as text.
    pub text: String,
}

/// A node in quarantine, see [`Quarantined`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuarantinedDocument {
    /// Its display name; null if it is not known.
    pub name: Option<String>,
    /// Its public key.
    pub node: String,
    /// The remaining time in seconds.
    pub left_s: u64,
}

/// The state of discovery on an interface, see [`InterfaceReport`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterfaceDocument {
    /// The name of the interface.
    pub interface: String,
    /// Why the interface is not used; null if it is used.
    pub skipped: Option<String>,
    /// This node's addresses announced there.
    pub addresses: Vec<String>,
    /// Queries sent there; null if the interface is not used or they are not counted.
    pub queries: Option<u64>,
    /// Announcements of other nodes received there.
    pub heard: u64,
    /// Unreadable announcements and failures of discovery, on all interfaces together.
    pub dropped: u64,
    /// The whole report as text.
    pub text: String,
}

impl StatusDocument {
    /// The document of an observer that has heard these documents. A node that is no observer has
    /// heard none.
    pub(crate) fn of_observer(status: &Status, observed: &[StatusDocument]) -> StatusDocument {
        StatusDocument { observed: observed.to_vec(), ..StatusDocument::from(status) }
    }

    /// Whether the node has left.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == state_code(&State::Closed)
    }

    /// Whether it is of this node.
    pub(crate) fn is_of(&self, node: NodeId) -> bool {
        self.node == hex(node)
    }
}

impl From<&Status> for StatusDocument {
    fn from(status: &Status) -> StatusDocument {
        StatusDocument {
            ok: true,
            running: true,
            node: hex(status.node),
            name: status.name.as_str().to_owned(),
            process: status.process,
            namespace: status.namespace.clone(),
            job: status.job.clone(),
            open: status.open,
            port: status.port,
            observer: status.observer,
            state: state_code(&status.state).to_owned(),
            state_text: status.state.to_string(),
            sizes: Some(status.sizes.into()),
            view: status.view.as_ref().map(ViewDocument::from),
            peers: status.peers.iter().map(peer).collect(),
            interfaces: status.interfaces.iter().map(InterfaceDocument::from).collect(),
            reasons: status.reasons(),
            other_jobs: status.other_jobs.iter().map(OtherJobDocument::from).collect(),
            alone: alone(&status.state),
            duplicates: status.duplicates.iter().copied().map(hex).collect(),
            unlinked: status.others.iter().map(UnlinkedDocument::from).collect(),
            quarantined: status.quarantined.iter().map(QuarantinedDocument::from).collect(),
            topology: status.topology().as_ref().map(GraphDocument::from),
            observed: Vec::new(),
            counters: status.counters,
            gloo: status.gloo.clone(),
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
            begun: view.begun,
            committed: view.committed,
            members: view.members.iter().zip(&view.sizes).map(member).collect(),
        }
    }
}

impl From<Sizes> for SizesDocument {
    fn from(sizes: Sizes) -> SizesDocument {
        SizesDocument {
            members: sizes.members(),
            min_members: sizes.min_members(),
            max_members: sizes.max_members(),
        }
    }
}

impl From<&OtherJob> for OtherJobDocument {
    fn from(other: &OtherJob) -> OtherJobDocument {
        let nodes = other.nodes.iter().map(|known| NodeDocument {
            name: known.name.as_ref().map(|name| name.as_str().to_owned()),
            node: hex(known.node),
        });
        OtherJobDocument { job: other.job.clone(), nodes: nodes.collect() }
    }
}

impl From<&Unlinked> for UnlinkedDocument {
    fn from(unlinked: &Unlinked) -> UnlinkedDocument {
        UnlinkedDocument {
            addresses: unlinked.addresses.iter().map(ToString::to_string).collect(),
            why: unlinked.why.code().to_owned(),
            text: unlinked.to_string(),
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
                document.addresses = addresses.iter().map(|at| at.ip.to_string()).collect();
                (document.queries, document.heard, document.dropped) =
                    (*queries, *adverts, *dropped);
            }
        }
        document
    }
}

fn member((peer, sizes): (&Peer, &Sizes)) -> MemberDocument {
    MemberDocument {
        rank: peer.rank.index(),
        name: peer.name.as_str().to_owned(),
        node: hex(peer.node),
        sizes: Some((*sizes).into()),
    }
}

fn peer(peer: &PeerStatus) -> PeerDocument {
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
        NoLinkReason::Ended => "ended",
        NoLinkReason::NotConnected => "no-link",
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
        State::Full { .. } => "full",
        State::OneWay { .. } => "one-way",
        State::KeptOut { .. } => "kept-out",
        State::Duplicate => "duplicate",
        State::Observing { .. } => "observing",
        State::Closed => "closed",
    }
}
