//! The identifier of a View.

use super::ballot::Ballot;
use crate::wire::layout::layout;
use std::fmt;

/// Identifies a View: its ballot and the SHA-256 of its canonical encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId {
    /// The ballot under which it was agreed.
    pub ballot: Ballot,
    /// SHA-256 of the canonical encoding.
    pub digest: ViewDigest,
}

layout!(ViewId { ballot, digest });

/// SHA-256 of a View's canonical encoding; binds data links and operations to that View.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewDigest(pub [u8; 32]);

layout!(ViewDigest(bytes));

impl ViewDigest {
    /// The first eight bytes. They are sent in the clear before a data link's handshake.
    pub fn hint(&self) -> [u8; 8] {
        let mut hint = [0; 8];
        hint.copy_from_slice(&self.0[..8]);
        hint
    }
}

impl fmt::Debug for ViewDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:?}", self.ballot.round, self.digest)
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:?}", self.ballot.round, self.digest)
    }
}
