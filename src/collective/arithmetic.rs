//! The arithmetic of one element in a reduction step, for every type.
//!
//! It avoids branches that the compiler would not remove: the loops in
//! [`fold`](super::fold::fold()) consist of these steps and should become vector instructions.

use crate::memory::Element;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The arithmetic of one element.
pub trait Arithmetic: Element {
    /// `self + x`.
    fn plus(self, x: Self) -> Self;
    /// `self * x`.
    fn times(self, x: Self) -> Self;
    /// The lesser by the total rule; any NaN if one operand is NaN.
    fn least(self, x: Self) -> Self;
    /// The greater by the total rule; any NaN if one operand is NaN.
    fn greatest(self, x: Self) -> Self;
    /// The bits that both have. A float is returned unchanged: calls of this operator on floats are
    /// rejected.
    fn and(self, x: Self) -> Self;
    /// The bits that either has; a float as for [`and`](Arithmetic::and).
    fn or(self, x: Self) -> Self;
    /// The bits that one of them has; a float as for [`and`](Arithmetic::and).
    fn xor(self, x: Self) -> Self;
    /// `self` divided by the number of members. An integer is returned unchanged: integers have no
    /// mean.
    fn divided_by(self, members: usize) -> Self;
    /// `self`, with a NaN made canonical: positive, quiet, no payload.
    fn canonical(self) -> Self;

    /// `acc = acc + x`, element by element.
    fn add_to(acc: &mut [Self], x: &[Self]) {
        each(acc, x, Self::plus);
    }

    /// `acc = acc * x`, element by element.
    fn multiply(acc: &mut [Self], x: &[Self]) {
        each(acc, x, Self::times);
    }
}

macro_rules! no_bits {
    () => {
        fn and(self, _: Self) -> Self {
            self
        }

        fn or(self, _: Self) -> Self {
            self
        }

        fn xor(self, _: Self) -> Self {
            self
        }
    };
}

macro_rules! float {
    ($float:ty, $nan:literal) => {
        impl Arithmetic for $float {
            #[inline]
            fn plus(self, x: $float) -> $float {
                self + x
            }

            #[inline]
            fn times(self, x: $float) -> $float {
                self * x
            }

            // The tie case has three kinds. Equal nonzero values have equal bits; for zeros the OR
            // takes the negative sign; a NaN stays a NaN when bits are set in it.
            #[inline]
            fn least(self, x: $float) -> $float {
                let tie = <$float>::from_bits(self.to_bits() | x.to_bits());
                if self < x {
                    self
                } else if x < self {
                    x
                } else {
                    tie
                }
            }

            #[inline]
            fn greatest(self, x: $float) -> $float {
                let tie = <$float>::from_bits(self.to_bits() & x.to_bits());
                if self > x {
                    self
                } else if x > self {
                    x
                } else if self == x {
                    tie
                } else {
                    <$float>::from_bits($nan)
                }
            }

            no_bits!();

            #[inline]
            fn divided_by(self, members: usize) -> $float {
                self / members as $float
            }

            #[inline]
            fn canonical(self) -> $float {
                if self.is_nan() { <$float>::from_bits($nan) } else { self }
            }
        }
    };
}

float!(f32, 0x7fc0_0000);
float!(f64, 0x7ff8_0000_0000_0000);

macro_rules! integer {
    ($($integer:ty)*) => {
        $(
            impl Arithmetic for $integer {
                #[inline]
                fn plus(self, x: $integer) -> $integer {
                    self.wrapping_add(x)
                }

                #[inline]
                fn times(self, x: $integer) -> $integer {
                    self.wrapping_mul(x)
                }

                #[inline]
                fn least(self, x: $integer) -> $integer {
                    self.min(x)
                }

                #[inline]
                fn greatest(self, x: $integer) -> $integer {
                    self.max(x)
                }

                #[inline]
                fn and(self, x: $integer) -> $integer {
                    self & x
                }

                #[inline]
                fn or(self, x: $integer) -> $integer {
                    self | x
                }

                #[inline]
                fn xor(self, x: $integer) -> $integer {
                    self ^ x
                }

                fn divided_by(self, _members: usize) -> $integer {
                    self
                }

                fn canonical(self) -> $integer {
                    self
                }
            }
        )*
    };
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Calls of sums and products of `bool` are rejected; here they are or and and.
impl Arithmetic for bool {
    fn plus(self, x: bool) -> bool {
        self | x
    }

    fn times(self, x: bool) -> bool {
        self & x
    }

    fn least(self, x: bool) -> bool {
        self & x
    }

    fn greatest(self, x: bool) -> bool {
        self | x
    }

    fn and(self, x: bool) -> bool {
        self & x
    }

    fn or(self, x: bool) -> bool {
        self | x
    }

    fn xor(self, x: bool) -> bool {
        self ^ x
    }

    fn divided_by(self, _members: usize) -> bool {
        self
    }

    fn canonical(self) -> bool {
        self
    }
}

macro_rules! half {
    ($half:ty, $infinity:literal, $nan:literal, $in_f32:path) => {
        impl Arithmetic for $half {
            fn plus(self, x: $half) -> $half {
                <$half>::from_f32(self.to_f32() + x.to_f32())
            }

            fn times(self, x: $half) -> $half {
                <$half>::from_f32(self.to_f32() * x.to_f32())
            }

            #[inline]
            fn least(self, x: $half) -> $half {
                let (a, b) = (self.to_bits(), x.to_bits());
                let least = if order_of(a) < order_of(b) { a } else { b };
                let nan = a & 0x7fff > $infinity || b & 0x7fff > $infinity;
                <$half>::from_bits(if nan { $nan } else { least })
            }

            #[inline]
            fn greatest(self, x: $half) -> $half {
                let (a, b) = (self.to_bits(), x.to_bits());
                let greatest = if order_of(a) > order_of(b) { a } else { b };
                let nan = a & 0x7fff > $infinity || b & 0x7fff > $infinity;
                <$half>::from_bits(if nan { $nan } else { greatest })
            }

            no_bits!();

            fn divided_by(self, members: usize) -> $half {
                <$half>::from_f32(self.to_f32() / members as f32)
            }

            #[inline]
            fn canonical(self) -> $half {
                <$half>::from_bits(if self.to_bits() & 0x7fff > $infinity {
                    $nan
                } else {
                    self.to_bits()
                })
            }

            fn add_to(acc: &mut [$half], x: &[$half]) {
                $in_f32(acc, x, |a, x| a + x);
            }

            fn multiply(acc: &mut [$half], x: &[$half]) {
                $in_f32(acc, x, |a, x| a * x);
            }
        }
    };
}

half!(f16, 0x7c00, 0x7e00, f16_in_f32);
half!(bf16, 0x7f80, 0x7fc0, bf16_in_f32);

/// A plain loop that the compiler vectorises.
#[inline]
pub(super) fn each<T: Copy>(acc: &mut [T], x: &[T], step: impl Fn(T, T) -> T) {
    for (a, &x) in acc.iter_mut().zip(x) {
        *a = step(*a, x);
    }
}

/// The position of a half, not a NaN, in the order of all halves, -0 below +0. Negative halves with
/// larger bits are smaller.
#[inline]
fn order_of(bits: u16) -> i16 {
    let sign = bits.cast_signed() >> 15;
    bits.cast_signed() ^ (sign & i16::MAX)
}

/// Works in blocks that stay in the first-level cache; the conversions use the processor's
/// instructions if it has them.
fn f16_in_f32(acc: &mut [f16], x: &[f16], step: impl Fn(f32, f32) -> f32) {
    const BLOCK: usize = 512;
    let (mut sums, mut terms) = ([0f32; BLOCK], [0f32; BLOCK]);
    for (acc, x) in acc.chunks_mut(BLOCK).zip(x.chunks(BLOCK)) {
        let (sums, terms) = (&mut sums[..acc.len()], &mut terms[..x.len()]);
        acc.convert_to_f32_slice(sums);
        x.convert_to_f32_slice(terms);
        each(sums, terms, &step);
        acc.convert_from_f32_slice(sums);
    }
}

/// Rounds to nearest, ties to even: adding 0x7fff plus the lowest kept bit carries into the upper
/// half exactly if the value rounds up.
fn bf16_in_f32(acc: &mut [bf16], x: &[bf16], step: impl Fn(f32, f32) -> f32) {
    let wide = |half: bf16| f32::from_bits(u32::from(half.to_bits()) << 16);
    each(acc, x, |a, x| {
        let exact = step(wide(a), wide(x));
        let bits = exact.to_bits();
        let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
        bf16::from_bits(if exact.is_nan() { 0x7fc0 } else { rounded })
    });
}
