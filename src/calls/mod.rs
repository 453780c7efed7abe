//! Layer: Face.
//!
//! The calls of a [`Context`](crate::Context) under way: one future each, around one [`Flight`].
//!
//! A future reads and writes the caller's buffer only while it is polled: filled once, written
//! once, at the commit.

mod account;
mod all_reduce;
mod bundle;
mod choices;
mod codec;
mod copies;
#[cfg(test)]
mod feedback_tests;
mod flight;
mod message;
mod owned;
mod parts;
mod reduce;
mod step;
mod sync;

pub use all_reduce::AllReduce;
pub use codec::{Codec, Undecodable};
pub use copies::{AllGather, Barrier, Broadcast};
pub use message::{Receiving, Sending};
pub use owned::{AllReduceOwned, Owned};
pub use parts::{AllToAll, Gather, Scatter};
pub use reduce::{Reduce, ReduceScatter};
pub use step::{Commit, Step, StepReduction};
pub use sync::Sync;

pub(crate) use bundle::Bundle;
pub(crate) use copies::AllGatherOwned;
pub(crate) use flight::{Flight, elements};
