//! One bit per element: each block of 256 elements is [rotated](super::rotation), and of each
//! number of the rotated block only the sign is kept (DRIVE, Vargaftik and others 2021). The
//! block's scale is the mean of the magnitudes of these numbers, the best one for their signs. 0
//! counts as positive, -0 as negative.
//!
//! A block is encoded as its scale, an `f32`, little-endian, and then a byte for eight numbers. A
//! block of `n` numbers has `w = ceil(n / 8)` such bytes, and bit `b` of byte `k` is the sign of
//! number `b * w + k`, 1 if it is negative. So a row of `w` numbers is one bit of all bytes, and
//! the loops need no shuffling. Bits without a number are 0.
//!
//! The sum of the squared errors of a block is the sum of its squares minus `n` times the square of
//! the scale: about 0.36 of the sum of squares, `1 - 2 / pi`, whatever the distribution of its
//! elements, and always less than all of it. Without the rotation it is more for heavier tails, and
//! then [feedback](super::feedback) sends a gradient so late that training with momentum diverges.
//!
//! A block with an infinity or a NaN becomes a block of canonical NaNs. An element of magnitude
//! above 2^124 may come back infinite. A block becomes zeros if the mean magnitude of its rotated
//! numbers, divided by 16, is below 2^-100.

use super::blocks::{BLOCK, STEP_BYTES, mean_magnitude, read_step};
use super::codec::Codec;
use super::rotation::{rotate, rotate_back};
use crate::wire::Malformed;

/// The 1-bit codec; wire ratio 0.035. Meant for error feedback.
#[derive(Clone, Copy, Debug)]
pub struct OneBit;

/// The bytes of the signs of a whole block.
const SIGN_BYTES: usize = BLOCK / 8;

impl Codec for OneBit {
    fn encoded_len(&self, elements: usize) -> usize {
        elements.div_ceil(BLOCK) * STEP_BYTES
            + elements / BLOCK * SIGN_BYTES
            + (elements % BLOCK).div_ceil(8)
    }

    #[inline(always)]
    fn write(&self, elements: &[f32], out: &mut [u8]) {
        let mut rotated = [0.0; BLOCK];
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(STEP_BYTES + SIGN_BYTES)) {
            rotate(block, &mut rotated);
            let numbers = &rotated[..block.len()];
            let scale = mean_magnitude(numbers);
            let Some((head, signs)) = out.split_first_chunk_mut::<STEP_BYTES>() else { return };
            *head = scale.to_bits().to_le_bytes();
            signs.fill(0);
            if scale.is_nan() || scale == 0.0 {
                continue;
            }
            match <&mut [u8; SIGN_BYTES]>::try_from(&mut *signs) {
                Ok(signs) => write_signs(numbers, signs),
                Err(_) => write_signs(numbers, signs),
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        let mut multiples = [0; BLOCK];
        for (block, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(STEP_BYTES + SIGN_BYTES)) {
            let (head, signs) =
                bytes.split_first_chunk::<STEP_BYTES>().ok_or(Malformed::Inconsistent)?;
            let (scale, is_flat) = read_step(*head, 1)?;
            let used = |place| if is_flat { 0 } else { used_bits(block.len(), signs.len(), place) };
            let unused = |(place, byte): (usize, &u8)| byte & !used(place) != 0;
            if (is_flat || block.len() % 8 != 0) && signs.iter().enumerate().any(unused) {
                return Err(Malformed::Inconsistent);
            }
            if is_flat {
                block.fill(scale);
                continue;
            }
            let numbers = &mut multiples[..block.len()];
            match <&[u8; SIGN_BYTES]>::try_from(signs) {
                Ok(signs) => read_signs(signs, numbers),
                Err(_) => read_signs(signs, numbers),
            }
            rotate_back(&mut multiples, scale, block);
        }
        Ok(())
    }
}

/// The bits of byte `place` of `bytes` that have an element, in a block of `len` elements.
fn used_bits(len: usize, bytes: usize, place: usize) -> u8 {
    let rows = (len - place).div_ceil(bytes);
    u8::MAX >> (8 - rows)
}

/// A [`SIGN_BYTES`] array or the shorter slice of the last block.
#[inline(always)]
fn write_signs<S: AsMut<[u8]> + ?Sized>(numbers: &[f32], signs: &mut S) {
    let signs = signs.as_mut();
    for (bit, row) in numbers.chunks(signs.len()).enumerate() {
        for (byte, number) in signs.iter_mut().zip(row) {
            *byte |= ((number.to_bits() >> 31) as u8) << bit;
        }
    }
}

/// The signs as multiples of the scale, 1 and -1.
#[inline(always)]
fn read_signs<S: AsRef<[u8]> + ?Sized>(signs: &S, multiples: &mut [i16]) {
    let signs = signs.as_ref();
    for (bit, row) in multiples.chunks_mut(signs.len()).enumerate() {
        for (multiple, byte) in row.iter_mut().zip(signs) {
            *multiple = 1 - 2 * i16::from(byte >> bit & 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::errors::{normal, relative_error, student};
    use super::super::feedback::Feedback;
    use super::*;
    use proptest::prelude::*;

    fn encoded(elements: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0xa5; OneBit.encoded_len(elements.len())];
        OneBit.encode(elements, &mut bytes);
        bytes
    }

    fn decoded(bytes: &[u8], elements: usize) -> Result<Vec<f32>, Malformed> {
        let mut out = vec![7.0; elements];
        OneBit.decode(bytes, &mut out).map(|()| out)
    }

    fn coded(elements: &[f32]) -> Vec<f32> {
        decoded(&encoded(elements), elements.len()).expect("what it has written")
    }

    proptest! {
        #[test]
        fn what_was_decoded_is_encoded_without_a_loss(
            elements in prop::collection::vec(-1e6f32..1e6, 0..700),
        ) {
            let once = coded(&elements);
            for (block, again) in once.chunks(BLOCK).zip(coded(&once).chunks(BLOCK)) {
                let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                for (x, y) in block.iter().zip(again) {
                    prop_assert!((x - y).abs() <= largest * 1e-4, "{x} and {y} of {largest}");
                }
            }
        }

        #[test]
        fn bits_of_no_element_are_refused(
            len in 1usize..BLOCK, flip in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encoded(&vec![1.0; len]);
            let at = flip.index((bytes.len() - STEP_BYTES) * 8);
            bytes[STEP_BYTES + at / 8] ^= 1 << (at % 8);
            let is_one = at % 8 * len.div_ceil(8) + at / 8 < len;
            let back = decoded(&bytes, len);
            if is_one {
                prop_assert!(back.is_ok_and(|back| back != coded(&vec![1.0; len])));
            } else {
                prop_assert_eq!(back, Err(Malformed::Inconsistent));
            }
        }

        #[test]
        fn an_error_is_smaller_than_its_block(
            elements in prop::collection::vec(-1000i32..1000, 1..=BLOCK),
        ) {
            let elements: Vec<f32> = elements.iter().map(|x| (*x as f32).powi(3)).collect();
            prop_assert!(relative_error(&OneBit, &elements) < 1.0);
        }
    }

    #[test]
    fn so_near_are_random_numbers() {
        for elements in [normal(1 << 16), student(1 << 16)] {
            let off = relative_error(&OneBit, &elements);
            assert!((0.25..0.38).contains(&off), "1 - 2 / pi, not {off}");
        }
    }

    #[test]
    fn scales_that_no_encoder_writes_are_refused() {
        for scale in [f32::INFINITY, f32::NEG_INFINITY, -1.0, -0.0, 1e-40, -f32::NAN] {
            let mut bytes = encoded(&[1.0; 9]);
            bytes[..STEP_BYTES].copy_from_slice(&scale.to_bits().to_le_bytes());
            assert_eq!(decoded(&bytes, 9), Err(Malformed::Inconsistent), "{scale}");
        }
        for flat in [0.0, f32::NAN] {
            let mut bytes = encoded(&[flat; 256]);
            assert!(decoded(&bytes, 256).is_ok());
            bytes[STEP_BYTES + 31] = 0x80;
            assert_eq!(decoded(&bytes, 256), Err(Malformed::Inconsistent), "a sign of {flat}");
        }
    }

    #[test]
    fn large_elements_stay_finite_and_what_is_no_number_is_seen() {
        for len in [1, 3, 7, 255, 256] {
            for large in [2f32.powi(124), -2f32.powi(124)] {
                assert!(coded(&vec![large; len]).iter().all(|x| x.is_finite()), "{len}");
            }
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut elements = vec![1.0; 600];
            elements[300] = bad;
            let back = coded(&elements);
            assert!((0..600).all(|i| back[i].is_nan() == (256..512).contains(&i)), "{bad}");
        }
        assert_eq!(coded(&[1e-35, -1e-40, 0.0]).map_bits(), [0; 3]);
    }

    trait MapBits {
        fn map_bits(&self) -> Vec<u32>;
    }

    impl MapBits for Vec<f32> {
        fn map_bits(&self) -> Vec<u32> {
            self.iter().map(|x| x.to_bits()).collect()
        }
    }

    #[test]
    fn all_is_sent_in_the_end() {
        let elements = student(2 * BLOCK + 100);
        let rounds = 400;
        let (mut feedback, mut sent) = (Feedback::default(), vec![0f64; elements.len()]);
        for _ in 0..rounds {
            let contribution = feedback.contribution(&elements, Vec::new());
            sent.iter_mut().zip(coded(&contribution)).for_each(|(sent, x)| *sent += f64::from(x));
            feedback = Feedback::after(&OneBit, &contribution, Feedback::default());
        }
        let means: Vec<f32> = sent.iter().map(|sent| (sent / f64::from(rounds)) as f32).collect();
        let off: f64 = means.iter().zip(&elements).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let squares: f64 = elements.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!(off / squares < 0.02, "{}", off / squares);
        assert!(relative_error(&OneBit, &elements) > 0.2, "without feedback");
    }
}
