//! Layer: Shells.
//!
//! Memory of a caller, and when threads may touch it. All that is unsafe about messages is in this
//! file.
//!
//! Nobody keeps a pointer: who wants to touch the memory takes a [`Hold`], and after
//! [`Memory::close`] there is none and will be none.

#![allow(
    unsafe_code,
    reason = "messages go straight from and into the memory of a caller that cannot hand it over by value"
)]

use super::endpoint::Endpoint;
use super::region::{Landed, Region};
use crate::view::OpId;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A stretch of a caller's memory.
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

/// The right to touch a [`Memory`]; it stays valid until this is dropped.
pub struct Hold(Arc<Memory>);

// SAFETY: the pointer is only followed by a `Hold`. Whoever made the memory promised that any
// thread may do so (`Memory::new`), and the gate orders the holds before the end of that promise.
unsafe impl Send for Memory {}
// SAFETY: as above; what is shared beside the pointer is behind a lock.
unsafe impl Sync for Memory {}

impl Endpoint {
    /// Memory for messages of `op`; `landed` gets what has come of each message that is received
    /// into it.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid for reads and writes, from any thread, until the [`Region`] is
    /// dropped. While a message is being received into a part of it, nobody else touches that part,
    /// and while one is being sent nobody writes there. That includes other messages: no two
    /// overlap unless both are being sent.
    pub unsafe fn region(
        &self,
        op: OpId,
        ptr: *mut u8,
        len: usize,
        landed: Option<Landed>,
    ) -> Region {
        // SAFETY: the caller promises what `new` asks for until the Region is dropped, and that
        // closes the memory.
        let memory = unsafe { Memory::new(ptr, len) };
        Region::new(self.core(), op, memory, landed)
    }
}

impl Memory {
    /// # Safety
    /// As for [`Endpoint::region`], until [`close`](Memory::close) has returned.
    unsafe fn new(start: *mut u8, len: usize) -> Memory {
        Memory { start, len, gate: Mutex::default(), free: Condvar::new() }
    }

    /// Whether these bytes are in it. No bytes are, wherever they begin.
    pub fn contains(&self, offset: usize, len: usize) -> bool {
        len == 0 || offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The right to touch it, or `None` when it is closed.
    pub fn hold(self: &Arc<Memory>) -> Option<Hold> {
        let mut gate = self.gate();
        if gate.closed {
            return None;
        }
        gate.holds += 1;
        Some(Hold(Arc::clone(self)))
    }

    /// Gives no more holds and waits until all are dropped. Not to be called by a thread that has
    /// one.
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
    /// The bytes of a message that is being sent, or of one that is being received those that are
    /// here; none when they are not in this memory.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        if len == 0 || !self.0.contains(offset, len) {
            return &[];
        }
        // SAFETY: inside of the memory, which is valid while this hold lives: `close` waits for it.
        // Nobody writes to a message while it is sent, says the contract of `Endpoint::region`; of
        // one that is received nobody writes to what is here, and the next frame is written by the
        // thread that looks at this one.
        unsafe { std::slice::from_raw_parts(self.0.start.add(offset), len) }
    }

    /// Writes a piece of a message that is being received. Does nothing when it is not in this
    /// memory.
    pub fn write(&self, offset: usize, piece: &[u8]) {
        if piece.is_empty() || !self.0.contains(offset, piece.len()) {
            return;
        }
        // SAFETY: inside of the memory, which is valid while this hold lives. `piece` is borrowed,
        // so it is elsewhere, and nobody else touches a message that is being received, says the
        // contract of `Endpoint::region`.
        unsafe {
            std::ptr::copy_nonoverlapping(piece.as_ptr(), self.0.start.add(offset), piece.len())
        }
    }
}

/// A region that owns its memory. For tests, which promise themselves not to let messages overlap.
#[cfg(any(test, fuzzing))]
pub struct Owned {
    // Dropped before the bytes.
    region: Region,
    bytes: Vec<u8>,
}

#[cfg(any(test, fuzzing))]
impl Owned {
    /// A region of `op` over these bytes.
    pub fn new(end: &Endpoint, op: OpId, mut bytes: Vec<u8>, landed: Option<Landed>) -> Owned {
        // SAFETY: the bytes stay where they are, untouched and alive, until the region is dropped:
        // nobody gets at either by itself before `take`.
        let region = unsafe { end.region(op, bytes.as_mut_ptr(), bytes.len(), landed) };
        Owned { region, bytes }
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The bytes, when nobody else touches them any more.
    pub fn take(self) -> Vec<u8> {
        drop(self.region);
        self.bytes
    }
}

impl Hold {
    /// Has a piece of a message that is being received written by `read`, straight to its place.
    ///
    /// # Errors
    /// Those of `read`; the memory means nothing then. `InvalidInput` when the piece is not in this
    /// memory.
    pub fn fill(
        &self,
        offset: usize,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if len == 0 || !self.0.contains(offset, len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: inside of the memory, which is valid and initialised while this hold lives.
        // Nobody else touches a message that is being received, says the contract of
        // `Endpoint::region`, so for `read` it is its own.
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
