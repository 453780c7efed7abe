//! Values that a fork of the process must leave alone.

use super::failure::Failure;
use std::process;

/// A value of the process that made it.
///
/// A fork of a process has its memory and none of its threads: a lock that one of them held stays
/// locked, and their work is never completed. So a fork gets an error in place of the value, and
/// never drops it.
#[derive(Clone, Debug)]
pub struct ProcessLocal<T> {
    process: u32,
    /// `None` only after [`ProcessLocal::take`].
    value: Option<T>,
}

impl<T> ProcessLocal<T> {
    /// A value of this process.
    pub fn new(value: T) -> ProcessLocal<T> {
        ProcessLocal { process: process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a fork of the process that made it.
    pub fn get(&self) -> Result<&T, Failure> {
        self.value.as_ref().filter(|_| self.is_of_this_process()).ok_or(Failure::Forked)
    }

    /// The value itself.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a fork of the process that made it.
    pub fn take(mut self) -> Result<T, Failure> {
        if !self.is_of_this_process() {
            return Err(Failure::Forked);
        }
        self.value.take().ok_or(Failure::Forked)
    }

    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}
