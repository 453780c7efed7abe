//! Layer: Shells.
//!
//! Chunks of `f32` as they travel encoded.

use crate::collective::{Block, Pool, elements_of, elements_of_mut};
use crate::compression::Codec;
use std::sync::Arc;

/// These elements, encoded.
pub fn encoded(codec: &dyn Codec, bytes: &[u8], pool: &Pool) -> Arc<Block> {
    let elements = elements_of::<f32>(bytes).unwrap_or_default();
    let mut encoded = pool.block(codec.encoded_len(elements.len()));
    codec.encode(elements, encoded.bytes_mut());
    Arc::new(encoded)
}

/// So many elements that were encoded; `None` when it is no such thing.
pub fn decoded(codec: &dyn Codec, encoded: &[u8], elements: usize, pool: &Pool) -> Option<Block> {
    let mut block = pool.block(elements * size_of::<f32>());
    codec.decode(encoded, elements_of_mut(block.bytes_mut())?).ok()?;
    Some(block)
}

/// Encodes `bytes` and overwrites them with what the others will decode.
pub fn round_trip(codec: &dyn Codec, bytes: &mut [u8], pool: &Pool) -> Arc<Block> {
    let encoded = encoded(codec, bytes, pool);
    let decoded = elements_of_mut(bytes).map(|elements| codec.decode(encoded.bytes(), elements));
    debug_assert_eq!(decoded, Some(Ok(())));
    encoded
}
