//! Layer: Words.
//!
//! What an envelope asks of the control plane.

use crate::view::OpId;
use std::time::Duration;

/// What an envelope asks of the control plane.
///
/// The channel has no bound of its own. Each open operation asks for a few things, and their number
/// is bounded: 64 that this member has called, and for each other member 256 that it has not.
#[derive(Debug)]
pub enum Outgoing {
    /// Give this operation up when the time has passed.
    Deadline(OpId, Duration),
    /// This member has asked all others for their votes on this operation: it has given it up, or
    /// its deadline has passed. They answer at once, unless they withhold their votes.
    VotesWanted(OpId),
    #[cfg_attr(
        not(feature = "gloo"),
        allow(dead_code, reason = "the native engine needs no rendezvous")
    )]
    /// Set this key on every other member's board.
    Post {
        /// At most [`Post::KEY_BYTES_MAX`](super::Post) bytes.
        key: String,
        /// At most [`Post::VALUE_BYTES_MAX`](super::Post) bytes.
        value: Vec<u8>,
    },
    /// The engine itself failed an operation here, not a peer and not the caller.
    EngineFailed,
}
