//! The events of a group, as one node sees them.

use super::error::Peer;
use crate::identity::{Name, NodeId};
use crate::protocol::ViewId;
use derive_more::Display;
use std::fmt;
use std::time::Duration;

/// An event, as one node saw it. [`Status`](super::status::Status) has the current state.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum Event {
    /// A new View. The events of its members follow directly.
    #[display(
        "view {view} of {} members{}",
        members.len(),
        if *in_sync { "" } else { ", not in sync" }
    )]
    Installed {
        /// Its identifier.
        view: ViewId,
        /// Its members in rank order.
        members: Vec<Peer>,
        /// Whether the members share one history.
        in_sync: bool,
    },
    /// A node is in the new View and was not in this node's previous one.
    #[display("{_0} joined")]
    Joined(NodeInfo),
    /// These nodes were together in another View than this node's: two groups have merged.
    #[display("another group came in: {}", listed(_0))]
    Merged(Vec<NodeInfo>),
    /// A node left in an orderly way: a member of the group, or a node that an observer observes.
    #[display("{_0} left")]
    Left(NodeInfo),
    /// A member of the previous View did not say good-bye and is not in the new View.
    #[display("{peer} was lost: {why}")]
    Lost {
        /// The lost node.
        peer: NodeInfo,
        /// How the loss was detected.
        why: LossReason,
    },
    /// A node was lost three times within a minute, broke the protocol as often, or withheld its
    /// vote. It is kept out for a while if enough others are present.
    #[display("{peer} is kept out for {} s", lasts.as_secs())]
    Quarantined {
        /// The node.
        peer: NodeInfo,
        /// How long, from now on.
        lasts: Duration,
    },
    /// This machine was suspended, or this process was stopped. The node leaves its View and joins
    /// anew.
    #[display("this machine has slept, or this process was stopped; it joins anew")]
    Woke,
    /// A node was met for the first time, under [`Trust::Tofu`](crate::keys::Trust::Tofu).
    #[display("{peer} was met for the first time{}", of_namesake(*namesake))]
    FirstMet {
        /// The node.
        peer: NodeInfo,
        /// Another known node with the same name.
        namesake: Option<NodeId>,
    },
    /// Two running processes use this identity. The one that is already linked keeps its place.
    #[display("two processes use the identity of {_0}; give each its own")]
    Duplicate(NodeInfo),
    /// This node hears a peer that does not hear this node.
    #[display("{_0} is heard and does not hear this node")]
    OneWay(NodeInfo),
    /// The links with a peer moved to another local interface, or to another interface of the peer.
    #[display("the links with {peer} take another path, by {interface}")]
    PathChanged {
        /// The peer.
        peer: NodeInfo,
        /// The local interface's name in the operating system; empty if unknown.
        interface: String,
    },
    /// This many events were lost because they were not read in time. Read the status.
    #[display("{_0} events were not taken in time")]
    Lagged(u64),
}

/// A node, independent of restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its public key.
    pub node: NodeId,
    /// Its display name, if this node knows it.
    pub name: Option<Name>,
}

/// How a loss was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display)]
#[non_exhaustive]
pub enum LossReason {
    /// Its connection ended and could not be restored: usually its process has ended.
    #[display("its connection ended")]
    Closed,
    /// It was silent for too long.
    #[display("nothing was heard of it")]
    Silent,
    /// It may be running, but not every continuing member reaches it.
    #[display("not everybody reaches it")]
    Unreached,
    /// It answers, but does not vote on operations that the others want decided.
    #[display("it is there and does not vote")]
    Withheld,
    /// It sent messages that no correct member sends, three times within a minute.
    #[display("it broke the protocol again and again")]
    BrokeProtocol,
}

impl fmt::Display for NodeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} {}", self.node),
            None => self.node.fmt(f),
        }
    }
}

fn of_namesake(namesake: Option<NodeId>) -> String {
    let of = |other| format!("; another node, {other}, has had that name");
    namesake.map(of).unwrap_or_default()
}

fn listed(nodes: &[NodeInfo]) -> String {
    nodes.iter().map(NodeInfo::to_string).collect::<Vec<_>>().join(", ")
}
