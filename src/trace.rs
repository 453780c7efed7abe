//! Traces and counters for sinks of the program. A sink that panics ends nothing but itself: a
//! panic would unwind through the control loop, or through an operation of an engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::Span;
use tracing::span::EnteredSpan;

/// Runs foreign code, a caller's waker or a sink for metrics or traces, and catches its panic. The
/// current thread may be the control loop's or an engine's, which a panic would end.
pub(crate) fn unharmed(theirs: impl FnOnce()) {
    let _ = caught(theirs);
}

/// Whether the program has installed a subscriber for traces, in any of its threads.
pub(crate) fn has_subscriber() -> bool {
    tracing::dispatcher::has_been_set()
}

fn caught<T>(theirs: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(theirs)).ok();
    if result.is_none() {
        // The sink that this goes to may be the one that has panicked.
        let _ = catch_unwind(|| tracing::error!("a waker or a sink of this program has panicked"));
    }
    result
}

macro_rules! error {
    ($($event:tt)*) => { $crate::trace::unharmed(|| ::tracing::error!($($event)*)) };
}

macro_rules! warning {
    ($($event:tt)*) => { $crate::trace::unharmed(|| ::tracing::warn!($($event)*)) };
}

macro_rules! info {
    ($($event:tt)*) => { $crate::trace::unharmed(|| ::tracing::info!($($event)*)) };
}

macro_rules! debug {
    ($($event:tt)*) => { $crate::trace::unharmed(|| ::tracing::debug!($($event)*)) };
}

pub(crate) use debug;
pub(crate) use error;
pub(crate) use info;
pub(crate) use warning as warn;

/// A span.
pub(crate) struct Traced(Span);

/// Guard of a span that is entered.
pub(crate) struct Entered(Option<EnteredSpan>);

impl Traced {
    /// The span that `make` makes.
    pub(crate) fn new(make: impl FnOnce() -> Span) -> Traced {
        Traced(caught(make).unwrap_or_else(Span::none))
    }

    /// Enters it until the guard is dropped.
    pub(crate) fn entered(&self) -> Entered {
        Entered(caught(|| self.0.clone().entered()))
    }

    /// Does something with it, unless it is disabled.
    pub(crate) fn with(&self, doing: impl FnOnce(&Span)) {
        if !self.0.is_disabled() {
            unharmed(|| doing(&self.0));
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        unharmed(|| drop(span));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let entered = self.0.take();
        unharmed(|| drop(entered));
    }
}
