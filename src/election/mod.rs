//! Layer: Core.
//!
//! How a group agrees on a View: who is in, in which order, and what became of the operations of
//! the View before.
//!
//! `Agreement` holds the rules that keep it safe and knows no time: ballots, promises, acceptances.
//! [`Election`] wraps it with what makes it live: who is heard from, when a change is wanted, who
//! proposes it and when to try again. Both are pure: `step(now, input) -> effects`. Time is an
//! argument in milliseconds, chance is a seed.

mod agreement;
mod applicant;
mod config;
mod detector;
mod machine;
mod message;
mod notice;
mod quarantine;
mod standing;

#[cfg(test)]
mod claims;
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
pub use message::{Message, PeerAddress};
pub use notice::Notice;
