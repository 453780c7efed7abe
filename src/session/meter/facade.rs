//! The node's counters for the recorder that the program has installed for the crate `metrics`.

use crate::identity::NodeId;
use crate::protocol::EngineKind;
use crate::report::EdgeMetrics;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use std::collections::BTreeMap;
use std::time::Duration;

/// Registers the descriptions of all metrics with the program's recorder, which must be installed
/// before the node joins.
pub fn describe() {
    describe_counter!(
        "potluck_operations_begun_total",
        "Operations begun by this process, by kind and engine"
    );
    describe_counter!(
        "potluck_operations_total",
        "Operations decided in this process, by kind, outcome and engine"
    );
    describe_counter!(
        "potluck_operation_bytes_total",
        Unit::Bytes,
        "Bytes of the buffers of committed operations, by kind and engine"
    );
    describe_histogram!(
        "potluck_operation_duration_seconds",
        Unit::Seconds,
        "From the first poll of an operation to its decision, by kind, outcome and engine"
    );
    describe_counter!("potluck_edge_sent_bytes_total", Unit::Bytes, "Bulk data sent to a peer");
    describe_counter!(
        "potluck_edge_received_bytes_total",
        Unit::Bytes,
        "Bulk data received from a peer"
    );
    describe_counter!(
        "potluck_links_total",
        "Control links that came up with a peer where there was none"
    );
}

pub fn begun(kind: &'static str, engine: EngineKind) {
    counter!("potluck_operations_begun_total", "kind" => kind, "engine" => name(engine))
        .increment(1);
}

pub fn ended(
    kind: &'static str,
    engine: EngineKind,
    bytes: u64,
    outcome: &'static str,
    duration: Duration,
) {
    let engine = name(engine);
    counter!("potluck_operations_total", "kind" => kind, "outcome" => outcome, "engine" => engine)
        .increment(1);
    histogram!(
        "potluck_operation_duration_seconds",
        "kind" => kind, "outcome" => outcome, "engine" => engine
    )
    .record(duration.as_secs_f64());
    if outcome == "committed" {
        counter!("potluck_operation_bytes_total", "kind" => kind, "engine" => engine)
            .increment(bytes);
    }
}

/// The values already reported for each edge. Several nodes of one process add to the same
/// counters, so only differences are reported.
#[derive(Default)]
pub struct Published {
    edges: BTreeMap<NodeId, (u64, u64, u64)>,
}

impl Published {
    pub fn tell(&mut self, edges: &[EdgeMetrics]) {
        for edge in edges {
            let now = (edge.sent_bytes, edge.received_bytes, edge.links);
            let before = self.edges.insert(edge.node, now).unwrap_or_default();
            if now == before {
                continue;
            }
            let peer = edge.node.to_string();
            counter!("potluck_edge_sent_bytes_total", "peer" => peer.clone())
                .increment(now.0.saturating_sub(before.0));
            counter!("potluck_edge_received_bytes_total", "peer" => peer.clone())
                .increment(now.1.saturating_sub(before.1));
            counter!("potluck_links_total", "peer" => peer)
                .increment(now.2.saturating_sub(before.2));
        }
    }
}

fn name(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Native => "native",
        EngineKind::Gloo => "gloo",
    }
}
