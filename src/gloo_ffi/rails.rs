//! The threads of a View that help with large calls: each call is cut into *rails*, which may run
//! at once.
//!
//! The thread of a call takes its rails in order; a helper takes the next one that is left. Where
//! all helpers are busy, the call's own thread runs all of its rails, so a call ends whatever other
//! calls wait for. Every member takes the rails of a call in the same order, so the lowest one that
//! is not over runs on all of them.

use super::context::{Failure, UNFIT};
use crate::collective::Threads;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Most helpers of a View: enough for the rails of two calls besides their own threads.
pub const HELPERS_MAX: usize = 6;

/// The work of a helper for one call.
type Work = Box<dyn FnOnce() + Send>;

/// The helpers of one View.
pub struct Rails {
    threads: Arc<Threads>,
    state: Mutex<RailsState>,
    changed: Condvar,
}

#[derive(Default)]
struct RailsState {
    /// Requests for help, each with the call that made it.
    waiting: VecDeque<(Arc<Help>, Work)>,
    all: usize,
    /// Helpers that wait, including those that are about to.
    idle: usize,
    closed: bool,
}

/// The helpers of one call.
struct Help {
    state: Mutex<Helping>,
    changed: Condvar,
}

struct Helping {
    /// Helpers at work.
    at_work: usize,
    /// The call is over.
    over: bool,
    result: Result<(), Failure>,
}

/// The rails of one call.
struct Call<F> {
    run: F,
    count: usize,
    next: AtomicUsize,
}

impl Rails {
    /// Makes the helpers of a View; they start when they are needed.
    pub fn new(threads: &Arc<Threads>) -> Arc<Rails> {
        let (threads, state) = (Arc::clone(threads), Mutex::default());
        Arc::new(Rails { threads, state, changed: Condvar::new() })
    }

    /// Calls `run` once for each number below `count`, on this thread and on helpers. When it
    /// returns, no thread has `run` any more.
    ///
    /// # Errors
    /// The first one of `run`.
    pub fn run<F>(self: &Arc<Rails>, count: usize, run: F) -> Result<(), Failure>
    where
        F: Fn(usize) -> Result<(), Failure> + Send + Sync + 'static,
    {
        let call = Arc::new(Call { run, count, next: AtomicUsize::new(0) });
        let help = Arc::new(Help::new());
        for _ in 1..count {
            self.ask(&help, &call);
        }
        let own = call.run_all();
        self.lock().waiting.retain(|(of, _)| !Arc::ptr_eq(of, &help));
        help.wait().and(own)
    }

    fn ask<F>(self: &Arc<Rails>, help: &Arc<Help>, call: &Arc<Call<F>>)
    where
        F: Fn(usize) -> Result<(), Failure> + Send + Sync + 'static,
    {
        let (of, call) = (Arc::clone(help), Arc::downgrade(call));
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.waiting.push_back((Arc::clone(help), Box::new(move || of.give(&call))));
        if state.idle < state.waiting.len() && state.all < HELPERS_MAX {
            let rails = Arc::clone(self);
            if self.threads.spawn("potluck-rail".to_owned(), move || rails.work()) {
                (state.all, state.idle) = (state.all + 1, state.idle + 1);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends all helpers, each when it has ended its rails.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// The body of a helper.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            if let Some((_, help)) = state.waiting.pop_front() {
                state.idle -= 1;
                drop(state);
                help();
                state = self.lock();
                state.idle += 1;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RailsState> {
        // Every section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Help {
    fn new() -> Help {
        let state = Helping { at_work: 0, over: false, result: Ok(()) };
        Help { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A helper runs rails of the call until none is left.
    fn give<F: Fn(usize) -> Result<(), Failure>>(&self, call: &Weak<Call<F>>) {
        {
            let mut state = self.lock();
            if state.over {
                return;
            }
            state.at_work += 1;
        }
        let run = || call.upgrade().map_or(Ok(()), |call| call.run_all());
        // A panic is a bug of this engine.
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(UNFIT));
        let mut state = self.lock();
        state.at_work -= 1;
        if state.result.is_ok() {
            state.result = result;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the helpers at work; no further one begins.
    fn wait(&self) -> Result<(), Failure> {
        let at_work = |state: &mut Helping| state.at_work > 0;
        let ended = self.changed.wait_while(self.lock(), at_work);
        let mut state = ended.unwrap_or_else(PoisonError::into_inner);
        state.over = true;
        std::mem::replace(&mut state.result, Ok(()))
    }

    fn lock(&self) -> MutexGuard<'_, Helping> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn(usize) -> Result<(), Failure>> Call<F> {
    /// Runs rails until none is left, or one fails.
    fn run_all(&self) -> Result<(), Failure> {
        loop {
            let rail = self.next.fetch_add(1, Ordering::Relaxed);
            if rail >= self.count {
                return Ok(());
            }
            (self.run)(rail)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn rails() -> (Arc<Rails>, Arc<Threads>) {
        let threads = Arc::new(Threads::default());
        (Rails::new(&threads), threads)
    }

    #[test]
    fn each_rail_runs_once_and_many_calls_share_the_helpers() {
        let (rails, threads) = rails();
        std::thread::scope(|scope| {
            for _ in 0..32 {
                let (rails, threads) = (&rails, &threads);
                scope.spawn(move || {
                    let ran: Arc<[AtomicUsize]> = (0..9).map(|_| AtomicUsize::new(0)).collect();
                    let (counts, most) = (Arc::clone(&ran), Arc::clone(threads));
                    let run = move |rail: usize| {
                        counts[rail].fetch_add(1, Ordering::Relaxed);
                        assert!(most.running() <= HELPERS_MAX);
                        Ok(())
                    };
                    rails.run(9, run).expect("no rail fails");
                    assert!(ran.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                    assert_eq!(Arc::strong_count(&ran), 1, "somebody still has the call's data");
                });
            }
        });
        assert!(rails.lock().waiting.is_empty(), "requests of calls that are over");
        rails.close();
        assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
    }

    #[test]
    fn a_call_ends_although_all_helpers_wait_for_another_one() {
        let (rails, threads) = rails();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (begun, begins) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                rails.run(HELPERS_MAX + 1, move |_| {
                    begun.send(()).expect("the test listens");
                    // Until the sender is dropped.
                    _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok(())
                })
            });
            (0..=HELPERS_MAX).for_each(|_| begins.recv_timeout(PATIENCE).expect("it begins"));
            let (end, ends) = channel();
            let rails = &rails;
            scope.spawn(move || end.send((rails.run(4, |_| Ok(())), rails.lock().waiting.len())));
            let ended = ends.recv_timeout(PATIENCE);
            // Before any assertion: the scope ends with both calls.
            drop(release);
            assert_eq!(ended, Ok((Ok(()), 0)), "the call waits for the helpers of another one");
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
        });
        rails.close();
        assert_eq!(threads.wait(PATIENCE), 0);
    }

    #[test]
    fn a_rail_that_fails_or_panics_fails_its_call_alone() {
        let (rails, threads) = rails();
        for bad in 0..4 {
            let fails = move |rail| if rail == bad { Err(UNFIT) } else { Ok(()) };
            assert_eq!(rails.run(4, fails), Err(UNFIT));
            assert_eq!(rails.run(4, |_| Ok(())), Ok(()));
        }
        rails.close();
        assert_eq!(rails.run(4, |_| Ok(())), Ok(()), "without helpers");
        assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
    }
}
