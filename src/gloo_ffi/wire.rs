//! Layer: Shells.
//!
//! What Gloo's transport calls: memory that messages go out of and come into, through the message layer.
//!
//! All of it is called on the op thread, from inside one of [`Context`](super::context::Context)'s methods.

use super::exception::Thrown;
use crate::collective::EngineFault;
use crate::collective::p2p::{Endpoint, Landed, Region};
use crate::view::{OpId, Rank};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

/// Longest time in which nothing of an operation moves here.
///
/// A member that is gone ends waits much earlier, and a program that is late is waited for outside of Gloo. What is left is a
/// member still busy with the operation before, perhaps with a long way over a slow link.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A way into the message layer, for C++ to hold.
pub struct Wire(pub Rc<Line>);

/// What the callbacks of one context share.
pub struct Line {
    endpoint: Endpoint,
    now: RefCell<Option<Now>>,
    fault: Cell<Option<EngineFault>>,
}

/// The operation that runs.
#[derive(Clone)]
struct Now {
    op: OpId,
    output: Option<Output>,
}

/// A buffer of which somebody wants to hear what has arrived.
#[derive(Clone)]
pub struct Output {
    /// Where it begins; only compared.
    pub start: *const u8,
    /// Who wants to hear.
    pub landed: Landed,
}

/// Memory that Gloo has made known. Dropping it waits until no thread touches it.
pub struct Memory {
    region: Region,
    line: Rc<Line>,
}

impl Line {
    /// Over an endpoint.
    pub fn new(endpoint: Endpoint) -> Rc<Line> {
        Rc::new(Line { endpoint, now: RefCell::new(None), fault: Cell::new(None) })
    }

    /// Runs `act`, whose messages belong to `op`.
    pub fn during<T>(&self, op: OpId, output: Option<Output>, act: impl FnOnce() -> T) -> T {
        self.fault.set(None);
        *self.now.borrow_mut() = Some(Now { op, output });
        let result = act();
        *self.now.borrow_mut() = None;
        result
    }

    /// Why `op` has failed, if the message layer knows.
    pub fn fault(&self, op: OpId) -> Option<EngineFault> {
        self.endpoint.fault(op).or(self.fault.get())
    }

    fn noted<T>(&self, result: Result<T, EngineFault>) -> Result<T, Thrown> {
        result.map_err(|fault| {
            self.fault.set(Some(fault));
            Thrown::Links(fault)
        })
    }
}

impl Wire {
    /// Makes memory known to the message layer.
    ///
    /// # Safety
    /// `len` bytes from `ptr` on are valid for reads and writes, and used by nobody but the messages that are asked for,
    /// until the memory is dropped.
    #[allow(unsafe_code)]
    pub unsafe fn memory(&self, ptr: *mut u8, len: usize) -> Result<Box<Memory>, Thrown> {
        guarded(|| {
            let now = self.0.now.borrow().clone().ok_or(Thrown::Misuse)?;
            let landed = now.output.filter(|output| std::ptr::eq(output.start, ptr)).map(|output| output.landed);
            // A barrier's memory is nowhere, and empty.
            let ptr = NonNull::new(ptr).unwrap_or(NonNull::dangling());
            // SAFETY: what the caller promises is what is asked for, and dangling memory is empty.
            let region = unsafe { self.0.endpoint.region(now.op, ptr.as_ptr(), len, landed) };
            Ok(Box::new(Memory { region, line: Rc::clone(&self.0) }))
        })
    }
}

impl Memory {
    /// Sends `len` bytes from `offset` on; does not wait.
    pub fn send(&self, to: i32, slot: u64, offset: usize, len: usize) -> Result<(), Thrown> {
        guarded(|| self.line.noted(self.region.send(rank(to)?, slot, offset, len)))
    }

    /// Receives `len` bytes to `offset`; does not wait.
    pub fn recv(&self, from: i32, slot: u64, offset: usize, len: usize) -> Result<(), Thrown> {
        guarded(|| self.line.noted(self.region.recv(rank(from)?, slot, offset, len)))
    }

    /// Waits until one message has left; gives its receiver.
    pub fn wait_send(&self, timeout_ms: i64) -> Result<i32, Thrown> {
        guarded(|| self.waited(self.region.wait_send(patience(timeout_ms))))
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
        self.line.noted(peer)?.map(|peer| i32::from(peer.0)).ok_or(aborted)
    }
}

/// What a member puts on the board for each other one. Nobody is dialled by it; it only shows that the ranks agree.
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

/// Of Gloo's time limits; it means different things by 0 in different places, and here it means nothing.
pub fn patience(timeout_ms: i64) -> Duration {
    match u64::try_from(timeout_ms) {
        Ok(0) | Err(_) => PATIENCE,
        Ok(timeout_ms) => Duration::from_millis(timeout_ms),
    }
}

fn rank(rank: i32) -> Result<Rank, Thrown> {
    u8::try_from(rank).map(Rank).map_err(|_| Thrown::Misuse)
}
