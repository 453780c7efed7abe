//! The control plane of one node: feeds time, links and sightings to the election, and carries out
//! the effects that the election returns.
//!
//! `run` is an async function over the interfaces in [`Doors`]. [`spawn`] runs it on its own
//! operating-system thread, so a program that blocks its executor still sends heartbeats. Each turn
//! of the loop takes one input by `select!`, adds the inputs that are ready, and then drains every
//! output.
//!
//! The node consists of parts, each a struct with private fields. `control_plane.rs` lists them in
//! order: `ControlPlane` owns one of each, and gives each input to the parts that it concerns.
//! Steps that take several parts are in `control_plane/`, by kind of input.

mod access_control;
mod admission;
#[cfg(test)]
mod admitting_tests;
#[cfg(test)]
mod breach_tests;
mod clock;
mod coding_speed;
mod config;
mod control_loop;
mod control_plane;
#[cfg(test)]
mod crowd_tests;
mod data_link;
mod data_path;
mod data_paths;
mod deadlines;
#[cfg(test)]
mod disputed_tests;
mod doors;
#[cfg(test)]
mod ends_tests;
mod event;
mod handshakes;
mod installed;
mod ipv4_path;
mod kept_paths;
#[cfg(any(test, potluck_mutants))]
mod lies;
mod link_priority;
mod look_back;
mod looking_back;
mod name_lookups;
mod network;
#[cfg(test)]
mod news_tests;
mod notices;
#[cfg(test)]
mod observing_tests;
mod open_session;
mod own_thread;
mod peers;
mod planner;
mod proposals;
#[cfg(test)]
mod proposals_tests;
mod published;
mod rates;
mod reader;
mod redials;
mod relays;
#[cfg(test)]
mod renewal_tests;
mod renewals;
mod reporter;
#[cfg(test)]
mod row_tests;
mod send_queue;
mod status_link;
mod status_links;
mod status_socket;
#[cfg(test)]
mod testing;
mod told;
#[cfg(test)]
mod trust_tests;
mod unanswered;
#[cfg(test)]
mod unanswered_tests;
mod view_sender;

pub use access_control::GRACE;
pub use admission::{Admission, Admissions, Settled};
pub use config::NodeConfig;
pub use control_loop::{Command, Handles, no_port, spawn};
#[cfg(test)]
pub use control_loop::{channels, run};
pub use doors::{Doors, Tools};
#[cfg(test)]
pub(crate) use lies::Liar;
#[cfg(any(test, potluck_mutants))]
pub(crate) use lies::lie_by_seed;
pub use looking_back::FaultsOf;
pub use own_thread::own_thread;
pub use renewals::RENEW_AFTER;
pub use reporter::{engine_reason, peer_at};
#[cfg(test)]
pub(crate) use send_queue::{full_by_chance, overruns};
#[cfg(any(fuzzing, test))]
pub use status_link::{Said, StatusReader};
pub use status_socket::StatusSocket;
