//! Seeded races: deliberate faults of the code in which threads meet, which prove that `make
//! threads` finds such faults.
//!
//! Only the tests of `make threads` can seed one. In other builds every query is `false` at compile
//! time.

/// A rule about threads that a test can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Race {
    /// A thread that returns the half of a link that has ended meanwhile does not wake the writer
    /// task.
    CloseUnseen,
    /// Messages that were queued during the last round of an inline write are left to the next one.
    RestUnseen,
    /// The messages of a replay are queued after the session's lock is released.
    LateReplay,
    /// Whether a moving link is closed is checked before its lock is taken.
    OfferUnchecked,
    /// Whether an operation is over is checked before the lock of its gate is taken.
    PostUnchecked,
    /// A part is claimed in two steps: a look, and a write.
    ClaimInTwoSteps,
    /// The state of a part is written without an order towards the part's bytes.
    UnorderedLanding,
}

impl Race {
    /// Whether this rule is broken.
    #[cfg(not(all(test, potluck_threads)))]
    #[inline(always)]
    pub(crate) const fn is_seeded(self) -> bool {
        false
    }

    /// Whether this rule is broken.
    #[cfg(all(test, potluck_threads))]
    pub(crate) fn is_seeded(self) -> bool {
        SEEDED.get() == Some(self)
    }

    /// Breaks this rule, on this thread, while `run` runs.
    #[cfg(all(test, potluck_threads))]
    pub(crate) fn seeded<T>(self, run: impl FnOnce() -> T) -> T {
        struct Ended;
        impl Drop for Ended {
            fn drop(&mut self) {
                SEEDED.set(None);
            }
        }
        SEEDED.set(Some(self));
        let _ended = Ended;
        run()
    }
}

#[cfg(all(test, potluck_threads))]
thread_local! {
    // The checkers run all threads of a schedule on the thread of its test.
    static SEEDED: std::cell::Cell<Option<Race>> = const { std::cell::Cell::new(None) };
}
