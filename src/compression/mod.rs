//! Compression: codecs that write `f32` elements in fewer bytes on the wire.
//!
//! Encoded data is never added: it is decoded first and summed in `f32`. The sender of an encoded
//! result replaces its own copy by `decode(encode(x))`, so that all ranks hold the same bits.
//!
//! Sums are encoded by the codec [of sums](codec_of_sums). It differs from the codec of
//! contributions only for top-k and one bit.
//!
//! A member's contribution counts as `decode(encode(x))` of its whole buffer, on every engine and
//! at every rank that adds it, including itself. Buffers are cut only between blocks, so a part of
//! a buffer is encoded as it is in the whole. Therefore a member can compute the rounding error of
//! its contribution by itself, see [`Feedback`]. There is no error if the plan lets the member send
//! without the codec.

mod bf16;
mod blocks;
mod by_id;
mod codec;
#[cfg(test)]
mod codecs_tests;
#[cfg(test)]
mod errors;
mod f16;
mod feedback;
#[cfg(test)]
mod golden;
mod int4;
mod int8;
mod one_bit;
mod rotation;
mod top_k;

pub use blocks::{BLOCK, in_whole_blocks};
pub use by_id::codec;
pub use by_id::codec_of_sums;
pub use codec::Codec;
pub use feedback::Feedback;
