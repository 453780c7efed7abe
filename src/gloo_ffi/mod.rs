//! The Gloo engine: Gloo's collectives over potluck's own data links. It contains all of the
//! project's C++.
//!
//! # Semantics
//! Gloo decides which message is sent when; everything else calls back into Rust. Its transport
//! interface leads to [`p2p`], its store to the View's
//! [`Board`](crate::collective::Board), its reduce function to the
//! [`fold`](crate::collective::fold()) that all engines share. Where parts are exchanged, as in a
//! small all-reduce and in a reduce-scatter, they are added in Rust by the same code. Results are
//! bit for bit those of [`reference_sum`](crate::plan::reference_sum) in Gloo's order of folding.
//!
//! # Order
//! Messages name their operation, so operations neither mix nor wait for each other. An operation
//! begins at once. Its waits have no timeout until every member has started it with the same call
//! ([`Started`](started::Started)).
//!
//! # Failure
//! An operation fails alone: its waits throw, Gloo unwinds, and the context stays usable, because
//! Gloo's newer collectives keep no state in it. Later messages of peers for the operation are
//! dropped. Only a context that could not connect fails all operations.
//!
//! # Threads
//! Each running operation has one thread, `potluck-gloo`, which the next operation reuses until the
//! View ends. Up to six more of a View, `potluck-rail`, help operations that send a large buffer
//! encoded. The first thread makes the context. Each data link has three further threads, which C++
//! does not see: a sender of each engine, and one receiver.

#[cfg(feature = "gloo")]
mod backend;
#[cfg(feature = "gloo")]
mod bridge;
#[cfg(feature = "gloo")]
mod collective;
#[cfg(feature = "gloo")]
mod context;
#[cfg(feature = "gloo")]
mod encoded;
#[cfg(feature = "gloo")]
mod exception;
#[cfg(feature = "gloo")]
mod folding;
#[cfg(feature = "gloo")]
mod message_layer;
#[cfg(feature = "gloo")]
mod noticeboard;
#[cfg(feature = "gloo")]
mod overlay;
#[cfg(any(feature = "gloo", test, fuzzing))]
mod p2p;
#[cfg(feature = "gloo")]
mod pair;
#[cfg(feature = "gloo")]
mod rails;
#[cfg(any(feature = "gloo", test))]
mod result_digest;
#[cfg(feature = "gloo")]
mod shared_link;
#[cfg(any(feature = "gloo", test))]
mod started;
#[cfg(any(feature = "gloo", test))]
mod task;
#[cfg(all(test, feature = "gloo"))]
mod tests;

#[cfg(feature = "gloo")]
pub use backend::GlooEngine;
#[cfg(feature = "gloo")]
pub use context::version;
#[cfg(any(test, fuzzing))]
pub use p2p::{EAGER_OP_BYTES, Endpoint, Owned, PIECE, SLOTS_MAX};
#[cfg(feature = "gloo")]
pub use pair::GlooOrNative;
