//! Layer: Words.
//!
//! What a node's operations have cost, in numbers.

use crate::identity::{Name, NodeId};
use std::time::Duration;

/// What this node has done since it joined, over all its Views and lanes: see
/// [`Cluster::metrics`](crate::Cluster::metrics).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// One for each kind of operation that was ever begun here.
    pub operations: Vec<OperationMetrics>,
    /// One for each other node that was ever linked or in a View with this one, the first 1024 of
    /// them. They are told apart by their keys, so one that starts again is the same.
    pub edges: Vec<EdgeMetrics>,
}

/// The operations of one kind, as this node saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationMetrics {
    /// Which: the name of the method, for example `all_reduce`, also for `all_reduce_owned`;
    /// `message` for a send or a recv. Of a step the whole is one operation, which begins with its
    /// commit.
    pub kind: &'static str,
    /// Polled for the first time, and not refused. Those that are neither of the following are
    /// under way.
    pub begun: u64,
    /// Ended with `Ok`, also where nobody asks for the result any more.
    pub committed: u64,
    /// Never happened: given up here or elsewhere, or by a change of the View; mismatches are among
    /// them.
    pub aborted: u64,
    /// This node was cut off and cannot know.
    pub indeterminate: u64,
    /// The members held different bits of what should have been the same.
    pub failed: u64,
    /// Bytes of this node's buffers in the committed ones: of what it hands in, of a scatter of the
    /// part it gets.
    pub bytes: u64,
    /// From the first poll to the decision, all committed ones together; waiting for members that
    /// have not called is part of it.
    pub duration_sum: Duration,
    /// The longest of those.
    pub duration_max: Duration,
}

/// This node and another one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EdgeMetrics {
    /// The other one's key.
    pub node: NodeId,
    /// What it calls itself.
    pub name: Name,
    /// Bulk data sent to it, in bytes, without headers and encryption.
    pub sent_bytes: u64,
    /// Bulk data received from it.
    pub received_bytes: u64,
    /// How long operations of this node were under way in Views with it, counted once where several
    /// were. Waiting for members that have not called is part of it.
    pub busy: Duration,
    /// How often a control link with it came up where there was none. More than one: it was lost
    /// and made again, or the node was started again.
    pub links: u64,
}

impl Metrics {
    /// The operations of one kind, if there were any.
    pub fn operation(&self, kind: &str) -> Option<&OperationMetrics> {
        self.operations.iter().find(|operation| operation.kind == kind)
    }
}

impl EdgeMetrics {
    pub(crate) fn new(node: NodeId, name: Name) -> EdgeMetrics {
        EdgeMetrics { node, name, sent_bytes: 0, received_bytes: 0, busy: Duration::ZERO, links: 0 }
    }

    /// Bytes per second sent to it while operations were under way: what was used, not what the
    /// link could carry.
    pub fn sent_rate(&self) -> Option<f64> {
        rate(self.sent_bytes, self.busy)
    }

    /// The same of what was received.
    pub fn received_rate(&self) -> Option<f64> {
        rate(self.received_bytes, self.busy)
    }
}

fn rate(bytes: u64, busy: Duration) -> Option<f64> {
    (!busy.is_zero()).then(|| bytes as f64 / busy.as_secs_f64())
}
