//! Threads of the code in which threads meet: those of `std`, or those of a schedule checker, as
//! in [`locks`](super::locks).

#[cfg(all(test, potluck_threads))]
pub(crate) use shuttle::thread::{Builder, ThreadId, current, panicking, sleep};
#[cfg(not(all(test, potluck_threads)))]
pub(crate) use std::thread::{Builder, ThreadId, current, panicking, sleep};
