//! The futures of a [`Context`](super::context::Context)'s calls, one type per kind, each around
//! one [`PendingOp`].
//!
//! A future accesses the caller's buffer only while it is polled: it reads it once, in the first
//! poll or, for an uneven call and a sync, when all members have called, and writes it once after
//! the commit. A step reads each buffer when the call is made.

mod all_reduce;
mod bundle;
mod choices;
mod codec;
mod copies;
mod error_feedback;
#[cfg(test)]
mod feedback_tests;
mod message;
mod owned;
mod parts;
mod pending_op;
mod polling;
mod rank_parts;
mod receiving_any;
mod reduce;
#[cfg(test)]
mod scarce_tests;
mod step;
mod sync;
mod sync_op;
mod sync_with;
mod uneven;
mod weighted_mean;

pub use all_reduce::AllReduce;
pub(crate) use bundle::{Bundle, Weight};
pub use codec::{Codec, Undecodable};
pub(crate) use copies::AllGatherOwned;
pub use copies::{AllGather, Barrier, Broadcast};
pub use message::{Receiving, Sending};
pub use owned::{AllReduceOwned, OwnedError};
pub(crate) use parts::wrong_parts;
pub use parts::{AllToAll, Gather, Scatter};
pub(crate) use pending_op::PendingOp;
pub use rank_parts::RankParts;
pub(crate) use receiving_any::AnyOp;
pub use receiving_any::ReceivingAny;
pub use reduce::{Reduce, ReduceScatter};
pub use step::{Commit, Step, StepReduction};
pub use sync::StateSync;
pub use sync_with::StateSyncWith;
pub use uneven::{AllGatherUneven, AllToAllUneven};
pub(crate) use uneven::{UnevenOp, wrong_lengths};
pub use weighted_mean::WeightedMean;
