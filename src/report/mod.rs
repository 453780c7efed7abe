//! The reports of a node: the parts of [`Status`] and [`Event`], the group as a graph, counters,
//! and the machines around.
//!
//! The main types, [`Error`](enum@Error), [`Status`] and [`Event`], are at the root of the crate.

pub mod document;
pub(crate) mod error;
pub(crate) mod events;
mod graph;
mod looked_back;
mod machine_faults;
mod metrics;
pub(crate) mod plan;
mod scan;
pub(crate) mod status;
mod unlinked;

pub use crate::discovery::{Activity, InterfaceReport, SkipReason};
pub use crate::identity::Name;
pub use crate::os::{InterfaceAddress, InterfaceKind, TakenRoute};
pub use crate::protocol::{
    Ballot, RosterProblem, SizeSetting, Sizes, SizesProblem, ViewDigest, ViewId,
};
pub use error::ConfigProblem;
pub use events::{LossReason, NodeInfo};
pub use graph::{LinkDirection, LinkPath, Topology, TopologyLink};
pub use looked_back::{DialBack, LookedBack, Sight};
pub use machine_faults::MachineFaults;
pub use metrics::{EdgeMetrics, Metrics, OperationMetrics, Traffic};
pub use scan::{LocalNodes, Membership, Neighbour, Scan};
pub use status::{
    Counters, Forecast, InterfaceFinding, NoLinkReason, OtherJob, PathStatus, PeerStatus,
    PlanShare, QuarantineReason, Quarantined, State, ViewStatus, Waiting,
};
pub use unlinked::{Unlinked, UnlinkedReason};

// At the root of the crate, or in its modules `calls` and `plan`:
pub(crate) use error::{Cause, Error, Mismatched, Peer, Result};
pub(crate) use events::Event;
pub(crate) use plan::ViewPlan;
pub(crate) use status::Status;
pub(crate) use unlinked::without_answer;
