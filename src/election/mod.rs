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
#[cfg(test)]
mod disputes_tests;
mod elsewhere;
mod left_out;
mod machine;
mod notice;
mod quarantine;
mod recovery;
mod selection;

#[cfg(test)]
pub(crate) use agreement::Agreement;
#[cfg(test)]
pub(crate) use agreement::Environment;
#[cfg(test)]
pub(crate) use agreement::Event;
pub use agreement::{Decides, Durable, Effect};
pub use applicant::Applicant;
pub use config::{Alone, ElectionConfig};
#[cfg(test)]
pub(crate) use elsewhere::{Report, joins_one, to_join};
pub use left_out::LeftOut;
pub use machine::{Election, Input, Operations, PROBE};
pub use notice::Notice;
