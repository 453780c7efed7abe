//! Layer: Shells.
//!
//! The Gloo engine: Gloo's collectives over potluck's own data links, and all of the project's C++.
//!
//! # Semantics
//! Gloo chooses what is sent when, and calls back for everything else: its transport interface
//! leads to [`p2p`](crate::collective::p2p), its store to the View's
//! [`Board`](crate::collective::Board), its reduce function to the
//! [`fold`](crate::collective::fold()) that all engines share. Results are those of
//! [`reference`](crate::collective::reference()) in Gloo's order of folding, bit for bit.
//!
//! # Order
//! Messages carry the operation they belong to, so operations neither meet nor wait for each other.
//! One begins at once, and until every member has started it alike ([`Turnout`](turnout::Turnout))
//! it is waited for without end.
//!
//! # Failure
//! An operation fails alone: its waits throw, Gloo unwinds, and the context goes on, because
//! new-style collectives keep no state in it. What peers still send for the operation is dropped.
//! Only a context that could not be connected fails all.
//!
//! # Threads
//! One for each operation that is under way, `potluck-gloo`, kept for the next one until the View
//! ends, and up to three more while a large buffer travels encoded; the first of them makes the
//! context. Beside them are the two threads of each data link, which C++ does not see.

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
mod noticeboard;
#[cfg(feature = "gloo")]
mod overlay;
#[cfg(feature = "gloo")]
mod pair;
mod tally;
mod task;
#[cfg(all(test, feature = "gloo"))]
mod tests;
mod turnout;
#[cfg(feature = "gloo")]
mod wire;

#[cfg(feature = "gloo")]
pub use backend::GlooEngine;
#[cfg(feature = "gloo")]
pub use context::version;
#[cfg(feature = "gloo")]
pub use pair::GlooOrNative;
