//! The two 16-bit floats. They are storage formats for buffers; arithmetic is done in `f32`.

use std::cmp::Ordering;
use std::fmt;

/// IEEE 754 binary16: 11 bits of precision, largest number 65504.
///
/// Its memory layout is its 16 bits, so a buffer of another crate's half type can be cast to it.
/// Compares as a float does.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(u16);

/// bfloat16, the upper half of an `f32`: 8 bits of precision, the range of `f32`.
///
/// Its memory layout is its 16 bits, so a buffer of another crate's half type can be cast to it.
/// Compares as a float does.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bf16(u16);

macro_rules! half {
    ($half:ident, $inner:ty) => {
        impl $half {
            /// The nearest number, ties to even. Too large values become infinite; a NaN stays a
            /// NaN.
            pub fn from_f32(x: f32) -> $half {
                $half(<$inner>::from_f32(x).to_bits())
            }

            /// The same number, exactly.
            pub fn to_f32(self) -> f32 {
                <$inner>::from_bits(self.0).to_f32()
            }

            /// The number with these bits.
            pub const fn from_bits(bits: u16) -> $half {
                $half(bits)
            }

            /// The bits: sign, exponent and fraction.
            pub const fn to_bits(self) -> u16 {
                self.0
            }
        }

        impl From<$half> for f32 {
            fn from(half: $half) -> f32 {
                half.to_f32()
            }
        }

        impl PartialEq for $half {
            fn eq(&self, other: &$half) -> bool {
                <$inner>::from_bits(self.0) == <$inner>::from_bits(other.0)
            }
        }

        impl PartialOrd for $half {
            fn partial_cmp(&self, other: &$half) -> Option<Ordering> {
                <$inner>::from_bits(self.0).partial_cmp(&<$inner>::from_bits(other.0))
            }
        }

        impl fmt::Debug for $half {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $half {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

half!(F16, ::half::f16);
half!(Bf16, ::half::bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_an_f32_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (a, b) = (F16::from_bits(bits), Bf16::from_bits(bits));
            // A signalling NaN becomes a quiet one.
            assert!(a.to_f32().is_nan() || F16::from_f32(a.to_f32()).to_bits() == bits);
            assert!(b.to_f32().is_nan() || Bf16::from_f32(b.to_f32()).to_bits() == bits);
        }
    }

    #[test]
    fn they_round_print_and_compare_as_floats() {
        assert_eq!(F16::from_f32(65520.0).to_bits(), 0x7c00);
        assert_eq!(F16::from_f32(1.0 + 1.0 / 2048.0).to_bits(), 0x3c00);
        assert_eq!(Bf16::from_f32(1.0 + 3.0 / 256.0).to_bits(), 0x3f82);
        assert_eq!(
            (F16::from_f32(-2.5).to_string(), format!("{:?}", Bf16::from_f32(-2.0))),
            ("-2.5".into(), "-2.0".into())
        );
        assert!(F16::from_f32(-0.0) == F16::default() && Bf16::from_f32(1.0) < Bf16::from_f32(2.0));
        assert!(F16::from_f32(f32::NAN).partial_cmp(&F16::default()).is_none());
    }
}
