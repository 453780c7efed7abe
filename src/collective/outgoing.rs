//! Requests of a session to the control plane.

use crate::protocol::OpId;
use std::time::Duration;

/// A request of a session to the control plane.
///
/// The channel is unbounded, but its load is limited. Each open operation makes a few requests, and
/// at most 64 operations of this member and 256 of each other member are open.
#[derive(Debug)]
pub enum Outgoing {
    /// Abort this operation after the given time.
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
        /// At most [`Post::KEY_BYTES_MAX`](crate::protocol::Post) bytes.
        key: String,
        /// At most [`Post::VALUE_BYTES_MAX`](crate::protocol::Post) bytes.
        value: Vec<u8>,
    },
    /// The View must be replaced by one of the same members, see `Ledger::must_end`.
    MustEnd,
    /// The engine itself failed an operation here; neither a peer nor the caller is at fault.
    EngineFailed,
}
