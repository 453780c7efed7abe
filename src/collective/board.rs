//! A key-value board for the members of one View: short values under keys, each set once.
//!
//! It serves the rendezvous of an engine that looks its peers' addresses up in a key-value store. A
//! board belongs to one View, so no key is ever used for two purposes.

#![cfg_attr(
    not(feature = "gloo"),
    allow(dead_code, reason = "the native engine needs no rendezvous")
)]

mod view_board;

pub use view_board::ViewBoard;

use std::fmt;
use std::time::Duration;

/// The board of one View, as an engine sees it.
pub trait Board: Send + Sync {
    /// Sets a key of this member and sends it to all others. Setting it again to the same value is
    /// allowed.
    ///
    /// # Errors
    /// [`BoardFault::Refused`], or [`BoardFault::Closed`].
    fn set(&self, key: &str, value: &[u8]) -> Result<(), BoardFault>;

    /// Blocks until a member has set the key, and returns its value.
    ///
    /// # Errors
    /// [`BoardFault::TimedOut`], or [`BoardFault::Closed`].
    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, BoardFault>;

    /// Ends every wait, now and later.
    fn close(&self);
}

/// Why a board operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardFault {
    /// The View has ended.
    Closed,
    /// No member has set the key in time.
    TimedOut,
    /// The key or the value is too long, the member has set too many keys, or the key has another
    /// owner or value.
    Refused,
}

impl fmt::Display for BoardFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BoardFault::Closed => "the view has ended",
            BoardFault::TimedOut => "no member has set the key in time",
            BoardFault::Refused => "the key or its value cannot be set",
        })
    }
}

impl std::error::Error for BoardFault {}
