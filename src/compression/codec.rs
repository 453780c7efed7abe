//! The interface of a codec, which runs its loops with the widest vector instructions of this
//! processor.
//!
//! The compiler vectorises a loop that is `#[inline(always)]` once per instruction set, and the set
//! is chosen at run time. No operations are fused or reordered, so all versions give the same bits.

use crate::os::in_default_environment;
use crate::wire::Malformed;
use pulp::{Arch, Simd, WithSimd};

/// An encoding of `f32` elements. Pure: equal inputs give equal bytes on every machine.
pub trait Codec: Send + Sync {
    /// The encoded length of `elements` elements in bytes.
    fn encoded_len(&self, elements: usize) -> usize;

    /// Encodes `elements` into `out`, which must have [`encoded_len`](Codec::encoded_len) bytes.
    /// With another length the output is incomplete, or the call panics.
    fn encode(&self, elements: &[f32], out: &mut [u8]) {
        in_default_environment(|| Arch::new().dispatch(Encoding(self, elements, out)));
    }

    /// Decodes as many elements as `out` has.
    ///
    /// # Errors
    /// `Malformed` if `bytes` has the wrong length for this number of elements, or if no encoder
    /// writes these bytes; `out` is unspecified then.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        if bytes.len() != self.encoded_len(out.len()) {
            return Err(Malformed::Inconsistent);
        }
        in_default_environment(|| Arch::new().dispatch(Decoding(self, bytes, out)))
    }

    /// The loop of [`encode`](Codec::encode), in the default floating-point environment.
    fn write(&self, elements: &[f32], out: &mut [u8]);

    /// The loop of [`decode`](Codec::decode), in the default floating-point environment. `bytes`
    /// has the right length.
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed>;
}

/// A codec with its elements and their encoding. A structure, because the compiler finds only half
/// as wide instructions for the 4-bit codec in a closure.
struct Encoding<'a, C: ?Sized>(&'a C, &'a [f32], &'a mut [u8]);

/// A codec with encoded bytes and their elements.
struct Decoding<'a, C: ?Sized>(&'a C, &'a [u8], &'a mut [f32]);

impl<C: Codec + ?Sized> WithSimd for Encoding<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.0.write(self.1, self.2);
    }
}

impl<C: Codec + ?Sized> WithSimd for Decoding<'_, C> {
    type Output = Result<(), Malformed>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Result<(), Malformed> {
        self.0.read(self.1, self.2)
    }
}
