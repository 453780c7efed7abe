//! Layer: Face.
//!
//! Encodings of bulk data that a caller can choose.

use crate::collective::CodecId;

/// How bulk data is encoded on the wire. Contributions are decoded before they are added, in f32; every rank gets the same bits, the result being
/// encoded by whoever has added it.
///
/// Every contribution is encoded once, and every sum: where the plan is a ring, each member adds its share of the buffer from the contributions
/// of all others, instead of a part of the sum being encoded anew at every hop. Only where some members do not reach each other parts of the
/// sum are encoded on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    pub(super) id: CodecId,
}

impl Codec {
    /// bfloat16: half the bytes, about three decimal digits, the whole range.
    pub fn bf16() -> Codec {
        Codec { id: CodecId::Bf16 }
    }

    /// Half precision: half the bytes, more than three decimal digits, magnitudes from 6e-8 to 65504; larger ones become infinite.
    pub fn f16() -> Codec {
        Codec { id: CodecId::F16 }
    }

    /// Eight bits an element, and a step for every 256 of them: 0.254 of the bytes. An element is off by half a step at most, which is 1/254 of the
    /// largest magnitude among its 256. An infinity or a NaN makes all 256 NaN; magnitudes below 2^-100 become zero.
    pub fn int8() -> Codec {
        Codec { id: CodecId::Int8 }
    }

    /// Four bits an element, and a step for every 256 of them: 0.129 of the bytes. An element is off by 1/14 of the largest magnitude
    /// among its 256 at most; otherwise as [`int8`](Codec::int8).
    pub fn int4() -> Codec {
        Codec { id: CodecId::Int4 }
    }
}
