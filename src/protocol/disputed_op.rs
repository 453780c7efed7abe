//! An operation whose results differ, as named by Views.

use super::op_id::OpId;
use super::rank::Rank;
use crate::wire::{Decode, Encode, Malformed, Reader, put_option};

/// An operation of which all members hold a result, and not the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisputedOp {
    /// The operation.
    pub op: OpId,
    /// The lowest rank of the operation's View whose result is not that of the majority; `None` if
    /// no result has a majority.
    pub odd: Option<Rank>,
}

impl Encode for DisputedOp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.op.encode(out);
        put_option(out, self.odd.as_ref());
    }
}

impl Decode for DisputedOp {
    fn decode(r: &mut Reader<'_>) -> Result<DisputedOp, Malformed> {
        Ok(DisputedOp { op: OpId::decode(r)?, odd: r.option()? })
    }
}
