//! The bits of folds, compared with those in the repository.
//!
//! Members on different machines have to compute the same bits. Every build compares its own with
//! the same file, so builds that pass agree with each other, whatever processor they are for.

use super::digest::digest_of;
use super::fold::{finish, fold};
use crate::memory::DType;
use crate::protocol::ReduceOp;

/// Members that a mean is divided by.
const MEMBERS: usize = 3;

/// Pairs of pseudo-random bits after the pairs of special values.
const RANDOM_PAIRS: usize = 4096;

/// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine.
pub(crate) fn random_bits(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    })
}

/// Compares lines with a file of the repository. Where they differ on purpose, the file is to be
/// replaced by this output.
pub(crate) fn compare(file: &str, kept: &str, lines: &[String]) {
    let computed = lines.join("\n") + "\n";
    assert!(
        computed == kept,
        "tests/golden/{file} says otherwise; this build computes\n{computed}"
    );
}

/// Zeros, the smallest and the largest numbers of each kind, ones, infinities and NaN, as bits.
fn special_bits(dtype: DType) -> Vec<u64> {
    let width = 8 * dtype.bytes();
    let mantissa = match dtype {
        DType::F16 => 10,
        DType::Bf16 => 7,
        DType::F32 => 23,
        DType::F64 => 52,
        // Any bits are a number.
        _ => width / 2,
    };
    let sign = 1u64 << (width - 1);
    let infinity = (sign - 1) >> mantissa << mantissa;
    let one = infinity >> 1 >> mantissa << mantissa;
    let smallest_normal = 1 << mantissa;
    let positive = [
        0,
        1,
        smallest_normal - 1,
        smallest_normal,
        one - 1,
        one,
        one + 1,
        one + smallest_normal,
        infinity - 1,
        infinity,
        infinity + 1,
        sign - 1,
    ];
    positive.into_iter().flat_map(|bits| [bits, bits | sign]).collect()
}

/// Both operands of every pair, as bytes.
fn operands(dtype: DType) -> (Vec<u8>, Vec<u8>) {
    let special = special_bits(dtype);
    let pairs = special.iter().flat_map(|a| special.iter().map(move |b| (*a, *b)));
    let mut random = random_bits(dtype as u64);
    let random = std::iter::repeat_with(move || random.next().zip(random.next())).flatten();
    let element = |bits: u64| match dtype {
        DType::Bool => vec![bits.count_ones() as u8 & 1],
        _ => bits.to_le_bytes()[..dtype.bytes()].to_vec(),
    };
    let all = pairs.chain(random.take(RANDOM_PAIRS));
    let (a, b): (Vec<_>, Vec<_>) = all.map(|(a, b)| (element(a), element(b))).unzip();
    (a.concat(), b.concat())
}

/// The same bytes where any element may begin.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.collect()
}

#[test]
fn folds_have_the_bits_of_the_golden_file() {
    let mut lines = Vec::new();
    for op in ReduceOp::ALL {
        for dtype in DType::ALL {
            let (a, b) = operands(dtype);
            let (mut sum, other) = (aligned(&a), aligned(&b));
            let sum = &mut bytemuck::cast_slice_mut(&mut sum)[..a.len()];
            fold(op, dtype, sum, &bytemuck::cast_slice(&other)[..b.len()]).expect("it fits");
            finish(op, dtype, sum, MEMBERS).expect("it fits");
            lines.push(format!("{op} {dtype} {:032x}", digest_of(sum)));
        }
    }
    compare("fold.txt", include_str!("../../tests/golden/fold.txt"), &lines);
}
