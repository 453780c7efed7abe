//! The arithmetic of weighted means.
//!
//! A weighted mean is two sums: of each member's elements times its weight, and of the weights,
//! which are `f64`. The first sum divided by the second is the mean. A product and a quotient are
//! one operation on `f64` each, whose result is rounded to the element type: to `f32` first if the
//! type is a half. So they have the same bits on every member.

use crate::memory::DType;
use crate::os::in_default_environment;
use half::{bf16, f16};

/// Whether a member may have this weight.
pub fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight >= 0.0
}

/// Whether a mean can be divided by this sum of weights.
pub fn is_weight_sum(sum: f64) -> bool {
    sum.is_finite() && sum > 0.0
}

/// `into = weight * x`, element by element, for elements of a float type. With weight 0 all
/// products are 0, also those of a NaN and of an infinity. Both slices have the same length.
pub fn weigh(weight: f64, dtype: DType, into: &mut [u8], x: &[u8]) {
    into.copy_from_slice(x);
    if weight == 0.0 {
        into.fill(0);
    } else {
        each(dtype, into, |x| weight * x);
    }
}

/// Divides weighted sums of a float type by the sum of the weights. Every NaN becomes canonical.
pub fn divide(sum: f64, dtype: DType, acc: &mut [u8]) {
    each(dtype, acc, |x| x / sum);
}

/// Integers are left unchanged: they have no mean.
fn each(dtype: DType, bytes: &mut [u8], step: impl Fn(f64) -> f64) {
    in_default_environment(|| match dtype {
        DType::F32 => each_of(bytes, |x| {
            canonical(step(f64::from(f32::from_le_bytes(x))) as f32).to_le_bytes()
        }),
        DType::F64 => each_of(bytes, |x| {
            let result = step(f64::from_le_bytes(x));
            if result.is_nan() { CANONICAL_F64.to_le_bytes() } else { result.to_le_bytes() }
        }),
        DType::F16 => each_of(bytes, |x| {
            let x = f64::from(f16::from_le_bytes(x).to_f32());
            let result = f16::from_f32(step(x) as f32);
            if result.is_nan() { 0x7e00u16.to_le_bytes() } else { result.to_le_bytes() }
        }),
        DType::Bf16 => each_of(bytes, |x| {
            let x = f64::from(bf16::from_le_bytes(x).to_f32());
            let result = bf16::from_f32(step(x) as f32);
            if result.is_nan() { 0x7fc0u16.to_le_bytes() } else { result.to_le_bytes() }
        }),
        _ => {}
    });
}

fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7fc0_0000) } else { x }
}

const CANONICAL_F64: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

fn each_of<const SIZE: usize>(bytes: &mut [u8], step: impl Fn([u8; SIZE]) -> [u8; SIZE]) {
    bytes.as_chunks_mut::<SIZE>().0.iter_mut().for_each(|x| *x = step(*x));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Element, Float, bytes_of, bytes_of_mut, target_of};

    fn weighed<T: Float>(weight: f64, x: T) -> T {
        let (mut into, x) = ([T::ZERO; 37], [x; 37]);
        weigh(weight, T::DTYPE, bytes_of_mut(&mut into), bytes_of(&x));
        assert!(into.iter().all(|y| bytes_of(&[*y]) == bytes_of(&into[..1])));
        into[0]
    }

    fn divided<T: Element>(sum: f64, mut x: T) -> T {
        // Opaque, so that the operand lies in memory: see `in_default_environment`.
        let operand = std::hint::black_box(std::slice::from_mut(&mut x));
        divide(sum, T::DTYPE, target_of(operand).bytes_mut());
        x
    }

    #[test]
    fn products_and_quotients_are_rounded_to_their_type() {
        assert_eq!(weighed(3.0, 0.1f32).to_bits(), ((3.0 * f64::from(0.1f32)) as f32).to_bits());
        assert_eq!(weighed(0.1, 3.0f64), 0.1 * 3.0);
        assert_eq!(weighed(2.0, f16::from_f32(1.5)), f16::from_f32(3.0));
        assert_eq!(weighed(1000.0, f16::from_f32(1000.0)), f16::INFINITY);
        assert_eq!(weighed(2.0, bf16::from_f32(1.5)), bf16::from_f32(3.0));
        assert_eq!(divided(3.0, 1.0f32).to_bits(), ((1.0f64 / 3.0) as f32).to_bits());
        assert_eq!(divided(3.0, f16::from_f32(1.0)), f16::from_f32((1.0f64 / 3.0) as f32));
        assert_eq!(divided(3.0, bf16::from_f32(1.0)), bf16::from_f32((1.0f64 / 3.0) as f32));
        assert_eq!(divided(3.0, 7i32), 7, "integers have no mean");
    }

    #[test]
    fn a_weight_of_zero_hides_whatever_the_buffer_holds() {
        for x in [f32::NAN, f32::INFINITY, -1.0, -0.0] {
            assert_eq!(weighed(0.0, x).to_bits(), 0, "{x}");
            assert_eq!(weighed(-0.0, x).to_bits(), 0, "{x}");
        }
    }

    #[test]
    fn every_nan_is_the_canonical_one() {
        let nan = f32::from_bits(0xffc1_2345);
        assert_eq!(divided(2.0, nan).to_bits(), 0x7fc0_0000);
        assert_eq!(divided(2.0, f64::from_bits(0xfff0_0000_0000_0001)).to_bits(), 0x7ff8 << 48);
        assert_eq!(divided(2.0, f16::from_bits(0xfc01)).to_bits(), 0x7e00);
        assert_eq!(divided(2.0, bf16::from_bits(0xff81)).to_bits(), 0x7fc0);
    }

    #[test]
    fn weights_are_finite_and_not_negative() {
        assert!([0.0, -0.0, 1.0, f64::MAX, 5e-324].into_iter().all(is_weight));
        let wrong = [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5e-324];
        assert!(!wrong.into_iter().any(is_weight));
        assert!(!is_weight_sum(0.0) && !is_weight_sum(f64::INFINITY) && is_weight_sum(5e-324));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_the_program_has_set_for_its_thread_does_not_show_in_the_bits() {
        let all = || -> Vec<u32> {
            let values = [f32::from_bits(3), 0.1, 16_777_217.0, -3.0e38].into_iter();
            values.flat_map(|x| [weighed(0.3, x).to_bits(), divided(0.7, x).to_bits()]).collect()
        };
        let usual = all();
        crate::os::under_every_control_word(|| assert_eq!(all(), usual));
    }
}
