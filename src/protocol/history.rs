//! The history of a member, which identifies its state.

use crate::wire::{Decode, Encode, Malformed, Reader};
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

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ops:{:02x}{:02x}", self.ops, self.lineage[0], self.lineage[1])
    }
}

impl Encode for History {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ops.to_le_bytes());
        out.extend_from_slice(&self.lineage);
    }
}

impl Decode for History {
    fn decode(r: &mut Reader<'_>) -> Result<History, Malformed> {
        Ok(History { ops: r.u64()?, lineage: r.array()? })
    }
}
