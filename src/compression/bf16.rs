//! bfloat16: the upper half of an `f32`, rounded to nearest, ties to even. Half the bytes, the full
//! range, 8 bits of precision. Overflow rounds to infinity, subnormals are kept, every NaN becomes
//! the canonical one.

use super::codec::Codec;
use crate::wire::Malformed;

/// The bfloat16 codec; wire ratio 0.5.
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

impl Codec for Bf16 {
    fn encoded_len(&self, elements: usize) -> usize {
        elements * 2
    }

    #[inline(always)]
    fn write(&self, elements: &[f32], out: &mut [u8]) {
        for (x, half) in elements.iter().zip(out.as_chunks_mut::<2>().0) {
            *half = encoded(x.to_bits()).to_le_bytes();
        }
    }

    #[inline(always)]
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        for (half, x) in bytes.as_chunks::<2>().0.iter().zip(out) {
            *x = f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        }
        Ok(())
    }
}

/// Integer arithmetic only, so that the loop vectorises. Adding just under half a unit of the last
/// kept place, plus that place's own bit, carries exactly when rounding to nearest even rounds up.
#[inline(always)]
fn encoded(bits: u32) -> u16 {
    const NAN: u16 = 0x7fc0;
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { NAN } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(x: f32) -> u16 {
        let mut out = [0; 2];
        Bf16.encode(&[x], &mut out);
        u16::from_le_bytes(out)
    }

    #[test]
    fn it_rounds_as_the_half_crate_does() {
        // An odd stride: it meets every exponent, both signs and many low bits.
        for bits in (0..=u32::MAX).step_by(65_537 * 3) {
            for bits in [bits, bits & 0xffff_0000 | 0x8000, bits | 0x7fff] {
                let x = f32::from_bits(bits);
                let expected =
                    if x.is_nan() { 0x7fc0 } else { ::half::bf16::from_f32(x).to_bits() };
                assert_eq!(there(x), expected, "{bits:#x}");
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_the_largest_to_infinity() {
        assert_eq!(there(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(there(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(there(f32::MAX), 0x7f80);
        assert_eq!(there(-0.0), 0x8000);
        assert_eq!(there(f32::from_bits(0xff80_0001)), 0x7fc0);
    }

    #[test]
    fn decoding_undoes_encoding_for_every_half() {
        for half in 0..=u16::MAX {
            let mut x = [0.0];
            Bf16.decode(&half.to_le_bytes(), &mut x).expect("two bytes are one element");
            let expected = if x[0].is_nan() { 0x7fc0 } else { half };
            assert_eq!(there(x[0]), expected);
        }
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let mut out = [0.0; 2];
        for len in [0, 1, 2, 3, 5, 6] {
            assert_eq!(Bf16.decode(&vec![0; len], &mut out), Err(Malformed::Inconsistent));
        }
    }
}
