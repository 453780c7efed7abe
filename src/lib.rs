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
mod identity;
mod keys;
mod link;
mod start;
mod status;
mod surroundings;
mod topology;
mod view;
mod wire;

// The public interface is:
pub use cluster::{Cluster, StatusStream};
#[doc(hidden)]
pub use collective::Arithmetic;
pub use collective::{Call, Element, EngineFault, ReduceOp, Traffic, reference as reference_sum};
pub use config::{Admission, Builder, Config, Network};
pub use context::{AllGather, AllReduce, AllReduceOwned, Barrier, Broadcast, Codec, Context, Owned, Sync};
pub use discovery::{Activity, InterfaceReport, Skip};
pub use error::{Cause, ConfigProblem, Error, Mismatched, Peer, Result};
pub use identity::{ClusterKey, IdentityProblem, KeyTextError, Name, NodeId};
pub use keys::{Keys, MachineIdentity, StoredKey};
pub use status::{Counters, PeerStatus, State, Status, ViewStatus, Waiting};
pub use surroundings::{Kinship, Neighbour, Surroundings, look_around};
pub use topology::{FoldOrder, FoldSegment, FoldTree};
pub use view::{EngineKind, OpId, Rank};
