//! The control plane of one node: feeds time, links and sightings to the election, and carries out
//! the effects that the election returns.
//!
//! `run` is an async function over the interfaces in [`Doors`]. [`spawn`] runs it on its own
//! operating-system thread, so a program that blocks its executor still sends heartbeats. Each turn
//! of the loop takes one input by `select!`, adds the inputs that are ready, and then drains every
//! output.

mod admission;
#[cfg(test)]
mod admitting_tests;
#[cfg(test)]
mod breach_tests;
mod claim;
mod coding_speed;
mod control_loop;
mod control_plane;
#[cfg(test)]
mod crowd_tests;
mod data_link;
mod deadlines;
#[cfg(test)]
mod disputed_tests;
#[cfg(test)]
mod ends_tests;
mod event;
#[cfg(any(test, potluck_defects))]
mod lies;
mod lighter;
#[cfg(test)]
mod news_tests;
mod open_session;
mod peers;
mod proposals;
#[cfg(test)]
mod proposals_tests;
mod reader;
#[cfg(test)]
mod renewal_tests;
#[cfg(test)]
mod row_tests;
mod speaker;
#[cfg(test)]
mod testing;
mod told;
#[cfg(test)]
mod trust_tests;
mod unanswered;
#[cfg(test)]
mod unanswered_tests;
mod voice;

pub use admission::{Admission, Admissions, Settled};
pub use control_loop::{Command, Handles, spawn};
#[cfg(test)]
pub use control_loop::{channels, run};
pub use control_plane::{Doors, GRACE, NodeConfig, RENEW_AFTER, engine_reason, peer_at};
#[cfg(test)]
pub(crate) use lies::Liar;
#[cfg(any(test, potluck_defects))]
pub(crate) use lies::lie_by_seed;
#[cfg(test)]
pub(crate) use voice::{full_by_chance, overruns};
