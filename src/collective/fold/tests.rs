//! The arithmetic of reductions: every operator and element type against plain loops, NaN, zero and
//! rounding, and a floating-point environment that the program has changed.

use super::*;
use crate::memory::{bytes_of, bytes_of_mut};

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

fn folded(op: ReduceOp, a: f32, b: f32) -> u32 {
    pair(op, a, b).to_bits()
}

fn pair<T: Arithmetic + Pod>(op: ReduceOp, a: T, b: T) -> T {
    // Longer than any vector register, so that both the vector loop and its tail run.
    let (mut acc, x) = ([a; 37], [b; 37]);
    fold(op, T::DTYPE, bytes_of_mut(&mut acc), bytes_of(&x)).expect("it fits");
    finish(op, T::DTYPE, bytes_of_mut(&mut acc), 2).expect("it fits");
    assert!(acc.iter().all(|y| bytes_of(&[*y]) == bytes_of(&acc[..1])));
    acc[0]
}

fn f16(op: ReduceOp, a: u16, b: u16) -> u16 {
    pair(op, f16::from_bits(a), f16::from_bits(b)).to_bits()
}

fn bf16(op: ReduceOp, a: u16, b: u16) -> u16 {
    pair(op, bf16::from_bits(a), bf16::from_bits(b)).to_bits()
}

/// The bytes of a reduction of these two values. Both are fixed before the reduction begins.
#[cfg(target_arch = "x86_64")]
fn reduction<T: Arithmetic + Pod>(a: T, b: T) -> Box<dyn Fn(ReduceOp) -> Vec<u8>> {
    let (a, b) = ([a; 37], [b; 37]);
    Box::new(move |op| {
        let (mut acc, mut into) = (a, b);
        fold(op, T::DTYPE, bytes_of_mut(&mut acc), bytes_of(&b)).expect("it fits");
        fold_pair(op, T::DTYPE, bytes_of_mut(&mut into), bytes_of(&a), bytes_of(&b))
            .expect("it fits");
        assert_eq!(bytes_of(&acc), bytes_of(&into), "{op}");
        finish(op, T::DTYPE, bytes_of_mut(&mut acc), 3).expect("it fits");
        bytes_of(&acc).to_vec()
    })
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_the_program_has_set_for_its_thread_does_not_show_in_the_bits() {
    let values =
        [f32::from_bits(3), f32::MIN_POSITIVE, 1.0, 1.0 + f32::EPSILON, 16_777_217.0, -0.1, 3.0e38];
    let mut reductions = Vec::new();
    for (a, b) in values.iter().flat_map(|a| values.map(|b| (*a, b))) {
        reductions.push(reduction(a, b));
        reductions.push(reduction(f64::from(a) * 1e-280, f64::from(b) * 1e-280));
        reductions.push(reduction(f16::from_f32(a), f16::from_f32(b)));
        reductions.push(reduction(f16::from_bits(3), f16::from_f32(b)));
        reductions.push(reduction(bf16::from_f32(a), bf16::from_f32(b)));
    }
    let all = || -> Vec<_> { reductions.iter().flat_map(|reduction| OPS.map(reduction)).collect() };
    let usual = all();
    crate::os::under_every_control_word(|| assert_eq!(all(), usual));
}

#[test]
fn what_does_not_fit_is_refused_and_left_as_it_is() {
    let [mut eight, four] = [[1u32; 2], [2u32; 2]];
    let eight = bytes_of_mut(&mut eight);
    for (acc, x) in [(0..8, 0..4), (1..5, 0..4), (0..4, 1..5), (0..7, 0..7)] {
        for dtype in [DType::F32, DType::U32] {
            let folded =
                fold(ReduceOp::Sum, dtype, &mut eight[acc.clone()], &bytes_of(&four)[x.clone()]);
            assert_eq!(folded, Err(Misfit), "{dtype:?} {acc:?} {x:?}");
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        assert_eq!(finish(ReduceOp::Mean, dtype, &mut eight[1..4], 2), Err(Misfit));
    }
    let pair =
        fold_pair(ReduceOp::Sum, DType::F32, &mut eight[..4], bytes_of(&four), bytes_of(&four));
    assert_eq!(pair, Err(Misfit));
    assert_eq!(*eight, *bytes_of(&[1u32; 2]));
}

#[test]
fn integers_wrap_around() {
    assert_eq!(pair(ReduceOp::Sum, i8::MAX, 1), i8::MIN);
    assert_eq!(pair(ReduceOp::Prod, i8::MIN, -1), i8::MIN);
    assert_eq!(pair(ReduceOp::Prod, 200u8, 200), 64);
    assert_eq!(pair(ReduceOp::Sum, u64::MAX, 3), 2);
    assert_eq!(pair(ReduceOp::Prod, i64::MAX, 2), -2);
    assert_eq!(pair(ReduceOp::Sum, i32::MIN, i32::MIN), 0);
    assert_eq!((pair(ReduceOp::Min, i8::MIN, 1), pair(ReduceOp::Max, i8::MIN, 1)), (i8::MIN, 1));
    assert_eq!((pair(ReduceOp::Min, u32::MAX, 1), pair(ReduceOp::Max, u32::MAX, 1)), (1, u32::MAX));
}

#[test]
fn bits_are_folded_apart() {
    assert_eq!(pair(ReduceOp::BitAnd, 0b1100u8, 0b1010), 0b1000);
    assert_eq!(pair(ReduceOp::BitOr, 0b1100u16, 0b1010), 0b1110);
    assert_eq!(pair(ReduceOp::BitXor, 0b1100i16, 0b1010), 0b0110);
    assert_eq!(pair(ReduceOp::BitXor, i64::MIN, -1), i64::MAX);
    assert_eq!(pair(ReduceOp::BitOr, i32::MIN, 1), i32::MIN + 1);
}

#[test]
fn a_fold_of_bools_is_one() {
    let (a, b) = ([0, 0, 1, 1u8], [0, 1, 0, 1u8]);
    let folded = |op| {
        let mut acc = a;
        fold(op, DType::Bool, &mut acc, &b).expect("it fits");
        finish(op, DType::Bool, &mut acc, 2).expect("it fits");
        acc
    };
    for op in [ReduceOp::BitAnd, ReduceOp::Min] {
        assert_eq!(folded(op), [0, 0, 0, 1]);
    }
    for op in [ReduceOp::BitOr, ReduceOp::Max] {
        assert_eq!(folded(op), [0, 1, 1, 1]);
    }
    assert_eq!(folded(ReduceOp::BitXor), [0, 1, 1, 0]);
}

#[test]
fn halves_are_added_in_f32_and_rounded_once() {
    // 2048 + 1 lies between two halves and rounds to the even one, down; 2050 + 1 is a tie that
    // rounds up.
    assert_eq!(f16(ReduceOp::Sum, 0x6800, 0x3c00), 0x6800);
    assert_eq!(f16(ReduceOp::Sum, 0x6801, 0x3c00), 0x6802);
    assert_eq!(f16(ReduceOp::Sum, 0x7bff, 0x7bff), 0x7c00, "too large is infinite");
    assert_eq!(f16(ReduceOp::Mean, 1, 2), 2, "subnormals are kept");
    assert_eq!(f16(ReduceOp::Prod, 0x4200, 0x4200), 0x4880);
    assert_eq!(bf16(ReduceOp::Sum, 0x4380, 0x3f80), 0x4380);
    assert_eq!(bf16(ReduceOp::Sum, 0x4381, 0x3f80), 0x4382);
    assert_eq!(bf16(ReduceOp::Prod, 0x7f7f, 0x4000), 0x7f80);
}

#[test]
fn the_rules_for_nan_and_zero_hold_for_halves() {
    for op in OPS {
        for nan in [0x7e01, 0xfc01, 0x7fff] {
            assert_eq!((f16(op, nan, 0x3c00), f16(op, 0xfc00, nan)), (0x7e00, 0x7e00), "{op}");
        }
        for nan in [0x7fc1, 0xff81, 0x7fff] {
            assert_eq!((bf16(op, nan, 0x3f80), bf16(op, 0xff80, nan)), (0x7fc0, 0x7fc0), "{op}");
        }
    }
    for (a, b) in [(0, 0x8000), (0x8000, 0)] {
        assert_eq!((f16(ReduceOp::Min, a, b), f16(ReduceOp::Max, a, b)), (0x8000, 0));
        assert_eq!((bf16(ReduceOp::Min, a, b), bf16(ReduceOp::Max, a, b)), (0x8000, 0));
    }
    assert_eq!(
        (f16(ReduceOp::Min, 0xfc00, 0xfbff), f16(ReduceOp::Max, 0xfc00, 0xfbff)),
        (0xfc00, 0xfbff)
    );
}

/// The vector loops over halves and the arithmetic of one half take different ways to the same
/// number.
#[test]
fn loops_over_halves_agree_with_the_plain_arithmetic() {
    fn agree<T: Arithmetic>(from_bits: fn(u16) -> T) {
        let all: Vec<T> = (0..=u16::MAX).map(from_bits).collect();
        for other in [0x0001, 0x8400, 0x3c01, 0xbf81, 0x4b7f, 0x7bff, 0x7c00, 0xff80].map(from_bits)
        {
            let (mut sums, mut products) = (all.clone(), all.clone());
            T::add_to(&mut sums, &vec![other; all.len()]);
            T::multiply(&mut products, &vec![other; all.len()]);
            for (i, x) in all.iter().enumerate() {
                let plain = [x.plus(other).canonical(), x.times(other).canonical()];
                assert_eq!(
                    bytes_of(&[sums[i].canonical(), products[i].canonical()]),
                    bytes_of(&plain),
                    "{i:#x}"
                );
            }
        }
    }
    agree(f16::from_bits);
    agree(bf16::from_bits);
}

#[test]
fn folding_a_pair_is_copying_one_and_folding_the_other() {
    // More than two parts, with mixed bits.
    let bits = |salt: u64| -> Vec<u64> {
        (1..=2500u64).map(|i| i.wrapping_mul(salt | 1).rotate_left(i as u32 % 64)).collect()
    };
    let (a, b) = (bits(0x9e37_79b9_7f4a_7c15), bits(0xd1b5_4a32_d192_ed03));
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            let (mut pair, mut plain) = (vec![7u64; a.len()], a.clone());
            fold_pair(op, dtype, bytes_of_mut(&mut pair), bytes_of(&a), bytes_of(&b))
                .expect("it fits");
            fold(op, dtype, bytes_of_mut(&mut plain), bytes_of(&b)).expect("it fits");
            for sum in [&mut pair, &mut plain] {
                finish(op, dtype, bytes_of_mut(sum), 2).expect("it fits");
            }
            assert!(pair == plain, "{op} of {dtype:?}");
        }
    }
}

#[test]
fn any_nan_becomes_the_canonical_one_whatever_its_payload_and_place() {
    for nan in [0x7fc0_0001, 0xffc1_2345, 0x7f80_0001, 0xff80_0001].map(f32::from_bits) {
        for other in [1.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7fff_ffff)] {
            for op in OPS {
                assert_eq!(folded(op, nan, other), 0x7fc0_0000, "{op} of {nan:?} and {other:?}");
                assert_eq!(folded(op, other, nan), 0x7fc0_0000, "{op} of {other:?} and {nan:?}");
            }
        }
    }
    let mut alone = [f64::from_bits(0xfff0_0000_0000_0001)];
    finish(ReduceOp::Max, DType::F64, bytes_of_mut(&mut alone), 1).expect("it fits");
    assert_eq!(alone[0].to_bits(), 0x7ff8_0000_0000_0000);
}

#[test]
fn infinities_and_signed_zeros() {
    let inf = f32::INFINITY;
    assert_eq!(folded(ReduceOp::Sum, inf, -inf), 0x7fc0_0000);
    assert_eq!(folded(ReduceOp::Sum, inf, 1.0), inf.to_bits());
    assert_eq!(folded(ReduceOp::Sum, -0.0, -0.0), (-0.0f32).to_bits());
    for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
        assert_eq!(folded(ReduceOp::Min, a, b), (-0.0f32).to_bits());
        assert_eq!(folded(ReduceOp::Max, a, b), 0.0f32.to_bits());
        assert_eq!(folded(ReduceOp::Sum, a, b), 0.0f32.to_bits());
    }
    assert_eq!(folded(ReduceOp::Min, -inf, 5.0), (-inf).to_bits());
    assert_eq!(folded(ReduceOp::Max, -inf, -5.0), (-5.0f32).to_bits());
}

#[test]
fn subnormals_are_kept() {
    let tiny = f32::from_bits(3);
    assert_eq!(folded(ReduceOp::Sum, tiny, tiny), 6);
    assert_eq!(folded(ReduceOp::Mean, tiny, f32::from_bits(1)), 2);
    assert_eq!(folded(ReduceOp::Min, tiny, 0.0), 0);
    assert_eq!(folded(ReduceOp::Max, tiny, f32::from_bits(4)), 4);
}
