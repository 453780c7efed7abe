//! Tests elements for NaN and infinity.

use crate::memory::DType;

/// Whether all elements are finite; integers always are. An incomplete element at the end of
/// `bytes` is ignored.
pub fn all_finite(dtype: DType, bytes: &[u8]) -> bool {
    // A float is not finite if all exponent bits are ones.
    match dtype {
        DType::F32 => {
            !any::<4>(bytes, |element| u32::from_le_bytes(element) & 0x7f80_0000 == 0x7f80_0000)
        }
        DType::F64 => !any::<8>(bytes, |element| {
            u64::from_le_bytes(element) & 0x7ff0_0000_0000_0000 == 0x7ff0_0000_0000_0000
        }),
        DType::F16 => !any::<2>(bytes, |element| u16::from_le_bytes(element) & 0x7c00 == 0x7c00),
        DType::Bf16 => !any::<2>(bytes, |element| u16::from_le_bytes(element) & 0x7f80 == 0x7f80),
        _ => true,
    }
}

/// Whether the predicate holds for any element. Stops only between pieces, so that the loop over a
/// piece has no branch.
fn any<const SIZE: usize>(bytes: &[u8], is_such: impl Fn([u8; SIZE]) -> bool) -> bool {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    elements
        .chunks(PIECE)
        .any(|piece| piece.iter().fold(false, |found, element| found | is_such(*element)))
}

/// Elements per piece: 8 to 32 KiB.
const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Element, bytes_of};
    use half::{bf16, f16};

    fn assert_finds<T: Element>(finite: &[T], others: &[T]) {
        for len in [0, 1, 3, PIECE - 1, PIECE, 2 * PIECE + 7] {
            let mut elements: Vec<T> = finite.iter().copied().cycle().take(len).collect();
            assert!(all_finite(T::DTYPE, bytes_of(&elements)), "{len} x {}", T::DTYPE);
            for place in
                [0, len / 2, len.saturating_sub(1)].into_iter().filter(|place| *place < len)
            {
                for other in others {
                    let before = std::mem::replace(&mut elements[place], *other);
                    assert!(
                        !all_finite(T::DTYPE, bytes_of(&elements)),
                        "at {place} of {len} x {}",
                        T::DTYPE
                    );
                    elements[place] = before;
                }
            }
        }
    }

    #[test]
    fn one_that_is_not_finite_is_found_wherever_it_is() {
        let (max, tiny) = (f32::MAX, f32::from_bits(1));
        let payload = f32::from_bits(0xffc0_0001);
        assert_finds(
            &[max, -max, tiny, 0.0, -0.0],
            &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, payload, f32::from_bits(0x7f80_0001)],
        );
        assert_finds(
            &[f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0],
            &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY],
        );
        assert_finds(
            &[0x7bff, 0xfbff, 0x0001, 0x8000].map(f16::from_bits),
            &[0x7c00, 0xfc00, 0x7c01, 0xfe00].map(f16::from_bits),
        );
        assert_finds(
            &[0x7f7f, 0xff7f, 0x0001, 0x8000].map(bf16::from_bits),
            &[0x7f80, 0xff80, 0x7f81, 0xffc0].map(bf16::from_bits),
        );
    }

    #[test]
    fn integers_are_finite() {
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            assert!(all_finite(dtype, &[0xff; 64]));
        }
    }
}
