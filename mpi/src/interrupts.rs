//! Waits for other processes, which Ctrl-C ends.
//!
//! The handler that Python installs for SIGINT only takes a note, which Python reads when the
//! function of MPI has returned: a wait for a process that never comes would not end.

use libc::{c_int, c_void, siginfo_t};
use potluck_foreign::{Call, Failure};
use std::io::{self, Write};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often a wait looks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a wait goes on after an interrupt: if the call ends by then, the program's own handler
/// decides whether the program goes on.
const GRACE: Duration = Duration::from_secs(1);

/// How many interrupts there were.
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

/// The program's own handler, which goes first.
static OF_PROGRAM: OnceLock<libc::sigaction> = OnceLock::new();

type Handler = extern "C" fn(c_int);
type LongHandler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Watches for interrupts from now on, if the program has a handler for them. Without one they end
/// the process, or are ignored, as before. A handler that is installed later takes the place of
/// this watch.
pub fn watch() {
    // SAFETY: all zeros are a valid sigaction.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `before` is writable.
    let known = unsafe { libc::sigaction(libc::SIGINT, ptr::null(), &raw mut before) };
    let is_function = ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction);
    if known != 0 || !is_function || OF_PROGRAM.set(before).is_err() {
        return;
    }
    let mut own = before;
    own.sa_flags |= libc::SA_SIGINFO;
    own.sa_sigaction = on_interrupt as *const () as usize;
    // SAFETY: the handler calls the one before it, and stores a number.
    unsafe { libc::sigaction(libc::SIGINT, &raw const own, ptr::null_mut()) };
}

extern "C" fn on_interrupt(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    INTERRUPTS.fetch_add(1, Ordering::SeqCst);
    let Some(of_program) = OF_PROGRAM.get() else { return };
    let at = of_program.sa_sigaction as *const c_void;
    if of_program.sa_flags & libc::SA_SIGINFO == 0 {
        // SAFETY: without that flag it is a function of this type.
        (unsafe { mem::transmute::<*const c_void, Handler>(at) })(signal);
    } else {
        // SAFETY: with that flag it is a function of this type.
        (unsafe { mem::transmute::<*const c_void, LongHandler>(at) })(signal, info, context);
    }
}

/// How many interrupts there were so far.
pub fn so_far() -> usize {
    INTERRUPTS.load(Ordering::SeqCst)
}

/// Waits for the end of a call. If there are more interrupts than `before`, the process ends one
/// second later, unless the call has ended by then.
///
/// # Errors
/// Those of [`Call::wait`].
pub fn outcome<T: Send + Sync + 'static>(
    call: &Call<T>,
    before: usize,
) -> Result<&Result<T, Failure>, Failure> {
    let mut until = None;
    loop {
        if let Some(outcome) = call.wait(Some(LOOK_EVERY))? {
            return Ok(outcome);
        }
        if until.is_none() && so_far() != before {
            until = Some(Instant::now() + GRACE);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            end();
        }
    }
}

/// Ends the process as SIGINT does where nobody handles it.
fn end() -> ! {
    let why = "interrupted while it waited for other processes, so this process ends";
    // Nobody may read it.
    let _ = writeln!(io::stderr(), "potluck: {why}");
    // SAFETY: neither returns to code that depends on the handler.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::raise(libc::SIGINT);
        libc::_exit(130)
    }
}
