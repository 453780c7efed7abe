//! The thread that polls the calls that a foreign program does not wait for.

use super::failure::Failure;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Something that the executor can poll.
pub(crate) trait Polled: Send + Sync {
    /// Polls it once.
    fn poll(self: Arc<Self>);
}

thread_local! {
    static RUNS_HERE: Cell<bool> = const { Cell::new(false) };
    static TELLS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// A thread that polls calls. It ends when nobody has this, and all of its calls have ended.
#[derive(Clone)]
pub struct Executor {
    queue: Sender<Arc<dyn Polled>>,
}

impl Executor {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Failure::Thread`] if the machine has no place for one more. [`Failure::Forked`] in a fork
    /// of a process that has started one: locks that the parent's threads held stay locked there.
    pub fn start() -> Result<Executor, Failure> {
        static FIRST: AtomicU32 = AtomicU32::new(0);
        let own = process::id();
        let first = FIRST.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err_and(|first| first != own) {
            return Err(Failure::Forked);
        }
        let (queue, work) = channel::<Arc<dyn Polled>>();
        let run = move || {
            RUNS_HERE.set(true);
            work.iter().for_each(Polled::poll);
        };
        let named = thread::Builder::new().name("potluck-calls".to_owned());
        named.spawn(run).map_err(Failure::Thread)?;
        Ok(Executor { queue })
    }

    /// Has it polled soon.
    pub(crate) fn poll_soon(&self, polled: Arc<dyn Polled>) {
        // The thread runs as long as somebody can send to it.
        let _ = self.queue.send(polled);
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

/// Whether this is the thread of the executor.
pub(crate) fn is_this_thread() -> bool {
    RUNS_HERE.get()
}

/// Runs a function of the program that wants to be told of an end.
pub(crate) fn tell(function: impl FnOnce()) {
    let before = TELLS_HERE.replace(true);
    // A panic of that function is no fault of the call.
    let _ = catch_unwind(AssertUnwindSafe(function));
    TELLS_HERE.set(before);
}

/// Whether such a function runs in this thread.
pub(crate) fn tells_here() -> bool {
    TELLS_HERE.get()
}
