//! Discrete-event simulation in virtual time. Elections and ledgers are real; the network delays,
//! loses and partitions, disks are slow or fail, nodes die. Every installation and outcome is
//! checked against the claims of the protocol.
//!
//! Time jumps from one event to the next. A script (`tests/scripts`) or a random schedule
//! ([`disturb`]) drives a world; equal seeds give equal runs.

mod book;
mod calls;
mod disks;
mod disturb;
mod hang_tests;
mod hangs;
mod histories;
mod lives;
mod network;
mod world;

#[cfg(test)]
pub(crate) use world::World;
