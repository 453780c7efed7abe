//! The engine that the nodes of a test are told to offer.

use std::cell::Cell;

thread_local! {
    static ENGINE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `body` with every node that this thread starts in it told to offer `engine`, as
/// `POTLUCK_ENGINE` says it.
pub fn with<R>(engine: Option<&'static str>, body: impl FnOnce() -> R) -> R {
    let before = ENGINE.replace(engine);
    let result = body();
    ENGINE.set(before);
    result
}

/// What nodes are told now; `None` leaves it to the node.
pub fn current() -> Option<&'static str> {
    ENGINE.get()
}
