//! The memory of the calls under way: none of it is used by two calls, if one of them writes it.

use super::buffer::Buffer;
use super::error::OrRaise;
use potluck_foreign::Failure;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First byte, the byte after the last one, and whether it is written.
type Span = (usize, usize, bool);

static LEASED: Mutex<BTreeMap<u64, Vec<Span>>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The buffers of one call, and its claim on their memory.
pub struct Lease {
    claim: Claim,
    buffers: Vec<Buffer>,
}

/// The entry of a lease among all: until it is dropped, no other call may use the memory.
pub struct Claim(u64);

impl Lease {
    /// Of the buffers of one call, which may overlap each other.
    ///
    /// # Errors
    /// Argument if another call under way uses the memory.
    pub fn of(py: Python<'_>, buffers: Vec<Buffer>) -> PyResult<Lease> {
        let spans: Vec<Span> = buffers.iter().map(Buffer::span).collect();
        let claim = claimed(spans).or_raise(py)?;
        Ok(Lease { claim, buffers })
    }

    /// The claim, which ends with the call, and the buffers, which need the interpreter to be
    /// dropped.
    pub fn apart(self) -> (Claim, Vec<Buffer>) {
        (self.claim, self.buffers)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        leased().remove(&self.0);
    }
}

fn claimed(spans: Vec<Span>) -> Result<Claim, Failure> {
    let mut leased = leased();
    if leased.values().flatten().any(|used| spans.iter().any(|span| collide(*used, *span))) {
        let problem = "a call that has not ended uses this buffer; wait for it first";
        return Err(Failure::Argument(problem.to_owned()));
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    leased.insert(number, spans);
    Ok(Claim(number))
}

fn collide(one: Span, other: Span) -> bool {
    (one.2 || other.2) && one.0 < other.1 && other.0 < one.1
}

fn leased() -> MutexGuard<'static, BTreeMap<u64, Vec<Span>>> {
    LEASED.lock().unwrap_or_else(PoisonError::into_inner)
}
