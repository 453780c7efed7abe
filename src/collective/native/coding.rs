//! Encodes and decodes chunks of `f32`.
//!
//! Every function returns [`OutOfMemory`], or [`EngineFault::Memory`], if there is no memory for
//! its result.

use crate::compression::Codec;
use crate::memory::{Block, OutOfMemory, Pool, elements_of, elements_of_mut};
use crate::protocol::EngineFault;
use std::sync::Arc;

/// Encodes `bytes`.
pub fn encoded(codec: &dyn Codec, bytes: &[u8], pool: &Pool) -> Result<Arc<Block>, OutOfMemory> {
    let elements = elements_of::<f32>(bytes).unwrap_or_default();
    let mut encoded = pool.block(codec.encoded_len(elements.len()))?;
    codec.encode(elements, encoded.bytes_mut());
    Ok(Arc::new(encoded))
}

/// Decodes `elements` elements; `None` if `encoded` is malformed.
pub fn decoded(
    codec: &dyn Codec,
    encoded: &[u8],
    elements: usize,
    pool: &Pool,
) -> Result<Option<Block>, OutOfMemory> {
    let mut block = pool.block(elements * size_of::<f32>())?;
    let read = elements_of_mut(block.bytes_mut()).map(|out| codec.decode(encoded, out));
    Ok(matches!(read, Some(Ok(()))).then_some(block))
}

/// Encodes and decodes `bytes`, to get the values that the other ranks will get.
/// [`EngineFault::Unfit`] unless they are whole `f32` elements.
pub fn rounded(codec: &dyn Codec, bytes: &[u8], pool: &Pool) -> Result<Block, EngineFault> {
    let encoded = encoded(codec, bytes, pool)?;
    decoded(codec, encoded.bytes(), bytes.len() / size_of::<f32>(), pool)?.ok_or(EngineFault::Unfit)
}

/// Encodes `bytes`, overwrites them with the decoded values, and returns the encoding.
pub fn round_trip(
    codec: &dyn Codec,
    bytes: &mut [u8],
    pool: &Pool,
) -> Result<Arc<Block>, OutOfMemory> {
    let encoded = encoded(codec, bytes, pool)?;
    let decoded = elements_of_mut(bytes).map(|elements| codec.decode(encoded.bytes(), elements));
    debug_assert_eq!(decoded, Some(Ok(())));
    Ok(encoded)
}
