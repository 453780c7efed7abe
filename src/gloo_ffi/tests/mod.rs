//! Tests of the engine's promises, with all ranks in one process.

mod door;
mod encoded;
mod failure;
mod pair;

crate::collective::suite::engine_suite!(door::DOOR);
