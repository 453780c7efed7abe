//! Four bits per element: an integer multiple, -7 to 7, of the step of its block of 256 elements.
//! Two elements per byte, the earlier one in the lower half. If the number of elements is odd, the
//! last upper half is 0. An eighth of the bytes, plus 1/32 of that for the steps.

use super::blocks::{BLOCK, STEP_BYTES, Step, read_step};
use super::codec::Codec;
use crate::wire::Malformed;

/// The 4-bit codec; wire ratio 0.129. Its rounding error is a considerable part of the signal.
#[derive(Clone, Copy, Debug)]
pub struct Int4;

const MOST: i8 = 7;

/// The integer -8 as 4 bits, which no encoder writes.
const NEVER: u8 = 8;

impl Codec for Int4 {
    fn encoded_len(&self, elements: usize) -> usize {
        elements.div_ceil(BLOCK) * STEP_BYTES
            + (elements / BLOCK * (BLOCK / 2))
            + (elements % BLOCK).div_ceil(2)
    }

    #[inline(always)]
    fn write(&self, elements: &[f32], out: &mut [u8]) {
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(STEP_BYTES + BLOCK / 2)) {
            let step = Step::of(block, MOST);
            let Some((head, numbers)) = out.split_first_chunk_mut::<STEP_BYTES>() else { return };
            *head = step.to_bytes();
            if step.is_flat() {
                numbers.fill(0);
                continue;
            }
            // Two loops, because the compiler finds vector instructions for each of them, but not for
            // both in one. An odd element has a zero beside it.
            let mut integers = [0; BLOCK];
            for (integer, element) in integers.iter_mut().zip(block) {
                *integer = step.steps(*element);
            }
            for ([low, high], byte) in integers.as_chunks::<2>().0.iter().zip(numbers) {
                *byte = *low as u8 & 0xf | (*high as u8) << 4;
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        for (block, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(STEP_BYTES + BLOCK / 2)) {
            let (head, numbers) =
                bytes.split_first_chunk::<STEP_BYTES>().ok_or(Malformed::Inconsistent)?;
            let (step, is_flat) = read_step(*head, MOST)?;
            let is_padded =
                block.len() % 2 == 0 || numbers.last().is_some_and(|byte| byte >> 4 == 0);
            if !is_padded || is_flat && numbers.iter().fold(0, |any, byte| any | byte) != 0 {
                return Err(Malformed::Inconsistent);
            }
            if is_flat {
                block.fill(step);
                continue;
            }
            let mut integers = [0; BLOCK];
            for (pair, byte) in integers.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
                let both = u16::from(*byte);
                *pair = ((both | both << 4) & 0x0f0f).to_le_bytes();
            }
            if integers.iter().fold(false, |any, integer| any | (*integer == NEVER)) {
                return Err(Malformed::Inconsistent);
            }
            for (element, integer) in block.iter_mut().zip(integers) {
                // The sign of four bits.
                *element = f32::from((integer ^ 8) as i8 - 8) * step;
            }
        }
        Ok(())
    }
}
