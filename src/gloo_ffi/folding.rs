//! Layer: Shells.
//!
//! What Gloo's reductions call: the one fold of all engines.

use super::exception::Thrown;
use super::overlay::{Overlay, Source};
use super::task::Reduction;
use super::wire::guarded;
use crate::collective::p2p::Landed;
use crate::collective::{finish, fold};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// A multiple of every element's length that leaves room in the first-level cache for three of them.
const IN_CACHE_BYTES: usize = 8 * 1024;

/// How an operation's contributions are added, for C++ to call.
pub struct Fold {
    reduction: Reduction,
    /// Where the buffer begins; only compared.
    start: *const u8,
    last: Option<Last>,
    overlay: Option<Arc<Overlay>>,
    finished_bytes: Cell<usize>,
}

/// The part of the buffer that is complete as soon as it is folded here.
///
/// In Gloo's ring that is the own chunk: every element of it is folded once on its owner, as the last of all. Finishing it
/// there, in cache, means that what goes round the ring afterwards is the result.
pub struct Last {
    /// Which bytes of the buffer.
    pub bytes: Range<usize>,
    /// Among how many a mean is divided.
    pub members: usize,
    /// Hears of each piece.
    pub landed: Landed,
}

impl Fold {
    /// Of a reduction of the buffer that begins at `start`; `last` says what is complete then, `overlay` what the buffer
    /// began as.
    pub fn new(reduction: Reduction, start: *const u8, last: Option<Last>, overlay: Option<Arc<Overlay>>) -> Fold {
        Fold { reduction, start, last, overlay, finished_bytes: Cell::new(0) }
    }

    /// Whether all that was to be finished here is. A Gloo that goes another way round would leave it undone, and that is
    /// better said than found out.
    pub fn is_complete(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.bytes.len() == self.finished_bytes.get())
    }

    /// `into = a + b`.
    ///
    /// # Safety
    /// All three point to `bytes` bytes, valid for reads and for `into` also for writes; equal, or without overlap; and
    /// used by nobody else until this returns.
    #[allow(unsafe_code)]
    pub unsafe fn fold(&self, into: *mut u8, a: *const u8, b: *const u8, bytes: usize) -> Result<(), Thrown> {
        if bytes == 0 {
            return Ok(()); // Nothing may lie anywhere.
        }
        guarded(|| {
            let other = if std::ptr::eq(into, a) {
                b
            } else if std::ptr::eq(into, b) {
                a // Folding two values is commutative.
            } else {
                // SAFETY: both are valid for `bytes` bytes and do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(a, into, bytes) };
                b
            };
            // SAFETY: `into` is valid for reads and writes and used by nobody else.
            let acc = unsafe { std::slice::from_raw_parts_mut(into, bytes) };
            if std::ptr::eq(into, other) {
                return Err(Thrown::Misuse); // Two equal operands were never asked for, and would be one slice twice.
            }
            // SAFETY: it is valid for reads, and apart from `into`.
            let x = unsafe { std::slice::from_raw_parts(other, bytes) };
            let width = self.reduction.dtype.bytes();
            if !(acc.as_ptr().addr() | x.as_ptr().addr() | bytes).is_multiple_of(width) {
                return Err(Thrown::Misuse); // The fold takes whole and aligned elements only.
            }
            let offset = acc.as_ptr().addr().wrapping_sub(self.start.addr());
            match &self.overlay {
                Some(overlay) if offset < overlay.original().len() => self.fold_over(overlay, offset, acc, x)?,
                _ => fold(self.reduction.op, self.reduction.dtype, acc, x),
            }
            self.finish(offset, acc);
            Ok(())
        })
    }

    /// Where the buffer is not written yet, what it began as comes into it a little at a time, and is folded while in cache.
    fn fold_over(&self, overlay: &Overlay, offset: usize, acc: &mut [u8], x: &[u8]) -> Result<(), Thrown> {
        let range = offset..offset + acc.len();
        let original = overlay.original().get(range.clone()).ok_or(Thrown::Misuse)?;
        let source = overlay.source(&range);
        for (at, acc) in acc.chunks_mut(IN_CACHE_BYTES).enumerate() {
            let part = at * IN_CACHE_BYTES..at * IN_CACHE_BYTES + acc.len();
            match source {
                Source::Original => acc.copy_from_slice(&original[part.clone()]),
                Source::Buffer => {}
                // No algorithm of Gloo's folds what it has folded in part.
                Source::Both => return Err(Thrown::Misuse),
            }
            fold(self.reduction.op, self.reduction.dtype, acc, &x[part]);
        }
        overlay.wrote(range);
        Ok(())
    }

    fn finish(&self, offset: usize, acc: &mut [u8]) {
        let Some(last) = &self.last else { return };
        if last.bytes.contains(&offset) && acc.len() <= last.bytes.end - offset {
            finish(self.reduction.op, self.reduction.dtype, acc, last.members);
            self.finished_bytes.set(self.finished_bytes.get() + acc.len());
            (last.landed)(offset, acc);
        }
    }
}
