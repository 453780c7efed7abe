//! What belongs to one process, and is dead in its forks.

use potluck_foreign::Failure;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process has come out of a fork.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Python calls it in the child of a fork.
#[pyfunction(name = "_forked")]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// A value of the process that made it. A fork of it has none of the threads that the value needs,
/// so there it is neither used nor dropped.
pub struct OfProcess<T> {
    value: Option<T>,
    forks: u64,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> OfProcess<T> {
        OfProcess { value: Some(value), forks: FORKS.load(Ordering::SeqCst) }
    }

    /// The value.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a fork.
    pub fn get(&self) -> Result<&T, Failure> {
        let value = self.value.as_ref().filter(|_| self.is_here());
        value.ok_or(Failure::Forked)
    }

    fn is_here(&self) -> bool {
        self.forks == FORKS.load(Ordering::SeqCst)
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
