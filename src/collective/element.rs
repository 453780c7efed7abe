//! Layer: Words.
//!
//! The number types a collective adds, and their bytes.
//!
//! Elements travel little-endian, which is also how every supported machine keeps them: bytes are cast, never converted.

use super::call::DType;

#[cfg(target_endian = "big")]
compile_error!("potluck sends elements as they lie in memory and supports little-endian machines only");

/// A number type that can be added: `f32` or `f64`. Sealed.
pub trait Element: sealed::Sealed + Copy + PartialEq + Send + Sync + 'static {
    /// The type's name on the wire.
    const DTYPE: DType;
    /// The neutral element of addition.
    const ZERO: Self;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
    const ZERO: f32 = 0.0;
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;
    const ZERO: f64 = 0.0;
}

/// The bytes of `elements`.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// The bytes of `elements`, to be written; every bit pattern is a number.
pub fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// `bytes` as elements, `None` when they are misaligned or end inside an element.
pub fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    bytemuck::try_cast_slice(bytes).ok()
}

/// `bytes` as elements to be written, `None` when they are misaligned or end inside an element.
pub fn elements_of_mut<T: Element>(bytes: &mut [u8]) -> Option<&mut [T]> {
    bytemuck::try_cast_slice_mut(bytes).ok()
}

mod sealed {
    pub trait Sealed: bytemuck::Pod {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_and_go_both_ways() {
        let mut values = [1.5f32, -2.0];
        assert_eq!(bytes_of(&values)[..4], 1.5f32.to_le_bytes());
        bytes_of_mut(&mut values)[4..].copy_from_slice(&8.0f32.to_le_bytes());
        assert_eq!(elements_of::<f32>(bytes_of(&values)), Some(&[1.5f32, 8.0][..]));
        assert_eq!(elements_of::<f32>(&bytes_of(&values)[..7]), None);
    }
}
