//! Memory of a caller, and the rule when threads may access it. All unsafe code for messages is in
//! this file and in `register.rs`, where its callers make their promise.
//!
//! Access needs a [`Hold`]; no code keeps the pointer. After [`Memory::close`] no hold exists or
//! can be made.

#![allow(
    unsafe_code,
    reason = "messages go straight from and into the memory of a caller that cannot hand it over \
              by value"
)]

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A range of a caller's memory.
pub struct Memory {
    start: *mut u8,
    len: usize,
    gate: Mutex<Gate>,
    free: Condvar,
}

#[derive(Default)]
struct Gate {
    holds: usize,
    closed: bool,
}

/// The right to access a [`Memory`], which stays valid until this is dropped.
pub struct Hold(Arc<Memory>);

// SAFETY: only a `Hold` follows the pointer. The creator of the memory promised that any thread may
// do so (`Memory::new`). The gate orders all holds before the end of that promise.
unsafe impl Send for Memory {}
// SAFETY: as above; the other shared fields are behind a lock.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    /// As for [`Endpoint::region`](super::endpoint::Endpoint::region), until
    /// [`close`](Memory::close) has returned.
    pub(super) unsafe fn new(start: *mut u8, len: usize) -> Memory {
        Memory { start, len, gate: Mutex::default(), free: Condvar::new() }
    }

    /// Whether these bytes are inside. An empty range always is.
    pub fn contains(&self, offset: usize, len: usize) -> bool {
        len == 0 || offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The right to access the memory; `None` if it is closed.
    pub fn hold(self: &Arc<Memory>) -> Option<Hold> {
        let mut gate = self.gate();
        if gate.closed {
            return None;
        }
        gate.holds += 1;
        Some(Hold(Arc::clone(self)))
    }

    /// Refuses new holds and waits until all are dropped. Deadlocks if the calling thread has one.
    pub fn close(&self) {
        let mut gate = self.gate();
        gate.closed = true;
        while gate.holds > 0 {
            gate = self.free.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// The bytes of a message being sent, or the received part of a message; empty if the range is
    /// outside this memory.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        if len == 0 || !self.0.contains(offset, len) {
            return &[];
        }
        // SAFETY: inside the memory, which is valid while this hold lives: `close` waits for it. By
        // the contract of `Endpoint::region` no one writes to a message being sent. In a message
        // being received no one writes to the received part, and the thread that reads it here is
        // the one that writes the next frame.
        unsafe { std::slice::from_raw_parts(self.0.start.add(offset), len) }
    }

    /// Writes a piece of a message being received. Does nothing if the range is outside this
    /// memory.
    pub fn write(&self, offset: usize, piece: &[u8]) {
        if piece.is_empty() || !self.0.contains(offset, piece.len()) {
            return;
        }
        // SAFETY: inside the memory, which is valid while this hold lives. `piece` is borrowed, so
        // it does not overlap. By the contract of `Endpoint::region` no one else accesses a message
        // being received.
        unsafe {
            std::ptr::copy_nonoverlapping(piece.as_ptr(), self.0.start.add(offset), piece.len());
        }
    }
}

impl Hold {
    /// Lets `read` write a piece of a message being received straight to its place.
    ///
    /// # Errors
    /// The errors of `read`; the contents of the range are unspecified then. `InvalidInput` if the
    /// piece is empty or outside this memory.
    pub fn fill(
        &self,
        offset: usize,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if len == 0 || !self.0.contains(offset, len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: inside the memory, which is valid and initialised while this hold lives. By the
        // contract of `Endpoint::region` no one else accesses a message being received, so `read`
        // has it alone.
        read(unsafe { std::slice::from_raw_parts_mut(self.0.start.add(offset), len) })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut gate = self.0.gate();
        gate.holds -= 1;
        let last = gate.closed && gate.holds == 0;
        drop(gate);
        if last {
            self.0.free.notify_all();
        }
    }
}
