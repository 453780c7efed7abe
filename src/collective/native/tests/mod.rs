//! The engine's guarantees, tested with all ranks in one process.

mod coded;
mod door;
mod failure;
mod memory;
mod parts;
mod plain;
mod scarce;
#[cfg(potluck_threads)]
mod schedules;

crate::collective::suite::engine_suite!(door::DOOR);
