//! Layer: Core.
//!
//! Compression: codecs that write `f32` elements in fewer bytes on the wire.
//!
//! Encoded data is never added: it is decoded first and summed in `f32`. The sender of an encoded
//! result replaces its own copy by `decode(encode(x))`, so that all ranks hold the same bits.
//!
//! Sums are encoded by the codec [of sums](codec_of_sums). It differs from the codec of
//! contributions only if that codec leaves elements out.
//!
//! A member's contribution counts as `decode(encode(x))` of its whole buffer, on every engine and
//! at every rank that adds it, including itself. Buffers are cut only between blocks, so a part of
//! a buffer is encoded as it is in the whole. Therefore a member can compute the rounding error of
//! its contribution by itself, see [`Feedback`]. There is no error if the plan lets the member send
//! without the codec.

mod bf16;
mod blocks;
mod f16;
mod feedback;
#[cfg(test)]
mod golden;
mod int4;
mod int8;
#[cfg(test)]
mod tests;
mod top_k;
mod wide;

pub use bf16::Bf16;
pub use blocks::{BLOCK, in_whole_blocks};
pub use f16::F16;
pub use feedback::Feedback;
pub use int4::Int4;
pub use int8::Int8;
pub use top_k::TopK;

use crate::collective::{CodecId, in_default_environment};
use crate::wire::Malformed;

/// An encoding of `f32` elements. Pure: equal inputs give equal bytes on every machine.
pub trait Codec: Send + Sync {
    /// The encoded length of `elements` elements in bytes.
    fn encoded_len(&self, elements: usize) -> usize;

    /// Encodes `elements` into `out`, which must have [`encoded_len`](Codec::encoded_len) bytes.
    /// With another length the output is incomplete, or the call panics.
    fn encode(&self, elements: &[f32], out: &mut [u8]) {
        in_default_environment(|| self.write(elements, out));
    }

    /// Decodes as many elements as `out` has.
    ///
    /// # Errors
    /// `Malformed` if `bytes` has the wrong length for this number of elements, or if no encoder
    /// writes these bytes; `out` is unspecified then.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        in_default_environment(|| self.read(bytes, out))
    }

    /// The work of [`encode`](Codec::encode), in the default floating-point environment.
    fn write(&self, elements: &[f32], out: &mut [u8]);

    /// The work of [`decode`](Codec::decode), in the default floating-point environment.
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed>;
}

/// The codec for one member's contribution; `None` if elements travel unencoded. Also `None` for
/// `Auto`: the plan makes that choice, which is not known here.
pub fn codec(id: CodecId) -> Option<&'static dyn Codec> {
    match id {
        CodecId::None | CodecId::Auto(_) => None,
        CodecId::Bf16 => Some(&Bf16),
        CodecId::F16 => Some(&F16),
        CodecId::Int8 => Some(&Int8),
        CodecId::Int4 => Some(&Int4),
        CodecId::TopK { kept } => Some(TopK::keeping(usize::from(kept))),
    }
}

/// The codec for sums of the decoded contributions of up to `members` members.
pub fn codec_of_sums(id: CodecId, members: usize) -> Option<&'static dyn Codec> {
    match id {
        CodecId::TopK { kept } => Some(TopK::keeping(usize::from(kept).saturating_mul(members))),
        id => codec(id),
    }
}
