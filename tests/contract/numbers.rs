//! Inputs that every rank can compute for every other rank: ordinary numbers mixed with awkward
//! ones.
//!
//! Inputs repeat after [`PERIOD`] elements, so a result is checked with one period of arithmetic
//! for each fold order. The period is a prime above the lengths of the shorter buffers, so
//! misplaced elements are detected.

use potluck::calls::AllReduce;
use potluck::plan::{Arithmetic, FoldOrder, FoldSegment, FoldTree, reference_sum};
use potluck::{Codec, DType, ReduceOp, bf16, f16};

/// The period of inputs in elements.
const PERIOD: usize = 1009;

/// A number type of a buffer.
pub trait Number: Arithmetic + PartialOrd + Unpin + std::fmt::Debug + bytemuck::NoUninit {
    /// Infinities, zeros, subnormals and NaNs, or the ends of the range. At most 31, so that every
    /// pair of them fits into a period.
    const AWKWARD: &[Self];
    /// A random number, seldom an awkward one.
    fn of(random: u64) -> Self;

    /// The same call with a codec that rounds, if the type has one.
    fn rounded(call: AllReduce<'_, Self>) -> AllReduce<'_, Self> {
        call
    }
}

/// Reproducible random numbers.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A random one of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// The input of `rank`. From 1000 elements on, every pair of awkward numbers occurs on neighbouring
/// ranks.
pub fn input<T: Number>(seed: u64, rank: usize, len: usize) -> Vec<T> {
    let mut chance = Chance::new(seed ^ (rank as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03));
    let chance = std::iter::repeat_with(|| T::of(chance.next()));
    let pairs = T::AWKWARD.len().pow(2);
    let awkward = (0..if len < 1000 { 0 } else { pairs }).map(|i| {
        let place = if rank.is_multiple_of(2) { i } else { i / T::AWKWARD.len() };
        T::AWKWARD[(place + rank / 2) % T::AWKWARD.len()]
    });
    let period: Vec<T> = awkward.chain(chance).take(PERIOD.min(len)).collect();
    repeated(&period, 0, len)
}

/// `len` elements of the repeated period, from the element `start` on.
fn repeated<T: Copy>(period: &[T], start: usize, len: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let rest = &period[(start + out.len()) % period.len()..];
        out.extend_from_slice(&rest[..rest.len().min(len - out.len())]);
    }
    out
}

/// The expected reduction of `inputs`: the sequential reference for one period per tree of the
/// order.
pub fn reduced<T: Number>(order: &FoldOrder, op: ReduceOp, inputs: &[Vec<T>]) -> Vec<T> {
    let len = inputs[0].len();
    let periods: Vec<Vec<T>> =
        inputs.iter().map(|input| input[..PERIOD.min(len)].to_vec()).collect();
    let mut known: Vec<(&FoldTree, Vec<T>)> = Vec::new();
    // Gloo splits some buffers into segments that are out of order or empty; all are checked.
    let mut result = inputs[0].clone();
    for FoldSegment { elements, tree } in
        order.segments.iter().filter(|segment| !segment.elements.is_empty())
    {
        if !known.iter().any(|(other, _)| *other == tree) {
            let whole = FoldSegment { elements: 0..periods[0].len(), tree: tree.clone() };
            known.push((tree, reference_sum(&FoldOrder { segments: vec![whole] }, op, &periods)));
        }
        let reference = known
            .iter()
            .find(|(other, _)| *other == tree)
            .map_or(&[][..], |(_, reference)| reference);
        result[elements.clone()].copy_from_slice(&repeated(
            reference,
            elements.start,
            elements.len(),
        ));
    }
    result
}

/// The index of the first element whose bits differ; the common length if one buffer is longer.
pub fn differs<T: Number>(a: &[T], b: &[T]) -> Option<usize> {
    if bytemuck::cast_slice::<T, u8>(a) == bytemuck::cast_slice::<T, u8>(b) {
        return None;
    }
    let place = a.iter().zip(b).position(|(a, b)| bytemuck::bytes_of(a) != bytemuck::bytes_of(b));
    Some(place.unwrap_or(a.len().min(b.len())))
}

macro_rules! float {
    ($float:ty, $bits:ty, $infinity:literal, $ordinary:expr $(, $more:item)?) => {
        impl Number for $float {
            const AWKWARD: &[$float] = &{
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                const FRACTION: $bits = (1 << $infinity.trailing_zeros()) - 1;
                const ONE: $bits = ($infinity >> 1) & !FRACTION;
                [
                    <$float>::from_bits($infinity),
                    <$float>::from_bits($infinity | SIGN),
                    <$float>::from_bits(0),
                    <$float>::from_bits(SIGN),
                    // NaNs: quiet with a payload, signalling with another one, with all bits set.
                    <$float>::from_bits($infinity | (FRACTION + 1) >> 1 | 5),
                    <$float>::from_bits($infinity | SIGN | 9),
                    <$float>::from_bits($infinity | FRACTION),
                    // Subnormals: the smallest and the largest.
                    <$float>::from_bits(1),
                    <$float>::from_bits(SIGN | 1),
                    <$float>::from_bits(FRACTION),
                    // The smallest normal number, one, and the largest number.
                    <$float>::from_bits(FRACTION + 1),
                    <$float>::from_bits(SIGN | ONE),
                    <$float>::from_bits($infinity - 1),
                    <$float>::from_bits(SIGN | ($infinity - 1)),
                ]
            };

            fn of(random: u64) -> $float {
                let sign = 1 << (<$bits>::BITS - 1);
                let fraction = (random >> 32) as $bits & ((1 << $infinity.trailing_zeros()) - 1);
                match random % 97 {
                    0 => <$float>::from_bits($infinity),
                    1 => <$float>::from_bits($infinity | sign),
                    2 => <$float>::from_bits(sign),
                    // NaNs with payloads, then subnormals.
                    3 => <$float>::from_bits($infinity | fraction | 1),
                    4 => <$float>::from_bits($infinity | sign | fraction | 1),
                    5 => <$float>::from_bits(fraction),
                    6 => <$float>::from_bits(fraction | sign),
                    _ => $ordinary(random),
                }
            }

            $($more)?
        }
    };
}

float!(
    f32,
    u32,
    0x7f80_0000u32,
    |random: u64| (random >> 20) as f32 / 1e9 - 5000.0,
    fn rounded(call: AllReduce<'_, f32>) -> AllReduce<'_, f32> {
        call.compress(&mut Codec::bf16())
    }
);
float!(f64, u64, 0x7ff0_0000_0000_0000u64, |random: u64| (random >> 11) as f64 / 1e12 - 4000.0);
float!(f16, u16, 0x7c00u16, |random: u64| f16::from_f32((random >> 20) as f32 / 1e10 - 800.0));
float!(bf16, u16, 0x7f80u16, |random: u64| bf16::from_f32((random >> 20) as f32 / 1e9 - 5000.0));

macro_rules! integer {
    ($($integer:ty)*) => {
        $(
            impl Number for $integer {
                const AWKWARD: &[$integer] = &[
                    <$integer>::MIN,
                    <$integer>::MAX,
                    0,
                    1,
                    <$integer>::MIN + 1,
                    <$integer>::MAX - 1,
                    <$integer>::MAX / 2 + 1,
                ];

                fn of(random: u64) -> $integer {
                    match random % 97 {
                        0 => <$integer>::MIN,
                        1 => <$integer>::MAX,
                        _ => (random >> 7) as $integer,
                    }
                }
            }
        )*
    };
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Number for bool {
    const AWKWARD: &[bool] = &[false, true];

    fn of(random: u64) -> bool {
        random >> 63 == 1
    }
}

/// The operators of reductions.
pub const OPS: [ReduceOp; 8] = [
    ReduceOp::Sum,
    ReduceOp::Mean,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Prod,
    ReduceOp::BitAnd,
    ReduceOp::BitOr,
    ReduceOp::BitXor,
];

/// Whether an element type has this operator.
pub fn has_op(dtype: DType, op: ReduceOp) -> bool {
    match op {
        ReduceOp::Min | ReduceOp::Max => true,
        ReduceOp::Mean => dtype.is_float(),
        ReduceOp::Sum | ReduceOp::Prod => dtype != DType::Bool,
        _ => !dtype.is_float(),
    }
}
