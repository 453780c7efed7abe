//! The wire form of one entry of a View's board.

use super::view_id::ViewDigest;
use crate::wire::{Decode, Encode, Malformed, Reader, put_blob};

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

impl Post {
    /// Longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 64;
    /// Longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 4096;
}

impl Encode for Post {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        put_blob(out, self.key.as_bytes());
        put_blob(out, &self.value);
    }
}

impl Decode for Post {
    fn decode(r: &mut Reader<'_>) -> Result<Post, Malformed> {
        let view = ViewDigest::decode(r)?;
        let key = r.text(Post::KEY_BYTES_MAX)?;
        Ok(Post { view, key, value: r.blob(Post::VALUE_BYTES_MAX)?.to_vec() })
    }
}
