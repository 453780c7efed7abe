//! The bytes of a call in owned memory: a list of pooled blocks that threads pass to each other by
//! value.
//!
//! No thread ever holds a pointer into a borrowed buffer. A block has one owner, or it is shared
//! behind an `Arc` and only read, as memory that a caller lends. When the last owner drops it, its
//! memory returns to its pool.

use super::canvas::Canvas;
use super::copying::copy;
use super::dtype::DType;
use super::element::{Element, bytes_of, bytes_of_mut};
use super::out_of_memory::{OutOfMemory, room_for, zeroed};
use crate::os::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Alignment of pooled blocks in bytes: one cache line, for vector loads.
pub const BLOCK_ALIGN: usize = 64;

/// A pool of spare memory for blocks. Cheap to clone; all clones are one pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    spares: Arc<Mutex<Spares>>,
    #[cfg(test)]
    shortage: Arc<Shortage>,
}

/// The blocks that a test lets a pool refuse.
#[cfg(test)]
#[derive(Debug)]
struct Shortage {
    /// Those above this many bytes.
    above: AtomicUsize,
    /// All, after this many blocks.
    left: AtomicUsize,
}

#[derive(Debug, Default)]
struct Spares {
    /// By length, so that a fitting one is found without a search among many small ones.
    idle: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Vectors that callers have traded in, by type and length.
    elements: BTreeMap<(DType, usize), Vec<Box<dyn Elements>>>,
    idle_bytes: usize,
}

/// Owned bytes; 64-byte aligned, unless they are the elements of a `Vec`.
pub struct Block {
    storage: Storage,
    start: usize,
    len: usize,
    home: Weak<Mutex<Spares>>,
}

enum Storage {
    Bytes(Vec<u8>),
    /// A `Vec` that can be handed to a caller without a copy.
    Elements(Box<dyn Elements>),
    /// A caller's input, only read.
    Lent(Arc<dyn Elements>),
    /// A complete result; threads may still read from it.
    Result(Arc<Canvas>),
}

/// A `Vec` of any element type.
trait Elements: Send + Sync + Any {
    fn key(&self) -> (DType, usize);
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    /// A new vector of the same type and length.
    fn another(&self, pool: &Pool) -> Result<Box<dyn Elements>, OutOfMemory>;
}

/// A buffer as a list of blocks, cut at the chunk boundaries of its schedule.
#[derive(Debug, Default)]
pub struct Staging {
    /// The blocks in order.
    pub blocks: Vec<Block>,
}

impl Pool {
    /// Most idle bytes kept: enough for the staging of one large operation, small compared with the
    /// machine's memory.
    pub const IDLE_BYTES_MAX: usize = 256 * 1024 * 1024;

    /// A pool without spares.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// A block of `len` bytes with unspecified (but initialised) contents.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn block(&self, len: usize) -> Result<Block, OutOfMemory> {
        self.check(len)?;
        let capacity = len.checked_add(BLOCK_ALIGN).ok_or(OutOfMemory { bytes: len })?;
        let spare = self.spare_of(capacity);
        let storage = spare.map_or_else(|| self.zeroed(capacity), Ok)?;
        let start = storage.as_ptr().align_offset(BLOCK_ALIGN).min(BLOCK_ALIGN);
        let home = Arc::downgrade(&self.spares);
        Ok(Block { storage: Storage::Bytes(storage), start, len, home })
    }

    /// A block with the type and length of the elements that `block` [lends](Block::lent), for
    /// [`Block::trade`]; in idle memory if some fits. `None` if `block` lends none, or only a part
    /// of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn like(&self, block: &Block) -> Result<Option<Block>, OutOfMemory> {
        let Storage::Lent(model) = &block.storage else { return Ok(None) };
        if block.len != model.bytes().len() {
            return Ok(None);
        }
        self.check(block.len)?;
        let kept = self.spares.lock().ok().and_then(|mut spares| spares.elements_of(model.key()));
        let elements = kept.map_or_else(|| model.another(self), Ok)?;
        let (len, home) = (elements.bytes().len(), Arc::downgrade(&self.spares));
        Ok(Some(Block { storage: Storage::Elements(elements), start: 0, len, home }))
    }

    /// `len` elements of value 0, which do not come back to the pool.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn elements<T: Element>(&self, len: usize) -> Result<Vec<T>, OutOfMemory> {
        self.check(len.saturating_mul(size_of::<T>()))?;
        self.zeroed(len)
    }

    /// Makes room for a list of `len` elements; the list itself stays as it is.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn room_for<T>(&self, list: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
        if list.capacity() >= len {
            return Ok(());
        }
        self.check(len.saturating_mul(size_of::<T>()))?;
        room_for(list, len).or_else(|_| {
            self.free_idle();
            room_for(list, len)
        })
    }

    /// Zeroed memory, for which the idle memory is freed if there is not enough.
    fn zeroed<T: Element>(&self, len: usize) -> Result<Vec<T>, OutOfMemory> {
        zeroed(len).or_else(|_| {
            self.free_idle();
            zeroed(len)
        })
    }

    fn free_idle(&self) {
        let idle = self.spares.lock().ok().map(|mut spares| std::mem::take(&mut *spares));
        // Outside of the lock: freeing much memory takes a while.
        drop(idle);
    }

    #[cfg(not(test))]
    fn check(&self, _: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Bytes kept idle now.
    #[cfg(test)]
    pub fn idle_bytes(&self) -> usize {
        self.spares.lock().map_or(0, |s| s.idle_bytes)
    }

    fn spare_of(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut spares = self.spares.lock().ok()?;
        // At most twice the need, so that small operations do not pin large blocks.
        let (&len, fitting) =
            spares.idle.range_mut(capacity..=capacity.saturating_mul(2)).next()?;
        let spare = fitting.pop()?;
        if fitting.is_empty() {
            spares.idle.remove(&len);
        }
        spares.idle_bytes -= len;
        Some(spare)
    }
}

#[cfg(test)]
impl Pool {
    /// Refuses blocks above this many bytes from now on.
    pub fn refuse_above(&self, bytes: usize) {
        self.shortage.above.store(bytes, Ordering::Relaxed);
    }

    /// Gives this many more blocks, and then none.
    pub fn refuse_after(&self, blocks: usize) {
        self.shortage.left.store(blocks, Ordering::Relaxed);
    }

    /// Whether [`refuse_after`](Pool::refuse_after) has made it refuse one.
    pub fn is_used_up(&self) -> bool {
        self.shortage.left.load(Ordering::Relaxed) == 0
    }

    fn check(&self, len: usize) -> Result<(), OutOfMemory> {
        if len == 0 {
            return Ok(());
        }
        let count = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        let left = self.shortage.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        let fits = len <= self.shortage.above.load(Ordering::Relaxed) && left.is_ok();
        fits.then_some(()).ok_or(OutOfMemory { bytes: len })
    }
}

#[cfg(test)]
impl Default for Shortage {
    fn default() -> Shortage {
        Shortage { above: AtomicUsize::new(usize::MAX), left: AtomicUsize::new(usize::MAX) }
    }
}

impl Block {
    /// A caller's elements, for reading.
    pub fn lent<T: Element>(elements: Arc<Vec<T>>) -> Block {
        let len = size_of_val(elements.as_slice());
        Block { storage: Storage::Lent(elements), start: 0, len, home: Weak::new() }
    }

    /// Elements that belong to no pool.
    #[cfg(all(test, potluck_threads))]
    pub fn owned<T: Element>(elements: Vec<T>) -> Block {
        let len = size_of_val(elements.as_slice());
        let storage = Storage::Elements(Box::new(elements));
        Block { storage, start: 0, len, home: Weak::new() }
    }

    /// The result in `canvas`; `None` before all of it has landed.
    pub fn result(canvas: Arc<Canvas>) -> Option<Block> {
        let len = canvas.landed(0..canvas.len())?.len();
        Some(Block { storage: Storage::Result(canvas), start: 0, len, home: Weak::new() })
    }

    /// A part of a [lent](Block::lent) block, lent too. `None` if the block is not lent or shorter.
    pub fn part(&self, range: Range<usize>) -> Option<Block> {
        let Storage::Lent(elements) = &self.storage else { return None };
        self.bytes().get(range.clone())?;
        let (storage, start) = (Storage::Lent(Arc::clone(elements)), self.start + range.start);
        Some(Block { storage, start, len: range.len(), home: Weak::new() })
    }

    /// Whether the block is read-only: [`writable`](Block::writable) makes a copy of it.
    pub fn is_lent(&self) -> bool {
        matches!(self.storage, Storage::Lent(_) | Storage::Result(_))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let all = match &self.storage {
            Storage::Bytes(bytes) => bytes,
            Storage::Elements(elements) => elements.bytes(),
            Storage::Lent(elements) => elements.bytes(),
            // A block only exists for a result that has landed.
            Storage::Result(canvas) => canvas.landed(0..canvas.len()).unwrap_or_default(),
        };
        &all[self.start..self.start + self.len]
    }

    /// The bytes of a block that came from a pool, for writing; none if it [is
    /// lent](Block::is_lent).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.storage {
            Storage::Bytes(bytes) => bytes.as_mut_slice(),
            Storage::Elements(elements) => elements.bytes_mut(),
            Storage::Lent(_) | Storage::Result(_) => return &mut [],
        };
        &mut all[self.start..self.start + self.len]
    }

    /// The bytes, for writing; first replaces a block that [is lent](Block::is_lent) by a copy.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the block is as it was.
    pub fn writable(&mut self, pool: &Pool) -> Result<&mut [u8], OutOfMemory> {
        if self.is_lent() {
            *self = self.copied(pool)?;
        }
        Ok(self.bytes_mut())
    }

    /// The block's memory as a `Vec<T>`, in exchange for `spare`, whose memory the pool keeps for
    /// the next one.
    ///
    /// # Errors
    /// Returns both arguments if the block is not a `Vec<T>`, or if a thread still reads from the
    /// result.
    pub fn trade<T: Element>(
        mut self,
        spare: Option<Vec<T>>,
    ) -> Result<Vec<T>, (Block, Option<Vec<T>>)> {
        let storage = std::mem::replace(&mut self.storage, Storage::Bytes(Vec::new()));
        match storage {
            Storage::Result(canvas) => match canvas.take() {
                Ok(memory) => memory.trade(spare),
                Err(canvas) => {
                    self.storage = Storage::Result(canvas);
                    Err((self, spare))
                }
            },
            Storage::Elements(elements) if elements.key().0 == T::DTYPE => {
                if let Some((home, spare)) = self.home.upgrade().zip(spare)
                    && let Ok(mut spares) = home.lock()
                {
                    spares.take(Storage::Elements(Box::new(spare)));
                }
                // The key contains the type, so the downcast succeeds.
                Ok(elements.into_any().downcast().map(|vec| *vec).unwrap_or_default())
            }
            storage => {
                self.storage = storage;
                Err((self, spare))
            }
        }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A writable copy: of the same element type if the block is all of a lent vector, otherwise
    /// plain bytes.
    fn copied(&self, pool: &Pool) -> Result<Block, OutOfMemory> {
        let mut another = match pool.like(self)? {
            Some(another) => another,
            None => pool.block(self.len)?,
        };
        copy(another.bytes_mut(), self.bytes());
        Ok(another)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        if let Ok(mut spares) = home.lock() {
            spares.take(std::mem::replace(&mut self.storage, Storage::Bytes(Vec::new())));
        }
    }
}

impl Spares {
    fn take(&mut self, storage: Storage) {
        let bytes = match &storage {
            Storage::Bytes(bytes) => bytes.len(),
            Storage::Elements(elements) => elements.bytes().len(),
            // Not owned: the caller has the memory, or its last owner frees it.
            Storage::Lent(_) | Storage::Result(_) => 0,
        };
        if bytes == 0 || bytes > Pool::IDLE_BYTES_MAX {
            return;
        }
        // Recently used memory is more likely to be needed than older idle memory.
        if self.idle_bytes + bytes > Pool::IDLE_BYTES_MAX {
            *self = Spares::default();
        }
        self.idle_bytes += bytes;
        match storage {
            Storage::Bytes(storage) => self.idle.entry(bytes).or_default().push(storage),
            Storage::Elements(elements) => {
                self.elements.entry(elements.key()).or_default().push(elements);
            }
            Storage::Lent(_) | Storage::Result(_) => {}
        }
    }

    fn elements_of(&mut self, key: (DType, usize)) -> Option<Box<dyn Elements>> {
        let fitting = self.elements.get_mut(&key)?;
        let spare = fitting.pop()?;
        if fitting.is_empty() {
            self.elements.remove(&key);
        }
        self.idle_bytes -= spare.bytes().len();
        Some(spare)
    }
}

impl<T: Element> Elements for Vec<T> {
    fn key(&self) -> (DType, usize) {
        (T::DTYPE, self.len())
    }

    fn bytes(&self) -> &[u8] {
        bytes_of(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytes_of_mut(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn another(&self, pool: &Pool) -> Result<Box<dyn Elements>, OutOfMemory> {
        Ok(Box::new(pool.zeroed::<T>(self.len())?))
    }
}

impl fmt::Debug for dyn Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.key())
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len)
    }
}

impl Staging {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }

    /// Copies `bytes` into blocks of `block_bytes`.
    #[cfg(test)]
    pub fn filled(pool: &Pool, bytes: &[u8], block_bytes: usize) -> Staging {
        let blocks = bytes
            .chunks(block_bytes.max(1))
            .map(|part| {
                let mut block = pool.block(part.len()).expect("there is memory");
                block.bytes_mut().copy_from_slice(part);
                block
            })
            .collect();
        Staging { blocks }
    }

    /// Copies the blocks out; `out` must have exactly [`len`](Staging::len) bytes.
    pub fn copy_to(&self, out: &mut [u8]) {
        self.copy_to_all([out]);
    }

    /// Copies the blocks out to these buffers, one after the other. Together they must have exactly
    /// [`len`](Staging::len) bytes.
    pub fn copy_to_all<'a>(&self, outs: impl IntoIterator<Item = &'a mut [u8]>) {
        let mut blocks = self.blocks.iter().map(Block::bytes);
        let mut left: &[u8] = &[];
        for mut out in outs {
            while !out.is_empty() {
                if left.is_empty() {
                    let Some(block) = blocks.next() else { return };
                    left = block;
                }
                let len = left.len().min(out.len());
                let (head, tail) = out.split_at_mut(len);
                copy(head, &left[..len]);
                (out, left) = (tail, &left[len..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let place = spare.as_ptr();
        assert_eq!(filled().trade(Some(spare)).expect("a vec it is"), [7.0, 8.0]);
        assert_eq!(pool.idle_bytes(), 16);
        let again = filled();
        assert_eq!((again.bytes().as_ptr(), pool.idle_bytes()), (place.cast(), 0));
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
    fn blocks_are_aligned_and_come_back() {
        let pool = Pool::new();
        let first = block(&pool, 1000);
        assert_eq!(first.bytes().as_ptr().align_offset(BLOCK_ALIGN), 0);
        drop(first);
        assert_eq!(pool.idle_bytes(), 1000 + BLOCK_ALIGN);
        let again = block(&pool, 900);
        assert_eq!((pool.idle_bytes(), again.len()), (0, 900));
        assert_eq!(again.bytes().as_ptr().align_offset(BLOCK_ALIGN), 0);
    }

    #[test]
    fn what_is_idle_is_bounded_and_makes_room_for_what_was_used_last() {
        let pool = Pool::new();
        let half = Pool::IDLE_BYTES_MAX / 2 - BLOCK_ALIGN;
        drop([block(&pool, half), block(&pool, half)]);
        assert_eq!(pool.idle_bytes(), Pool::IDLE_BYTES_MAX);
        drop(block(&pool, 100));
        assert_eq!(pool.idle_bytes(), 100 + BLOCK_ALIGN);
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        let pool = Pool::new();
        for bytes in [usize::MAX, usize::MAX - BLOCK_ALIGN, usize::MAX / 2] {
            assert!(pool.block(bytes).is_err());
        }
        assert_eq!(pool.block(1000).map(|block| block.len()), Ok(1000));
    }

    #[test]
    fn what_is_idle_makes_room_for_what_there_is_no_memory_for() {
        let pool = Pool::new();
        drop(block(&pool, 1000));
        assert!(pool.block(usize::MAX / 2).is_err());
        assert_eq!(pool.idle_bytes(), 0, "it was freed, and was not enough");
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
        let place = memory.bytes().as_ptr();
        let canvas = Canvas::new(memory, [8].into_iter());
        let canvas = canvas.expect("there is memory").expect("it fits");
        let mut claim = canvas.claim(0).expect("the first");
        claim.bytes_mut().copy_from_slice(bytes_of(&[1.5f32, 2.5]));
        assert!(Block::result(Arc::clone(&canvas)).is_none(), "it has not landed");
        let piece = claim.land();
        let result = Block::result(canvas).expect("all of it has landed");
        let (mut result, spare) = result.trade::<f32>(None).expect_err("a frame reads from it");
        assert_eq!((result.bytes(), spare), (bytes_of(&[1.5f32, 2.5]), None));
        drop(piece);
        result = result.trade::<f64>(None).expect_err("it is of f32").0;
        let traded = result.trade::<f32>(None).expect("a vec it is");
        assert_eq!((traded.as_slice(), traded.as_ptr()), (&[1.5f32, 2.5][..], place.cast()));
    }

    #[test]
    fn a_small_block_does_not_pin_a_large_spare() {
        let pool = Pool::new();
        drop(block(&pool, 1 << 20));
        let _small = block(&pool, 100);
        assert_eq!(pool.idle_bytes(), (1 << 20) + BLOCK_ALIGN);
    }

    #[test]
    fn staging_is_a_copy_there_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let staging = Staging::filled(&Pool::new(), &bytes, 100);
        assert_eq!(staging.blocks.iter().map(Block::len).collect::<Vec<_>>(), [100, 100, 56]);
        let mut back = vec![0; 256];
        staging.copy_to(&mut back);
        assert_eq!(back, bytes);
        let cuts = [0, 1, 99, 0, 150, 6];
        let mut parts = cuts.map(|len| vec![0; len]);
        staging.copy_to_all(parts.iter_mut().map(Vec::as_mut_slice));
        assert_eq!(parts.concat(), bytes);
    }
}
