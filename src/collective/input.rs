//! A member's contribution, as the caller passes it in.

use super::finite::all_finite;
use crate::memory::{Block, DType, Element, OutOfMemory, Pool, bytes_of, bytes_of_mut};
use crate::os::copy_of;
use crate::protocol::EngineFault;
use std::ops::Range;
use std::sync::Arc;

/// A contribution, read piece by piece.
pub enum Input<'a> {
    /// This member contributes nothing.
    Nothing,
    /// A caller's slice. It is copied, because it belongs to the caller again after the poll.
    Borrowed(&'a [u8]),
    /// A caller's own elements, read in place.
    Lent(Block),
    /// A borrowed slice; the function is called with each requested range before it is copied.
    #[cfg(test)]
    Watched(&'a [u8], &'a dyn Fn(&Range<usize>)),
}

impl<'a> From<Option<&'a [u8]>> for Input<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Input<'a> {
        bytes.map_or(Input::Nothing, Input::Borrowed)
    }
}

impl<'a> Input<'a> {
    /// Elements that the caller shares with the engine until that retires the call. Small buffers
    /// are borrowed: to copy them is faster than to share them.
    pub fn shared<T: Element>(elements: &'a Arc<Vec<T>>) -> Input<'a> {
        if size_of_val(elements.as_slice()) <= COPIED_BYTES_MAX {
            Input::Borrowed(bytes_of(elements))
        } else {
            Input::lent(elements)
        }
    }
}

/// Two copies of this size take one or two microseconds.
const COPIED_BYTES_MAX: usize = 16 * 1024;

impl Input<'_> {
    /// A caller's own elements.
    pub fn lent<T: Element>(elements: &Arc<Vec<T>>) -> Input<'static> {
        Input::Lent(Block::lent(Arc::clone(elements)))
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether its elements, of this type, are neither NaN nor infinite.
    pub fn is_finite(&self, dtype: DType) -> bool {
        all_finite(dtype, self.bytes())
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Input::Nothing => &[],
            Input::Borrowed(bytes) => bytes,
            Input::Lent(block) => block.bytes(),
            #[cfg(test)]
            Input::Watched(bytes, _) => bytes,
        }
    }

    /// Whether pieces of it are copies.
    pub fn is_copied(&self) -> bool {
        !matches!(self, Input::Lent(_))
    }

    /// The bytes in `range`.
    ///
    /// # Errors
    /// [`EngineFault::Unfit`] if it has fewer, [`EngineFault::Memory`].
    pub fn piece(&self, pool: &Pool, range: Range<usize>) -> Result<Block, EngineFault> {
        match self {
            Input::Nothing => Err(EngineFault::Unfit),
            Input::Borrowed(bytes) => {
                let part = bytes.get(range).ok_or(EngineFault::Unfit)?;
                let mut block = pool.block(part.len())?;
                copy_of(bytes.len())(block.bytes_mut(), part);
                Ok(block)
            }
            Input::Lent(block) => block.part(range).ok_or(EngineFault::Unfit),
            #[cfg(test)]
            Input::Watched(bytes, watch) => {
                watch(&range);
                Input::Borrowed(bytes).piece(pool, range)
            }
        }
    }

    /// Copies bytes from `start` on into `out` until `out` is full. Returns false, without copying,
    /// if there are too few.
    pub fn copy_to(&self, start: usize, out: &mut [u8]) -> bool {
        #[cfg(test)]
        if let Input::Watched(_, watch) = self {
            watch(&(start..start + out.len()));
        }
        let bytes = start.checked_add(out.len()).and_then(|end| self.bytes().get(start..end));
        bytes.map(|bytes| copy_of(self.len())(out, bytes)).is_some()
    }

    /// All of it, to be handed in later as [`Input::Lent`]; a borrowed slice is copied. `None` if
    /// nothing is contributed.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn kept(&self, pool: &Pool) -> Result<Option<Block>, OutOfMemory> {
        match self {
            Input::Nothing => Ok(None),
            Input::Lent(block) => Ok(block.part(0..block.len())),
            _ => {
                // In words of 8 bytes, so that elements of every type are aligned.
                let bytes = self.bytes();
                let mut words = pool.elements::<u64>(bytes.len().div_ceil(8))?;
                copy_of(bytes.len())(&mut bytes_of_mut(&mut words)[..bytes.len()], bytes);
                Ok(Block::lent(Arc::new(words)).part(0..bytes.len()))
            }
        }
    }

    /// The model for the memory of the result, if the caller takes that memory over: see
    /// [`Pool::like`].
    pub fn model(&self) -> Option<Block> {
        match self {
            Input::Lent(block) => block.part(0..block.len()),
            #[cfg(test)]
            Input::Watched(..) => None,
            Input::Nothing | Input::Borrowed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_what_is_borrowed_are_copies_and_of_what_is_lent_the_bytes_themselves() {
        let (pool, elements) = (Pool::new(), Arc::new(vec![1u8, 2, 3, 4, 5]));
        let (borrowed, lent) = (Input::Borrowed(&elements), Input::lent(&elements));
        for input in [&borrowed, &lent] {
            assert_eq!(input.piece(&pool, 1..4).expect("it is there").bytes(), [2, 3, 4]);
            assert_eq!(input.piece(&pool, 3..6).err(), Some(EngineFault::Unfit));
            let mut out = [0; 2];
            assert!(input.copy_to(3, &mut out) && out == [4, 5]);
            assert!(!input.copy_to(4, &mut out) && !input.copy_to(usize::MAX, &mut out));
            assert_eq!(input.len(), 5);
        }
        let address = elements[1..].as_ptr();
        assert_ne!(borrowed.piece(&pool, 1..4).map(|piece| piece.bytes().as_ptr()), Ok(address));
        assert_eq!(lent.piece(&pool, 1..4).map(|piece| piece.bytes().as_ptr()), Ok(address));
        pool.refuse_above(2);
        let lacks = Some(EngineFault::Memory { bytes: 3 });
        assert_eq!(borrowed.piece(&pool, 1..4).err(), lacks);
        assert!(lent.piece(&pool, 1..4).is_ok(), "it takes no memory");
        assert_eq!(borrowed.kept(&pool).err(), Some(OutOfMemory { bytes: 8 }));
        pool.refuse_above(usize::MAX);
        assert!(Input::Nothing.piece(&pool, 0..0).is_err());
        assert!(Input::Nothing.kept(&pool).is_ok_and(|kept| kept.is_none()));
        for (kept, at) in [(borrowed.kept(&pool), None), (lent.kept(&pool), Some(address))] {
            let kept = kept.expect("there is memory");
            let kept = Input::Lent(kept.expect("it is something"));
            let piece = kept.piece(&pool, 1..4).expect("it is there");
            assert_eq!((kept.len(), piece.bytes()), (5, &[2, 3, 4][..]));
            assert!(
                at.is_none_or(|at| at == piece.bytes().as_ptr()),
                "lent memory stays where it is"
            );
        }
    }
}
