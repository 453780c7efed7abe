//! Tests of the engine's promises, with all ranks in one process.

mod failure;
mod group;
mod pair;
mod result;
mod scarce;
