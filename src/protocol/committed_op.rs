//! A committed operation, as named by Views and promises.

use super::op_id::OpId;
use crate::wire::{Decode, Encode, Malformed, Reader};

/// A committed operation and the digest of its result.
///
/// A member with another result, or none, does not share the commit: its call ends with
/// `Indeterminate`, and its history goes on without the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommittedOp {
    /// The operation.
    pub op: OpId,
    /// XXH3-128 of the result; zero where every rank has a different result.
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
