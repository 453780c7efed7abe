//! Layer: Face.
#![allow(missing_docs, dead_code, unused_imports)] // until the public face stands

mod cluster;
mod collective;
mod compression;
mod config;
mod context;
mod discovery;
mod driver;
mod election;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod link;
mod start;
mod status;
mod topology;
mod view;
mod wire;

// The public interface is:
pub use cluster::{Cluster, StatusStream};
pub use collective::{Call, Element, EngineFault, ReduceOp, reference as reference_sum};
pub use config::{Admission, Builder, Config, Network};
pub use context::{AllGather, AllReduce, AllReduceOwned, Barrier, Broadcast, Codec, Context, Owned, Sync};
pub use discovery::InterfaceReport;
pub use error::{Cause, ConfigProblem, Error, Peer, Result};
pub use identity::{ClusterKey, IdentityProblem, KeyTextError, Name, NodeId};
pub use status::{Counters, PeerStatus, State, Status, ViewStatus, Waiting};
pub use topology::{FoldOrder, FoldSegment, FoldTree};
pub use view::{EngineKind, OpId, Rank};
