//! Inputs that every rank can work out for every other: ordinary numbers, and now and then the awkward ones.

use potluck::{Arithmetic, Bf16, F16};

/// A number type of a buffer.
pub trait Number: Arithmetic + PartialOrd + Unpin + std::fmt::Debug {
    /// A number made of chance.
    fn of(random: u64) -> Self;
    /// All its bits.
    fn bits(self) -> u64;
}

/// What rank `rank` contributes.
pub fn input<T: Number>(seed: u64, rank: usize, len: usize) -> Vec<T> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (rank as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            T::of(state)
        })
        .collect()
}

/// The first element that is not the same bits in both; their common length when one is longer.
pub fn differs<T: Number>(a: &[T], b: &[T]) -> Option<usize> {
    let place = a.iter().zip(b).position(|(a, b)| a.bits() != b.bits());
    place.or_else(|| (a.len() != b.len()).then_some(a.len().min(b.len())))
}

macro_rules! float {
    ($float:ty, $bits:ty, $infinity:literal, $ordinary:expr) => {
        impl Number for $float {
            fn of(random: u64) -> $float {
                let sign = 1 << (<$bits>::BITS - 1);
                let fraction = (random >> 32) as $bits & ((1 << $infinity.trailing_zeros()) - 1);
                match random % 97 {
                    0 => <$float>::from_bits($infinity),
                    1 => <$float>::from_bits($infinity | sign),
                    2 => <$float>::from_bits(sign),
                    // NaN with payloads, then subnormals.
                    3 => <$float>::from_bits($infinity | fraction | 1),
                    4 => <$float>::from_bits($infinity | sign | fraction | 1),
                    5 => <$float>::from_bits(fraction),
                    6 => <$float>::from_bits(fraction | sign),
                    _ => $ordinary(random),
                }
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    };
}

float!(f32, u32, 0x7f80_0000u32, |random: u64| (random >> 20) as f32 / 1e9 - 5000.0);
float!(f64, u64, 0x7ff0_0000_0000_0000u64, |random: u64| (random >> 11) as f64 / 1e12 - 4000.0);
float!(F16, u16, 0x7c00u16, |random: u64| F16::from_f32((random >> 20) as f32 / 1e10 - 800.0));
float!(Bf16, u16, 0x7f80u16, |random: u64| Bf16::from_f32((random >> 20) as f32 / 1e9 - 5000.0));

macro_rules! integer {
    ($($integer:ty)*) => {
        $(
            impl Number for $integer {
                fn of(random: u64) -> $integer {
                    match random % 97 {
                        0 => <$integer>::MIN,
                        1 => <$integer>::MAX,
                        _ => (random >> 7) as $integer,
                    }
                }

                fn bits(self) -> u64 {
                    self as u64
                }
            }
        )*
    };
}

integer!(i8 i32 i64 u8 u32 u64);
