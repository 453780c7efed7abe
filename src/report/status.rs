//! A snapshot of a node and its group, for programs and people.

mod reasons;

use super::error::Peer;
use super::events::NodeInfo;
use super::unlinked::Unlinked;
use crate::discovery::{Activity, InterfaceReport, SkipReason};
use crate::identity::{Name, NodeId};
use crate::os::InterfaceKind;
use crate::protocol::{EngineKind, OpId, Rank, SizeSetting, Sizes, ViewId};
use derive_more::Display;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A snapshot of one node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// This node's public key.
    pub node: NodeId,
    /// Its display name.
    pub name: Name,
    /// The namespace it is in.
    pub namespace: String,
    /// Its job: the nodes of a namespace with the same job form a group.
    pub job: String,
    /// Whether the namespace is open: any node that knows its name is admitted.
    pub open: bool,
    /// The TCP port that it listens on.
    pub port: u16,
    /// Whether it only observes the others: then it is a member of no group.
    pub observer: bool,
    /// Its state.
    pub state: State,
    /// The sizes of the group that it asks for.
    pub sizes: Sizes,
    /// The View it is in, if any.
    pub view: Option<ViewStatus>,
    /// The nodes with which it has a control link.
    pub peers: Vec<PeerStatus>,
    /// The state of discovery on each interface.
    pub interfaces: Vec<InterfaceReport>,
    /// Nodes that are seen and addresses that are dialled without a link, each with the reason.
    pub others: Vec<Unlinked>,
    /// Nodes of this cluster that run other jobs, by job. A node asks for them while it waits for
    /// its own group.
    pub other_jobs: Vec<OtherJob>,
    /// Identities that two running processes share. Contains this node's own if it has met the
    /// other process or was informed of it. The process that is already linked keeps its place, the
    /// other one is refused.
    pub duplicates: Vec<NodeId>,
    /// Nodes that were lost three times within a minute, broke the protocol as often, or withheld a
    /// vote. They are kept out for a while if enough others are present.
    pub quarantined: Vec<Quarantined>,
    /// How long this node has been waiting for its disk to store state that it may not promise
    /// before; `None` while it is not waiting.
    pub disk_waits: Option<Duration>,
    /// A call of this node that waits for members that have not made it: the first in order of lane
    /// and number.
    pub waiting: Option<Waiting>,
    /// Counters since the start.
    pub counters: Counters,
    /// The number of the node's process.
    pub process: u32,
    /// The version of Gloo in this build; `None` without Gloo.
    pub gloo: Option<String>,
}

/// A job of this cluster that is not this node's, and the nodes that run it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherJob {
    /// Its name.
    pub job: String,
    /// The nodes that have said that they run it, ordered by name.
    pub nodes: Vec<NodeInfo>,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum State {
    /// No node is linked.
    #[display("alone")]
    Alone {
        /// The result of discovery on each interface. Empty until discovery has reported, and
        /// without discovery.
        interfaces: Vec<InterfaceFinding>,
    },
    /// Other nodes are linked, and a View is being agreed.
    #[display("forming")]
    Forming,
    /// In a View with enough members that is in sync.
    #[display("in")]
    In,
    /// The group is too small: it has not begun and is smaller than the largest `members` of its
    /// members, or it has begun and is smaller than this node's `min_members`, or this node can
    /// reach only a part of its View that may not continue.
    #[display(
        "{present} of {wanted} here; waiting for {}",
        who_is_missing(*present, *wanted, *setting)
    )]
    NotEnoughPeers {
        /// Members present.
        present: usize,
        /// Members required.
        wanted: usize,
        /// The setting that requires them.
        setting: SizeSetting,
    },
    /// In a View whose members do not hold the same state yet.
    #[display("in, not in sync")]
    NeedsSync,
    /// A group runs, and it has no place for this node. The node gets in when a member leaves.
    #[display("full: {members} members run (max_members = {max_members}); waiting for a place")]
    Full {
        /// The members of that group.
        members: usize,
        /// The smallest `max_members` of those members and this node.
        max_members: usize,
    },
    /// This node hears a peer that does not hear this node, so they cannot be in one View.
    #[display("not heard by {peer}")]
    OneWay {
        /// The peer.
        peer: NodeInfo,
    },
    /// The members of a running View keep this node out, because it was lost three times within a
    /// minute, broke the protocol as often, or withheld a vote. It joins no other View meanwhile.
    #[display("kept out by {by} for {} s", left.as_secs())]
    KeptOut {
        /// A member that keeps it out.
        by: NodeInfo,
        /// The remaining time, rounded up to seconds.
        left: Duration,
    },
    /// Another running process uses this node's identity, and this node is in no group with others.
    /// Give each process its own identity.
    #[display("duplicate identity")]
    Duplicate,
    /// This node is an observer, and others tell it their status.
    #[display("observing {}", how_many_nodes(*nodes))]
    Observing {
        /// These others, at least one.
        nodes: usize,
    },
    /// The node has left.
    #[display("closed")]
    Closed,
}

/// The result of discovery on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceFinding {
    /// The interface's name.
    pub interface: String,
    /// Queries sent there; `None` if they are not counted.
    pub sent: Option<u64>,
    /// Announcements of other nodes received there.
    pub heard: u64,
    /// Why no link has come of it.
    pub why: NoLinkReason,
}

/// Why no link has come about over an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum NoLinkReason {
    /// The interface is not used.
    #[display("not used: {_0}")]
    Skipped(SkipReason),
    /// No announcement was received there: no other node runs, or multicast is blocked.
    #[display("nobody is heard: nobody else runs there, or multicast does not get through")]
    NothingHeard,
    /// All announcements received are of other clusters, jobs or protocol versions.
    #[display("only nodes of other clusters, jobs or versions are heard")]
    OnlyOthers,
    /// The announcements of all nodes that were heard there have ended or expired.
    #[display("the nodes that were heard there are not heard any more")]
    Ended,
    /// Nodes of this cluster and job announce themselves, but there is no link with them. The
    /// reason is in [`Status::others`].
    #[display("nodes of this cluster are heard, and there is no link with them")]
    NotConnected,
}

impl InterfaceFinding {
    /// `why`: the reason if announcements of nodes are received.
    pub(crate) fn of(report: &InterfaceReport, why: NoLinkReason) -> InterfaceFinding {
        let (sent, heard, why) = match &report.activity {
            Activity::Skipped(skip) => (None, 0, NoLinkReason::Skipped(*skip)),
            Activity::Active { queries, adverts: 0, .. } => {
                (*queries, 0, NoLinkReason::NothingHeard)
            }
            Activity::Active { queries, adverts, .. } => (*queries, *adverts, why),
        };
        InterfaceFinding { interface: report.interface.clone(), sent, heard, why }
    }
}

/// A View as the status reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewStatus {
    /// Its identifier.
    pub id: ViewId,
    /// The members in rank order.
    pub members: Vec<Peer>,
    /// The sizes of the group that each member asks for, in rank order.
    pub sizes: Vec<Sizes>,
    /// The group has begun. Otherwise it waits for the largest `members` that one of them asks for.
    pub begun: bool,
    /// The engine that new calls run on.
    pub engine: EngineKind,
    /// The reason for this engine, in one sentence.
    pub engine_reason: String,
    /// The reason for the plan.
    pub plan: String,
    /// 0 for the View's first plan, larger for each plan that replaced it.
    pub plan_revision: u32,
    /// The paths between members that are known to work, ordered by sender, then receiver.
    pub paths: Vec<PathStatus>,
    /// The share of a large buffer that the plan sends between each pair, ordered by sender, then
    /// receiver. Empty for Gloo's bcube.
    pub shares: Vec<PlanShare>,
    /// Predicted durations of an `all_reduce` under the plan, from the measured paths; empty while
    /// too few are measured.
    pub forecasts: Vec<Forecast>,
    /// Whether the members share one history.
    pub in_sync: bool,
    /// Operations that this member has committed in the View.
    pub committed: u64,
}

/// One direction of the path between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStatus {
    /// The rank of the sender.
    pub from: Rank,
    /// The rank of the receiver.
    pub to: Rank,
    /// The kind of the sender's interface; `None` until the sender has reported it.
    pub kind: Option<InterfaceKind>,
    /// The number of the shared medium of this path. Paths with the same number share it: only one
    /// of their ends sends at a time, as with radio. `None` for a wire, or if unknown.
    pub medium: Option<u32>,
    /// Idle round-trip time in microseconds, as reported by the sender.
    pub rtt_us: Option<u32>,
    /// Measured payload rate in kbit/s; `None` if not measured. Rates above 8 Gbit/s are not told
    /// apart.
    pub rate_kbps: Option<u32>,
}

/// The share of a large buffer that a plan sends from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanShare {
    /// The rank of the sender.
    pub from: Rank,
    /// The rank of the receiver.
    pub to: Rank,
    /// For the reduction of a buffer of 64 MiB, in millionths of that buffer.
    pub ppm: u32,
}

/// The predicted duration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forecast {
    /// The size of the buffer in bytes.
    pub bytes: u64,
    /// The duration, without the time that members wait for each other.
    pub takes: Duration,
}

/// A linked node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStatus {
    /// Its public key.
    pub node: NodeId,
    /// Its display name.
    pub name: Name,
    /// Its address; for a relayed link, the address of the first relay.
    pub address: SocketAddr,
    /// The local address of the control link.
    pub local: Option<SocketAddr>,
    /// The local interface of the control link, if one has its local address. Data links use the
    /// same interface.
    pub interface: Option<String>,
    /// The relays of the control link, in order from this node; empty if it is direct.
    pub through: Vec<NodeInfo>,
    /// Something on the way forwards the connection, for example address translation: the address
    /// above is not known to be the member's own.
    pub forwarded: bool,
    /// Round-trip time of the control link in microseconds, once measured: the minimum of the last
    /// seconds, so it excludes queueing delay.
    pub rtt_us: Option<u32>,
}

/// A node in quarantine: it is kept out of Views for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// Its public key.
    pub node: NodeId,
    /// Its display name, if this node knows it.
    pub name: Option<Name>,
    /// The remaining time, rounded up to whole seconds.
    pub left: Duration,
    /// The reason.
    pub why: QuarantineReason,
}

/// Why a node is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum QuarantineReason {
    /// It was lost three times within a minute.
    #[display("was lost three times within a minute")]
    LostOften,
    /// It answered, but did not vote on operations that the others wanted decided.
    #[display("answered and did not vote")]
    WithheldVote,
    /// It sent messages that no correct node sends, three times within a minute.
    #[display("broke the protocol again and again")]
    BrokeProtocol,
}

/// A call of this node that other members have not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The operation.
    pub op: OpId,
    /// The members that have not called it.
    pub ranks: Vec<Peer>,
    /// How long it has been the first operation that waits.
    pub since: Duration,
}

/// Counts since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counters {
    /// Views installed.
    pub views: u64,
    /// Handshakes that ended in a link.
    pub links: u64,
    /// Connections refused because of a wrong key or a foreign protocol.
    pub strangers: u64,
    /// Connections refused because they speak another protocol version.
    pub other_versions: u64,
    /// Connections refused by the limits on unauthenticated connections: too many, too frequent,
    /// too slow, or replayed.
    pub overloads: u64,
    /// Links closed because an authenticated member broke the protocol.
    pub misbehaviours: u64,
    /// Operations committed.
    pub committed: u64,
}

impl fmt::Display for OtherJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &NodeInfo| match &node.name {
            Some(name) => name.as_str().to_owned(),
            None => node.node.to_string(),
        };
        let names: Vec<String> = self.nodes.iter().map(name).collect();
        write!(f, "job `{}` runs on {}", self.job, names.join(", "))
    }
}

fn how_many_nodes(nodes: usize) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        more => format!("{more} nodes"),
    }
}

fn who_is_missing(present: usize, wanted: usize, setting: SizeSetting) -> String {
    let missing = match wanted.saturating_sub(present) {
        1 => "one more".to_owned(),
        more => format!("{more} more"),
    };
    match setting {
        SizeSetting::Partition => format!("{missing} (the partition rule)"),
        setting => format!("{missing} ({setting} = {wanted})"),
    }
}

impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("{name} "));
        write!(f, "{name}{} {} and is kept out for {} s", self.node, self.why, self.left.as_secs())
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.ranks.iter().map(Peer::to_string).collect();
        write!(
            f,
            "operation {} has waited {:.0} s for {}",
            self.op,
            self.since.as_secs_f64(),
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_how_many_are_here_and_how_many_it_takes() {
        let state = |present, wanted, setting| {
            State::NotEnoughPeers { present, wanted, setting }.to_string()
        };
        for (said, text) in [
            (state(2, 3, SizeSetting::Members), "2 of 3 here; waiting for one more (members = 3)"),
            (
                state(1, 3, SizeSetting::MinMembers),
                "1 of 3 here; waiting for 2 more (min_members = 3)",
            ),
            (
                state(2, 3, SizeSetting::Partition),
                "2 of 3 here; waiting for one more (the partition rule)",
            ),
            (
                State::Full { members: 3, max_members: 3 }.to_string(),
                "full: 3 members run (max_members = 3); waiting for a place",
            ),
        ] {
            assert_eq!(said, text);
        }
    }
}
