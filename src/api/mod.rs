//! The API of programs: clusters, contexts, calls, gradients, keys and invitations.
//!
//! A [`Config`] or [`Builder`] says how to join, a [`Cluster`] is the membership, a [`Context`] the
//! calls of one View. Each call is a future around one `PendingOp`, which asks the session of its
//! View.

mod admissions;
pub mod blocking;
mod calls;
mod cluster;
mod config;
mod context;
mod elastic;
mod environment;
mod gradients;
mod invitation;
mod joining;
mod keys;
mod local_nodes;
mod machine_faults;
mod machine_interfaces;
mod newest_context;
mod observer;
mod scan;
mod shared_state;
mod size_settings;
mod start;

pub use calls::{
    AllGather, AllGatherUneven, AllReduce, AllReduceOwned, AllToAll, AllToAllUneven, Barrier,
    Broadcast, Codec, Commit, Gather, OwnedError, RankParts, Receiving, ReceivingAny, Reduce,
    ReduceScatter, Scatter, Sending, StateSync, StateSyncWith, Step, StepReduction, Undecodable,
    WeightedMean,
};
pub use cluster::{Cluster, EventStream, StatusStream};
pub use config::{Admission, Builder, Config, EngineOffer, Network};
pub use context::Context;
pub use gradients::{GradientStep, GradientSync};
pub use invitation::{Invitation, InvitationEvent};
pub use joining::{KeyBefore, OtherKey, Paired, join_by_code};
pub use keys::{Keys, MachineIdentity, StoredKey};
pub use local_nodes::local_nodes;
pub use machine_faults::machine_faults;
pub use observer::Observer;
pub use scan::scan;
pub use shared_state::SharedState;
pub use start::gloo_version;
#[cfg(test)]
pub(crate) use start::{NodeRole, open};
