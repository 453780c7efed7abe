//! The wire form of one entry of a View's board.

use super::view_id::ViewDigest;
use crate::wire::layout::{Blob, Text, layout};

/// An entry that a member sets on the board of a View.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Post {
    /// The View; entries for another one are dropped.
    pub view: ViewDigest,
    /// The key, at most [`Post::KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// Its value, at most [`Post::VALUE_BYTES_MAX`] bytes.
    pub value: Vec<u8>,
}

layout!(Post { view, key: Text(Post::KEY_BYTES_MAX), value: Blob(Post::VALUE_BYTES_MAX) });

impl Post {
    /// Longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 64;
    /// Longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 4096;
}
