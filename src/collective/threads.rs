//! Counts an engine's threads.

use crate::os::{AtomicUsize, Condvar, Mutex, lock, thread};
use std::sync::Arc;
#[cfg(any(test, fuzzing))]
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
#[cfg(any(test, fuzzing))]
use std::time::Duration;

/// The number of running threads.
#[derive(Debug, Default)]
pub struct Threads {
    running: Mutex<usize>,
    changed: Condvar,
    panics: AtomicUsize,
    /// If not 0: the size of a new thread's stack.
    #[cfg(test)]
    stack_bytes: AtomicUsize,
}

impl Threads {
    /// Runs `body` on a new thread. Returns false if the system cannot start one: then `body` is
    /// dropped without a call.
    pub fn spawn(self: &Arc<Threads>, name: String, body: impl FnOnce() + Send + 'static) -> bool {
        *lock(&self.running) += 1;
        let counted = Counted(Arc::clone(self));
        let thread = thread::Builder::new().name(name);
        #[cfg(test)]
        let thread = match self.stack_bytes.load(Ordering::Relaxed) {
            0 => thread,
            bytes => thread.stack_size(bytes),
        };
        // A failure drops the closure, and with it the count and everything that `body` owns.
        let started = thread.spawn(move || {
            body();
            drop(counted);
        });
        started.is_ok()
    }

    /// Gives the next threads a stack of this size. One that no machine has room for makes their
    /// start fail.
    #[cfg(all(test, feature = "gloo"))]
    pub fn set_stack_bytes(&self, bytes: usize) {
        self.stack_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The number of threads running now.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        *lock(&self.running)
    }

    /// The number of threads that ended in a panic; anything but 0 is a bug, here or in a call's
    /// `done`.
    #[cfg(any(test, fuzzing))]
    pub fn panics(&self) -> usize {
        self.panics.load(Ordering::Acquire)
    }

    /// Waits until all threads have ended; returns the number of those still running after
    /// `timeout`.
    #[cfg(any(test, fuzzing))]
    pub fn wait(&self, timeout: Duration) -> usize {
        let running = lock(&self.running);
        *self
            .changed
            .wait_timeout_while(running, timeout, |n| *n > 0)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

struct Counted(Arc<Threads>);

impl Drop for Counted {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.panics.fetch_add(1, Ordering::AcqRel);
        }
        *lock(&self.0.running) -= 1;
        self.0.changed.notify_all();
    }
}
