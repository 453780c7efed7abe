//! Layer: Words.
//!
//! How an envelope speaks to the other members.

use crate::collective::OpMessage;

/// How an envelope speaks to the other members.
pub trait Mouth: Send + Sync {
    /// Queues a message for all others of its audience, behind what was told before. Called under
    /// the envelope's lock, so that the order is that of the ledger; it waits for nobody.
    fn tell(&self, message: OpMessage);

    /// Has what is queued leave. Called under no lock, by any thread; it waits for no peer.
    fn flush(&self);
}
