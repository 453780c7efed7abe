//! Locks and atomics of the code in which threads meet: those of `std`, or those of a schedule
//! checker.
//!
//! `make threads` builds the unit tests with `--cfg potluck_threads`. Every other build has exactly
//! the types of `std`, and an [`Access`] without size.

use std::sync::PoisonError;

#[cfg(all(test, potluck_threads))]
pub(crate) use checked::{Access, AtomicU8, model};

#[cfg(not(all(test, potluck_threads)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
#[cfg(not(all(test, potluck_threads)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock};

#[cfg(all(test, potluck_threads))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(all(test, potluck_threads))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock};

/// Locks a mutex. Its data stays usable after a panic of a holder, since every critical section
/// leaves it consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells loom of accesses to memory that it cannot observe itself.
#[cfg(not(all(test, potluck_threads)))]
pub(crate) struct Access;

#[cfg(not(all(test, potluck_threads)))]
impl Access {
    pub(crate) const fn new() -> Access {
        Access
    }

    #[inline(always)]
    pub(crate) fn read(&self) {}

    #[inline(always)]
    pub(crate) fn write(&self) {}
}

/// The types of `result_buffer.rs`, which loom checks besides shuttle: shuttle knows only
/// sequentially consistent atomics.
#[cfg(all(test, potluck_threads))]
mod checked {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local! {
        static BY_LOOM: Cell<bool> = const { Cell::new(false) };
    }

    /// Explores `run` with loom: all schedules, and all values that an atomic load may return.
    /// Returns their number. `run` must not use the other types of this file.
    pub(crate) fn model(run: fn()) -> usize {
        struct Ended;
        impl Drop for Ended {
            fn drop(&mut self) {
                BY_LOOM.set(false);
            }
        }
        BY_LOOM.set(true);
        let _ended = Ended;
        let schedules = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&schedules);
        loom::model::Builder::new().check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            run();
        });
        schedules.load(Ordering::Relaxed)
    }

    pub(crate) enum AtomicU8 {
        Shuttle(shuttle::sync::atomic::AtomicU8),
        Loom(loom::sync::atomic::AtomicU8),
    }

    impl AtomicU8 {
        pub(crate) fn new(value: u8) -> AtomicU8 {
            if BY_LOOM.get() {
                AtomicU8::Loom(loom::sync::atomic::AtomicU8::new(value))
            } else {
                AtomicU8::Shuttle(shuttle::sync::atomic::AtomicU8::new(value))
            }
        }

        pub(crate) fn load(&self, order: Ordering) -> u8 {
            match self {
                AtomicU8::Shuttle(atomic) => atomic.load(order),
                AtomicU8::Loom(atomic) => atomic.load(order),
            }
        }

        pub(crate) fn store(&self, value: u8, order: Ordering) {
            match self {
                AtomicU8::Shuttle(atomic) => atomic.store(value, order),
                AtomicU8::Loom(atomic) => atomic.store(value, order),
            }
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u8,
            new: u8,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u8, u8> {
            match self {
                AtomicU8::Shuttle(atomic) => {
                    atomic.compare_exchange(current, new, success, failure)
                }
                AtomicU8::Loom(atomic) => atomic.compare_exchange(current, new, success, failure),
            }
        }
    }

    /// Fails a run of loom in which an access is not ordered after an earlier conflicting one.
    pub(crate) struct Access(Option<loom::cell::UnsafeCell<()>>);

    impl Access {
        pub(crate) fn new() -> Access {
            Access(BY_LOOM.get().then(|| loom::cell::UnsafeCell::new(())))
        }

        pub(crate) fn read(&self) {
            if let Some(cell) = &self.0 {
                cell.with(|_| ());
            }
        }

        pub(crate) fn write(&self) {
            if let Some(cell) = &self.0 {
                cell.with_mut(|_| ());
            }
        }
    }
}
