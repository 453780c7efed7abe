//! Layer: Core.
//!
//! The one fold: the arithmetic of every reduction, whatever the schedule or engine.
//!
//! # Determinism
//!
//! A result is `finish(fold(.. fold(a, b) .., z))`. Each step is one IEEE 754 operation per element, in the order the
//! schedule fixes; nothing is fused or reassociated, so optimisation level and vector width do not show in the bits.
//! Payloads of NaN do differ between machines, so [`finish`] writes every NaN as the type's canonical quiet one. Up to
//! that, each step is commutative, and a node may use either operand as its accumulator.
//!
//! `Min` and `Max` follow a total rule: NaN wins, and -0 is below +0.

use super::call::{DType, ReduceOp};
use super::element::{Element, elements_of, elements_of_mut};

/// `acc = acc op x`, element by element, both whole elements of `dtype` and of one length.
///
/// Bytes ([`DType::U8`]) are never added and stay as they are, as do bytes that are not aligned to their type:
/// blocks always are, and schedules cut them between elements.
pub fn fold(op: ReduceOp, dtype: DType, acc: &mut [u8], x: &[u8]) {
    debug_assert_eq!(acc.len(), x.len());
    match dtype {
        DType::F32 => fold_as::<f32>(op, acc, x),
        DType::F64 => fold_as::<f64>(op, acc, x),
        DType::U8 => {}
    }
}

/// Makes the folded contributions of `members` members the result: divides a mean, makes every NaN canonical.
pub fn finish(op: ReduceOp, dtype: DType, acc: &mut [u8], members: usize) {
    match dtype {
        DType::F32 => finish_as::<f32>(op, acc, members),
        DType::F64 => finish_as::<f64>(op, acc, members),
        DType::U8 => {}
    }
}

/// One element's arithmetic.
pub trait Arithmetic: Element {
    /// The canonical quiet NaN: positive, no payload.
    const NAN: Self;
    /// `self + x`.
    fn plus(self, x: Self) -> Self;
    /// The lesser by the total rule; any NaN when there is one.
    fn least(self, x: Self) -> Self;
    /// The greater by the total rule; any NaN when there is one.
    fn greatest(self, x: Self) -> Self;
    /// `self` divided by the number of members.
    fn over(self, members: usize) -> Self;
    /// `self`, a NaN made canonical.
    fn canonical(self) -> Self;
}

macro_rules! arithmetic {
    ($float:ty, $nan:literal) => {
        impl Arithmetic for $float {
            const NAN: $float = <$float>::from_bits($nan);

            #[inline]
            fn plus(self, x: $float) -> $float {
                self + x
            }

            // Neither below the other: equal, then the bits are too except for the sign of a zero; or a NaN, which stays
            // one when bits are added to it.
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
                    Self::NAN
                }
            }

            #[inline]
            fn over(self, members: usize) -> $float {
                self / members as $float
            }

            #[inline]
            fn canonical(self) -> $float {
                if self.is_nan() { Self::NAN } else { self }
            }
        }
    };
}

arithmetic!(f32, 0x7fc0_0000);
arithmetic!(f64, 0x7ff8_0000_0000_0000);

fn fold_as<T: Arithmetic>(op: ReduceOp, acc: &mut [u8], x: &[u8]) {
    let (Some(acc), Some(x)) = (elements_of_mut::<T>(acc), elements_of::<T>(x)) else {
        debug_assert!(false, "blocks are aligned and cut between elements");
        return;
    };
    match op {
        ReduceOp::Sum | ReduceOp::Mean => each(acc, x, T::plus),
        ReduceOp::Min => each(acc, x, T::least),
        ReduceOp::Max => each(acc, x, T::greatest),
    }
}

#[inline]
fn each<T: Copy>(acc: &mut [T], x: &[T], step: impl Fn(T, T) -> T) {
    for (a, &x) in acc.iter_mut().zip(x) {
        *a = step(*a, x);
    }
}

fn finish_as<T: Arithmetic>(op: ReduceOp, acc: &mut [u8], members: usize) {
    let Some(acc) = elements_of_mut::<T>(acc) else {
        debug_assert!(false, "blocks are aligned and cut between elements");
        return;
    };
    match op {
        ReduceOp::Mean => acc.iter_mut().for_each(|a| *a = a.over(members).canonical()),
        ReduceOp::Sum | ReduceOp::Min | ReduceOp::Max => acc.iter_mut().for_each(|a| *a = a.canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::element::{bytes_of, bytes_of_mut};

    const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max];

    fn folded(op: ReduceOp, a: f32, b: f32) -> u32 {
        // Longer than any vector register, so that both the vector loop and its tail are asked.
        let (mut acc, x) = ([a; 37], [b; 37]);
        fold(op, DType::F32, bytes_of_mut(&mut acc), bytes_of(&x));
        finish(op, DType::F32, bytes_of_mut(&mut acc), 2);
        assert!(acc.iter().all(|y| y.to_bits() == acc[0].to_bits()));
        acc[0].to_bits()
    }

    #[test]
    fn any_nan_becomes_the_canonical_one_whatever_its_payload_and_place() {
        for nan in [0x7fc0_0001, 0xffc1_2345, 0x7f80_0001, 0xff80_0001].map(f32::from_bits) {
            for other in [1.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7fff_ffff)] {
                for op in OPS {
                    assert_eq!(folded(op, nan, other), 0x7fc0_0000, "{op} of {nan:?} and {other:?}");
                    assert_eq!(folded(op, other, nan), 0x7fc0_0000, "{op} of {other:?} and {nan:?}");
                }
            }
        }
        let mut alone = [f64::from_bits(0xfff0_0000_0000_0001)];
        finish(ReduceOp::Max, DType::F64, bytes_of_mut(&mut alone), 1);
        assert_eq!(alone[0].to_bits(), 0x7ff8_0000_0000_0000);
    }

    #[test]
    fn infinities_and_signed_zeros() {
        let inf = f32::INFINITY;
        assert_eq!(folded(ReduceOp::Sum, inf, -inf), 0x7fc0_0000);
        assert_eq!(folded(ReduceOp::Sum, inf, 1.0), inf.to_bits());
        assert_eq!(folded(ReduceOp::Sum, -0.0, -0.0), (-0.0f32).to_bits());
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert_eq!(folded(ReduceOp::Min, a, b), (-0.0f32).to_bits());
            assert_eq!(folded(ReduceOp::Max, a, b), 0.0f32.to_bits());
            assert_eq!(folded(ReduceOp::Sum, a, b), 0.0f32.to_bits());
        }
        assert_eq!(folded(ReduceOp::Min, -inf, 5.0), (-inf).to_bits());
        assert_eq!(folded(ReduceOp::Max, -inf, -5.0), (-5.0f32).to_bits());
    }

    #[test]
    fn subnormals_are_kept() {
        let tiny = f32::from_bits(3);
        assert_eq!(folded(ReduceOp::Sum, tiny, tiny), 6);
        assert_eq!(folded(ReduceOp::Mean, tiny, f32::from_bits(1)), 2);
        assert_eq!(folded(ReduceOp::Min, tiny, 0.0), 0);
        assert_eq!(folded(ReduceOp::Max, tiny, f32::from_bits(4)), 4);
    }
}
