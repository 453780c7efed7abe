//! One bit per element: its sign. Each block of 256 elements has a scale, the mean of its
//! magnitudes, and an element is decoded as the scale with its sign (signSGD with error feedback,
//! Karimireddy and others 2019). 0 counts as positive, -0 as negative.
//!
//! A block is encoded as its scale, an `f32`, little-endian, and then a byte for eight elements.
//! A block of `n` elements has `w = ceil(n / 8)` such bytes, and bit `b` of byte `k` is the sign of
//! element `b * w + k`, 1 if it is negative. So a row of `w` elements is one bit of all bytes, and
//! the loops need no shuffling. Bits without an element are 0.
//!
//! The error of a block is always smaller than the block: the sum of its squared errors is the sum
//! of its squares minus `n` times the square of the scale. It is 0.36 of the sum of squares for
//! normally distributed elements, more for heavier tails. Without feedback no element is near.
//!
//! A block with an infinity or a NaN becomes a block of canonical NaNs. A block whose mean
//! magnitude is below 2^-100 becomes zeros.

use super::blocks::{BLOCK, STEP_BYTES, mean_magnitude, read_step};
use super::codec::Codec;
use crate::wire::Malformed;

/// The 1-bit codec; wire ratio 0.035. Meant for error feedback.
#[derive(Clone, Copy, Debug)]
pub struct OneBit;

/// The bytes of the signs of a whole block.
const SIGN_BYTES: usize = BLOCK / 8;

/// The bit of a negative `f32`.
const NEGATIVE: u32 = 1 << 31;

impl Codec for OneBit {
    fn encoded_len(&self, elements: usize) -> usize {
        elements.div_ceil(BLOCK) * STEP_BYTES
            + elements / BLOCK * SIGN_BYTES
            + (elements % BLOCK).div_ceil(8)
    }

    #[inline(always)]
    fn write(&self, elements: &[f32], out: &mut [u8]) {
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(STEP_BYTES + SIGN_BYTES)) {
            let scale = mean_magnitude(block);
            let Some((head, signs)) = out.split_first_chunk_mut::<STEP_BYTES>() else { return };
            *head = scale.to_bits().to_le_bytes();
            signs.fill(0);
            if scale.is_nan() || scale == 0.0 {
                continue;
            }
            match <&mut [u8; SIGN_BYTES]>::try_from(&mut *signs) {
                Ok(signs) => write_signs(block, signs),
                Err(_) => write_signs(block, signs),
            }
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
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
            match <&[u8; SIGN_BYTES]>::try_from(signs) {
                Ok(signs) => read_signs(signs, scale, block),
                Err(_) => read_signs(signs, scale, block),
            }
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
fn write_signs<S: AsMut<[u8]> + ?Sized>(block: &[f32], signs: &mut S) {
    let signs = signs.as_mut();
    for (bit, row) in block.chunks(signs.len()).enumerate() {
        for (byte, x) in signs.iter_mut().zip(row) {
            *byte |= ((x.to_bits() >> 31) as u8) << bit;
        }
    }
}

#[inline(always)]
fn read_signs<S: AsRef<[u8]> + ?Sized>(signs: &S, scale: f32, block: &mut [f32]) {
    let signs = signs.as_ref();
    for (bit, row) in block.chunks_mut(signs.len()).enumerate() {
        for (x, byte) in row.iter_mut().zip(signs) {
            *x = f32::from_bits(scale.to_bits() | (u32::from(*byte) << (31 - bit)) & NEGATIVE);
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
        fn signs_stay_and_magnitudes_become_their_mean(
            elements in prop::collection::vec(-1e6f32..1e6, 0..700),
        ) {
            for (block, back) in elements.chunks(BLOCK).zip(coded(&elements).chunks(BLOCK)) {
                let sum: f64 = block.iter().map(|x| f64::from(x.abs())).sum();
                let mean = sum / block.len() as f64;
                for (x, y) in block.iter().zip(back) {
                    prop_assert_eq!(x.is_sign_negative(), y.is_sign_negative());
                    prop_assert!((f64::from(y.abs()) - mean).abs() <= mean * 1e-5, "{y} of {mean}");
                    prop_assert_eq!(y.abs(), back[0].abs());
                }
            }
        }

        #[test]
        fn bits_of_no_element_are_refused(len in 1usize..BLOCK, flip in any::<prop::sample::Index>()) {
            let mut bytes = encoded(&vec![1.0; len]);
            let at = flip.index((bytes.len() - STEP_BYTES) * 8);
            bytes[STEP_BYTES + at / 8] ^= 1 << (at % 8);
            let element = at % 8 * len.div_ceil(8) + at / 8;
            let mut expected = vec![1.0; len];
            let is_one = expected.get_mut(element).map(|x: &mut f32| *x = -1.0).is_some();
            prop_assert_eq!(decoded(&bytes, len), is_one.then_some(expected).ok_or(Malformed::Inconsistent));
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
        let off = relative_error(&OneBit, &normal(1 << 16));
        assert!((0.35..0.38).contains(&off), "1 - 2 / pi, not {off}");
        let off = relative_error(&OneBit, &student(1 << 16));
        assert!((0.4..0.8).contains(&off), "{off}");
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
    fn the_largest_stay_and_what_is_no_number_is_seen() {
        for len in [1, 3, 7, 255, 256] {
            assert!(coded(&vec![f32::MAX; len]).iter().all(|x| *x >= f32::MAX * 0.999_999));
            assert!(coded(&vec![-f32::MAX; len]).iter().all(|x| x.is_finite()), "{len}");
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
        assert!(relative_error(&OneBit, &elements) > 0.3, "without feedback");
    }
}
