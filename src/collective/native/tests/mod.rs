//! The engine's guarantees, tested with all ranks in one process.

mod coded;
mod failure;
mod group;
mod memory;
mod parts;
mod plain;
mod result;
mod scarce;
#[cfg(potluck_threads)]
mod schedules;
