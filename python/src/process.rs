//! The thread of this process that polls its calls.

use super::error::OrRaise;
use potluck_foreign::{Executor, ProcessLocal};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The thread of this process.
///
/// # Errors
/// Forked in a fork of a process that has it; and the machine's, if it has no place for one more
/// thread.
pub fn executor(py: Python<'_>) -> PyResult<Executor> {
    // Only used by threads that have the interpreter, as a thread that forks has: so the lock is
    // free in every fork.
    static EXECUTOR: Mutex<Option<ProcessLocal<Executor>>> = Mutex::new(None);
    let mut kept = EXECUTOR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Ok(executor)) = kept.as_ref().map(ProcessLocal::get) {
        return Ok(executor.clone());
    }
    let started = Executor::start();
    if let Ok(executor) = &started {
        *kept = Some(ProcessLocal::new(executor.clone()));
    }
    // To raise an error runs Python, which may let a thread run that waits for the lock.
    drop(kept);
    started.or_raise(py)
}
