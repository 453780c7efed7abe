//! Layer: Core.
//!
//! Plain loops, carried out with the widest instructions that this processor has.
//!
//! The compiler makes vectors of the same loop several times, for each set of instructions once,
//! and which one runs is told when it runs. Nothing in them is fused or put in another order by
//! that, so their results are the same bits.

use pulp::{Arch, WithSimd};

/// A loop. What it calls must be inlined into it, or is carried out with the instructions that
/// every processor has.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does it; implementations are `#[inline(always)]`.
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

/// Does it with the widest instructions there are.
pub fn widely<W: Work>(work: W) -> W::Output {
    Arch::new().dispatch(Widely(work))
}
