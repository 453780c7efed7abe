//! A call of a foreign program, from its number to its end.

use super::executor::{self, Executor, Polled};
use super::failure::Failure;
use super::process_local::ProcessLocal;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The outcome of a call that returns `T`.
type Outcome<T> = Result<T, Failure>;

/// The future of a call, with its buffers.
type Boxed<T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send>>;

/// Told once when a call has ended.
type Told<T> = Box<dyn FnOnce(&Outcome<T>) + Send>;

/// A call under way, or ended. Any thread may use it.
///
/// Dropping it gives the call up if it has not ended. The drop returns when the call does not use
/// its memory any more, and all that wanted to be told have been.
pub struct Call<T: Send + Sync + 'static> {
    running: ProcessLocal<Arc<Running<T>>>,
}

struct Running<T> {
    /// `None` when it has ended. The lock is held during a poll, and while the future is dropped.
    future: Mutex<Option<Boxed<T>>>,
    /// Polls it. `None` if it has ended before it began.
    executor: Option<Executor>,
    /// Whether it is in the queue of the executor.
    is_queued: AtomicBool,
    outcome: OnceLock<Outcome<T>>,
    end: Mutex<End<T>>,
    ended: Condvar,
}

struct End<T> {
    /// To be told.
    listeners: Vec<Told<T>>,
    /// All of them have been told, and nobody is added any more.
    is_told: bool,
}

impl<T: Send + Sync + 'static> Call<T> {
    /// Polls the future once, in this thread, and from then on by this executor.
    pub fn begin(
        executor: &Executor,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> Call<T> {
        let running = Arc::new(Running::new(Some(Box::pin(future)), Some(executor.clone())));
        Arc::clone(&running).poll();
        Call { running: ProcessLocal::new(running) }
    }

    /// A call that has ended before it began.
    pub fn failed(failure: Failure) -> Call<T> {
        let running = Running::new(None, None);
        running.end(Err(failure));
        Call { running: ProcessLocal::new(Arc::new(running)) }
    }

    /// The outcome, if it has ended. `None` in a fork of the process that began it.
    pub fn outcome(&self) -> Option<&Result<T, Failure>> {
        self.running.get().ok()?.outcome.get()
    }

    /// Waits for the end, at most `patience`; `None` waits without bound. The call goes on if that
    /// is too short.
    ///
    /// # Errors
    /// [`Failure::InCallback`] if it has not ended and this thread is one that ends calls.
    /// [`Failure::Forked`] in a fork of the process that began it.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<&Result<T, Failure>>, Failure> {
        let running = self.running.get()?;
        if running.outcome.get().is_none() && executor::is_this_thread() {
            return Err(Failure::InCallback);
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut end = locked(&running.end);
        while running.outcome.get().is_none() {
            end = match until {
                None => running.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = running.ended.wait_timeout(end, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(running.outcome.get())
    }

    /// Calls `f` once when it has ended, also if it is given up: now, if it has; else in
    /// `potluck-calls`, or in the thread that gives it up. `f` must not wait for other calls, and
    /// should be short: other calls go on when it has returned. A fork of the process that began
    /// the call is told so at once.
    pub fn on_end(&self, f: impl FnOnce(&Result<T, Failure>) + Send + 'static) {
        let running = match self.running.get() {
            Ok(running) => running,
            Err(forked) => return executor::tell(|| f(&Err(forked))),
        };
        let mut end = locked(&running.end);
        match running.outcome.get() {
            Some(outcome) => {
                drop(end);
                executor::tell(|| f(outcome));
            }
            None => end.listeners.push(Box::new(f)),
        }
    }

    /// Gives it up, as the drop of this does. Nothing in a fork of the process that began it.
    pub fn give_up(&self) {
        let Ok(running) = self.running.get() else { return };
        let given_up = {
            let mut future = locked(&running.future);
            let has_run = future.is_some();
            drop_quietly(&mut future);
            has_run
        };
        if given_up {
            running.end(Err(Failure::GivenUp));
        } else if !executor::tells_here() {
            // It may be ending in another thread.
            let mut end = locked(&running.end);
            while !end.is_told {
                end = running.ended.wait(end).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl<T> Running<T> {
    fn new(future: Option<Boxed<T>>, executor: Option<Executor>) -> Running<T> {
        Running {
            future: Mutex::new(future),
            executor,
            is_queued: AtomicBool::new(false),
            outcome: OnceLock::new(),
            end: Mutex::new(End { listeners: Vec::new(), is_told: false }),
            ended: Condvar::new(),
        }
    }

    /// Nothing points at the memory of the call any more.
    fn end(&self, outcome: Outcome<T>) {
        let listeners = {
            let mut end = locked(&self.end);
            let _ = self.outcome.set(outcome);
            self.ended.notify_all();
            std::mem::take(&mut end.listeners)
        };
        if let Some(outcome) = self.outcome.get() {
            listeners.into_iter().for_each(|told| executor::tell(|| told(outcome)));
        }
        locked(&self.end).is_told = true;
        self.ended.notify_all();
    }
}

impl<T: Send + Sync + 'static> Polled for Running<T> {
    fn poll(self: Arc<Self>) {
        // Before the poll: a wake during the poll asks for another one.
        self.is_queued.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        let outcome = {
            let mut future = locked(&self.future);
            let Some(running) = future.as_mut() else { return };
            let mut task = Task::from_waker(&waker);
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut task)));
            let outcome = match polled {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(outcome)) => outcome,
                Err(panic) => Err(Failure::Panic(message_of(&*panic))),
            };
            drop_quietly(&mut future);
            outcome
        };
        self.end(outcome);
    }
}

impl<T: Send + Sync + 'static> Wake for Running<T> {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst)
            && let Some(executor) = self.executor.clone()
        {
            executor.poll_soon(self);
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Call<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.outcome()).finish()
    }
}

/// The drop of a future whose poll has panicked may panic, too.
fn drop_quietly<T>(future: &mut Option<Boxed<T>>) {
    let future = future.take();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_call_ends_the_call() {
        let executor = Executor::start().expect("a thread");
        let call: Call<()> = Call::begin(&executor, async { panic!("a fault") });
        let failure = call.outcome().expect("ended").as_ref().expect_err("failed");
        assert_eq!(failure.to_string(), "potluck has a fault, please report it: a fault");
    }
}
