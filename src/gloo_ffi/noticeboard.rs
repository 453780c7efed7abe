//! The callbacks of Gloo's rendezvous store, which lead to the View's board.

use super::exception::Thrown;
use super::message_layer::{guarded, patience};
use crate::collective::Board;
use std::sync::Arc;

/// The board, for C++ to hold.
pub struct Noticeboard(pub Arc<dyn Board>);

impl Noticeboard {
    /// Sets a key and sends it to all members.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Thrown> {
        guarded(|| self.0.set(key, value).map_err(Thrown::Board))
    }

    /// Waits until a member has set `key`, and returns its value.
    pub fn wait(&self, key: &str, timeout_ms: i64) -> Result<Vec<u8>, Thrown> {
        guarded(|| self.0.wait(key, patience(timeout_ms)).map_err(Thrown::Board))
    }
}
