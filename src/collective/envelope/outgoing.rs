//! Layer: Words.
//!
//! What an envelope asks of the control plane.

use crate::view::OpId;
use std::time::Duration;

/// What an envelope asks of the control plane.
///
/// The channel has no bound of its own: at most 64 operations are in flight at a time, and each
/// asks for a few things.
#[derive(Debug)]
pub enum Outgoing {
    /// Give this operation up when the time has passed.
    Deadline(OpId, Duration),
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
