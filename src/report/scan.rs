//! The nodes around, as a node that only listens sees them, and those of this machine.

use super::document::StatusDocument;
use crate::discovery::InterfaceReport;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of [`scan`](crate::scan).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scan {
    /// Nodes that announce themselves, at most 256, ordered by address.
    pub neighbours: Vec<Neighbour>,
    /// The queries sent and the announcements received on each interface.
    pub interfaces: Vec<InterfaceReport>,
}

/// The result of [`local_nodes`](crate::local_nodes).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LocalNodes {
    /// The status of each node, ordered by job.
    pub nodes: Vec<StatusDocument>,
    /// The sockets of nodes that gave no answer, for example because their process is stopped or
    /// of another version.
    pub silent: Vec<PathBuf>,
}

/// A node that announces itself. An announcement is not authenticated: nothing here is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbour {
    /// The protocol version that it announces.
    pub version: u8,
    /// The addresses that it announces.
    pub addresses: Vec<SocketAddr>,
    /// Its relation to this node's cluster.
    pub membership: Membership,
}

/// The relation of a neighbour to the cluster of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Membership {
    /// It is in the same cluster.
    Ours,
    /// It is in another cluster, or it is in any cluster and this node has no key.
    Other,
    /// It speaks another protocol version than this node.
    OtherVersion,
    /// It is in no cluster yet.
    None,
    /// It is an invitation to a cluster, for [`join_by_code`](crate::keys::join_by_code).
    Invitation,
}
