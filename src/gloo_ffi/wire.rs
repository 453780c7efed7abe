//! Layer: Shells.
//!
//! What Gloo's transport calls: memory that messages go out of and come into, through the message
//! layer.
//!
//! All of it is called from inside one of [`Context`](super::context::Context)'s methods, on the
//! thread of its operation.

use super::exception::Thrown;
use super::overlay::{Overlay, Source};
use crate::collective::EngineFault;
use crate::collective::p2p::{Endpoint, Landed, Region};
use crate::view::{OpId, Rank};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Longest time in which nothing of an operation moves here.
///
/// A member that is gone ends waits much earlier, and a late program's time does not count: it
/// starts when all have begun (see [`Endpoint::hurry`]). What is left are other operations that go
/// before it over the same slow link.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A way into the message layer, for C++ to hold.
pub struct Wire(pub Endpoint);

thread_local! {
    /// The operation that this thread carries out.
    static NOW: RefCell<Option<Now>> = const { RefCell::new(None) };
}

struct Now {
    op: OpId,
    output: Option<Output>,
    /// What the message layer reported last.
    fault: Option<EngineFault>,
}

/// A buffer of which somebody wants to hear what has arrived.
#[derive(Clone)]
pub struct Output {
    /// Where it begins; only compared.
    pub start: *const u8,
    /// Who wants to hear.
    pub landed: Landed,
    /// What it began as, if that is elsewhere.
    pub overlay: Option<Arc<Overlay>>,
}

/// Memory that Gloo has made known. Dropping it waits until no thread touches it.
pub struct Memory {
    region: Region,
    beneath: Option<Beneath>,
}

/// What memory began as. Messages of what is not written yet go from here.
struct Beneath {
    /// Before what it lies in.
    region: Region,
    overlay: Arc<Overlay>,
    /// Messages sent from here for which nobody has waited.
    sent: Cell<usize>,
}

/// Runs `act`, whose messages belong to `op`; gives also why they failed, if they did.
pub fn during<T>(
    op: OpId,
    output: Option<Output>,
    act: impl FnOnce() -> T,
) -> (T, Option<EngineFault>) {
    NOW.set(Some(Now { op, output, fault: None }));
    let result = act();
    (result, NOW.take().and_then(|now| now.fault))
}

fn noted<T>(result: Result<T, EngineFault>) -> Result<T, Thrown> {
    result.map_err(|fault| {
        NOW.with_borrow_mut(|now| now.iter_mut().for_each(|now| now.fault = Some(fault)));
        Thrown::Links(fault)
    })
}

impl Wire {
    /// Makes memory known to the message layer.
    ///
    /// # Safety
    /// `len` bytes from `ptr` on are valid for reads and writes, and used by nobody but the
    /// messages that are asked for, until the memory is dropped.
    #[allow(unsafe_code)]
    pub unsafe fn memory(&self, ptr: *mut u8, len: usize) -> Result<Box<Memory>, Thrown> {
        guarded(|| {
            let now = NOW.with_borrow(|now| now.as_ref().map(|now| (now.op, now.output.clone())));
            let (op, output) = now.ok_or(Thrown::Misuse)?;
            let output = output.filter(|output| std::ptr::eq(output.start, ptr));
            let (landed, overlay) =
                output.map_or((None, None), |output| (Some(output.landed), output.overlay));
            let beneath = overlay.map(|overlay| {
                let original = overlay.original();
                // SAFETY: it stays as it is as long as the overlay, which the memory holds and lets
                // go after the region. Nothing is received into it, so that it is read only.
                let region = unsafe {
                    self.0.region(op, original.as_ptr().cast_mut(), original.len(), None)
                };
                Beneath { region, overlay: Arc::clone(&overlay), sent: Cell::new(0) }
            });
            // A barrier's memory is nowhere, and empty.
            let ptr = NonNull::new(ptr).unwrap_or(NonNull::dangling());
            // SAFETY: what the caller promises is what is asked for, and dangling memory is empty.
            let region = unsafe { self.0.region(op, ptr.as_ptr(), len, landed) };
            Ok(Box::new(Memory { region, beneath }))
        })
    }
}

impl Memory {
    /// Sends `len` bytes from `offset` on; does not wait.
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
                // No algorithm of Gloo's sends what it has written in part.
                Source::Both => Err(Thrown::Misuse),
            }
        })
    }

    /// Receives `len` bytes to `offset`; does not wait.
    pub fn recv(&self, from: i32, slot: u64, offset: usize, len: usize) -> Result<(), Thrown> {
        guarded(|| noted(self.region.recv(rank(from)?, slot, offset, len)))
    }

    /// Waits until one message has left; gives its receiver.
    pub fn wait_send(&self, timeout_ms: i64) -> Result<i32, Thrown> {
        guarded(|| {
            // Which of them has left nobody asks; those from beneath were the first.
            let beneath = self.beneath.as_ref().filter(|beneath| beneath.sent.get() > 0);
            let region = beneath.map_or(&self.region, |beneath| {
                beneath.sent.set(beneath.sent.get() - 1);
                &beneath.region
            });
            self.waited(region.wait_send(patience(timeout_ms)))
        })
    }

    /// Waits until one message is here; gives its sender.
    pub fn wait_recv(&self, timeout_ms: i64) -> Result<i32, Thrown> {
        guarded(|| self.waited(self.region.wait_recv(patience(timeout_ms))))
    }

    /// Ends a wait of another thread.
    pub fn abort_send(&self) -> Result<(), Thrown> {
        guarded(|| {
            self.region.abort_send();
            Ok(())
        })
    }

    /// Ends a wait of another thread.
    pub fn abort_recv(&self) -> Result<(), Thrown> {
        guarded(|| {
            self.region.abort_recv();
            Ok(())
        })
    }

    /// An aborted wait is an error too: Gloo's collectives would take it for a success.
    fn waited(&self, peer: Result<Option<Rank>, EngineFault>) -> Result<i32, Thrown> {
        let aborted = Thrown::Links(EngineFault::Cancelled);
        noted(peer)?.map(|peer| i32::from(peer.0)).ok_or(aborted)
    }
}

/// What a member puts on the board for each other one. Nobody is dialled by it; it only shows that
/// the ranks agree.
pub fn address_of(rank: i32) -> [u8; 8] {
    let mut bytes = *b"\0\0\0\0ptlk";
    bytes[..4].copy_from_slice(&rank.to_le_bytes());
    bytes
}

/// Whether `bytes` are the address of `rank`.
pub fn check_address(rank: i32, bytes: &[u8]) -> Result<(), Thrown> {
    if bytes == address_of(rank) { Ok(()) } else { Err(Thrown::Address(rank)) }
}

/// Runs a callback; a panic must not reach C++.
pub fn guarded<T>(callback: impl FnOnce() -> Result<T, Thrown>) -> Result<T, Thrown> {
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(Err(Thrown::Panic))
}

/// Of Gloo's time limits; it means different things by 0 in different places, and here it means
/// nothing.
pub fn patience(timeout_ms: i64) -> Duration {
    match u64::try_from(timeout_ms) {
        Ok(0) | Err(_) => PATIENCE,
        Ok(timeout_ms) => Duration::from_millis(timeout_ms),
    }
}

fn rank(rank: i32) -> Result<Rank, Thrown> {
    u8::try_from(rank).map(Rank).map_err(|_| Thrown::Misuse)
}
