//! Registers memory with an endpoint.

#![allow(
    unsafe_code,
    reason = "messages go straight from and into the memory of a caller that cannot hand it over \
              by value"
)]

use super::endpoint::Endpoint;
use super::memory::Memory;
use super::region::Region;
use super::registered::Landed;
use crate::protocol::OpId;

impl Endpoint {
    /// Registers memory for messages of `op`. `landed` is called for each piece received into it.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid for reads and writes, from any thread, until the [`Region`] is
    /// dropped. No one else accesses the part into which a message is being received, or writes to
    /// the part from which one is being sent. This includes other messages: two messages may
    /// overlap only if both are being sent.
    pub unsafe fn region(
        &self,
        op: OpId,
        ptr: *mut u8,
        len: usize,
        landed: Option<Landed>,
    ) -> Region {
        // SAFETY: the caller gives the promise of `new` until the Region is dropped, which closes
        // the memory.
        let memory = unsafe { Memory::new(ptr, len) };
        Region::new(self.core(), op, memory, landed)
    }
}

/// A region that owns its memory, for tests; the tests must not let messages overlap.
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
        // SAFETY: the bytes stay in place and alive until the region is dropped, and are not
        // accessible before `take`.
        let region = unsafe { end.region(op, bytes.as_mut_ptr(), bytes.len(), landed) };
        Owned { region, bytes }
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Drops the region, which waits for all accesses, and returns the bytes.
    pub fn take(self) -> Vec<u8> {
        drop(self.region);
        self.bytes
    }
}
