//! Layer: Core.
//!
//! The floating-point environment in which everything is added, divided and encoded.
//!
//! A thread has a control word: how its arithmetic rounds, and whether subnormal numbers are taken
//! for zero. Libraries change it for speed (code linked with `-ffast-math`,
//! `torch.set_flush_denormal`), and threads made afterwards inherit it. Results are the same bits
//! on every rank only if every rank computes under the same control word, so the library computes
//! under the default one of IEEE 754, whichever thread it is on: round to nearest, ties to even,
//! subnormals kept, no traps. The program finds its own control word again afterwards.

use std::hint::black_box;

/// Runs `work` in the default environment. The control word is read once, and written twice where
/// it is another one.
///
/// What it computes from must lie in memory, as slices do: a compiler that does not know of control
/// words may compute from what is in registers already before it begins.
pub fn in_default_environment<R>(work: impl FnOnce() -> R) -> R {
    let _restored = Restored::to_default();
    // Nor may it put off what is left to compute of the result until the thread has its own word
    // again.
    black_box(work())
}

/// The thread's own control word, which it has again when this is dropped; `None` where it is the
/// default already.
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

/// MXCSR. Its low six bits are flags of what has happened, and no modes.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the control word has no safe door")]
mod control {
    use std::arch::asm;

    pub type Word = u32;
    pub const DEFAULT: Word = 0x1f80;
    pub const MODES: Word = !0x3f;

    pub fn word() -> Word {
        let mut word: Word = 0;
        // SAFETY: it writes four bytes, which are `word`'s. That it may touch memory keeps what is
        // computed from memory on its side.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub fn set(word: Word) {
        // SAFETY: it reads four bytes of `word`, which is the default or what the thread had.
        // Compiled code assumes the default; where the thread had another one, this is what makes
        // that assumption true, until the thread has its own again.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

/// FPCR, which is modes alone.
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "the control word has no safe door")]
mod control {
    use std::arch::asm;

    pub type Word = u64;
    pub const DEFAULT: Word = 0;
    pub const MODES: Word = !0;

    pub fn word() -> Word {
        let word: Word;
        // SAFETY: it reads a register. That it may touch memory keeps what is computed from memory
        // on its side.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word
    }

    pub fn set(word: Word) {
        // SAFETY: as on x86-64.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// Elsewhere the environment is what the program has made it.
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

    /// Flush to zero, and subnormals taken for zero.
    const FLUSHING: u32 = 0x8040;
    /// Round towards zero.
    const TRUNCATING: u32 = 0x6000;

    /// Runs `work` under each control word that a program may have set, and under the default one.
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
