//! Layer: Core.
//!
//! A small world in virtual time: real elections and real ledgers, a network that delays, loses and
//! parts, disks that take their time, nodes that die. Every install and every outcome is checked
//! against the claims of the protocol.
//!
//! Nothing happens between two events, so time jumps from one to the next. A world is told what to
//! do by a story (`tests/scripts`) or by chance ([`disturb`]); the same seed is the same world.

mod book;
mod calls;
mod disks;
mod disturb;
mod lives;
mod network;
mod world;

pub(super) use world::World;
