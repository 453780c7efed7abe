//! Layer: Core.
//!
//! Compression: how `f32` elements are written in fewer bytes on the wire.
//!
//! Encoded data is never added: whoever adds decodes first and sums in `f32`. Who sends an encoded
//! result replaces its own copy by `decode(encode(x))`, so that all ranks hold the same bits.
//!
//! What is added is encoded by the codec [of sums](codec_of_sums), which is the same one but where
//! a codec leaves elements out.
//!
//! What a member contributes is `decode(encode(x))` of its whole buffer, on every engine and
//! wherever it is added, by itself too: buffers are cut between blocks only, so a part of a buffer
//! is encoded as it would be in the whole. So a member knows by itself what of its contribution was
//! rounded away, see [`Feedback`]; nothing is of one that goes without the codec, as a plan may
//! say.

mod bf16;
mod blocks;
mod f16;
mod feedback;
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
    /// Bytes of `elements` encoded elements.
    fn encoded_len(&self, elements: usize) -> usize;

    /// Writes `elements` into `out`, which has [`encoded_len`](Codec::encoded_len) bytes; what does
    /// not fit is left out.
    fn encode(&self, elements: &[f32], out: &mut [u8]) {
        in_default_environment(|| self.write(elements, out));
    }

    /// Reads as many elements as `out` has.
    ///
    /// # Errors
    /// `Malformed` when `bytes` has another length than that many elements, or is what no encoder
    /// writes; `out` is unspecified then.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        in_default_environment(|| self.read(bytes, out))
    }

    /// [`encode`](Codec::encode) on a thread in the default floating-point environment.
    fn write(&self, elements: &[f32], out: &mut [u8]);

    /// [`decode`](Codec::decode) on a thread in the default floating-point environment.
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed>;
}

/// The codec of a name for what one member contributes, `None` for elements as they are. Which one
/// is taken where that was left to the plan nobody can tell here: those go as they are.
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

/// The codec of a name for sums of what several of so many members have contributed, as it was
/// decoded.
pub fn codec_of_sums(id: CodecId, members: usize) -> Option<&'static dyn Codec> {
    match id {
        CodecId::TopK { kept } => Some(TopK::keeping(usize::from(kept).saturating_mul(members))),
        id => codec(id),
    }
}
