//! A block: a stretch of a buffer that threads pass to each other by value.
//!
//! No thread ever holds a pointer into a borrowed buffer. A block is owned memory, or it is shared
//! behind an `Arc` and only read: memory that a caller lends, or a complete result.

use super::dtype::DType;
use super::element::Element;
use super::out_of_memory::OutOfMemory;
use super::pool::{Elements, Memory, Pool};
use super::result_buffer::ResultBuffer;
use crate::os::copy;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are owned, lent, or a result.
pub struct Block {
    storage: Storage,
}

enum Storage {
    Owned(Memory),
    /// A part of a caller's input, only read.
    Lent(Arc<dyn Elements>, Range<usize>),
    /// A complete result; threads may still read from it.
    Result(Arc<ResultBuffer>),
}

impl Pool {
    /// A block of `len` bytes with unspecified (but initialised) contents.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn block(&self, len: usize) -> Result<Block, OutOfMemory> {
        self.memory(len).map(Block::owned)
    }

    /// A block with the type and length of the elements that `block` [lends](Block::lent), for
    /// [`Block::trade`]; in idle memory if some fits. `None` if `block` lends none, or only a part
    /// of them, or if they are `bool`, of which not all bytes are elements.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn like(&self, block: &Block) -> Result<Option<Block>, OutOfMemory> {
        match &block.storage {
            Storage::Lent(model, part)
                if part.len() == model.bytes().len() && model.key().0 != DType::Bool =>
            {
                self.memory_like(&**model).map(|memory| Some(Block::owned(memory)))
            }
            _ => Ok(None),
        }
    }
}

impl Block {
    fn owned(memory: Memory) -> Block {
        Block { storage: Storage::Owned(memory) }
    }

    /// A caller's elements, for reading.
    pub fn lent<T: Element>(elements: Arc<Vec<T>>) -> Block {
        let all = 0..size_of_val(elements.as_slice());
        Block { storage: Storage::Lent(elements, all) }
    }

    /// The result in `result_buffer`; `None` before all of it has landed.
    pub fn result(result_buffer: Arc<ResultBuffer>) -> Option<Block> {
        result_buffer.landed(0..result_buffer.len())?;
        Some(Block { storage: Storage::Result(result_buffer) })
    }

    /// A part of a [lent](Block::lent) block, lent too. `None` if the block is not lent or shorter.
    pub fn part(&self, range: Range<usize>) -> Option<Block> {
        let Storage::Lent(elements, all) = &self.storage else { return None };
        self.bytes().get(range.clone())?;
        let part = all.start + range.start..all.start + range.end;
        Some(Block { storage: Storage::Lent(Arc::clone(elements), part) })
    }

    /// Whether the block is read-only: [`writable`](Block::writable) makes a copy of it.
    pub fn is_lent(&self) -> bool {
        !matches!(self.storage, Storage::Owned(_))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned(memory) => memory.bytes(),
            Storage::Lent(elements, part) => &elements.bytes()[part.clone()],
            // A block only exists for a result that has landed.
            Storage::Result(result_buffer) => {
                result_buffer.landed(0..result_buffer.len()).unwrap_or_default()
            }
        }
    }

    /// The bytes of a block that came from a pool, for writing; none if it [is
    /// lent](Block::is_lent).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Owned(memory) => memory.bytes_mut(),
            Storage::Lent(..) | Storage::Result(_) => &mut [],
        }
    }

    /// The bytes, for writing; first replaces a block that [is lent](Block::is_lent) by a copy.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the block is as it was.
    pub fn writable(&mut self, pool: &Pool) -> Result<&mut [u8], OutOfMemory> {
        if self.is_lent() {
            self.storage = Storage::Owned(self.copied(pool)?);
        }
        Ok(self.bytes_mut())
    }

    /// The block's memory, or a copy if the block [is lent](Block::is_lent).
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn into_memory(self, pool: &Pool) -> Result<Memory, OutOfMemory> {
        match self.storage {
            Storage::Owned(memory) => Ok(memory),
            Storage::Lent(..) | Storage::Result(_) => self.copied(pool),
        }
    }

    /// The block's memory as a `Vec<T>`, in exchange for `spare`, whose memory the pool keeps for
    /// the next one.
    ///
    /// # Errors
    /// Returns both arguments if the block is not a `Vec<T>`, or if a thread still reads from the
    /// result.
    pub fn trade<T: Element>(
        self,
        spare: Option<Vec<T>>,
    ) -> Result<Vec<T>, (Block, Option<Vec<T>>)> {
        let memory = match self.storage {
            Storage::Owned(memory) => memory,
            Storage::Lent(..) => return Err((self, spare)),
            Storage::Result(result_buffer) => match result_buffer.take() {
                Ok(memory) => memory,
                Err(result_buffer) => {
                    return Err((Block { storage: Storage::Result(result_buffer) }, spare));
                }
            },
        };
        memory.trade(spare).map_err(|(memory, spare)| (Block::owned(memory), spare))
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        match &self.storage {
            Storage::Owned(memory) => memory.len(),
            Storage::Lent(_, part) => part.len(),
            Storage::Result(result_buffer) => result_buffer.len(),
        }
    }

    /// A writable copy: of the same element type if the block is all of a lent vector, otherwise
    /// plain bytes.
    fn copied(&self, pool: &Pool) -> Result<Memory, OutOfMemory> {
        let mut another = match pool.like(self)? {
            Some(Block { storage: Storage::Owned(memory) }) => memory,
            _ => pool.memory(self.len())?,
        };
        copy(another.bytes_mut(), self.bytes());
        Ok(another)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::element::bytes_of;
    use super::super::pool::BLOCK_ALIGN;
    use super::*;

    fn block(pool: &Pool, len: usize) -> Block {
        pool.block(len).expect("there is memory")
    }

    fn like(pool: &Pool, block: &Block) -> Option<Block> {
        pool.like(block).expect("there is memory")
    }

    #[test]
    fn what_is_made_like_a_lent_block_is_traded_for_a_vec_that_becomes_the_next() {
        let pool = Pool::new();
        let lent = Block::lent(Arc::new(vec![1.5f64, 2.5]));
        let filled = || {
            let mut block = like(&pool, &lent).expect("elements are lent");
            block.bytes_mut().copy_from_slice(bytes_of(&[7.0f64, 8.0]));
            block
        };
        let spare = vec![0.0f64; 2];
        let address = spare.as_ptr();
        assert_eq!(filled().trade(Some(spare)).expect("a vec it is"), [7.0, 8.0]);
        assert_eq!(pool.idle_bytes(), 16);
        let again = filled();
        assert_eq!((again.bytes().as_ptr(), pool.idle_bytes()), (address.cast(), 0));
        let (again, spare) = again.trade(Some(vec![0f32; 2])).expect_err("it is of f64");
        assert_eq!(
            (spare, again.trade::<f64>(None).expect("still there")),
            (Some(vec![0.0; 2]), vec![7.0, 8.0])
        );
        drop(filled());
        assert_eq!(pool.idle_bytes(), 16, "a dropped one is kept as well");
        assert!(
            like(&pool, &block(&pool, 8)).is_none() && block(&pool, 8).trade::<f64>(None).is_err()
        );
    }

    #[test]
    fn what_is_lent_is_not_written() {
        let input = Arc::new(vec![1.0f32, 2.0]);
        let (pool, mut block) = (Pool::new(), Block::lent(Arc::clone(&input)));
        assert_eq!(block.bytes().as_ptr(), input.as_ptr().cast());
        assert!(block.bytes_mut().is_empty(), "it is read only");
        pool.refuse_above(7);
        assert_eq!(block.writable(&pool).map(|_| ()), Err(OutOfMemory { bytes: 8 }));
        assert!(block.is_lent());
        pool.refuse_above(8);
        block.writable(&pool).expect("a copy").fill(0);
        assert_eq!((block.bytes(), input.as_slice()), (&[0; 8][..], &[1.0, 2.0][..]));
    }

    #[test]
    fn a_pool_that_is_to_refuse_gives_what_it_still_has() {
        let pool = Pool::new();
        pool.refuse_after(1);
        drop(block(&pool, 10));
        assert!(pool.is_used_up() && pool.clone().block(10).is_err());
        assert!(pool.like(&Block::lent(Arc::new(vec![1u8]))).is_err());
    }

    #[test]
    fn parts_of_what_is_lent_are_lent_and_written_as_copies() {
        let elements = Arc::new(vec![1i32, 2, 3, 4]);
        let lent = Block::lent(Arc::clone(&elements));
        let mut part = lent.part(4..12).expect("it is there");
        assert_eq!(
            (part.bytes().as_ptr(), part.len(), part.is_lent()),
            (elements[1..].as_ptr().cast(), 8, true)
        );
        assert!(
            lent.part(12..17).is_none()
                && part.part(0..9).is_none()
                && block(&Pool::new(), 4).part(0..1).is_none()
        );
        part.writable(&Pool::new()).expect("a copy").fill(9);
        assert_eq!(
            (part.bytes(), part.is_lent(), elements.as_slice()),
            (&[9; 8][..], false, &[1, 2, 3, 4][..])
        );
        assert_eq!(part.bytes().as_ptr().align_offset(BLOCK_ALIGN), 0);
    }

    #[test]
    fn a_result_is_traded_for_its_memory_once_nobody_reads_from_it() {
        let pool = Pool::new();
        let memory = like(&pool, &Block::lent(Arc::new(vec![0f32; 2]))).expect("elements are lent");
        let address = memory.bytes().as_ptr();
        let memory = memory.into_memory(&pool).expect("it is owned");
        let result_buffer = ResultBuffer::new(memory, [8].into_iter());
        let result_buffer = result_buffer.expect("there is memory").expect("it fits");
        let mut writer = result_buffer.claim(0).expect("the first");
        writer.bytes_mut().copy_from_slice(bytes_of(&[1.5f32, 2.5]));
        assert!(Block::result(Arc::clone(&result_buffer)).is_none(), "it has not landed");
        let piece = writer.land();
        let result = Block::result(result_buffer).expect("all of it has landed");
        let (mut result, spare) = result.trade::<f32>(None).expect_err("a frame reads from it");
        assert_eq!((result.bytes(), spare), (bytes_of(&[1.5f32, 2.5]), None));
        drop(piece);
        result = result.trade::<f64>(None).expect_err("it is of f32").0;
        let traded = result.trade::<f32>(None).expect("a vec it is");
        assert_eq!((traded.as_slice(), traded.as_ptr()), (&[1.5f32, 2.5][..], address.cast()));
    }
}
