//! The element types of collectives, and their bytes.
//!
//! Elements travel in little-endian order, which is also their order in memory on every supported
//! machine: bytes are cast, never converted. `bool` is the exception: it has only two valid bytes,
//! so bytes are never cast to it. They are converted into a [`Target`], where each byte but 0 is
//! true. A peer that sends other bytes than 0 and 1 is noticed before that, by
//! [`DType::is_valid`].

use super::dtype::DType;
use crate::os::copy_of;
use bytemuck::Pod;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!(
    "potluck sends elements as they lie in memory and supports little-endian machines only"
);

/// An element type: `f32`, `f64`, [`f16`](struct@f16), [`bf16`], `i8`, `i16`, `i32`, `i64`, `u8`,
/// `u16`, `u32`, `u64` or `bool`. Sealed.
///
/// Integers wrap around on overflow. Each step on halves is computed in `f32` and rounded once, to
/// nearest. Of `bool` there are minimum and maximum, where false is the lesser, and the bitwise
/// operators; there is no sum, mean or product.
pub trait Element: sealed::Sealed + Copy + PartialEq + Send + Sync + Unpin + 'static {
    /// The type's identifier on the wire.
    const DTYPE: DType;
    /// The neutral element of addition.
    const ZERO: Self;
}

/// The element types that have a mean: `f32`, `f64`, [`f16`](struct@f16) and [`bf16`]. Sealed.
pub trait Float: Element + sealed::Plain {}

impl Float for f32 {}
impl Float for f64 {}
impl Float for f16 {}
impl Float for bf16 {}

/// Elements of a caller, to be written from bytes.
#[derive(Debug)]
pub enum Target<'a> {
    /// Of a type whose every bit pattern is a number.
    Bytes(&'a mut [u8]),
    /// One byte becomes one element.
    Bools(&'a mut [bool]),
}

impl<'a> Target<'a> {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Target::Bytes(bytes) => bytes.len(),
            Target::Bools(bools) => bools.len(),
        }
    }

    /// The bytes of the elements.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Target::Bytes(bytes) => bytes,
            Target::Bools(bools) => bytes_of(bools),
        }
    }

    /// The bytes, for writing; none if the elements are `bool`.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Target::Bytes(bytes) => bytes,
            Target::Bools(_) => &mut [],
        }
    }

    /// The same elements, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> Target<'_> {
        match self {
            Target::Bytes(bytes) => Target::Bytes(bytes),
            Target::Bools(bools) => Target::Bools(bools),
        }
    }

    /// Both sides of this byte, which is at most the length. Only whole elements can be written
    /// from bytes, so either side may begin inside of an element of several bytes.
    pub fn split_at(self, middle: usize) -> (Target<'a>, Target<'a>) {
        match self {
            Target::Bytes(bytes) => {
                let (head, tail) = bytes.split_at_mut(middle);
                (Target::Bytes(head), Target::Bytes(tail))
            }
            Target::Bools(bools) => {
                let (head, tail) = bools.split_at_mut(middle);
                (Target::Bools(head), Target::Bools(tail))
            }
        }
    }

    /// Writes all elements; there are as many `bytes`. They are a part of a buffer of
    /// `buffer_bytes`.
    pub fn write(self, bytes: &[u8], buffer_bytes: usize) {
        match self {
            Target::Bytes(own) => copy_of(buffer_bytes)(own, bytes),
            Target::Bools(own) => {
                own.iter_mut().zip(bytes).for_each(|(own, byte)| *own = *byte != 0);
            }
        }
    }
}

impl<'a> From<&'a mut [u8]> for Target<'a> {
    fn from(bytes: &'a mut [u8]) -> Target<'a> {
        Target::Bytes(bytes)
    }
}

macro_rules! elements {
    ($($type:ty, $dtype:ident, $zero:expr;)*) => {
        $(
            impl Element for $type {
                const DTYPE: DType = DType::$dtype;
                const ZERO: $type = $zero;
            }

            impl sealed::Sealed for $type {
                fn target(elements: &mut [$type]) -> Target<'_> {
                    Target::Bytes(bytes_of_mut(elements))
                }
            }

            impl sealed::Plain for $type {}
        )*
    };
}

elements! {
    f32, F32, 0.0;
    f64, F64, 0.0;
    f16, F16, f16::from_bits(0);
    bf16, Bf16, bf16::from_bits(0);
    i8, I8, 0;
    i16, I16, 0;
    i32, I32, 0;
    i64, I64, 0;
    u8, U8, 0;
    u16, U16, 0;
    u32, U32, 0;
    u64, U64, 0;
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    const ZERO: bool = false;
}

impl sealed::Sealed for bool {
    fn target(elements: &mut [bool]) -> Target<'_> {
        Target::Bools(elements)
    }
}

/// The bytes of `elements`.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// The bytes of `elements`, for writing; every bit pattern is a number.
pub fn bytes_of_mut<T: Pod>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// `elements`, to be written from bytes.
pub fn target_of<T: Element>(elements: &mut [T]) -> Target<'_> {
    T::target(elements)
}

/// `bytes` as elements; `None` if they are misaligned or end inside an element, or if a byte is no
/// `bool`.
pub fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    bytemuck::checked::try_cast_slice(bytes).ok()
}

/// `bytes` as elements for writing; `None` if they are misaligned or end inside an element.
pub fn elements_of_mut<T: Pod>(bytes: &mut [u8]) -> Option<&mut [T]> {
    bytemuck::try_cast_slice_mut(bytes).ok()
}

mod sealed {
    //! The parts of an element that other crates neither see nor implement.

    /// An element type. Its bytes are initialised; not all bytes are one.
    pub trait Sealed:
        bytemuck::NoUninit + bytemuck::Zeroable + bytemuck::CheckedBitPattern
    {
        /// These elements, to be written from bytes.
        fn target(elements: &mut [Self]) -> super::Target<'_>;
    }

    /// An element type of which all bytes are elements.
    pub trait Plain: Sealed + bytemuck::Pod {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_size<T: Element>() {
        assert_eq!(
            (size_of::<T>(), bytes_of(&[T::ZERO]).len()),
            (T::DTYPE.bytes(), T::DTYPE.bytes())
        );
    }

    #[test]
    fn a_type_is_as_large_as_it_says() {
        assert_size::<f16>();
        assert_size::<bf16>();
        assert_size::<i8>();
        assert_size::<i16>();
        assert_size::<i32>();
        assert_size::<i64>();
        assert_size::<u8>();
        assert_size::<u16>();
        assert_size::<u32>();
        assert_size::<u64>();
        assert_size::<bool>();
    }

    #[test]
    fn bytes_are_little_endian_and_go_both_ways() {
        let mut values = [1.5f32, -2.0];
        assert_eq!(bytes_of(&values)[..4], 1.5f32.to_le_bytes());
        target_of(&mut values[1..]).write(&8.0f32.to_le_bytes(), 4);
        assert_eq!(elements_of::<f32>(bytes_of(&values)), Some(&[1.5f32, 8.0][..]));
        assert_eq!(elements_of::<f32>(&bytes_of(&values)[..7]), None);
    }

    #[test]
    fn any_byte_becomes_a_bool_that_is_one() {
        let mut bools = [true; 5];
        target_of(&mut bools).write(&[0, 1, 2, 128, 255], 5);
        assert_eq!(bytes_of(&bools), [0, 1, 1, 1, 1]);
        assert_eq!(elements_of::<bool>(&[0, 1]), Some(&[false, true][..]));
        assert_eq!(elements_of::<bool>(&[0, 2]), None);
        let (head, tail) = target_of(&mut bools).split_at(3);
        head.write(&[0; 3], 3);
        assert_eq!((tail.len(), tail.bytes()), (2, &[1, 1][..]));
    }
}
