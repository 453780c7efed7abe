//! A call of a foreign program, from its number to its end.

use super::executor::{self, Executor, Polled};
use super::failure::Failure;
use super::process_local::ProcessLocal;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
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
/// A thread that waits for it polls it; while there is none, the executor does.
///
/// Dropping it gives the call up if it has not ended. The drop returns when the call does not use
/// its memory any more, and all that wanted to be told have been. In a function that is told of an
/// end, it may return before another of these functions has.
pub struct Call<T: Send + Sync + 'static> {
    running: ProcessLocal<Arc<Running<T>>>,
}

struct Running<T> {
    /// `None` when it has ended. The lock is held during a poll, and while the future is dropped.
    future: Mutex<Option<Boxed<T>>>,
    /// `None` if it has ended before it began.
    executor: Option<Executor>,
    /// Set once, under the lock of the state.
    outcome: OnceLock<Outcome<T>>,
    state: Mutex<State<T>>,
    /// It has ended, all have been told, or a waiting thread should poll.
    changed: Condvar,
}

struct State<T> {
    /// The future wants a poll that has not begun.
    wants_poll: bool,
    /// Threads in [`Call::wait`].
    waiting: usize,
    /// Dropped at the end, before the outcome is there.
    held: Vec<Box<dyn Send>>,
    /// To be told of the end. `None` when that has begun: then nobody is added any more.
    listeners: Option<Vec<Told<T>>>,
    /// The kind of thread that tells them now.
    teller: Option<Teller>,
    /// All of them have been told.
    is_told: bool,
}

/// The kind of a thread that tells of the end of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Teller {
    Executor,
    Program,
}

impl<T: Send + Sync + 'static> Call<T> {
    /// Polls the future once, in this thread.
    pub fn begin(
        executor: &Executor,
        future: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> Call<T> {
        let running = Arc::new(Running::new(Some(Box::pin(future)), Some(executor.clone())));
        running.poll_once();
        Call { running: ProcessLocal::new(running) }
    }

    /// A call that has ended before it began.
    pub fn failed(failure: Failure) -> Call<T> {
        let running = Running::new(None, None);
        running.end(Err(failure));
        running.tell();
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
        let mut state = locked(&running.state);
        state.waiting += 1;
        while running.outcome.get().is_none() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            if state.wants_poll {
                drop(state);
                running.poll_once();
                state = locked(&running.state);
                continue;
            }
            state = match left {
                None => running.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = running.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.waiting -= 1;
        let is_left_alone = state.wants_poll && state.waiting == 0;
        drop(state);
        if is_left_alone {
            running.poll_in_executor();
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
        let mut state = locked(&running.state);
        match (running.outcome.get(), &mut state.listeners) {
            (None, Some(listeners)) => listeners.push(Box::new(f)),
            (Some(outcome), _) => {
                drop(state);
                executor::tell(|| f(outcome));
            }
            (None, None) => {} // Nobody is told before the end.
        }
    }

    /// Keeps a value as long as the call may use its memory: it is dropped, in any thread, before
    /// the outcome is there, or now, if it is. Its drop must not wait, panic, or use this call.
    pub fn hold(&self, value: impl Send + 'static) {
        let Ok(running) = self.running.get() else { return };
        let mut state = locked(&running.state);
        if running.outcome.get().is_none() {
            state.held.push(Box::new(value));
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
            running.tell();
        }
        if executor::is_this_thread() {
            // It cannot wait for itself or for another executor, so it tells if no thread does.
            if running.outcome.get().is_some() {
                running.tell();
            }
            return;
        }
        // Another thread may be ending it, or telling. A function that runs in a thread of the
        // program does not wait for another such thread: that may be itself, or be waiting for this
        // one.
        let must_not_wait =
            |state: &State<T>| executor::tells_here() && state.teller == Some(Teller::Program);
        let mut state = locked(&running.state);
        while !state.is_told && !must_not_wait(&state) {
            state = running.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T: Send + Sync + 'static> Running<T> {
    fn new(future: Option<Boxed<T>>, executor: Option<Executor>) -> Running<T> {
        let state = State {
            wants_poll: false,
            waiting: 0,
            held: Vec::new(),
            listeners: Some(Vec::new()),
            teller: None,
            is_told: false,
        };
        Running {
            future: Mutex::new(future),
            executor,
            outcome: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Polls it once, in any thread. Nothing if it has ended.
    fn poll_once(self: &Arc<Self>) {
        // Before the poll: a wake during the poll asks for another one.
        locked(&self.state).wants_poll = false;
        let waker = Waker::from(Arc::clone(self));
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
        if self.end(outcome) {
            self.tell();
        } else {
            // The program may hold locks here that its functions need.
            self.poll_in_executor();
        }
    }

    fn poll_in_executor(self: &Arc<Self>) {
        if let Some(executor) = &self.executor {
            executor.poll_soon(Arc::clone(self) as Arc<dyn Polled>);
        }
    }

    /// Nothing points at the memory of the call any more. Whether this thread may tell of it.
    fn end(&self, outcome: Outcome<T>) -> bool {
        let mut state = locked(&self.state);
        state.held.clear();
        let _ = self.outcome.set(outcome);
        self.changed.notify_all();
        executor::is_this_thread() || state.listeners.as_ref().is_none_or(Vec::is_empty)
    }

    /// Tells of the end all that wanted to be told, once.
    fn tell(&self) {
        let teller = if executor::is_this_thread() { Teller::Executor } else { Teller::Program };
        let listeners = {
            let mut state = locked(&self.state);
            let Some(listeners) = state.listeners.take() else { return };
            state.teller = Some(teller);
            listeners
        };
        self.changed.notify_all();
        if let Some(outcome) = self.outcome.get() {
            listeners.into_iter().for_each(|told| executor::tell(|| told(outcome)));
        }
        locked(&self.state).is_told = true;
        self.changed.notify_all();
    }
}

impl<T: Send + Sync + 'static> Polled for Running<T> {
    fn poll(self: Arc<Self>) {
        self.poll_once();
        if self.outcome.get().is_some() {
            self.tell();
        }
    }
}

impl<T: Send + Sync + 'static> Wake for Running<T> {
    fn wake(self: Arc<Self>) {
        let mut state = locked(&self.state);
        if std::mem::replace(&mut state.wants_poll, true) {
            return;
        }
        if state.waiting > 0 {
            self.changed.notify_all();
        } else {
            drop(state);
            self.poll_in_executor();
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
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_panic_in_a_call_ends_the_call() {
        let executor = Executor::start().expect("a thread");
        let call: Call<()> = Call::begin(&executor, async { panic!("a fault") });
        let failure = call.outcome().expect("ended").as_ref().expect_err("failed");
        assert_eq!(failure.to_string(), "potluck has a fault, please report it: a fault");
    }

    /// Waits until it is woken, and then returns the name of the thread that polls it.
    #[derive(Default)]
    struct Woken(Arc<Mutex<(bool, Option<Waker>)>>);

    impl Future for Woken {
        type Output = Outcome<Option<String>>;

        fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
            let mut woken = locked(&self.0);
            woken.1 = Some(task.waker().clone());
            let name = thread::current().name().map(str::to_owned);
            if woken.0 { Poll::Ready(Ok(name)) } else { Poll::Pending }
        }
    }

    fn wake(woken: &Mutex<(bool, Option<Waker>)>) {
        let waker = {
            let mut woken = locked(woken);
            woken.0 = true;
            woken.1.clone()
        };
        waker.expect("polled once").wake();
    }

    fn polled_by(call: &Call<Option<String>>) -> Option<&str> {
        call.outcome()?.as_ref().expect("a name").as_deref()
    }

    #[test]
    fn a_thread_that_waits_polls_the_call_and_the_executor_tells() {
        let executor = Executor::start().expect("a thread");
        let (future, (told, tells)) = (Woken::default(), mpsc::channel());
        let woken = Arc::clone(&future.0);
        let call = Call::begin(&executor, future);
        call.on_end(move |_| told.send(thread::current().name().map(str::to_owned)).expect("open"));
        thread::scope(|scope| {
            let waits = || assert!(call.wait(None).expect("no callback").is_some());
            let waiter = thread::Builder::new().name("waiter".to_owned());
            waiter.spawn_scoped(scope, waits).expect("a thread");
            let running = call.running.get().expect("this process");
            while locked(&running.state).waiting == 0 {
                thread::yield_now();
            }
            wake(&woken);
        });
        assert_eq!(polled_by(&call), Some("waiter"));
        assert_eq!(tells.recv().expect("told").as_deref(), Some("potluck-calls"));
    }

    #[test]
    fn the_executor_polls_a_call_that_nobody_waits_for() {
        let executor = Executor::start().expect("a thread");
        let (future, (told, tells)) = (Woken::default(), mpsc::channel());
        let woken = Arc::clone(&future.0);
        let call = Call::begin(&executor, future);
        assert!(call.wait(Some(Duration::ZERO)).expect("no callback").is_none());
        call.hold(Held(told));
        wake(&woken);
        // The held value is dropped at the end.
        tells.recv().expect("dropped");
        assert!(call.wait(None).expect("no callback").is_some());
        assert_eq!(polled_by(&call), Some("potluck-calls"));
    }

    struct Held(mpsc::Sender<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
}
