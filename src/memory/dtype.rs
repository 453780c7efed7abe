//! The types of buffer elements.

use crate::wire::layout::layout;
use std::fmt;

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Bytes; also the elements of a sync's state.
    U8,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16, the upper half of an `f32`.
    Bf16,
    /// Signed, 8 bits.
    I8,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
}

layout! {
    tags DType {
        1 => F32, 2 => F64, 3 => U8, 4 => F16, 5 => Bf16,
        6 => I8, 7 => I32, 8 => I64, 9 => U32, 10 => U64,
    }
}

impl DType {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [DType; 10] = [
        DType::F32,
        DType::F64,
        DType::U8,
        DType::F16,
        DType::Bf16,
        DType::I8,
        DType::I32,
        DType::I64,
        DType::U32,
        DType::U64,
    ];

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Whether it has fractions, infinities and NaN.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::U8 => "u8",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::U64 => "u64",
        })
    }
}
