//! Layer: Shells.
//!
//! What the engine promises, tried with all ranks in one process.

mod failure;
mod group;
mod pair;
mod result;
