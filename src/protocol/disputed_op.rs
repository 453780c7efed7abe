//! An operation whose results differ, as named by Views.

use super::op_id::OpId;
use super::rank::Rank;
use crate::wire::layout::layout;

/// An operation of which all members hold a result, and not the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisputedOp {
    /// The operation.
    pub op: OpId,
    /// The lowest rank of the operation's View whose result is not that of the majority; `None` if
    /// no result has a majority.
    pub odd: Option<Rank>,
}

layout!(DisputedOp { op, odd });
