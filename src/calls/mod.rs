//! Layer: Face.
//!
//! The calls of a [`Context`](crate::Context) under way: one future each, around one [`Flight`].
//!
//! A future reads and writes the caller's buffer only while it is polled: filled once, written once, at the commit.

mod all_reduce;
mod choices;
mod codec;
mod copies;
mod flight;
mod owned;
mod parts;
mod reduce;
mod sync;

pub use all_reduce::AllReduce;
pub use codec::Codec;
pub use copies::{AllGather, Barrier, Broadcast};
pub use owned::{AllReduceOwned, Owned};
pub use parts::{AllToAll, Gather, Scatter};
pub use reduce::{Reduce, ReduceScatter};
pub use sync::Sync;

pub(crate) use flight::{Flight, elements};
