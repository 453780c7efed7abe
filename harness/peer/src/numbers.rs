//! Inputs that every rank can compute for every other rank, and the bit-exact check of results.
//!
//! Inputs repeat after [`PERIOD`] elements, a prime number. So a whole buffer is checked with one
//! period of arithmetic per fold order, and misplaced elements are still detected.

use potluck::plan::{FoldOrder, FoldSegment, FoldTree, reference_sum};
use potluck::{Context, Element, ReduceOp, bf16, f16};
use std::ops::Range;

/// The period of inputs in elements; coprime to every chunk length.
const PERIOD: usize = 65_521;

/// The content of a marked input: 16 bytes that occur in no other traffic.
pub const MARK: [u8; 16] = *b"potluck:marked!\x3e";

/// The number types of a buffer, with the operations that this program needs.
pub trait Number: Element + Unpin {
    /// A number from a fraction in -1..1; for types with a small range, scaled to the whole range.
    fn of(fraction: f64) -> Self;
    /// The numbers with these bytes in memory.
    fn of_bytes(bytes: &[u8; 16]) -> Vec<Self>;
    /// The bit pattern.
    fn bits(self) -> u64;
    /// The value as f64.
    fn value(self) -> f64;
    /// The sequential reference.
    fn reference(order: &FoldOrder, op: ReduceOp, inputs: &[Vec<Self>]) -> Vec<Self>;
}

macro_rules! numbers {
    ($($number:ty, $bits:ty, $of:expr, $of_bits:expr, $bits_of:expr, $value:expr;)*) => {
        $(
            impl Number for $number {
                fn of(fraction: f64) -> $number {
                    $of(fraction)
                }

                fn of_bytes(bytes: &[u8; 16]) -> Vec<$number> {
                    let (words, _) = bytes.as_chunks::<{ size_of::<$bits>() }>();
                    words.iter().map(|word| $of_bits(<$bits>::from_le_bytes(*word))).collect()
                }

                fn bits(self) -> u64 {
                    $bits_of(self) as u64
                }

                fn value(self) -> f64 {
                    $value(self)
                }

                fn reference(
                    order: &FoldOrder,
                    op: ReduceOp,
                    inputs: &[Vec<$number>],
                ) -> Vec<$number> {
                    reference_sum(order, op, inputs)
                }
            }
        )*
    };
}

numbers! {
    f32, u32, |x| x as f32, f32::from_bits, f32::to_bits, f64::from;
    f64, u64, |x| x, f64::from_bits, f64::to_bits, |x| x;
    f16, u16, |x| f16::from_f32(x as f32), f16::from_bits, f16::to_bits,
        |x: f16| f64::from(x.to_f32());
    bf16, u16, |x| bf16::from_f32(x as f32), bf16::from_bits, bf16::to_bits,
        |x: bf16| f64::from(x.to_f32());
    i8, i8, |x| (x * 128.0) as i8, |x| x, |x| x, f64::from;
    i16, i16, |x| (x * 32_768.0) as i16, |x| x, |x| x, f64::from;
    i32, i32, |x| (x * 2f64.powi(31)) as i32, |x| x, |x| x, f64::from;
    i64, i64, |x| (x * 2f64.powi(63)) as i64, |x| x, |x| x, |x| x as f64;
    u8, u8, |x: f64| (x.abs() * 256.0) as u8, |x| x, |x| x, f64::from;
    u16, u16, |x: f64| (x.abs() * 65_536.0) as u16, |x| x, |x| x, f64::from;
    bool, u8, |x: f64| x < 0.0, |x: u8| x & 1 == 1, |x| x, |x| f64::from(u8::from(x));
    u32, u32, |x: f64| (x.abs() * 2f64.powi(32)) as u32, |x| x, |x| x, f64::from;
    u64, u64, |x: f64| (x.abs() * 2f64.powi(64)) as u64, |x| x, |x| x, |x| x as f64;
}

/// The kind of an input.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Pseudo-random, different on every rank.
    Seed(u64),
    /// Like `Seed`, mixed with NaNs, infinities, zeros and subnormals of both signs.
    Awkward(u64),
    /// [`MARK`] repeated, the same on every rank.
    Marked,
}

/// The input of `rank`.
pub fn input<T: Number>(from: Input, rank: usize, len: usize) -> Vec<T> {
    repeated(&period_of(from, rank), len)
}

fn period_of<T: Number>(from: Input, rank: usize) -> Vec<T> {
    match from {
        Input::Seed(seed) => chance(seed, rank, of_fraction),
        Input::Awkward(seed) => chance(seed, rank, of_anything),
        Input::Marked => T::of_bytes(&MARK),
    }
}

fn chance<T: Number>(seed: u64, rank: usize, number: impl Fn(u64) -> T) -> Vec<T> {
    let mut state = seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let draw = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        number(x)
    };
    std::iter::repeat_with(draw).take(PERIOD).collect()
}

fn of_fraction<T: Number>(random: u64) -> T {
    T::of((random >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}

/// The upper 16 bits of NaNs, zeros and subnormals, for every width of type.
const AWKWARD: [u16; 8] = [0x7fff, 0xffff, 0x7ff1, 0xfff2, 0x0001, 0x8001, 0x0000, 0x8000];

fn of_anything<T: Number>(random: u64) -> T {
    let bits = |upper: u16| {
        let word = (random & (u64::MAX >> 16) | u64::from(upper) << 48).to_be_bytes();
        let mut bytes = [0; 16];
        // The first number, of any width, gets the word as its upper bits.
        for (byte, upper) in bytes[..size_of::<T>()].iter_mut().rev().zip(word) {
            *byte = upper;
        }
        T::of_bytes(&bytes)[0]
    };
    match random % 16 {
        0 => T::of(f64::INFINITY),
        1 => T::of(f64::NEG_INFINITY),
        2..=4 => bits(AWKWARD[(random >> 8) as usize % AWKWARD.len()]),
        5 => bits((random >> 32) as u16),
        _ => of_fraction(random),
    }
}

fn repeated<T: Copy>(period: &[T], len: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let more = period.len().min(len - out.len());
        out.extend_from_slice(&period[..more]);
    }
    out
}

/// Whether two buffers are bit-identical.
pub fn same<T: Number>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.bits() == y.bits())
}

/// A hash of all bits of a buffer, in order.
pub fn hash<T: Number>(buffer: &[T]) -> String {
    hex_of(buffer.iter().fold(SEED, |hash, x| mixed(hash, x.bits())))
}

/// The hash of bytes.
pub fn hash_bytes(bytes: &[u8]) -> String {
    hex_of(bytes.iter().fold(SEED, |hash, byte| mixed(hash, u64::from(*byte))))
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    hash ^ (hash >> 29)
}

fn hex_of(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Whether `result` is bit-identical to the reduction of the `size` ranks' inputs in one of these
/// orders.
pub fn is_exact<T: Number>(
    size: usize,
    orders: &[FoldOrder],
    op: ReduceOp,
    from: Input,
    result: &[T],
) -> bool {
    orders.iter().any(|order| is_part_of(size, order, op, from, 0..result.len(), result))
}

/// Whether `result` is close to the reduction: for codecs that round on each hop. Each hop of the
/// plan rounds by at most 2^-9.
pub fn is_close<T: Number>(context: &Context, op: ReduceOp, from: Input, result: &[T]) -> bool {
    let size = context.size() as f64;
    let most = size * (size + 1.0) / 250.0;
    let near = |want: T, have: T| (want.value() - have.value()).abs() <= most;
    compares(
        context.size(),
        &context.fold_order::<T>(result.len()),
        op,
        from,
        0..result.len(),
        result,
        near,
    )
}

/// Whether `result` is bit-identical to these elements of the reduction of `size` ranks' inputs in
/// `order`.
pub fn is_part_of<T: Number>(
    size: usize,
    order: &FoldOrder,
    op: ReduceOp,
    from: Input,
    elements: Range<usize>,
    result: &[T],
) -> bool {
    compares(size, order, op, from, elements, result, |want, have| want.bits() == have.bits())
}

fn compares<T: Number>(
    size: usize,
    order: &FoldOrder,
    op: ReduceOp,
    from: Input,
    elements: Range<usize>,
    result: &[T],
    likes: impl Fn(T, T) -> bool,
) -> bool {
    let period = period_of::<T>(from, 0).len();
    let inputs: Vec<Vec<T>> = (0..size).map(|rank| period_of(from, rank)).collect();
    let mut known: Vec<(FoldTree, Vec<T>)> = Vec::new();
    let mut checked = 0;
    for segment in &order.segments {
        let part =
            segment.elements.start.max(elements.start)..segment.elements.end.min(elements.end);
        if part.is_empty() {
            continue;
        }
        let place = known.iter().position(|(tree, _)| *tree == segment.tree).unwrap_or_else(|| {
            let order = FoldOrder {
                segments: vec![FoldSegment { elements: 0..period, tree: segment.tree.clone() }],
            };
            known.push((segment.tree.clone(), T::reference(&order, op, &inputs)));
            known.len() - 1
        });
        let reference = &known[place].1;
        checked += part.len();
        if !part.into_iter().all(|i| {
            result.get(i - elements.start).is_some_and(|have| likes(reference[i % period], *have))
        }) {
            return false;
        }
    }
    checked == result.len()
}
