//! Layer: Shells.
//!
//! Messages between two ranks of a View, over its data links: posted receives, eager and credited
//! sends.
//!
//! An [`Endpoint`] has one end of each link. An operation [begins](Endpoint::begin), sends from and
//! receives into its [`Region`]s, and is [retired](Endpoint::retire). Every operation has its own
//! messages, and fails alone.
//!
//! # On the wire
//! A message is a row of frames of 256 KiB, the last one shorter or not; each says how many follow.
//! An empty one is one empty frame. Frames of different flows may alternate. The first messages of
//! a flow, 64 and 32 KiB together at most, are sent at once and kept by a receiver that has not
//! asked for them yet. Each later one waits for a credit, a frame of its own, which its receiver
//! sends when it posts the receive. Both ends count alike, so nothing is negotiated; where their
//! lengths differ, the receiver finds out with the message, and the sender of one that never gets a
//! credit by patience.
//!
//! # Failure
//! An operation fails as a whole, and with it nothing else: by a message of another length than its
//! receive, by the loss of a link that it needs, or because nothing of it moves. A link that is
//! lost is needed by the operations that have something under way on it, or ask for it later; who
//! is done with a peer may see it leave. A peer that sends what no honest one does loses its link.
//!
//! # Memory
//! Large messages go straight from the sender's memory into the receiver's, small ones with one
//! copy on either side. Threads touch either only while they have a hold on it, and dropping a
//! [`Region`] waits for those.
//!
//! # Threads
//! Two for each link, named `potluck-tx-<rank>` and `potluck-rx-<rank>`. A small frame is written
//! by the thread that sends, when nobody else is writing there: a change of thread costs more than
//! the frame.

#![cfg_attr(
    not(test),
    allow(
        dead_code,
        unused_imports,
        reason = "the engine that uses it is built with the feature `gloo`"
    )
)]

mod endpoint;
mod matching;
mod memory;
mod outbox;
mod region;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use super::threads::Threads;
pub use endpoint::Endpoint;
pub use matching::SLOTS_MAX;
#[cfg(any(test, fuzzing))]
pub use memory::Owned;
pub use region::{Landed, Region};
#[cfg(fuzzing)]
pub use stream::{EAGER_OP_BYTES, PIECE};
