//! The digest of a result: XXH3-128 over the XXH3-64 hashes of its 256 KiB blocks, by position in
//! the result.
//!
//! It does not depend on the cut of the result into chunks. If the result is contiguous, a digest
//! block is hashed when its last bytes land, while it is in cache. Otherwise a block that lies in
//! one chunk is hashed with that chunk, and the rest in a pass at the end. The digest guards
//! against bugs and memory faults, not against members.

use crate::memory::{Block, OutOfMemory, listed, zeroed};
use std::ops::Range;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

/// Bytes per digest block.
pub const DIGEST_BLOCK_BYTES: usize = 256 * 1024;

/// Plain XXH3-128 of `bytes`; differs from the [`Digest`] of a result.
pub fn digest_of(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// The same of a buffer in parts.
pub fn digest_of_parts<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u128 {
    let mut hash = Xxh3::new();
    parts.for_each(|part| hash.update(part));
    hash.digest128()
}

/// A digest in progress.
#[derive(Debug, Default)]
pub struct Digest {
    len: usize,
    hashes: Vec<Option<u64>>,
    /// By digest block: its bytes that have [landed](Digest::landed).
    here: Vec<u64>,
}

impl Digest {
    /// The digest of a result of `len` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(len: usize) -> Result<Digest, OutOfMemory> {
        let blocks = len.div_ceil(DIGEST_BLOCK_BYTES);
        let hashes = listed(blocks, std::iter::repeat(None))?;
        Ok(Digest { len, hashes, here: zeroed(blocks)? })
    }

    /// Notes that these bytes of the result have landed; to be called once for each byte. Returns
    /// the digest blocks that are complete by that. The caller must hash them.
    pub fn landed(&mut self, bytes: Range<usize>) -> Range<usize> {
        let mut whole = 0..0;
        for index in bytes.start / DIGEST_BLOCK_BYTES
            ..bytes.end.div_ceil(DIGEST_BLOCK_BYTES).min(self.here.len())
        {
            let block = self.block(index);
            let here = bytes.end.min(block.end) - bytes.start.max(block.start);
            self.here[index] += here as u64;
            if self.here[index] == block.len() as u64 {
                whole = if whole.is_empty() { index..index + 1 } else { whole.start..index + 1 };
            }
        }
        whole
    }

    /// The bytes of digest block `index`.
    pub fn block(&self, index: usize) -> Range<usize> {
        let start = index * DIGEST_BLOCK_BYTES;
        start..self.len.min(start + DIGEST_BLOCK_BYTES)
    }

    /// One digest for several results.
    pub fn of_all(digests: impl Iterator<Item = u128>) -> u128 {
        xxh3_128(&digests.flat_map(u128::to_le_bytes).collect::<Vec<u8>>())
    }

    /// The digest blocks that lie wholly in the `len` bytes from `start` on. They can be hashed
    /// without access to the digest.
    #[cfg(any(feature = "gloo", test))]
    pub fn whole_blocks(&self, start: usize, len: usize) -> Range<usize> {
        let end = start + len;
        let last = if end >= self.len { self.hashes.len() } else { end / DIGEST_BLOCK_BYTES };
        let first = start.div_ceil(DIGEST_BLOCK_BYTES);
        first..last.max(first)
    }

    /// The hash of digest block `index`; `bytes` are the result's bytes from `start` on and hold
    /// all of it.
    #[cfg(any(feature = "gloo", test))]
    pub fn hash_in(index: usize, start: usize, bytes: &[u8]) -> u64 {
        let from = index * DIGEST_BLOCK_BYTES - start;
        let to = bytes.len().min(from + DIGEST_BLOCK_BYTES);
        xxh3_64(&bytes[from..to])
    }

    /// The hash of a digest block's bytes.
    pub fn hash(block: &[u8]) -> u64 {
        xxh3_64(block)
    }

    /// Notes the hash of a digest block.
    pub fn note(&mut self, index: usize, hash: u64) {
        self.hashes[index] = Some(hash);
    }

    /// The number of noted hashes.
    #[cfg(test)]
    pub fn noted(&self) -> usize {
        self.hashes.iter().flatten().count()
    }

    /// The digest of the result, which is the concatenation of `blocks`; hashes the digest blocks
    /// that are not noted yet.
    pub fn finish(mut self, blocks: &[Block]) -> u128 {
        let (mut position, mut straddling) = (0, None::<Xxh3>);
        for block in blocks {
            let mut rest = block.bytes();
            while !rest.is_empty() {
                let index = position / DIGEST_BLOCK_BYTES;
                let end = self.len.min((index + 1) * DIGEST_BLOCK_BYTES);
                let (head, tail) = rest.split_at(rest.len().min(end - position));
                if self.hashes[index].is_none() {
                    let hasher = straddling.get_or_insert_default();
                    hasher.update(head);
                    if position + head.len() == end {
                        self.hashes[index] = straddling.take().map(|hasher| hasher.digest());
                    }
                }
                position += head.len();
                rest = tail;
            }
        }
        let mut whole = Xxh3::new();
        self.hashes.iter().for_each(|hash| whole.update(&hash.unwrap_or(0).to_le_bytes()));
        whole.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pool, Staging};

    fn plain(bytes: &[u8]) -> u128 {
        let hashes: Vec<u8> =
            bytes.chunks(DIGEST_BLOCK_BYTES).flat_map(|b| xxh3_64(b).to_le_bytes()).collect();
        xxh3_128(&hashes)
    }

    fn cut(bytes: &[u8], chunk: usize) -> u128 {
        let staging = Staging::filled(&Pool::new(), bytes, chunk);
        let (mut digest, mut start) = (Digest::new(bytes.len()).expect("there is memory"), 0);
        for block in &staging.blocks {
            for index in digest.whole_blocks(start, block.len()) {
                digest.note(index, Digest::hash_in(index, start, block.bytes()));
            }
            start += block.len();
        }
        digest.finish(&staging.blocks)
    }

    #[test]
    fn chunks_do_not_show() {
        for len in
            [0, 1, DIGEST_BLOCK_BYTES - 1, DIGEST_BLOCK_BYTES, DIGEST_BLOCK_BYTES + 1, 1_000_003]
        {
            let bytes: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8).collect();
            for chunk in [
                1000,
                DIGEST_BLOCK_BYTES / 2,
                DIGEST_BLOCK_BYTES,
                300_000,
                2 * DIGEST_BLOCK_BYTES,
                1 << 20,
            ] {
                assert_eq!(cut(&bytes, chunk), plain(&bytes), "{len} bytes in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn what_lands_in_any_order_is_hashed_once_it_is_whole() {
        for (len, chunk) in [
            (1_000_003, 1000),
            (3 * DIGEST_BLOCK_BYTES, 100_000),
            (700_000, 400_000),
            (5, 2),
            (1, 1),
        ] {
            let bytes: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8).collect();
            let mut digest = Digest::new(len).expect("there is memory");
            let mut chunks: Vec<_> =
                (0..len).step_by(chunk).map(|start| start..len.min(start + chunk)).collect();
            // Odd chunks first, in descending order.
            chunks.sort_by_key(|chunk_range| {
                (chunk_range.start / chunk % 2 == 0, std::cmp::Reverse(chunk_range.start))
            });
            let mut hashed = 0;
            for chunk in chunks {
                for index in digest.landed(chunk) {
                    hashed += 1;
                    let block = digest.block(index);
                    digest.note(index, xxh3_64(&bytes[block]));
                }
            }
            assert_eq!(hashed, len.div_ceil(DIGEST_BLOCK_BYTES));
            assert_eq!(digest.finish(&[]), plain(&bytes), "{len} bytes in chunks of {chunk}");
        }
    }

    #[test]
    fn one_bit_shows() {
        let mut bytes = vec![7; 600_000];
        let before = plain(&bytes);
        bytes[599_999] ^= 1;
        assert_ne!(cut(&bytes, 65536), before);
    }
}
