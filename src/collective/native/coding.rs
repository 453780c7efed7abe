//! Layer: Shells.
//!
//! Encodes and decodes chunks of `f32`.

use crate::collective::{Block, Pool, elements_of, elements_of_mut};
use crate::compression::Codec;
use std::sync::Arc;

/// Encodes `bytes`.
pub fn encoded(codec: &dyn Codec, bytes: &[u8], pool: &Pool) -> Arc<Block> {
    let elements = elements_of::<f32>(bytes).unwrap_or_default();
    let mut encoded = pool.block(codec.encoded_len(elements.len()));
    codec.encode(elements, encoded.bytes_mut());
    Arc::new(encoded)
}

/// Decodes `elements` elements; `None` if `encoded` is malformed.
pub fn decoded(codec: &dyn Codec, encoded: &[u8], elements: usize, pool: &Pool) -> Option<Block> {
    let mut block = pool.block(elements * size_of::<f32>());
    codec.decode(encoded, elements_of_mut(block.bytes_mut())?).ok()?;
    Some(block)
}

/// Encodes and decodes `bytes`, to get the values that the other ranks will get. `None` unless they
/// are whole `f32` elements.
pub fn rounded(codec: &dyn Codec, bytes: &[u8], pool: &Pool) -> Option<Block> {
    decoded(codec, encoded(codec, bytes, pool).bytes(), bytes.len() / size_of::<f32>(), pool)
}

/// Encodes `bytes`, overwrites them with the decoded values, and returns the encoding.
pub fn round_trip(codec: &dyn Codec, bytes: &mut [u8], pool: &Pool) -> Arc<Block> {
    let encoded = encoded(codec, bytes, pool);
    let decoded = elements_of_mut(bytes).map(|elements| codec.decode(encoded.bytes(), elements));
    debug_assert_eq!(decoded, Some(Ok(())));
    encoded
}
