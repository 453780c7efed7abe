//! Messages between two ranks of a View over its data links: posted receives, eager sends, and
//! sends that wait for credit.
//!
//! An [`Endpoint`] has one end of each link. An operation [begins](Endpoint::begin), sends from and
//! receives into its [`Region`]s, and is [retired](Endpoint::retire). Messages of different
//! operations never mix, and each operation fails alone.
//!
//! # On the wire
//! A message is a sequence of frames of 256 KiB; the last one may be shorter. Each frame states how
//! many follow. An empty message is one empty frame. Frames of different flows may alternate. The
//! first messages of a flow are sent at once (eager) and kept by a receiver that has not posted
//! their receives yet: at most 64 messages and 32 KiB, or 8 messages and 4 KiB for a call of a
//! step. Each later message waits for a credit, a frame that its receiver sends when it posts the
//! receive. Both ends count in the same way, so nothing is negotiated. If their lengths differ, the
//! receiver learns it from the message; the sender of a message that never gets a credit times out.
//!
//! # Failure
//! An operation fails as a whole, and nothing fails with it. The causes are a message whose length
//! differs from its receive, the loss of a link that it needs, and a stall. The loss of a link
//! fails the operations that have unfinished messages on it, or use it later. A rank that is done
//! with a peer tolerates its departure. A peer that breaks the protocol loses its link.
//!
//! # Memory
//! Large messages go straight from the sender's memory into the receiver's. A small message is
//! received into a block and copied from there. Threads access the memory only under a `Hold`, and
//! dropping a [`Region`] waits until all holds are dropped.
//!
//! # Threads
//! Each link has two threads, `potluck-tx-<rank>` and `potluck-rx-<rank>`. The sending thread
//! itself writes a small frame if no other thread is writing to the link: a change of thread costs
//! more than the frame.

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
mod register;
mod registered;
mod state;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "gloo", test, fuzzing))]
pub use endpoint::Endpoint;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub use matching::SLOTS_MAX;
#[cfg(feature = "gloo")]
pub use region::Region;
#[cfg(any(test, fuzzing))]
pub use register::Owned;
#[cfg(feature = "gloo")]
pub use registered::Landed;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub use stream::{EAGER_OP_BYTES, PIECE};
