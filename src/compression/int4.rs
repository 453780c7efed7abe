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
            let (pairs, odd) = block.as_chunks::<2>();
            for ([low, high], byte) in pairs.iter().zip(numbers.iter_mut()) {
                *byte = step.steps(*low) as u8 & 0xf | (step.steps(*high) as u8) << 4;
            }
            if let ([low], Some(byte)) = (odd, numbers.last_mut()) {
                *byte = step.steps(*low) as u8 & 0xf;
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        for (block, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(STEP_BYTES + BLOCK / 2)) {
            let (head, numbers) =
                bytes.split_first_chunk::<STEP_BYTES>().ok_or(Malformed::Inconsistent)?;
            let (step, is_flat) = read_step(*head, MOST)?;
            let never = |byte: &u8| {
                if is_flat { *byte != 0 } else { byte & 0xf == NEVER || byte >> 4 == NEVER }
            };
            let is_padded =
                block.len() % 2 == 0 || numbers.last().is_some_and(|byte| byte >> 4 == 0);
            if !is_padded || numbers.iter().fold(false, |any, byte| any | never(byte)) {
                return Err(Malformed::Inconsistent);
            }
            if is_flat {
                block.fill(step);
                continue;
            }
            let (pairs, odd) = block.as_chunks_mut::<2>();
            for ([low, high], byte) in pairs.iter_mut().zip(numbers) {
                (*low, *high) = (lower(*byte) * step, lower(byte >> 4) * step);
            }
            if let ([low], Some(byte)) = (odd, numbers.last()) {
                *low = lower(*byte) * step;
            }
        }
        Ok(())
    }
}

/// The integer in the lower half.
#[inline(always)]
fn lower(byte: u8) -> f32 {
    f32::from(((byte << 4) as i8) >> 4)
}
