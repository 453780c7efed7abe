//! Pairing: how the cluster key gets to a new machine with a short code that a person carries
//! there.
//!
//! The inviter opens a [`Window`], listens, and announces an advert of its own that has the code's
//! [`Selector`](crate::identity::Selector) and no tags, so that it shows no relation to a cluster.
//! The joiner finds it, or is told its address, and both run the `exchange` on one TCP connection.
//! The window counts the wrong codes of all peers together. A peer that asks for anything else gets
//! no byte.

mod exchange;
mod inviter;
mod message;
mod problem;
mod seeker;
mod talk;
#[cfg(test)]
mod testing;
mod window;

#[cfg(any(fuzzing, test))]
pub use exchange::{
    CONFIRMATION_BYTES, ELEMENT_BYTES, Inviter, Joiner, RECEIPT_BYTES, WELCOME_BYTES,
};
pub use inviter::{Doors, invite};
pub use message::{KeyOutcome, Receipt, Welcome};
pub use problem::PairingProblem;
pub use seeker::{Found, Hints, seek};
pub use talk::{Terms, Visit};
pub use window::{InvitationEnd, Window};
