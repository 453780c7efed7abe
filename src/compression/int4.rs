//! Four bits per element: each block of 256 elements is [rotated](super::rotation), and each number
//! of the rotated block is an integer multiple, -7 to 7, of the block's step. Two numbers per byte,
//! the earlier one in the lower half. If the number of elements is odd, the last upper half is 0.
//! An eighth of the bytes, plus 1/32 of that for the steps.
//!
//! The sum of the squared errors of a block is about 0.016 of the sum of its squares, whatever the
//! distribution of its elements, and at most 0.57 of it: a number errs by half a step or by itself,
//! and 255 of them share the part of the sum that the largest one leaves. So error feedback stays
//! bounded.
//!
//! An element of magnitude above 2^124 may come back infinite. A block becomes zeros if its rotated
//! numbers, divided by 16, are all below 2^-100; then its elements are below 2^-92.

use super::blocks::{BLOCK, STEP_BYTES, Step, read_step};
use super::codec::Codec;
use super::rotation::{rotate, rotate_back};
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
        let mut rotated = [0.0; BLOCK];
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(STEP_BYTES + BLOCK / 2)) {
            rotate(block, &mut rotated);
            match <&mut [u8; STEP_BYTES + BLOCK / 2]>::try_from(&mut *out) {
                Ok(out) if block.len() == BLOCK => write_block(&rotated, out),
                _ => write_block(&rotated[..block.len()], out),
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        let mut multiples = [0; BLOCK];
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
            let pairs = multiples.as_chunks_mut::<2>().0.iter_mut();
            for ([low, high], byte) in pairs.zip(numbers) {
                (*low, *high) = (lower(*byte), lower(byte >> 4));
            }
            rotate_back(&mut multiples, step, block);
        }
        Ok(())
    }
}

/// Writes the numbers of a rotated block. Expanded twice: whole blocks have a constant length.
#[inline(always)]
fn write_block(rotated: &[f32], out: &mut [u8]) {
    let step = Step::of(rotated, MOST);
    let Some((head, numbers)) = out.split_first_chunk_mut::<STEP_BYTES>() else { return };
    *head = step.to_bytes();
    if step.is_flat() {
        return numbers.fill(0);
    }
    let (pairs, odd) = rotated.as_chunks::<2>();
    for ([low, high], byte) in pairs.iter().zip(numbers.iter_mut()) {
        *byte = step.steps(*low) as u8 & 0xf | (step.steps(*high) as u8) << 4;
    }
    if let ([low], Some(byte)) = (odd, numbers.last_mut()) {
        *byte = step.steps(*low) as u8 & 0xf;
    }
}

/// The integer in the lower half.
#[inline(always)]
fn lower(byte: u8) -> i16 {
    i16::from(((byte << 4) as i8) >> 4)
}

#[cfg(test)]
mod tests {
    use super::super::errors::{normal, relative_error, student};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heavy_tails_lose_no_more_than_normal_numbers() {
        assert!(relative_error(&Int4, &normal(1 << 16)) < 0.018);
        assert!(relative_error(&Int4, &student(1 << 16)) < 0.018);
        // One large element in each block.
        let spiked: Vec<f32> =
            normal(1 << 14).chunks(BLOCK).flat_map(|b| [&[30.0], &b[1..]].concat()).collect();
        assert!(relative_error(&Int4, &spiked) < 0.018);
    }

    #[test]
    fn an_element_alone_comes_back_as_it_was() {
        for len in [1, 2, 100, 256] {
            let mut elements = vec![0.0; len];
            elements[len / 3] = 0.7;
            let off = relative_error(&Int4, &elements);
            assert!(off < 1e-12, "{len}: {off}");
        }
    }

    proptest! {
        #[test]
        fn an_error_is_smaller_than_its_block(
            elements in prop::collection::vec(-10i32..10, 1..=BLOCK), power in -80i32..100,
        ) {
            let elements: Vec<f32> =
                elements.iter().map(|x| (*x as f32).powi(3) * 2f32.powi(power)).collect();
            let off = relative_error(&Int4, &elements);
            prop_assert!(off <= 0.57, "{off}");
        }
    }
}
