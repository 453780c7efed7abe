//! The contributions of all nodes to all calls, derived from a seed; and the hash of a buffer.
//!
//! They are small integers, so sums and products of 32 of them are exact in every element type, in
//! any order.

use super::what::{DType, Op};

/// The seed of the contributions to one call; `part` is the index of a call in a step.
#[derive(Clone, Copy, Debug)]
pub struct Key(u64);

/// The contribution of one node to one call.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    seed: u64,
    dtype: DType,
    op: Op,
}

impl Key {
    /// The key of a call.
    pub fn of(seed: u64, view: &str, lane: u32, k: u64, part: usize) -> Key {
        let text = hash(view.as_bytes());
        let place = u64::from(lane) << 48 ^ k << 8 ^ part as u64;
        Key(mixed(mixed(seed ^ text) ^ place))
    }

    /// The contribution of a node.
    pub fn inputs(self, node: &str, dtype: DType, op: Op) -> Inputs {
        Inputs { seed: mixed(self.0 ^ hash(node.as_bytes())), dtype, op }
    }
}

impl Inputs {
    /// The element at `index`.
    pub fn at(self, index: usize) -> i64 {
        let random = mixed(self.seed.wrapping_add((index as u64).wrapping_mul(GOLDEN)));
        if self.dtype == DType::Bool {
            return (random >> 32) as i64 & 1;
        }
        let signed = !matches!(self.dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
        match (self.op, signed) {
            (Op::Prod, true) => [1, 1, 2, -1, 1, 1, -1, 1][(random >> 61) as usize],
            (Op::Prod, false) => [1, 1, 2, 1, 1, 1, 1, 1][(random >> 61) as usize],
            (_, true) => (random >> 32) as i64 % 17 - 8,
            (_, false) => (random >> 32) as i64 % 9,
        }
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A hash of bytes, in order.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = GOLDEN ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = (state.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
    }
    for byte in rest {
        state = (state.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    mixed(state)
}

const PRIME: u64 = 0xff51_afd7_ed55_8ccd;

/// The digest of a lane's state after one more committed result.
pub fn chained(digest: u64, view: &str, k: u64, result: u64) -> u64 {
    mixed(mixed(digest ^ hash(view.as_bytes())) ^ mixed(k) ^ result.rotate_left(17))
}

/// Appends the bytes of a small integer as an element of this type.
pub fn put(out: &mut Vec<u8>, dtype: DType, value: i64) {
    match dtype {
        DType::F32 => out.extend((value as f32).to_le_bytes()),
        DType::F64 => out.extend((value as f64).to_le_bytes()),
        DType::F16 => out.extend(half(value).to_le_bytes()),
        DType::Bf16 => out.extend(((value as f32).to_bits() >> 16).to_le_bytes().iter().take(2)),
        DType::I8 => out.extend((value as i8).to_le_bytes()),
        DType::I16 => out.extend((value as i16).to_le_bytes()),
        DType::I32 => out.extend((value as i32).to_le_bytes()),
        DType::I64 => out.extend(value.to_le_bytes()),
        DType::U8 => out.extend((value as u8).to_le_bytes()),
        DType::U16 => out.extend((value as u16).to_le_bytes()),
        DType::Bool => out.push(u8::from(value != 0)),
        DType::U32 => out.extend((value as u32).to_le_bytes()),
        DType::U64 => out.extend((value as u64).to_le_bytes()),
    }
}

/// Appends the bytes of the quotient of two small integers, rounded once.
pub fn put_quotient(out: &mut Vec<u8>, dtype: DType, dividend: i64, divisor: usize) {
    match dtype {
        DType::F32 => out.extend((dividend as f32 / divisor as f32).to_le_bytes()),
        DType::F64 => out.extend((dividend as f64 / divisor as f64).to_le_bytes()),
        _ => put(out, dtype, dividend / divisor as i64),
    }
}

/// The half-precision bits of an integer below 2048 in magnitude, or of a power of two.
fn half(value: i64) -> u16 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = 63 - magnitude.leading_zeros();
    if exponent > 15 {
        return u16::from(value < 0) << 15 | 0x7c00;
    }
    let fraction = (magnitude << 10 >> exponent) as u16 & 0x3ff;
    u16::from(value < 0) << 15 | (exponent as u16 + 15) << 10 | fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_integers() {
        for (value, bits) in [
            (0, 0),
            (1, 0x3c00),
            (-1, 0xbc00),
            (2, 0x4000),
            (3, 0x4200),
            (40, 0x5100),
            (-(1 << 15), 0xf800),
            (1 << 16, 0x7c00),
        ] {
            assert_eq!(half(value), bits, "{value}");
        }
    }

    #[test]
    fn every_node_call_and_place_has_its_own_numbers() {
        let row = |seed, k, node| -> Vec<i64> {
            let inputs = Key::of(seed, "3#ab", 1, k, 0).inputs(node, DType::F32, Op::Sum);
            (0..20).map(|index| inputs.at(index)).collect()
        };
        assert_eq!(row(1, 2, "p1"), row(1, 2, "p1"));
        for other in [row(2, 2, "p1"), row(1, 3, "p1"), row(1, 2, "p2")] {
            assert_ne!(row(1, 2, "p1"), other);
        }
    }

    #[test]
    fn a_hash_depends_on_every_byte_and_on_the_length() {
        let bytes: Vec<u8> = (0..19).collect();
        for index in 0..bytes.len() {
            let mut other = bytes.clone();
            other[index] ^= 1;
            assert_ne!(hash(&bytes), hash(&other), "byte {index}");
        }
        assert_ne!(hash(&[0; 8]), hash(&[0; 9]));
    }
}
