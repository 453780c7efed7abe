//! The codec of each id.

use super::bf16::Bf16;
use super::codec::Codec;
use super::f16::F16;
use super::int4::Int4;
use super::int8::Int8;
use super::one_bit::OneBit;
use super::top_k::TopK;
use crate::protocol::CodecId;

/// The codec for one member's contribution; `None` if elements travel unencoded. Also `None` for
/// `Auto`: the plan makes that choice, which is not known here.
pub fn codec(id: CodecId) -> Option<&'static dyn Codec> {
    match id {
        CodecId::None | CodecId::Auto(_) => None,
        CodecId::Bf16 => Some(&Bf16),
        CodecId::F16 => Some(&F16),
        CodecId::Int8 => Some(&Int8),
        CodecId::Int4 => Some(&Int4),
        CodecId::OneBit => Some(&OneBit),
        CodecId::TopK { kept } => Some(TopK::keeping(usize::from(kept))),
    }
}

/// The codec for sums of the decoded contributions of up to `members` members.
pub fn codec_of_sums(id: CodecId, members: usize) -> Option<&'static dyn Codec> {
    match id {
        CodecId::TopK { kept } => Some(TopK::keeping(usize::from(kept).saturating_mul(members))),
        CodecId::OneBit => Some(&Int4),
        id => codec(id),
    }
}
