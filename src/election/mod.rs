//! Layer: Core.
//!
//! Membership agreement: how a group agrees on the next View. The View fixes the members, their
//! rank order and the outcome of the operations that were open in the View before.
//!
//! `Agreement` holds the safety rules (ballots, promises, acceptances) and knows no time.
//! [`Election`] adds liveness: failure detection, when a change is wanted, proposer scheduling and
//! back-off. Both are pure state machines: `step(now, input) -> effects`. Time is an argument in
//! milliseconds, randomness comes from a seed.

mod agreement;
mod applicant;
mod config;
mod detector;
mod elsewhere;
mod machine;
mod message;
mod notice;
mod quarantine;
mod standing;

#[cfg(test)]
mod claims;
#[cfg(test)]
mod disputes_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod simulation;

pub use agreement::{Decides, Durable, Effect};
pub use applicant::Applicant;
pub use config::{Alone, ElectionConfig};
pub use machine::{Election, Input, Operations, PROBE};
#[cfg(test)]
pub use message::Heartbeat;
pub use message::{Message, PeerAddress};
pub use notice::Notice;
