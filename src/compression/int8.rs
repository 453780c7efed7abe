//! Eight bits per element: an integer multiple, -127 to 127, of the step of its block of 256
//! elements. A quarter of the bytes, plus 1/64 of that for the steps.

use super::blocks::{BLOCK, STEP_BYTES, Step, read_step};
use super::codec::Codec;
use super::wide::{Work, widely};
use crate::wire::Malformed;

/// The 8-bit codec; wire ratio 0.254.
#[derive(Clone, Copy, Debug)]
pub struct Int8;

const MOST: i8 = 127;

impl Codec for Int8 {
    fn encoded_len(&self, elements: usize) -> usize {
        elements.div_ceil(BLOCK) * STEP_BYTES + elements
    }

    fn write(&self, elements: &[f32], out: &mut [u8]) {
        widely(Encoding(elements, out));
    }

    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        if bytes.len() != self.encoded_len(out.len()) {
            return Err(Malformed::Inconsistent);
        }
        widely(Decoding(bytes, out))
    }
}

/// The elements, and the buffer for their encoding.
pub(super) struct Encoding<'a>(pub &'a [f32], pub &'a mut [u8]);

impl Work for Encoding<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Encoding(elements, out) = self;
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
}

/// The encoded bytes, of the right length, and the buffer for the elements.
pub(super) struct Decoding<'a>(pub &'a [u8], pub &'a mut [f32]);

impl Work for Decoding<'_> {
    type Output = Result<(), Malformed>;

    #[inline(always)]
    fn run(self) -> Result<(), Malformed> {
        let Decoding(bytes, out) = self;
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
