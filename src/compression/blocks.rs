//! Layer: Core.
//!
//! Symmetric quantisation in blocks, what the codecs of few bits have in common: each block of 256
//! elements has a step of its own, the largest magnitude in it over the largest whole number that
//! the codec writes; an element is the nearest multiple of the step, ties to even, so it is off by
//! half a step at most.
//!
//! A block in which something is infinite or no number cannot be told in multiples: it becomes a
//! block of canonical NaNs, so that what went wrong is seen. A block of magnitudes below 2^-100
//! becomes zeros.

use crate::wire::Malformed;
use std::ops::Range;

/// Elements that share a step.
pub const BLOCK: usize = 256;

/// Bytes of a step on the wire: an `f32`, little-endian.
pub const STEP_BYTES: usize = 4;

/// The same part of a buffer of `count` elements with both ends moved down to where a block begins,
/// unless it is where the buffer ends. Parts that follow each other and cover the buffer still do.
pub fn in_whole_blocks(elements: Range<usize>, count: usize) -> Range<usize> {
    let cut = |at: usize| if at == count { at } else { at - at % BLOCK };
    cut(elements.start)..cut(elements.end)
}

const NAN: u32 = 0x7fc0_0000;

/// 2^-100. The quotient of whole numbers and anything from here on is finite.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

/// Added to a number of small magnitude it leaves the nearest whole number in the lowest bits, ties
/// to even, without an instruction that not every processor has.
const ROUNDING: f32 = 12_582_912.0;

/// The step of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    step: f32,
    /// Steps in one; 0 where all numbers of the block are 0.
    inverse: f32,
}

impl Step {
    /// That of these elements, written as whole numbers of magnitude `most` and less.
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

    /// As it is written.
    pub fn to_bytes(self) -> [u8; STEP_BYTES] {
        self.step.to_bits().to_le_bytes()
    }

    /// Whether the block has no numbers but 0.
    pub fn is_flat(self) -> bool {
        self.inverse == 0.0
    }

    /// The whole number for an element of the block, which is not flat.
    #[inline(always)]
    pub fn steps(self, x: f32) -> i8 {
        (x * self.inverse + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()) as i8
    }
}

/// Reads a step of a block of whole numbers of magnitude `most` and less, and whether it is one of
/// a flat block.
///
/// # Errors
/// No encoder writes it.
pub fn read_step(bytes: [u8; STEP_BYTES], most: i8) -> Result<(f32, bool), Malformed> {
    let step = f32::from_bits(u32::from_le_bytes(bytes));
    if step.to_bits() == NAN || step.to_bits() == 0 {
        return Ok((step, true));
    }
    // The largest magnitude was finite, and the quotient may have been rounded up.
    let fits = step >= SMALLEST / f32::from(most)
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
