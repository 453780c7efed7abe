//! Layer: Shells.
//!
//! What Gloo's reductions call: the one fold of all engines.

use super::exception::Thrown;
use super::overlay::{Overlay, Source};
use super::task::Reduction;
use super::wire::guarded;
use crate::collective::p2p::Landed;
use crate::collective::{DIGEST_BLOCK_BYTES, Misfit, finish, fold, fold_pair};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// A multiple of every element's length, three of which the second-level cache holds beside what
/// else is in use.
const IN_CACHE_BYTES: usize = 32 * 1024;

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
/// In Gloo's ring that is the own chunk: every element of it is folded once on its owner, as the
/// last of all. Finishing it there, in cache, means that what goes round the ring afterwards is the
/// result.
pub struct Last {
    /// Which bytes of the buffer.
    pub bytes: Range<usize>,
    /// Among how many a mean is divided.
    pub members: usize,
    /// Hears of each piece.
    pub landed: Landed,
}

impl Fold {
    /// Of a reduction of the buffer that begins at `start`; `last` says what is complete then,
    /// `overlay` what the buffer began as.
    pub fn new(
        reduction: Reduction,
        start: *const u8,
        last: Option<Last>,
        overlay: Option<Arc<Overlay>>,
    ) -> Fold {
        Fold { reduction, start, last, overlay, finished_bytes: Cell::new(0) }
    }

    /// Whether all that was to be finished here is. A Gloo that goes another way round would leave
    /// it undone, and that is better said than found out.
    pub fn is_complete(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.bytes.len() == self.finished_bytes.get())
    }

    /// `into = a + b`.
    ///
    /// # Safety
    /// All three point to `bytes` bytes, valid for reads and for `into` also for writes; equal, or
    /// without overlap; and used by nobody else until this returns.
    #[allow(unsafe_code)]
    pub unsafe fn fold(
        &self,
        into: *mut u8,
        a: *const u8,
        b: *const u8,
        bytes: usize,
    ) -> Result<(), Thrown> {
        if bytes == 0 {
            return Ok(()); // Nothing may lie anywhere.
        }
        guarded(|| {
            // What `into` holds is one operand, and folding two values is commutative; or it holds
            // none.
            let (first, other) = match (std::ptr::eq(into, a), std::ptr::eq(into, b)) {
                // Two equal operands were never asked for, and would be one slice twice.
                (true, true) => return Err(Thrown::Misuse),
                (true, false) => (None, b),
                (false, true) => (None, a),
                (false, false) => (Some(a), b),
            };
            let width = self.reduction.dtype.bytes();
            let places = into.addr() | other.addr() | first.map_or(0, <*const u8>::addr);
            if !(places | bytes).is_multiple_of(width) {
                return Err(Thrown::Misuse); // The fold takes whole and aligned elements only.
            }
            // SAFETY: `into` is valid for reads and writes and used by nobody else.
            let acc = unsafe { std::slice::from_raw_parts_mut(into, bytes) };
            // SAFETY: it is valid for reads, and apart from `into`.
            let x = unsafe { std::slice::from_raw_parts(other, bytes) };
            // SAFETY: as above.
            let first = first.map(|first| unsafe { std::slice::from_raw_parts(first, bytes) });
            let offset = into.addr().wrapping_sub(self.start.addr());
            match self.overlay.as_ref().filter(|overlay| offset < overlay.original().len()) {
                Some(overlay) => {
                    let range = offset..offset + bytes;
                    let began_as = began_as(overlay, &range)?;
                    self.fold_here(offset, acc, first.or(began_as), x)?;
                    overlay.wrote(range);
                }
                None => self.fold_here(offset, acc, first, x)?,
            }
            Ok(())
        })
    }

    /// `acc = first + x`, and `acc + x` without a first one. What is complete by that is finished
    /// and told of a piece at a time, while that is in cache.
    fn fold_here(
        &self,
        offset: usize,
        acc: &mut [u8],
        first: Option<&[u8]>,
        x: &[u8],
    ) -> Result<(), Thrown> {
        let Reduction { op, dtype, .. } = self.reduction;
        let last = self
            .last
            .as_ref()
            .filter(|last| last.bytes.contains(&offset) && acc.len() <= last.bytes.end - offset);
        for piece in cut(0..acc.len(), offset, DIGEST_BLOCK_BYTES) {
            for part in cut(piece.clone(), 0, IN_CACHE_BYTES) {
                let acc = &mut acc[part.clone()];
                match first {
                    Some(first) => fold_pair(op, dtype, acc, &first[part.clone()], &x[part]),
                    None => fold(op, dtype, acc, &x[part]),
                }
                .map_err(|Misfit| Thrown::Misuse)?;
                if let Some(last) = last {
                    finish(op, dtype, acc, last.members).map_err(|Misfit| Thrown::Misuse)?;
                }
            }
            if let Some(last) = last {
                self.finished_bytes.set(self.finished_bytes.get() + piece.len());
                (last.landed)(offset + piece.start, &acc[piece], 0);
            }
        }
        Ok(())
    }
}

/// What these bytes of a buffer began as, if they are not written yet.
fn began_as<'a>(overlay: &'a Overlay, range: &Range<usize>) -> Result<Option<&'a [u8]>, Thrown> {
    let original = overlay.original().get(range.clone()).ok_or(Thrown::Misuse)?;
    match overlay.source(range) {
        Source::Original => Ok(Some(original)),
        Source::Buffer => Ok(None),
        // No algorithm of Gloo's folds what it has folded in part.
        Source::Both => Err(Thrown::Misuse),
    }
}

/// A range in pieces that end where, counted from `offset` before its beginning, a multiple of
/// `step` does.
fn cut(range: Range<usize>, offset: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    let (mut at, before) = (range.start, offset % step);
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((before + start + step) / step * step - before);
        (start < at).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_multiples_counted_from_the_beginning_of_the_buffer() {
        let pieces = |range, offset, step| cut(range, offset, step).collect::<Vec<_>>();
        assert_eq!(pieces(0..10, 0, 4), [0..4, 4..8, 8..10]);
        assert_eq!(pieces(0..10, 3, 4), [0..1, 1..5, 5..9, 9..10]);
        assert_eq!(pieces(5..10, 4, 4), [5..8, 8..10]);
        assert_eq!(
            pieces(0..3, usize::MAX - 1, 4),
            [0..2, 2..3],
            "of another buffer, which lies before this one"
        );
        assert!(pieces(7..7, 0, 4).is_empty());
    }
}
