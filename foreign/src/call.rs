//! A call of a foreign program, from its number to its end.

use super::executor::{self, Polled};
use super::failure::Failure;
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
    running: Arc<Running<T>>,
}

struct Running<T> {
    /// `None` when it has ended. The lock is held during a poll, and while the future is dropped.
    future: Mutex<Option<Boxed<T>>>,
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
    /// Polls the future once, in this thread, and from then on in `potluck-calls`.
    pub fn begin(future: impl Future<Output = Outcome<T>> + Send + 'static) -> Call<T> {
        if !executor::runs() {
            return Call::failed(Failure::Forked);
        }
        let running = Arc::new(Running::new(Some(Box::pin(future))));
        Arc::clone(&running).poll();
        Call { running }
    }

    /// A call that has ended before it began.
    pub fn failed(failure: Failure) -> Call<T> {
        let running = Running::new(None);
        running.end(Err(failure));
        Call { running: Arc::new(running) }
    }

    /// The outcome, if it has ended.
    pub fn outcome(&self) -> Option<&Result<T, Failure>> {
        self.running.outcome.get()
    }

    /// Waits for the end, at most `patience`; `None` waits without bound. The call goes on if that
    /// is too short.
    ///
    /// # Errors
    /// [`Failure::InCallback`] if it has not ended and this thread is the one that would end it.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<&Result<T, Failure>>, Failure> {
        if self.outcome().is_none() && executor::is_this_thread() {
            return Err(Failure::InCallback);
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut end = locked(&self.running.end);
        while self.outcome().is_none() {
            end = match until {
                None => self.running.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.running.ended.wait_timeout(end, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(self.outcome())
    }

    /// Calls `f` once when it has ended, also if it is given up: now, if it has; else in
    /// `potluck-calls`, or in the thread that gives it up. `f` must not wait for other calls, and
    /// should be short: the calls of the process go on when it has returned.
    pub fn on_end(&self, f: impl FnOnce(&Result<T, Failure>) + Send + 'static) {
        let mut end = locked(&self.running.end);
        match self.outcome() {
            Some(outcome) => {
                drop(end);
                executor::tell(|| f(outcome));
            }
            None => end.listeners.push(Box::new(f)),
        }
    }

    /// Gives it up, as the drop of this does.
    pub fn give_up(&self) {
        let given_up = {
            let mut future = locked(&self.running.future);
            let has_run = future.is_some();
            drop_quietly(&mut future);
            has_run
        };
        if given_up {
            self.running.end(Err(Failure::GivenUp));
        } else if !executor::tells_here() {
            // It may be ending in another thread.
            let mut end = locked(&self.running.end);
            while !end.is_told {
                end = self.running.ended.wait(end).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl<T> Running<T> {
    fn new(future: Option<Boxed<T>>) -> Running<T> {
        Running {
            future: Mutex::new(future),
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
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            executor::poll_soon(self);
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
