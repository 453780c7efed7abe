//! Layer: Face.
//!
//! Encodings of bulk data that a caller can choose.

use crate::collective::CodecId;

/// How bulk data is encoded on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codec {
    pub(super) id: CodecId,
}

impl Codec {
    /// bfloat16: half the bytes, about three decimal digits. Contributions are decoded before they are added, in f32.
    pub fn bf16() -> Codec {
        Codec { id: CodecId::Bf16 }
    }
}
