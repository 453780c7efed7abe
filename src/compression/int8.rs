//! Eight bits per element: an integer multiple, -127 to 127, of the step of its block of 256
//! elements. A quarter of the bytes, plus 1/64 of that for the steps.

use super::blocks::{BLOCK, STEP_BYTES, Step, read_step};
use super::codec::Codec;
use crate::wire::Malformed;

/// The 8-bit codec; wire ratio 0.254.
#[derive(Clone, Copy, Debug)]
pub struct Int8;

const MOST: i8 = 127;

impl Codec for Int8 {
    fn encoded_len(&self, elements: usize) -> usize {
        elements.div_ceil(BLOCK) * STEP_BYTES + elements
    }

    #[inline(always)]
    fn write(&self, elements: &[f32], out: &mut [u8]) {
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(STEP_BYTES + BLOCK)) {
            let step = Step::of(block, MOST);
            let Some((head, numbers)) = out.split_first_chunk_mut::<STEP_BYTES>() else { return };
            *head = step.to_bytes();
            if step.is_flat() {
                numbers.fill(0);
                continue;
            }
            for (x, number) in block.iter().zip(numbers) {
                *number = step.steps(*x) as u8;
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        for (block, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(STEP_BYTES + BLOCK)) {
            let (head, numbers) =
                bytes.split_first_chunk::<STEP_BYTES>().ok_or(Malformed::Inconsistent)?;
            let (step, is_flat) = read_step(*head, MOST)?;
            let never = |number: &u8| if is_flat { *number != 0 } else { *number == i8::MIN as u8 };
            if numbers.iter().fold(false, |any, number| any | never(number)) {
                return Err(Malformed::Inconsistent);
            }
            if is_flat {
                block.fill(step);
                continue;
            }
            for (x, number) in block.iter_mut().zip(numbers) {
                *x = f32::from(*number as i8) * step;
            }
        }
        Ok(())
    }
}
