//! The engine that the nodes of a test offer.

use std::cell::Cell;

thread_local! {
    static ENGINE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `body`; every node that this thread starts meanwhile gets `engine` as `POTLUCK_ENGINE`.
pub fn with<R>(engine: Option<&'static str>, body: impl FnOnce() -> R) -> R {
    let before = ENGINE.replace(engine);
    let result = body();
    ENGINE.set(before);
    result
}

/// The engine set now; `None` leaves the choice to the node.
pub fn current() -> Option<&'static str> {
    ENGINE.get()
}
