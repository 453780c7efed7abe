//! Symmetric quantisation in blocks, shared by the 1-bit, 4-bit and 8-bit codecs. Each block of 256
//! numbers has its own step. With 4 and 8 bits it is the largest magnitude in the block, divided by
//! the largest integer of the codec. A number is encoded as the nearest multiple of the step, ties
//! to even, so its error is at most half a step. With 1 bit the step is the mean magnitude.
//!
//! A block with an infinity or a NaN cannot be expressed in multiples. It becomes a block of
//! canonical NaNs, so that the fault stays visible. A block with a largest, or mean, magnitude
//! below 2^-100 becomes zeros.

use crate::wire::Malformed;
use std::ops::Range;

/// The number of elements that share a step.
pub const BLOCK: usize = 256;

/// Bytes of a step on the wire: an `f32`, little-endian.
pub const STEP_BYTES: usize = 4;

/// Moves both ends of this part of a buffer of `count` elements down to the beginning of a block;
/// the end of the buffer stays. Parts that cover a buffer consecutively still do so afterwards.
pub fn in_whole_blocks(elements: Range<usize>, count: usize) -> Range<usize> {
    let cut = |at: usize| if at == count { at } else { at - at % BLOCK };
    cut(elements.start)..cut(elements.end)
}

const NAN: u32 = 0x7fc0_0000;

/// 2^-100. An integer of a codec divided by any larger magnitude is finite.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

/// 1.5 * 2^23. Added to a number of small magnitude, it leaves the nearest integer in the lowest
/// bits, ties to even. Rounding instructions would not be available on every processor.
const ROUNDING: f32 = 12_582_912.0;

/// The step of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    step: f32,
    /// `most / largest`, that is 1 / step; 0 if the block is flat.
    inverse: f32,
}

impl Step {
    /// The step for these elements, written as integers of magnitude up to `most`.
    #[inline(always)]
    pub fn of(block: &[f32], most: i8) -> Step {
        let largest =
            block.iter().fold(0, |largest: u32, x| largest.max(x.to_bits() & 0x7fff_ffff));
        let (largest, most) = (f32::from_bits(largest), f32::from(most));
        if !largest.is_finite() {
            Step { step: f32::from_bits(NAN), inverse: 0.0 }
        } else if largest < SMALLEST {
            Step { step: 0.0, inverse: 0.0 }
        } else {
            Step { step: largest / most, inverse: most / largest }
        }
    }

    /// The step as it is written.
    pub fn to_bytes(self) -> [u8; STEP_BYTES] {
        self.step.to_bits().to_le_bytes()
    }

    /// Whether the block is flat: all zeros or all NaNs, with only 0 as integers.
    pub fn is_flat(self) -> bool {
        self.inverse == 0.0
    }

    /// The integer for an element of a block that is not flat.
    #[inline(always)]
    pub fn steps(self, x: f32) -> i8 {
        (x * self.inverse + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()) as i8
    }
}

/// The mean of the magnitudes of up to 256 elements, the step for integers -1 and 1. NaN if it
/// would be infinite or NaN, 0 if it is below 2^-100. Pairs are added in a fixed order.
#[inline(always)]
pub fn mean_magnitude(block: &[f32]) -> f32 {
    let mut sums = [0.0f32; BLOCK];
    for (sum, x) in sums.iter_mut().zip(block) {
        // So the sum of all cannot overflow.
        *sum = x.abs() * (1.0 / BLOCK as f32);
    }
    fold::<128>(&mut sums);
    fold::<64>(&mut sums);
    fold::<32>(&mut sums);
    fold::<16>(&mut sums);
    fold::<8>(&mut sums);
    fold::<4>(&mut sums);
    fold::<2>(&mut sums);
    fold::<1>(&mut sums);
    let sum = sums[0];
    if !sum.is_finite() {
        return f32::from_bits(NAN);
    }
    // In f64, so that the mean of equal magnitudes is that magnitude. The sum may have been rounded
    // up.
    let mean = (f64::from(sum) * BLOCK as f64 / block.len() as f64) as f32;
    let mean = mean.min(f32::MAX);
    if mean < SMALLEST { 0.0 } else { mean }
}

/// Adds the second `HALF` of the first numbers to the first half of them.
#[inline(always)]
fn fold<const HALF: usize>(sums: &mut [f32; BLOCK]) {
    let (low, high) = sums.split_at_mut(HALF);
    low.iter_mut().zip(high).for_each(|(a, b)| *a += *b);
}

/// Reads the step of a block of integers of magnitude up to `most`. Returns whether the block is
/// flat, too.
///
/// # Errors
/// `Malformed` if no encoder writes this step.
pub fn read_step(bytes: [u8; STEP_BYTES], most: i8) -> Result<(f32, bool), Malformed> {
    let step = f32::from_bits(u32::from_le_bytes(bytes));
    if step.to_bits() == NAN || step.to_bits() == 0 {
        return Ok((step, true));
    }
    // The largest magnitude was finite, and the quotient may have been rounded up.
    let fits = step.is_finite()
        && step >= SMALLEST / f32::from(most)
        && step <= f32::MAX / f32::from(most) * (1.0 + f32::EPSILON);
    if fits { Ok((step, false)) } else { Err(Malformed::Inconsistent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_goes_to_the_nearest_and_ties_to_even() {
        let step = Step { step: 1.0, inverse: 1.0 };
        for (x, nearest) in [
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.5, 0),
            (-1.5, -2),
            (126.49, 126),
            (127.0, 127),
            (-127.0, -127),
            (0.0, 0),
        ] {
            assert_eq!(step.steps(x), nearest, "{x}");
        }
    }

    #[test]
    fn the_largest_is_the_largest_whole_number() {
        for most in [7, 127] {
            for largest in [SMALLEST, 1e-20, 0.3, 1.0, 77.7, 3e38, f32::MAX, -f32::MAX] {
                let step = Step::of(&[0.0, largest, largest / 3.0], most);
                assert_eq!(
                    step.steps(largest),
                    if largest > 0.0 { most } else { -most },
                    "{largest}"
                );
                assert_eq!(read_step(step.to_bytes(), most), Ok((step.step, false)), "{largest}");
            }
        }
    }

    #[test]
    fn what_cannot_be_told_is_flat() {
        for (x, bits) in [
            (f32::NAN, NAN),
            (f32::INFINITY, NAN),
            (f32::NEG_INFINITY, NAN),
            (0.0, 0),
            (-0.0, 0),
            (1e-40, 0),
        ] {
            let step = Step::of(&[0.0, x], 127);
            assert!(step.is_flat() && step.to_bytes() == bits.to_le_bytes(), "{x}");
            assert!(read_step(step.to_bytes(), 127).is_ok_and(|(_, flat)| flat), "{x}");
        }
    }

    #[test]
    fn steps_that_no_encoder_writes_are_refused() {
        for step in [
            f32::INFINITY,
            f32::NEG_INFINITY,
            -1.0,
            -0.0,
            1e-40,
            f32::MAX,
            f32::from_bits(NAN + 1),
            f32::from_bits(NAN | 1 << 31),
        ] {
            assert_eq!(
                read_step(step.to_bits().to_le_bytes(), 127),
                Err(Malformed::Inconsistent),
                "{step}"
            );
        }
    }
}
