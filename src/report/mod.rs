//! What a node reports to its program: errors, events, status, metrics, plans and graphs.

mod error;
mod events;
mod graph;
mod metrics;
mod plan;
mod status;

pub use error::{Cause, ConfigProblem, Error, Mismatched, Peer, Result};
pub use events::{Event, Loss, Who};
pub use graph::{LinkDirection, LinkPath, Topology, TopologyLink};
pub use metrics::{EdgeMetrics, Metrics, OperationMetrics};
pub use plan::{Plan, SizeClass, Way, WeightedTree};
pub use status::{
    AloneBecause, AloneOn, Counters, Forecast, KeptOut, PathStatus, PeerStatus, PlanShare,
    Quarantined, State, Status, ViewStatus, Waiting,
};
