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
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// One byte: 0 for false, 1 for true.
    Bool,
}

layout! {
    tags DType {
        1 => F32, 2 => F64, 3 => U8, 4 => F16, 5 => Bf16,
        6 => I8, 7 => I32, 8 => I64, 9 => U32, 10 => U64,
        11 => I16, 12 => U16, 13 => Bool,
    }
}

impl DType {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [DType; 13] = [
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
        DType::I16,
        DType::U16,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Whether these bytes are elements of it. All are, but for `bool`, whose bytes are 0 and 1.
    pub(crate) fn is_valid(self, bytes: &[u8]) -> bool {
        // Without an end inside a piece, so that the loop has no branch.
        self != DType::Bool
            || bytes.chunks(4096).all(|piece| piece.iter().fold(0, |all, byte| all | byte) <= 1)
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
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::Bool => "bool",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_of_bool_some_bytes_are_no_elements() {
        for len in [0usize, 1, 4095, 4096, 10_000] {
            let mut bytes: Vec<u8> = (0..len).map(|i| i as u8 & 1).collect();
            assert!(DType::Bool.is_valid(&bytes), "{len}");
            for place in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|i| *i < len) {
                let before = std::mem::replace(&mut bytes[place], 2);
                assert!(!DType::Bool.is_valid(&bytes), "at {place} of {len}");
                assert!(DType::U8.is_valid(&bytes));
                bytes[place] = before;
            }
        }
    }
}
