//! Layer: Core.
//!
//! Compression: how `f32` elements are written in fewer bytes on the wire.
//!
//! Encoded data is never added: whoever adds decodes first and sums in `f32`. Who sends an encoded result replaces its own
//! copy by `decode(encode(x))`, so that all ranks hold the same bits.

mod bf16;
mod blocks;
mod f16;
mod int4;
mod int8;
#[cfg(test)]
mod tests;

pub use bf16::Bf16;
pub use f16::F16;
pub use int4::Int4;
pub use int8::Int8;

use crate::collective::CodecId;
use crate::wire::Malformed;

/// An encoding of `f32` elements. Pure: equal inputs give equal bytes on every machine.
pub trait Codec: Send + Sync {
    /// Bytes of `elements` encoded elements.
    fn encoded_len(&self, elements: usize) -> usize;

    /// Writes `elements` into `out`, which has [`encoded_len`](Codec::encoded_len) bytes; what does not fit is left out.
    fn encode(&self, elements: &[f32], out: &mut [u8]);

    /// Reads as many elements as `out` has.
    ///
    /// # Errors
    /// `Malformed` when `bytes` has another length than that many elements, or is what no encoder writes; `out` is unspecified then.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed>;
}

/// The codec of a name, `None` for elements as they are.
pub fn codec(id: CodecId) -> Option<&'static dyn Codec> {
    match id {
        CodecId::None => None,
        CodecId::Bf16 => Some(&Bf16),
        CodecId::F16 => Some(&F16),
        CodecId::Int8 => Some(&Int8),
        CodecId::Int4 => Some(&Int4),
    }
}
