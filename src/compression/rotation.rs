//! The rotation of a block: a random sign for each element, then a Walsh-Hadamard transform. It
//! spreads each element over all others, so that the numbers of a block are near to normally
//! distributed, whatever the distribution of its elements. A single large element then does not
//! determine the step for all others (Suresh and others 2017; DRIVE, Vargaftik and others 2021).
//!
//! The signs are a pure function of the position in the block. Additions have a fixed order, and
//! all factors of a whole block are powers of two. The way back starts from small integers and is
//! exact but for one multiplication.
//!
//! A shorter block, at the end of a buffer, is rotated in pieces whose lengths are powers of two,
//! the longest first. So it has as many numbers as elements.

use super::blocks::BLOCK;
use std::ops::{Add, Sub};

const HALF: usize = BLOCK / 2;

/// The square root of [`BLOCK`].
const ROOT: f32 = 16.0;

/// -1 or 1 for each position in a block.
static SIGNS: [i16; BLOCK] = signs(0x706f_746c_7563_6b01);

/// The highest bits of SplitMix64 (Steele and others 2014).
const fn signs(seed: u64) -> [i16; BLOCK] {
    let (mut signs, mut state, mut place) = ([1; BLOCK], seed, 0);
    while place < BLOCK {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (mixed ^ (mixed >> 31)) >> 63 == 1 {
            signs[place] = -1;
        }
        place += 1;
    }
    signs
}

/// Rotates a block of up to 256 elements, and divides it by 16 so that no finite elements overflow.
/// An infinity or a NaN makes all numbers of its piece infinite or NaN.
#[inline(always)]
pub fn rotate(block: &[f32], numbers: &mut [f32; BLOCK]) {
    let Ok(block) = <&[f32; BLOCK]>::try_from(block) else { return rotate_short(block, numbers) };
    for ((number, x), sign) in numbers.iter_mut().zip(block).zip(&SIGNS) {
        *number = *x * f32::from(*sign) * (1.0 / (ROOT * ROOT));
    }
    transform(numbers);
}

/// Rotates multiples of `step` back. The magnitudes of `multiples` are at most 127.
#[inline(always)]
pub fn rotate_back(multiples: &mut [i16; BLOCK], step: f32, block: &mut [f32]) {
    if block.len() < BLOCK {
        return rotate_short_back(multiples, step, block);
    }
    transform_back(multiples);
    for ((x, multiple), sign) in block.iter_mut().zip(multiples).zip(&SIGNS) {
        *x = f32::from(*multiple * *sign) * step;
    }
}

/// Apart, so that the loops of whole blocks stay small.
#[inline(never)]
fn rotate_short(block: &[f32], numbers: &mut [f32; BLOCK]) {
    for piece in pieces(block.len()) {
        let factor = root_of_inverse(piece.len()) / ROOT;
        let given = block[piece.clone()].iter().zip(&SIGNS[piece.clone()]);
        for (number, (x, sign)) in numbers[piece.clone()].iter_mut().zip(given) {
            *number = *x * f32::from(*sign) * factor;
        }
        transform_piece(&mut numbers[piece]);
    }
}

#[inline(never)]
fn rotate_short_back(multiples: &mut [i16; BLOCK], step: f32, block: &mut [f32]) {
    for piece in pieces(block.len()) {
        let factor = root_of_inverse(piece.len()) * ROOT;
        transform_piece(&mut multiples[piece.clone()]);
        let given = multiples[piece.clone()].iter().zip(&SIGNS[piece.clone()]);
        for (x, (multiple, sign)) in block[piece].iter_mut().zip(given) {
            // In this order no infinity is multiplied by 0.
            *x = f32::from(*multiple * *sign) * factor * step;
        }
    }
}

/// The unnormalised transform of a whole block. Each of the first three passes also moves the
/// position of a number by one bit, so that all passes work on neighbours and can use wide
/// instructions.
#[inline(always)]
fn transform<T: Number>(numbers: &mut [T; BLOCK]) {
    for _ in 0..3 {
        let before = *numbers;
        let (low, high) = before.split_at(HALF);
        for (pair, (a, b)) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(low.iter().zip(high)) {
            *pair = [*a + *b, *a - *b];
        }
    }
    distant(numbers);
}

/// The inverse of [`transform`], times 256.
#[inline(always)]
fn transform_back<T: Number>(numbers: &mut [T; BLOCK]) {
    distant(numbers);
    for _ in 0..3 {
        let before = *numbers;
        let (low, high) = numbers.split_at_mut(HALF);
        for ([a, b], (low, high)) in before.as_chunks::<2>().0.iter().zip(low.iter_mut().zip(high))
        {
            (*low, *high) = (*a + *b, *a - *b);
        }
    }
}

/// The five passes over numbers that are 8 to 128 positions apart, two of them at a time; their own
/// inverse, times 32.
#[inline(always)]
fn distant<T: Number>(numbers: &mut [T; BLOCK]) {
    for [a, b] in numbers.as_chunks_mut::<8>().0.as_chunks_mut::<2>().0 {
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
    fours::<T, 16>(numbers);
    fours::<T, 64>(numbers);
}

#[inline(always)]
fn fours<T: Number, const APART: usize>(numbers: &mut [T; BLOCK]) {
    for [a, b, c, d] in numbers.as_chunks_mut::<APART>().0.as_chunks_mut::<4>().0 {
        for i in 0..APART {
            let (ab, a_b) = (a[i] + b[i], a[i] - b[i]);
            let (cd, c_d) = (c[i] + d[i], c[i] - d[i]);
            (a[i], b[i], c[i], d[i]) = (ab + cd, a_b + c_d, ab - cd, a_b - c_d);
        }
    }
}

/// The unnormalised transform of a power of two of numbers; its own inverse, times their number.
fn transform_piece<T: Number>(numbers: &mut [T]) {
    let mut apart = 1;
    while apart < numbers.len() {
        for pair in numbers.chunks_exact_mut(2 * apart) {
            let (low, high) = pair.split_at_mut(apart);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        apart *= 2;
    }
}

/// The pieces of a block of fewer than 256 elements.
fn pieces(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let bit = (len - begin).checked_ilog2()?;
        let piece = begin..begin + (1 << bit);
        begin = piece.end;
        Some(piece)
    })
}

/// 1 / sqrt(len) for a power of two.
fn root_of_inverse(len: usize) -> f32 {
    let bits = len.ilog2();
    let whole = f32::from_bits((127 - bits / 2) << 23);
    if bits.is_multiple_of(2) { whole } else { whole * std::f32::consts::FRAC_1_SQRT_2 }
}

/// Numbers that are added and subtracted.
trait Number: Copy + Add<Output = Self> + Sub<Output = Self> {}

impl Number for f32 {}
impl Number for i16 {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rotated(block: &[f32]) -> Vec<f32> {
        let mut numbers = [f32::NAN; BLOCK];
        rotate(block, &mut numbers);
        numbers[..block.len()].to_vec()
    }

    fn energy(numbers: &[f32]) -> f64 {
        numbers.iter().map(|x| f64::from(*x).powi(2)).sum()
    }

    #[test]
    fn about_half_of_the_signs_are_negative_and_their_first_ones_stay() {
        // A change of the signs is a change of the wire format.
        assert!((108..=148).contains(&SIGNS.iter().filter(|sign| **sign < 0).count()));
        let first = SIGNS[..16].iter().map(|sign| if *sign < 0 { '-' } else { '+' });
        assert_eq!(first.collect::<String>(), "++----+-+---++-+");
    }

    #[test]
    fn pieces_are_powers_of_two_that_cover_all() {
        let of = |len| pieces(len).collect::<Vec<_>>();
        assert!(of(0).is_empty());
        assert!(of(1).into_iter().eq(std::iter::once(0..1)));
        assert_eq!(of(200), [0..128, 128..192, 192..200]);
        assert_eq!(of(255).len(), 8);
    }

    #[test]
    fn a_single_element_becomes_equal_magnitudes() {
        for place in [0, 1, 2, 77, 128, 255] {
            let mut block = [0.0; BLOCK];
            block[place] = 3.0;
            assert!(rotated(&block).iter().all(|number| number.abs() == 3.0 / 256.0));
        }
        let mut tail = [0.0; 131];
        tail[5] = 1.0;
        let numbers = rotated(&tail);
        assert!(numbers[..128].iter().all(|number| *number != 0.0));
        assert!(numbers[128..].iter().all(|number| *number == 0.0));
    }

    #[test]
    fn the_largest_elements_do_not_overflow_and_what_is_no_number_stays() {
        for len in [1, 2, 3, 31, 128, 255, 256] {
            let signs = |sign: &i16| f32::MAX * f32::from(*sign);
            let along: Vec<f32> = SIGNS[..len].iter().map(signs).collect();
            for block in [along, vec![f32::MAX; len]] {
                assert!(rotated(&block).iter().all(|number| number.is_finite()), "{len}");
            }
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut block = vec![1.0; len];
                block[len / 2] = bad;
                assert!(rotated(&block).iter().any(|number| !number.is_finite()), "{bad} {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_energy_stays(elements in prop::collection::vec(-1e6f32..1e6, 0..=BLOCK)) {
            let (before, after) = (energy(&elements), energy(&rotated(&elements)) * 256.0);
            prop_assert!((before - after).abs() <= before * 1e-5, "{before} became {after}");
        }

        #[test]
        fn what_was_rotated_can_be_rotated_back(
            multiples in prop::collection::vec(-7i16..=7, 1..=BLOCK),
        ) {
            let (mut padded, mut block) = ([0; BLOCK], vec![0.0; multiples.len()]);
            padded[..multiples.len()].copy_from_slice(&multiples);
            rotate_back(&mut padded.clone(), 2.0, &mut block);
            for (number, multiple) in rotated(&block).iter().zip(padded) {
                let expected = f32::from(multiple) * 2.0;
                prop_assert!((number - expected).abs() < 1e-4, "{number}, not {expected}");
            }
        }
    }
}
