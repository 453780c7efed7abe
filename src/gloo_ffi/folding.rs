//! The reduce function for Gloo: the fold that all engines share.

use super::exception::Thrown;
use super::message_layer::guarded;
use super::overlay::{Overlay, Source};
use super::p2p::Landed;
use super::task::Reduction;
use crate::collective::{DIGEST_BLOCK_BYTES, Misfit, finish, fold, fold_pair};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// The step of folding: a multiple of every element's length. Three buffers of it fit the
/// second-level cache together with other data in use.
const SECOND_LEVEL_BYTES: usize = 32 * 1024;

/// The reduce function of one operation, for C++ to call.
pub struct Fold {
    reduction: Reduction,
    /// The start of the buffer; only compared.
    start: *const u8,
    last: Option<Last>,
    overlay: Option<Arc<Overlay>>,
    finished_bytes: Cell<usize>,
}

/// The part of the buffer whose last fold happens on this rank.
///
/// In Gloo's ring this is the own chunk: its owner folds each element exactly once, as the last
/// rank. Finishing it there, in the cache, means that the ring then distributes the final result.
pub struct Last {
    /// Its byte range in the buffer.
    pub bytes: Range<usize>,
    /// The divisor of a mean.
    pub members: usize,
    /// Called for each finished piece.
    pub landed: Landed,
}

impl Fold {
    /// Makes the function for a reduction of the buffer that starts at `start`. `last` is the part
    /// to finish, `overlay` the buffer's original contents.
    pub fn new(
        reduction: Reduction,
        start: *const u8,
        last: Option<Last>,
        overlay: Option<Arc<Overlay>>,
    ) -> Fold {
        Fold { reduction, start, last, overlay, finished_bytes: Cell::new(0) }
    }

    /// Whether all of `last` has been finished. A Gloo with another ring order would leave some of
    /// it unfinished; the caller reports that as an error.
    pub fn is_complete(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.bytes.len() == self.finished_bytes.get())
    }

    /// `into = a + b`.
    ///
    /// # Safety
    /// All three point to `bytes` bytes, valid for reads and, for `into`, also for writes. They are
    /// equal or disjoint, and no other code uses them until this returns.
    #[allow(unsafe_code, reason = "Gloo hands in raw memory")]
    pub unsafe fn fold(
        &self,
        into: *mut u8,
        a: *const u8,
        b: *const u8,
        bytes: usize,
    ) -> Result<(), Thrown> {
        if bytes == 0 {
            return Ok(()); // An empty range may have any address.
        }
        guarded(|| {
            // If `into` is one of the operands, it is folded in place: folding two values is
            // commutative.
            let (first, other) = match (std::ptr::eq(into, a), std::ptr::eq(into, b)) {
                // Gloo never passes two equal operands; they would be aliased slices.
                (true, true) => return Err(Thrown::Misuse),
                (true, false) => (None, b),
                (false, true) => (None, a),
                (false, false) => (Some(a), b),
            };
            let width = self.reduction.dtype.bytes();
            let places = into.addr() | other.addr() | first.map_or(0, <*const u8>::addr);
            if !(places | bytes).is_multiple_of(width) {
                return Err(Thrown::Misuse); // The fold needs whole and aligned elements.
            }
            // SAFETY: `into` is valid for reads and writes, and no other code uses it.
            let acc = unsafe { std::slice::from_raw_parts_mut(into, bytes) };
            // SAFETY: `other` is valid for reads, and disjoint from `into`.
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

    /// Computes `acc = first + x`, or `acc += x` without `first`. Bytes of `last` are finished and
    /// reported piece by piece, while the piece is in the cache. A piece ends at a boundary of the
    /// digest's blocks.
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
            for part in cut(piece.clone(), 0, SECOND_LEVEL_BYTES) {
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

/// The original contents of a range of the buffer, if none of it has been written.
fn began_as<'a>(overlay: &'a Overlay, range: &Range<usize>) -> Result<Option<&'a [u8]>, Thrown> {
    let original = overlay.original().get(range.clone()).ok_or(Thrown::Misuse)?;
    match overlay.source(range) {
        Source::Original => Ok(Some(original)),
        Source::Buffer => Ok(None),
        // No algorithm of Gloo folds into a range that is partly written.
        Source::Both => Err(Thrown::Misuse),
    }
}

/// Splits `range` at each position p for which `offset + p` is a multiple of `step`.
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
