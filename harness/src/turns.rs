//! Limits how many tests of a suite run at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// A counting semaphore: at most `most` holders at once; others wait.
#[derive(Debug)]
pub struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Turns {
    /// A semaphore for `most` holders, at least one.
    pub fn of(most: usize) -> Turns {
        Turns { free: Mutex::new(most.max(1)), freed: Condvar::new() }
    }

    /// Runs `body` while holding a turn. The turn is released at its end, also by a panic.
    pub fn take<R>(&self, body: impl FnOnce() -> R) -> R {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner) -=
            1;
        let _turn = Turn(self);
        body()
    }
}

struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn as_many_as_there_is_room_for_run_at_once_and_no_more() {
        let (turns, barrier, now, most) =
            (Turns::of(2), Barrier::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    turns.take(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        // Blocks until another holder arrives.
                        barrier.wait();
                        now.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
    }

    #[test]
    fn a_panic_ends_its_turn() {
        let turns = Turns::of(1);
        assert!(
            catch_unwind(AssertUnwindSafe(|| turns.take(|| panic!("expected by this test"))))
                .is_err()
        );
        assert_eq!(turns.take(|| 5), 5);
    }
}
