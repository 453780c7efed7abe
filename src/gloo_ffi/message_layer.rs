//! The callbacks of Gloo's transport: memory that is sent from and received into, over the message
//! layer.
//!
//! Gloo calls them inside the methods of [`Context`](super::context::Context), on the thread of the
//! operation.

use super::exception::Thrown;
use super::overlay::{Overlay, Source};
use super::p2p::{Endpoint, Landed, Region};
use crate::protocol::{EngineFault, OpId, Rank};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a wait during which no message of the operation makes progress at this rank.
///
/// The loss of a member ends waits much earlier, and the lateness of a program does not count: the
/// time starts when all ranks have begun (see [`Endpoint::hurry`]). Other operations that precede
/// this one on the same slow link remain as a cause.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The message layer, for C++ to hold.
pub struct MessageLayer(pub Endpoint);

thread_local! {
    /// The operation that this thread runs.
    static NOW: RefCell<Option<Now>> = const { RefCell::new(None) };
}

struct Now {
    op: OpId,
    output: Option<Output>,
    /// The last fault that the message layer returned.
    fault: Option<EngineFault>,
}

/// A buffer whose received bytes are reported.
#[derive(Clone)]
pub struct Output {
    /// Its start; only compared.
    pub start: *const u8,
    /// The callback for received bytes.
    pub landed: Landed,
    /// Its original contents, if they are in another buffer.
    pub overlay: Option<Arc<Overlay>>,
}

/// Memory that Gloo registered for messages. Dropping it waits until no thread uses it.
pub struct Memory {
    region: Region,
    beneath: Option<Beneath>,
}

/// The original contents of memory with an overlay. Messages of bytes that are not written yet are
/// sent from here.
struct Beneath {
    /// Declared before the overlay, so that it is dropped before the memory that it refers to.
    region: Region,
    overlay: Arc<Overlay>,
    /// Messages sent from here and not yet waited for.
    sent: Cell<usize>,
}

/// Runs `act`, whose messages belong to `op`; also returns the last fault of its messages.
pub fn during<T>(
    op: OpId,
    output: Option<Output>,
    act: impl FnOnce() -> T,
) -> (T, Option<EngineFault>) {
    /// Forgets the operation when it ends, also if it panics.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            NOW.set(None);
        }
    }
    NOW.set(Some(Now { op, output, fault: None }));
    let _forget = Forget;
    let result = act();
    (result, NOW.take().and_then(|now| now.fault))
}

fn noted<T>(result: Result<T, EngineFault>) -> Result<T, Thrown> {
    result.map_err(|fault| {
        NOW.with_borrow_mut(|now| now.iter_mut().for_each(|now| now.fault = Some(fault)));
        Thrown::Links(fault)
    })
}

impl MessageLayer {
    /// Registers memory with the message layer.
    ///
    /// # Safety
    /// `len` bytes from `ptr` on are valid for reads and writes until the memory is dropped, and
    /// only the requested messages use them.
    #[allow(unsafe_code, reason = "Gloo hands in raw memory")]
    pub unsafe fn memory(&self, ptr: *mut u8, len: usize) -> Result<Box<Memory>, Thrown> {
        guarded(|| {
            let now = NOW.with_borrow(|now| now.as_ref().map(|now| (now.op, now.output.clone())));
            let (op, output) = now.ok_or(Thrown::Misuse)?;
            let output = output.filter(|output| std::ptr::eq(output.start, ptr));
            let (landed, overlay) =
                output.map_or((None, None), |output| (Some(output.landed), output.overlay));
            let beneath = overlay.map(|overlay| {
                let original = overlay.original();
                // SAFETY: the original does not change while the overlay exists, which `Beneath`
                // holds and drops after the region. Nothing is received into this region, so it is
                // only read.
                let region = unsafe {
                    self.0.region(op, original.as_ptr().cast_mut(), original.len(), None)
                };
                Beneath { region, overlay: Arc::clone(&overlay), sent: Cell::new(0) }
            });
            // The memory of a barrier is null and empty.
            let ptr = NonNull::new(ptr).unwrap_or(NonNull::dangling());
            // SAFETY: the caller keeps the conditions of `region`, and dangling memory is empty.
            let region = unsafe { self.0.region(op, ptr.as_ptr(), len, landed) };
            Ok(Box::new(Memory { region, beneath }))
        })
    }
}

impl Memory {
    /// Starts to send `len` bytes from `offset` on.
    pub fn send(&self, to: i32, slot: u64, offset: usize, len: usize) -> Result<(), Thrown> {
        guarded(|| {
            let to = rank(to)?;
            let Some(beneath) = &self.beneath else {
                return noted(self.region.send(to, slot, offset, len));
            };
            match beneath.overlay.source(&(offset..offset.saturating_add(len))) {
                Source::Buffer => noted(self.region.send(to, slot, offset, len)),
                Source::Original => {
                    noted(beneath.region.send(to, slot, offset, len))?;
                    beneath.sent.set(beneath.sent.get() + 1);
                    Ok(())
                }
                // No algorithm of Gloo sends a range that is partly written.
                Source::Both => Err(Thrown::Misuse),
            }
        })
    }

    /// Starts to receive `len` bytes to `offset`.
    pub fn recv(&self, from: i32, slot: u64, offset: usize, len: usize) -> Result<(), Thrown> {
        guarded(|| noted(self.region.recv(rank(from)?, slot, offset, len)))
    }

    /// Waits until the links have taken a message; returns its destination.
    pub fn wait_send(&self, timeout_ms: i64) -> Result<i32, Thrown> {
        guarded(|| {
            // Gloo does not use which message was sent; those from `beneath` were sent first.
            let beneath = self.beneath.as_ref().filter(|beneath| beneath.sent.get() > 0);
            let region = beneath.map_or(&self.region, |beneath| {
                beneath.sent.set(beneath.sent.get() - 1);
                &beneath.region
            });
            self.waited(region.wait_send(patience(timeout_ms)))
        })
    }

    /// Waits until a message has arrived; returns its source.
    pub fn wait_recv(&self, timeout_ms: i64) -> Result<i32, Thrown> {
        guarded(|| self.waited(self.region.wait_recv(patience(timeout_ms))))
    }

    /// Ends a wait for a sent message, of another thread.
    pub fn abort_send(&self) -> Result<(), Thrown> {
        guarded(|| {
            self.region.abort_send();
            Ok(())
        })
    }

    /// Ends a wait for a received message, of another thread.
    pub fn abort_recv(&self) -> Result<(), Thrown> {
        guarded(|| {
            self.region.abort_recv();
            Ok(())
        })
    }

    /// Turns an aborted wait into an error too: Gloo's collectives would take it for a success.
    fn waited(&self, peer: Result<Option<Rank>, EngineFault>) -> Result<i32, Thrown> {
        let aborted = Thrown::Links(EngineFault::Cancelled);
        noted(peer)?.map(|peer| i32::from(peer.0)).ok_or(aborted)
    }
}

/// The address that a rank puts on the board for each other one. No rank dials it; it only proves
/// that the ranks agree.
pub fn address_of(rank: i32) -> [u8; 8] {
    let mut bytes = *b"\0\0\0\0ptlk";
    bytes[..4].copy_from_slice(&rank.to_le_bytes());
    bytes
}

/// Checks that `bytes` are the address of `rank`.
pub fn check_address(rank: i32, bytes: &[u8]) -> Result<(), Thrown> {
    if bytes == address_of(rank) { Ok(()) } else { Err(Thrown::Address(rank)) }
}

/// Runs a callback. A panic becomes an error, because it must not reach C++.
pub fn guarded<T>(callback: impl FnOnce() -> Result<T, Thrown>) -> Result<T, Thrown> {
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(Err(Thrown::Panic))
}

/// Converts a timeout of Gloo's. Gloo uses 0 with different meanings; here 0 and negative values
/// mean [`PATIENCE`].
pub fn patience(timeout_ms: i64) -> Duration {
    match u64::try_from(timeout_ms) {
        Ok(0) | Err(_) => PATIENCE,
        Ok(timeout_ms) => Duration::from_millis(timeout_ms),
    }
}

fn rank(rank: i32) -> Result<Rank, Thrown> {
    u8::try_from(rank).map(Rank).map_err(|_| Thrown::Misuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    #[test]
    fn a_panic_leaves_no_operation_behind() {
        let op = OpId { lane: Lane::MAIN, number: 7 };
        let run = || during::<()>(op, None, || panic!("a fault"));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert!(NOW.take().is_none());
        let (result, fault) = during(op, None, || noted::<()>(Err(EngineFault::Unfit)).is_err());
        assert_eq!((result, fault), (true, Some(EngineFault::Unfit)));
        assert!(NOW.take().is_none());
    }
}
