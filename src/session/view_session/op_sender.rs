//! The session's outgoing message queue to the other members.

use crate::protocol::OpMessage;

/// The outgoing message queue of a session to the other members.
pub trait OpSender: Send + Sync {
    /// Queues a message for all other members of its audience, behind earlier ones. Called under
    /// the session's lock, so messages leave in the ledger's order; it must not block.
    fn tell(&self, message: OpMessage);

    /// Starts sending the queued messages. Called without a lock, from any thread; it must not wait
    /// for a peer.
    fn flush(&self);
}
