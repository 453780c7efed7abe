//! The interface of a codec, which runs its loops with the widest vector instructions of this
//! processor.
//!
//! The compiler vectorises a loop that is `#[inline(always)]` once per instruction set, and the set
//! is chosen at run time. No operations are fused or reordered, so all versions give the same bits.

use crate::os::in_default_environment;
use crate::wire::Malformed;
use pulp::Arch;

/// An encoding of `f32` elements. Pure: equal inputs give equal bytes on every machine.
pub trait Codec: Send + Sync {
    /// The encoded length of `elements` elements in bytes.
    fn encoded_len(&self, elements: usize) -> usize;

    /// Encodes `elements` into `out`, which must have [`encoded_len`](Codec::encoded_len) bytes.
    /// With another length the output is incomplete, or the call panics.
    fn encode(&self, elements: &[f32], out: &mut [u8]) {
        in_default_environment(|| {
            Arch::new().dispatch(
                #[inline(always)]
                || self.write(elements, out),
            );
        });
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
        in_default_environment(|| {
            Arch::new().dispatch(
                #[inline(always)]
                || self.read(bytes, out),
            )
        })
    }

    /// The loop of [`encode`](Codec::encode), in the default floating-point environment.
    fn write(&self, elements: &[f32], out: &mut [u8]);

    /// The loop of [`decode`](Codec::decode), in the default floating-point environment. `bytes`
    /// has the right length.
    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed>;
}
