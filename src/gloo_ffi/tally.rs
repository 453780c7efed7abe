//! Layer: Core.
//!
//! The digest of a result that comes together in pieces, from several threads: each whole digest
//! block is hashed while it is in cache, the others at the end.

use crate::collective::{Block, Digest};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A digest that is being taken.
#[derive(Clone)]
pub struct Tally(Arc<Mutex<Option<Digest>>>);

impl Tally {
    /// Of a result of so many bytes.
    pub fn new(len: usize) -> Tally {
        Tally(Arc::new(Mutex::new(Some(Digest::new(len)))))
    }

    /// The result's `bytes` from `offset` on are here, and stay as they are. The first `before` of
    /// them were told of before.
    pub fn landed(&self, offset: usize, bytes: &[u8], before: usize) {
        let whole = |digest: &Digest| {
            let (whole, told) =
                (digest.whole_blocks(offset, bytes.len()), digest.whole_blocks(offset, before));
            told.end.max(whole.start)..whole.end
        };
        let Some(whole) = self.lock().as_ref().map(whole) else { return };
        for index in whole {
            let hash = Digest::hash_in(index, offset, bytes);
            if let Some(digest) = self.lock().as_mut() {
                digest.note(index, hash);
            }
        }
    }

    /// The digest of the result, which is `blocks`. What lands later is late.
    pub fn finish(&self, blocks: &[Block]) -> u128 {
        let digest = self.lock().take();
        digest.unwrap_or_else(|| Digest::new(blocks.iter().map(Block::len).sum())).finish(blocks)
    }

    /// How many digest blocks are hashed.
    #[cfg(test)]
    fn noted(&self) -> usize {
        self.lock().as_ref().map_or(0, Digest::noted)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Digest>> {
        // A digest is changed by total functions only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Pool, Staging};

    #[test]
    fn pieces_do_not_show() {
        let bytes: Vec<u8> = (0..1_000_003).map(|i| ((i * 37) >> 4) as u8).collect();
        let staging = Staging::filled(&Pool::new(), &bytes, bytes.len());
        let plain = Tally::new(bytes.len()).finish(&staging.blocks);
        for piece in [1000, 256 * 1024, 300_000, 1 << 20] {
            let tally = Tally::new(bytes.len());
            // Not the first one: that is left for the end.
            bytes
                .chunks(piece)
                .enumerate()
                .skip(1)
                .for_each(|(i, part)| tally.landed(i * piece, part, 0));
            assert_eq!(tally.finish(&staging.blocks), plain, "pieces of {piece}");
            tally.landed(0, &bytes, 0);
            let (whole, start) = (Tally::new(bytes.len()), 77_777);
            let mut before = 0;
            while start + before < bytes.len() {
                let here = bytes.len().min(start + before + piece) - start;
                whole.landed(start, &bytes[start..start + here], before);
                before = here;
            }
            assert_eq!(
                whole.noted(),
                3,
                "all blocks but the first, in which none of it begins, in pieces of {piece}"
            );
            assert_eq!(whole.finish(&staging.blocks), plain, "one message in pieces of {piece}");
        }
    }
}
