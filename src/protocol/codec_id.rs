//! The identifiers of codecs on the wire.

use crate::wire::{Decode, Encode, Malformed, Reader};
use derive_more::Display;

/// The encoding of elements on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[non_exhaustive]
pub enum CodecId {
    /// No encoding.
    #[display("no codec")]
    None,
    /// bfloat16: the upper half of an f32, rounded to nearest even.
    #[display("bf16")]
    Bf16,
    /// IEEE 754 half precision, rounded to nearest even.
    #[display("f16")]
    F16,
    /// Multiples, -127 to 127, of one step per 256 elements.
    #[display("int8")]
    Int8,
    /// Multiples, -7 to 7, of one step per 256 elements, after a rotation of these.
    #[display("int4")]
    Int4,
    /// The signs, and one magnitude, of 256 elements after a rotation of these. Sums are
    /// [`CodecId::Int4`].
    #[display("one bit")]
    OneBit,
    /// The elements with the largest magnitude in every 256, unencoded; the others count as 0.
    #[display("the top {kept} of 256")]
    TopK {
        /// The number of elements kept per 256: 1 to [`CodecId::KEPT_MAX`].
        kept: u8,
    },
    /// The plan's choice for the call's size: no codec, or one of the codecs up to this one. The
    /// choice has no identifier of its own.
    #[display("auto up to {}", _0.id())]
    Auto(Coarsest),
}

/// The coarsest codec that the plan may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Coarsest {
    /// bf16.
    Bf16,
    /// bf16 or int8.
    Int8,
    /// bf16, int8 or int4.
    Int4,
}

impl CodecId {
    /// Most elements per 256 that a [`CodecId::TopK`] keeps: above half of them bf16 takes fewer
    /// bytes.
    pub const KEPT_MAX: u8 = 128;
}

impl Coarsest {
    /// All of them, the finest first.
    pub const ALL: [Coarsest; 3] = [Coarsest::Bf16, Coarsest::Int8, Coarsest::Int4];

    /// The codec itself.
    pub fn id(self) -> CodecId {
        match self {
            Coarsest::Bf16 => CodecId::Bf16,
            Coarsest::Int8 => CodecId::Int8,
            Coarsest::Int4 => CodecId::Int4,
        }
    }
}

/// By hand: each `Auto` has a tag of its own.
impl Encode for CodecId {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CodecId::None => out.push(0),
            CodecId::Bf16 => out.push(1),
            CodecId::F16 => out.push(2),
            CodecId::Int8 => out.push(3),
            CodecId::Int4 => out.push(4),
            CodecId::TopK { kept } => out.extend_from_slice(&[5, *kept]),
            CodecId::Auto(Coarsest::Bf16) => out.push(6),
            CodecId::Auto(Coarsest::Int8) => out.push(7),
            CodecId::Auto(Coarsest::Int4) => out.push(8),
            CodecId::OneBit => out.push(9),
        }
    }
}

impl Decode for CodecId {
    fn decode(r: &mut Reader<'_>) -> Result<CodecId, Malformed> {
        Ok(match r.u8()? {
            0 => CodecId::None,
            1 => CodecId::Bf16,
            2 => CodecId::F16,
            3 => CodecId::Int8,
            4 => CodecId::Int4,
            5 => match r.u8()? {
                kept @ 1..=CodecId::KEPT_MAX => CodecId::TopK { kept },
                _ => return Err(Malformed::Inconsistent),
            },
            6 => CodecId::Auto(Coarsest::Bf16),
            7 => CodecId::Auto(Coarsest::Int8),
            8 => CodecId::Auto(Coarsest::Int4),
            9 => CodecId::OneBit,
            _ => return Err(Malformed::UnknownTag),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    #[test]
    fn every_name_survives_the_wire() {
        let plain = [
            CodecId::None,
            CodecId::Bf16,
            CodecId::F16,
            CodecId::Int8,
            CodecId::Int4,
            CodecId::OneBit,
        ];
        let kept = [1, 3, CodecId::KEPT_MAX].map(|kept| CodecId::TopK { kept });
        for id in plain.into_iter().chain(kept).chain(Coarsest::ALL.map(CodecId::Auto)) {
            assert_codec(&id);
        }
        for kept in [0, CodecId::KEPT_MAX + 1, u8::MAX] {
            assert_eq!(CodecId::from_bytes(&[5, kept]), Err(Malformed::Inconsistent));
        }
        assert_eq!(CodecId::from_bytes(&[10]), Err(Malformed::UnknownTag));
    }
}
