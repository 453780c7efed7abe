//! Runs plain loops with the widest vector instructions of this processor.
//!
//! The compiler vectorises the same loop once per instruction set, and the set is chosen at run
//! time. No operations are fused or reordered, so all versions give the same bits.

use pulp::{Arch, WithSimd};

/// A loop. Functions that it calls must be inlined into it; otherwise they use only the baseline
/// instructions.
pub trait Work {
    /// The result of the loop.
    type Output;

    /// Runs the loop; implementations are `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

struct Widely<W>(W);

impl<W: Work> WithSimd for Widely<W> {
    type Output = W::Output;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> W::Output {
        self.0.run()
    }
}

/// Runs `work` with the widest instructions available.
pub fn widely<W: Work>(work: W) -> W::Output {
    Arch::new().dispatch(Widely(work))
}
