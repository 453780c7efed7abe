//! Layer: Core.
//!
//! The bytes of a call, owned: a row of pooled blocks that threads hand to each other by value.
//!
//! No thread ever holds a pointer into a caller's buffer. A block is in exactly one hand, or frozen behind an
//! `Arc` and only read; when the last hand lets go, its memory goes back to the pool it came from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// Alignment of every block, for vector loads: one cache line.
pub const BLOCK_ALIGN: usize = 64;

/// Spare memory for blocks. Cheap to clone; all clones are one pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    spares: Arc<Mutex<Spares>>,
}

#[derive(Debug, Default)]
struct Spares {
    /// By length, so that a fitting one is found without a search among many small ones.
    idle: BTreeMap<usize, Vec<Vec<u8>>>,
    idle_bytes: usize,
}

/// Owned, 64-byte aligned bytes.
#[derive(Debug)]
pub struct Block {
    storage: Vec<u8>,
    start: usize,
    len: usize,
    home: Weak<Mutex<Spares>>,
}

/// A buffer as a row of blocks, cut where its schedule cuts chunks.
#[derive(Debug, Default)]
pub struct Staging {
    /// The blocks in order.
    pub blocks: Vec<Block>,
}

impl Pool {
    /// Most bytes kept idle: enough for the staging of one large operation, small against the machine.
    pub const IDLE_BYTES_MAX: usize = 256 * 1024 * 1024;

    /// A pool without spares.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// A block of `len` bytes with unspecified (but initialised) contents.
    pub fn block(&self, len: usize) -> Block {
        let storage = self.spare_of(len + BLOCK_ALIGN).unwrap_or_else(|| vec![0; len + BLOCK_ALIGN]);
        let start = storage.as_ptr().align_offset(BLOCK_ALIGN).min(BLOCK_ALIGN);
        Block { storage, start, len, home: Arc::downgrade(&self.spares) }
    }

    /// Bytes kept idle now.
    #[cfg(test)]
    pub fn idle_bytes(&self) -> usize {
        self.spares.lock().map_or(0, |s| s.idle_bytes)
    }

    fn spare_of(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut spares = self.spares.lock().ok()?;
        // Twice the need at most, so that small operations do not pin large blocks.
        let (&len, fitting) = spares.idle.range_mut(capacity..=2 * capacity).next()?;
        let spare = fitting.pop()?;
        if fitting.is_empty() {
            spares.idle.remove(&len);
        }
        spares.idle_bytes -= len;
        Some(spare)
    }
}

impl Block {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let Ok(mut spares) = home.lock() else { return };
        if spares.idle_bytes + self.storage.len() <= Pool::IDLE_BYTES_MAX {
            spares.idle_bytes += self.storage.len();
            spares.idle.entry(self.storage.len()).or_default().push(std::mem::take(&mut self.storage));
        }
    }
}

impl Staging {
    /// How many bytes in all.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }

    /// Copies `bytes` into blocks of `block_bytes`.
    #[cfg(test)]
    pub fn filled(pool: &Pool, bytes: &[u8], block_bytes: usize) -> Staging {
        let blocks = bytes
            .chunks(block_bytes.max(1))
            .map(|part| {
                let mut block = pool.block(part.len());
                block.bytes_mut().copy_from_slice(part);
                block
            })
            .collect();
        Staging { blocks }
    }

    /// Copies `bytes` into blocks of these lengths, see [`layout`](super::layout); bytes behind the last one are left out.
    pub fn cut(pool: &Pool, bytes: &[u8], lengths: &[usize]) -> Staging {
        let mut rest = bytes;
        let mut next = |len: &usize| {
            let (head, tail) = rest.split_at(rest.len().min(*len));
            rest = tail;
            let mut block = pool.block(head.len());
            block.bytes_mut().copy_from_slice(head);
            block
        };
        Staging { blocks: lengths.iter().map(&mut next).collect() }
    }

    /// Copies the blocks out; `out` must have exactly [`len`](Staging::len) bytes.
    pub fn copy_to(&self, out: &mut [u8]) {
        let mut rest = out;
        for block in &self.blocks {
            let (head, tail) = rest.split_at_mut(block.len());
            head.copy_from_slice(block.bytes());
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_come_back() {
        let pool = Pool::new();
        let block = pool.block(1000);
        assert_eq!(block.bytes().as_ptr().align_offset(BLOCK_ALIGN), 0);
        drop(block);
        assert_eq!(pool.idle_bytes(), 1000 + BLOCK_ALIGN);
        let again = pool.block(900);
        assert_eq!((pool.idle_bytes(), again.len()), (0, 900));
        assert_eq!(again.bytes().as_ptr().align_offset(BLOCK_ALIGN), 0);
    }

    #[test]
    fn a_small_block_does_not_pin_a_large_spare() {
        let pool = Pool::new();
        drop(pool.block(1 << 20));
        let _small = pool.block(100);
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
        let staging = Staging::cut(&Pool::new(), &bytes, &[6, 250]);
        assert_eq!(staging.blocks.iter().map(Block::len).collect::<Vec<_>>(), [6, 250]);
        staging.copy_to(&mut back);
        assert_eq!(back, bytes);
    }
}
