//! Layer: Words.
//!
//! An operation that counts, as a View and its promises name it.

use super::OpId;
use crate::wire::{Decode, Encode, Malformed, Reader};

/// An operation that is committed, and the digest of the result that all who hold it hold.
///
/// Who has another result, or none, has no part in it: its call ends with `Indeterminate`, and its
/// history goes on without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommittedOp {
    /// Which one.
    pub op: OpId,
    /// XXH3-128 of the result; zero where every rank holds something else.
    pub digest: u128,
}

impl Encode for CommittedOp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.op.encode(out);
        out.extend_from_slice(&self.digest.to_le_bytes());
    }
}

impl Decode for CommittedOp {
    fn decode(r: &mut Reader<'_>) -> Result<CommittedOp, Malformed> {
        Ok(CommittedOp { op: OpId::decode(r)?, digest: u128::from_le_bytes(r.array()?) })
    }
}
