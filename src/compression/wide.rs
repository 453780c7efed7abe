//! Runs plain loops with the widest vector instructions of this processor.
//!
//! The compiler vectorises the same loop once per instruction set, and the set is chosen at run
//! time. No operations are fused or reordered, so all versions give the same bits.

use pulp::Arch;

/// Runs `work`, a loop, with the widest instructions available. The closure and the functions that
/// it calls must be `#[inline(always)]`; otherwise they use only the baseline instructions.
pub fn widely<R>(work: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(work)
}
