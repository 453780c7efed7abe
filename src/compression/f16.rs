//! IEEE 754 half precision, rounded to nearest, ties to even. Half the bytes, 11 bits of precision,
//! magnitudes up to 65504. Larger magnitudes round to infinity, subnormals are kept, every NaN
//! becomes the canonical one.

use super::codec::Codec;
use crate::wire::Malformed;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The half-precision codec; wire ratio 0.5.
#[derive(Clone, Copy, Debug)]
pub struct F16;

const NAN: u16 = 0x7e00;

/// Elements converted at a time, with conversion instructions where the processor has them.
const ROW: usize = 256;

impl Codec for F16 {
    fn encoded_len(&self, elements: usize) -> usize {
        elements * 2
    }

    fn write(&self, elements: &[f32], out: &mut [u8]) {
        let mut row = [f16::ZERO; ROW];
        for (elements, out) in elements.chunks(ROW).zip(out.chunks_mut(2 * ROW)) {
            let halves = &mut row[..elements.len()];
            halves.convert_from_f32_slice(elements);
            for (half, out) in halves.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = if half.is_nan() { NAN } else { half.to_bits() }.to_le_bytes();
            }
        }
    }

    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        let mut row = [f16::ZERO; ROW];
        for (elements, bytes) in out.chunks_mut(ROW).zip(bytes.chunks(2 * ROW)) {
            let halves = &mut row[..elements.len()];
            for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
                let bits = u16::from_le_bytes(*bytes);
                // Some instructions keep the payload of a NaN, others do not.
                *half = f16::from_bits(if f16::from_bits(bits).is_nan() { NAN } else { bits });
            }
            halves.convert_to_f32_slice(elements);
        }
        Ok(())
    }
}
