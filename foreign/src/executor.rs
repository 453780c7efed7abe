//! The thread that polls the calls of foreign programs.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Something that can be polled from any thread.
pub(crate) trait Polled: Send + Sync {
    /// Polls it once.
    fn poll(self: Arc<Self>);
}

thread_local! {
    static RUNS_HERE: Cell<bool> = const { Cell::new(false) };
    static TELLS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// The thread, and the process that has it: a fork of a process has none of its threads.
struct Executor {
    process: u32,
    queue: Sender<Arc<dyn Polled>>,
}

fn executor() -> Option<&'static Executor> {
    static EXECUTOR: OnceLock<Option<Executor>> = OnceLock::new();
    let begun = EXECUTOR.get_or_init(|| {
        let (queue, work) = channel::<Arc<dyn Polled>>();
        let run = move || {
            RUNS_HERE.set(true);
            work.iter().for_each(Polled::poll);
        };
        thread::Builder::new().name("potluck-calls".to_owned()).spawn(run).ok()?;
        Some(Executor { process: process::id(), queue })
    });
    begun.as_ref()
}

/// Whether calls can be carried out: false in a fork of a process that has made calls, and if no
/// thread could be started.
pub(crate) fn runs() -> bool {
    executor().is_some_and(|executor| executor.process == process::id())
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

/// Has it polled soon.
pub(crate) fn poll_soon(polled: Arc<dyn Polled>) {
    if let Some(executor) = executor() {
        // The thread runs as long as the process.
        let _ = executor.queue.send(polled);
    }
}
