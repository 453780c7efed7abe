//! Relayed control links, between nodes that have no direct link to each other.
//!
//! A **circuit** is a path over nodes of which each has a direct link to the next. Its two ends run
//! the ordinary handshake over it, so the nodes in between see only ciphertext: they can drop or
//! delay it, nothing else. The node that opens a circuit names all nodes of its path,
//! both ends included (source routing). A node knows only its own links. For each incoming frame it
//! passes on at most one, and returns at most one `Close`, so a circuit can neither loop nor
//! amplify.
//!
//! The [`Seeker`] decides when to try a circuit to a member, [`route()`] computes the path, the
//! [`Switch`] does a node's part in all circuits that touch it, and [`Tunnels`] are the ends of its
//! own circuits.

mod answering;
#[cfg(test)]
mod circuits_tests;
mod route;
mod seeker;
mod switch;
mod tunnel;

pub use answering::Answering;
pub use route::{route, within_reach};
pub use seeker::{Seeker, Want};
pub use switch::{Act, End, Switch};
pub use tunnel::{Said, Tunnels};
