//! Layer: Shells.

mod failure;
mod group;
mod messages;
mod peer;
