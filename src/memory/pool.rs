//! Owned memory, and a pool that keeps it for the next call.
//!
//! [`Memory`] has one owner, which may write it. When it is dropped, its bytes return to its pool.

use super::dtype::DType;
use super::element::{Element, Target, bytes_of, target_of};
use super::out_of_memory::{OutOfMemory, room_for, zeroed};
use crate::os::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Alignment of pooled memory in bytes: one cache line, for vector loads.
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
pub struct Memory {
    storage: Storage,
    start: usize,
    len: usize,
    home: Weak<Mutex<Spares>>,
}

enum Storage {
    Bytes(Vec<u8>),
    /// A `Vec` that can be handed to a caller without a copy.
    Elements(Box<dyn Elements>),
}

/// A `Vec` of any element type.
pub trait Elements: Send + Sync + Any {
    fn key(&self) -> (DType, usize);
    fn bytes(&self) -> &[u8];
    /// The bytes, for writing; none if the elements are `bool`.
    fn bytes_mut(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    /// A new vector of the same type and length.
    fn another(&self, pool: &Pool) -> Result<Box<dyn Elements>, OutOfMemory>;
}

impl Pool {
    /// Most idle bytes kept: enough for the staging of one large operation, small compared with the
    /// machine's memory.
    pub const IDLE_BYTES_MAX: usize = 256 * 1024 * 1024;

    /// A pool without spares.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// `len` bytes with unspecified (but initialised) contents.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn memory(&self, len: usize) -> Result<Memory, OutOfMemory> {
        self.check(len)?;
        let capacity = len.checked_add(BLOCK_ALIGN).ok_or(OutOfMemory { bytes: len })?;
        let spare = self.spare_of(capacity);
        let storage = spare.map_or_else(|| self.zeroed(capacity), Ok)?;
        let start = storage.as_ptr().align_offset(BLOCK_ALIGN).min(BLOCK_ALIGN);
        let home = Arc::downgrade(&self.spares);
        Ok(Memory { storage: Storage::Bytes(storage), start, len, home })
    }

    /// Memory of the type and length of `model`, for [`Memory::trade`]; in idle memory if some
    /// fits.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn memory_like(&self, model: &dyn Elements) -> Result<Memory, OutOfMemory> {
        self.check(model.bytes().len())?;
        let kept = self.spares.lock().ok().and_then(|mut spares| spares.elements_of(model.key()));
        let elements = kept.map_or_else(|| model.another(self), Ok)?;
        let (len, home) = (elements.bytes().len(), Arc::downgrade(&self.spares));
        Ok(Memory { storage: Storage::Elements(elements), start: 0, len, home })
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

impl Memory {
    /// Elements that belong to no pool.
    #[cfg(all(test, potluck_threads))]
    pub fn of<T: Element>(elements: Vec<T>) -> Memory {
        let len = size_of_val(elements.as_slice());
        let storage = Storage::Elements(Box::new(elements));
        Memory { storage, start: 0, len, home: Weak::new() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let all = match &self.storage {
            Storage::Bytes(bytes) => bytes,
            Storage::Elements(elements) => elements.bytes(),
        };
        &all[self.start..self.start + self.len]
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.storage {
            Storage::Bytes(bytes) => bytes.as_mut_slice(),
            Storage::Elements(elements) => elements.bytes_mut(),
        };
        &mut all[self.start..self.start + self.len]
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The memory as a `Vec<T>`, in exchange for `spare`, which the pool keeps for the next one.
    ///
    /// # Errors
    /// Returns both arguments if the memory is not a `Vec<T>`.
    pub fn trade<T: Element>(
        mut self,
        spare: Option<Vec<T>>,
    ) -> Result<Vec<T>, (Memory, Option<Vec<T>>)> {
        match self.take() {
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

    fn take(&mut self) -> Storage {
        std::mem::replace(&mut self.storage, Storage::Bytes(Vec::new()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        if let Ok(mut spares) = home.lock() {
            spares.take(self.take());
        }
    }
}

impl Spares {
    fn take(&mut self, storage: Storage) {
        let bytes = match &storage {
            Storage::Bytes(bytes) => bytes.len(),
            Storage::Elements(elements) => elements.bytes().len(),
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
        match target_of(self) {
            Target::Bytes(bytes) => bytes,
            Target::Bools(_) => &mut [],
        }
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

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pool: &Pool, len: usize) -> Memory {
        pool.memory(len).expect("there is memory")
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
            assert!(pool.memory(bytes).is_err());
        }
        assert_eq!(pool.memory(1000).map(|memory| memory.len()), Ok(1000));
    }

    #[test]
    fn what_is_idle_makes_room_for_what_there_is_no_memory_for() {
        let pool = Pool::new();
        drop(block(&pool, 1000));
        assert!(pool.memory(usize::MAX / 2).is_err());
        assert_eq!(pool.idle_bytes(), 0, "it was freed, and was not enough");
    }

    #[test]
    fn a_small_block_does_not_pin_a_large_spare() {
        let pool = Pool::new();
        drop(block(&pool, 1 << 20));
        let _small = block(&pool, 100);
        assert_eq!(pool.idle_bytes(), (1 << 20) + BLOCK_ALIGN);
    }
}
