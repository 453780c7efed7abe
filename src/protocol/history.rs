//! The history of a member, which identifies its state.

use crate::wire::layout::layout;
use std::fmt;

/// Identifies a member's state: two members with equal histories hold the same state.
///
/// A member that has seen no operation commit has no history (`None`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct History {
    /// Operations committed along this lineage; the longer history wins.
    pub ops: u64,
    /// SHA-256 chain over the Views in which operations committed, and over these operations.
    pub lineage: [u8; 32],
}

layout!(History { ops, lineage });

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ops:{:02x}{:02x}", self.ops, self.lineage[0], self.lineage[1])
    }
}
