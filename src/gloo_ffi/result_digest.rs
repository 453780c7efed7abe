//! The digest of a result that arrives in pieces, on several threads. Each whole digest block is
//! hashed while it is in the cache, the other blocks at the end.

use crate::collective::Digest;
use crate::memory::{Block, OutOfMemory};
use crate::os::{Mutex, lock};
use std::sync::Arc;

/// A digest in progress. Clones share it.
#[derive(Clone)]
pub struct ResultDigest(Arc<Mutex<Option<Digest>>>);

impl ResultDigest {
    /// Starts the digest of a result of `len` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(len: usize) -> Result<ResultDigest, OutOfMemory> {
        Ok(ResultDigest(Arc::new(Mutex::new(Some(Digest::new(len)?)))))
    }

    /// The `bytes` of the result at `offset` have arrived and will not change. An earlier call
    /// reported the first `before` of them.
    pub fn landed(&self, offset: usize, bytes: &[u8], before: usize) {
        let whole = |digest: &Digest| {
            let (whole, told) =
                (digest.whole_blocks(offset, bytes.len()), digest.whole_blocks(offset, before));
            told.end.max(whole.start)..whole.end
        };
        let Some(whole) = lock(&self.0).as_ref().map(whole) else { return };
        for index in whole {
            let hash = Digest::hash_in(index, offset, bytes);
            if let Some(digest) = lock(&self.0).as_mut() {
                digest.note(index, hash);
            }
        }
    }

    /// Returns the digest of the result, whose contents are `blocks`; 0 after the first call. Later
    /// calls of [`landed`](ResultDigest::landed) have no effect.
    pub fn finish(&self, blocks: &[Block]) -> u128 {
        let digest = lock(&self.0).take();
        digest.map_or(0, |digest| digest.finish(blocks))
    }

    /// The number of blocks hashed so far.
    #[cfg(test)]
    fn noted(&self) -> usize {
        lock(&self.0).as_ref().map_or(0, Digest::noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pool, Staging};

    fn result_digest(len: usize) -> ResultDigest {
        ResultDigest::new(len).expect("there is memory")
    }

    #[test]
    fn pieces_do_not_show() {
        let bytes: Vec<u8> = (0..1_000_003).map(|i| ((i * 37) >> 4) as u8).collect();
        let staging = Staging::filled(&Pool::new(), &bytes, bytes.len());
        let plain = result_digest(bytes.len()).finish(&staging.blocks);
        for piece in [1000, 256 * 1024, 300_000, 1 << 20] {
            let in_pieces = result_digest(bytes.len());
            // Skip the first piece: it is left for the end.
            bytes
                .chunks(piece)
                .enumerate()
                .skip(1)
                .for_each(|(i, part)| in_pieces.landed(i * piece, part, 0));
            assert_eq!(in_pieces.finish(&staging.blocks), plain, "pieces of {piece}");
            in_pieces.landed(0, &bytes, 0);
            let (whole, start) = (result_digest(bytes.len()), 77_777);
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
