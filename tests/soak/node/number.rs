//! Elements of all types, from small integers.

use potluck::{Element, bf16, f16};
use potluck_harness::history::inputs::{Inputs, hash};

/// An element type of the program.
pub trait Number: Element + Unpin {
    fn of(value: i64) -> Self;
    fn put(self, bytes: &mut Vec<u8>);
    fn value(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn of(value: i64) -> $type {
                value as $type
            }

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn value(self) -> f64 {
                self as f64
            }
        }
    )*};
}

macro_rules! halves {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn of(value: i64) -> $type {
                <$type>::from_f32(value as f32)
            }

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_bits().to_le_bytes());
            }

            fn value(self) -> f64 {
                f64::from(self.to_f32())
            }
        }
    )*};
}

numbers! { f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 }
halves! { f16 bf16 }

impl Number for bool {
    fn of(value: i64) -> bool {
        value != 0
    }

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }

    fn value(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// The first elements of a contribution.
pub fn elements<T: Number>(inputs: Inputs, len: usize) -> Vec<T> {
    (0..len).map(|index| T::of(inputs.at(index))).collect()
}

/// The hash of buffers, one after the other.
pub fn hash_of<'a, T: Number>(buffers: impl IntoIterator<Item = &'a [T]>) -> u64 {
    let mut bytes = Vec::new();
    buffers.into_iter().flatten().for_each(|element| element.put(&mut bytes));
    hash(&bytes)
}
