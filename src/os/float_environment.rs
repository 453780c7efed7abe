//! The floating-point environment of all additions, divisions and encodings.
//!
//! A thread has a control word. It holds the rounding mode and whether subnormal numbers count as
//! zero. Libraries change it for speed (code linked with `-ffast-math`,
//! `torch.set_flush_denormal`), and new threads inherit it. Results have the same bits on every
//! rank only if every rank computes under the same control word. The library therefore computes
//! under the IEEE 754 default on every thread: round to nearest, ties to even, subnormals kept, no
//! traps. Afterwards it restores the program's own control word.

#[cfg(test)]
pub(crate) use testing::under_every_control_word;

use std::hint::black_box;

/// Runs `work` in the default environment. Reads the control word once, and writes it twice if it
/// differs from the default.
///
/// The operands of `work` must lie in memory, as slices do: the compiler does not know about
/// control words and may compute from registers before `work` begins.
pub fn in_default_environment<R>(work: impl FnOnce() -> R) -> R {
    let _restored = Restored::to_default();
    // The compiler must not move the rest of the computation behind the restoration either.
    black_box(work())
}

/// The thread's own control word, restored on drop; `None` if it is the default already.
struct Restored(Option<control::Word>);

impl Restored {
    fn to_default() -> Restored {
        let own = control::word();
        let differs = own & control::MODES != control::DEFAULT & control::MODES;
        if differs {
            control::set(control::DEFAULT);
        }
        Restored(differs.then_some(own))
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        if let Some(own) = self.0 {
            control::set(own);
        }
    }
}

/// MXCSR. Its low six bits are exception flags, not modes.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the control word has no safe door")]
mod control {
    use std::arch::asm;

    pub type Word = u32;
    pub const DEFAULT: Word = 0x1f80;
    pub const MODES: Word = !0x3f;

    pub fn word() -> Word {
        let mut word: Word = 0;
        // SAFETY: It writes four bytes, those of `word`. The compiler assumes that it touches
        // memory, and therefore does not move computations on memory across it.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub fn set(word: Word) {
        // SAFETY: It reads four bytes of `word`, which is the default or the thread's own word.
        // Compiled code assumes the default. If the thread had another one, this call makes that
        // assumption true, until the thread's own word is restored.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

/// FPCR, which only contains modes.
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "the control word has no safe door")]
mod control {
    use std::arch::asm;

    pub type Word = u64;
    pub const DEFAULT: Word = 0;
    pub const MODES: Word = !0;

    pub fn word() -> Word {
        let word: Word;
        // SAFETY: It reads a register. The compiler assumes that it touches memory, and therefore
        // does not move computations on memory across it.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word
    }

    pub fn set(word: Word) {
        // SAFETY: As on x86-64.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// On other architectures the environment stays as the program has set it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod control {
    pub type Word = u32;
    pub const DEFAULT: Word = 0;
    pub const MODES: Word = 0;

    pub fn word() -> Word {
        DEFAULT
    }

    pub fn set(_: Word) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod testing {
    use super::{Restored, control};

    /// Flush to zero, and subnormal operands treated as zero.
    const FLUSHING: u32 = 0x8040;
    /// Round towards zero.
    const TRUNCATING: u32 = 0x6000;

    /// Runs `work` under each control word that a program may have set, including the default.
    pub(crate) fn under_every_control_word(work: impl Fn()) {
        for modes in [0, FLUSHING, TRUNCATING, FLUSHING | TRUNCATING] {
            let _restored = Restored(Some(control::word()));
            control::set(control::DEFAULT | modes);
            work();
            assert_eq!(
                control::word() & control::MODES,
                control::DEFAULT | modes,
                "the program's own word is lost"
            );
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::testing::under_every_control_word;
    use super::*;

    #[test]
    fn subnormals_are_kept_and_ties_go_to_even_whatever_the_thread_does() {
        let tiny = f32::from_bits(3);
        let sum = || black_box(tiny) + black_box(tiny);
        let third = || black_box(1.0f32) / black_box(3.0);
        let (kept, rounded) = (sum(), third());
        assert_eq!(kept.to_bits(), 6);
        under_every_control_word(|| {
            assert_eq!(in_default_environment(sum).to_bits(), kept.to_bits());
            assert_eq!(in_default_environment(third).to_bits(), rounded.to_bits());
        });
    }

    #[test]
    fn a_panic_gives_the_thread_its_own_word_back() {
        under_every_control_word(|| {
            let panicked = std::panic::catch_unwind(|| {
                in_default_environment(|| panic!("expected by this test"))
            });
            assert!(panicked.is_err());
        });
    }
}
