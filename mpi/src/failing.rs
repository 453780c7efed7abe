//! The end of the process, if something fails.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The exit code for a failure after which the program may be started again: that of `sysexits.h`
/// for a temporary one.
const EXIT_CODE: i32 = 75;

/// Ends the process, without its destructors: other threads of the program may be in the middle of
/// anything.
pub fn fail(what: &str, why: impl Display) -> ! {
    // Nobody may read it: then the exit code tells.
    let _ = writeln!(io::stderr(), "potluck: {what} failed, so this process ends: {why}");
    // SAFETY: it does not return.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Runs the body of an exported function. No panic crosses the border.
pub fn or_end<T>(what: &str, body: impl FnOnce() -> Result<T, String>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(problem)) => fail(what, problem),
        Err(panic) => fail(what, message_of(&*panic)),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("potluck has a fault, please report it: {text}")
}
