//! Counters of a node's operations and links.

use crate::identity::{Name, NodeId};
use std::time::Duration;

/// Counters since this node joined, over all its Views and lanes. See
/// [`Cluster::metrics`](crate::Cluster::metrics).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// One entry per kind of operation that was begun here.
    pub operations: Vec<OperationMetrics>,
    /// One entry per other node that was linked or in a View with this one, at most 1024 (the first
    /// ones). Nodes are identified by their keys, so a restarted node keeps its entry.
    pub edges: Vec<EdgeMetrics>,
}

/// Counters of one kind of operation, as seen by this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// The kind, named after the method, for example `all_reduce` (also for `all_reduce_owned`);
    /// `message` for a send or a recv. A step counts as one operation, which begins with its
    /// commit.
    pub kind: &'static str,
    /// Operations that were polled and not refused. Those in none of the following four counts are
    /// in flight.
    pub begun: u64,
    /// Operations that ended with `Ok`, including those whose future was dropped.
    pub committed: u64,
    /// Operations that never took effect: aborted here, on another rank, or by a View change.
    /// Includes mismatches.
    pub aborted: u64,
    /// Operations whose outcome is unknown here: this node was cut off, lacks the result that
    /// others committed, or the members that knew the outcome have gone.
    pub indeterminate: u64,
    /// Operations whose result should be identical on all members and was not.
    pub failed: u64,
    /// Bytes of this node's buffers in committed operations: the contributions; for a scatter, the
    /// received part.
    pub bytes: u64,
    /// Time from the first poll to the decision, summed over committed operations. Includes waiting
    /// for members that have not called.
    pub duration_sum: Duration,
    /// The longest of these times.
    pub duration_max: Duration,
}

/// Counters between this node and another one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EdgeMetrics {
    /// The other node's public key.
    pub node: NodeId,
    /// Its display name.
    pub name: Name,
    /// Bulk data sent to it in bytes, without headers and encryption overhead.
    pub sent_bytes: u64,
    /// Bulk data received from it in bytes, without headers and encryption overhead.
    pub received_bytes: u64,
    /// The time in which at least one operation of this node was in flight in a View with that
    /// node. Includes waiting for members that have not called.
    pub busy: Duration,
    /// How often a control link to it came up while there was none. More than one means that the
    /// link was lost and restored, or the node was restarted.
    pub links: u64,
}

/// Bytes of bulk data, without headers and encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes handed to the links, or enclosed with a descriptor for a peer.
    pub sent_bytes: u64,
    /// Bytes received from the links, or with descriptors.
    pub received_bytes: u64,
}

impl Metrics {
    /// The counters of one kind, if it was ever begun.
    pub fn operation(&self, kind: &str) -> Option<&OperationMetrics> {
        self.operations.iter().find(|operation| operation.kind == kind)
    }
}

impl EdgeMetrics {
    pub(crate) fn new(node: NodeId, name: Name) -> EdgeMetrics {
        EdgeMetrics { node, name, sent_bytes: 0, received_bytes: 0, busy: Duration::ZERO, links: 0 }
    }

    /// Bytes sent to it per second of [`busy`](EdgeMetrics::busy) time; `None` if that is zero.
    /// This is the rate used, not the link's capacity.
    pub fn sent_rate(&self) -> Option<f64> {
        rate(self.sent_bytes, self.busy)
    }

    /// Bytes received from it per second of [`busy`](EdgeMetrics::busy) time; `None` if that is
    /// zero.
    pub fn received_rate(&self) -> Option<f64> {
        rate(self.received_bytes, self.busy)
    }
}

impl Traffic {
    pub(crate) fn and(self, other: Traffic) -> Traffic {
        Traffic {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}

fn rate(bytes: u64, busy: Duration) -> Option<f64> {
    (!busy.is_zero()).then(|| bytes as f64 / busy.as_secs_f64())
}
