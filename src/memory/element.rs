//! The element types of collectives, and their bytes.
//!
//! Elements travel in little-endian order, which is also their order in memory on every supported
//! machine: bytes are cast, never converted.

use super::dtype::DType;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!(
    "potluck sends elements as they lie in memory and supports little-endian machines only"
);

/// An element type: `f32`, `f64`, [`f16`](struct@f16), [`bf16`], `i8`, `i32`, `i64`, `u8`, `u32` or
/// `u64`. Sealed.
///
/// Integers wrap around on overflow. Each step on halves is computed in `f32` and rounded once, to
/// nearest.
pub trait Element: sealed::Sealed + Copy + PartialEq + Send + Sync + Unpin + 'static {
    /// The type's identifier on the wire.
    const DTYPE: DType;
    /// The neutral element of addition.
    const ZERO: Self;
}

/// The element types that have a mean: `f32`, `f64`, [`f16`](struct@f16) and [`bf16`]. Sealed.
pub trait Float: Element {}

impl Float for f32 {}
impl Float for f64 {}
impl Float for f16 {}
impl Float for bf16 {}

macro_rules! elements {
    ($($type:ty, $dtype:ident, $zero:expr;)*) => {
        $(
            impl Element for $type {
                const DTYPE: DType = DType::$dtype;
                const ZERO: $type = $zero;
            }

            impl sealed::Sealed for $type {}
        )*
    };
}

elements! {
    f32, F32, 0.0;
    f64, F64, 0.0;
    f16, F16, f16::from_bits(0);
    bf16, Bf16, bf16::from_bits(0);
    i8, I8, 0;
    i32, I32, 0;
    i64, I64, 0;
    u8, U8, 0;
    u32, U32, 0;
    u64, U64, 0;
}

/// The bytes of `elements`.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// The bytes of `elements`, for writing; every bit pattern is a number.
pub fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// `bytes` as elements; `None` if they are misaligned or end inside an element.
pub fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    bytemuck::try_cast_slice(bytes).ok()
}

/// `bytes` as elements for writing; `None` if they are misaligned or end inside an element.
pub fn elements_of_mut<T: Element>(bytes: &mut [u8]) -> Option<&mut [T]> {
    bytemuck::try_cast_slice_mut(bytes).ok()
}

mod sealed {
    pub trait Sealed: bytemuck::Pod {}
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
        assert_size::<i32>();
        assert_size::<i64>();
        assert_size::<u8>();
        assert_size::<u32>();
        assert_size::<u64>();
    }

    #[test]
    fn bytes_are_little_endian_and_go_both_ways() {
        let mut values = [1.5f32, -2.0];
        assert_eq!(bytes_of(&values)[..4], 1.5f32.to_le_bytes());
        bytes_of_mut(&mut values)[4..].copy_from_slice(&8.0f32.to_le_bytes());
        assert_eq!(elements_of::<f32>(bytes_of(&values)), Some(&[1.5f32, 8.0][..]));
        assert_eq!(elements_of::<f32>(&bytes_of(&values)[..7]), None);
    }
}
