//! An operation that ends with an error although members hold results of it, as named by Views.

use super::op_id::OpId;
use super::rank::Rank;
use crate::wire::layout::layout;

/// An operation that fails on all members that have not committed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailedOp {
    /// The operation.
    pub op: OpId,
    /// Why it fails.
    pub failure: Failure,
}

layout! {
    FailedOp { op, failure }
    if |failed| failed.failure != Failure::Indeterminate || !failed.op.lane.is_of_all()
}

/// Why an operation fails whose result members hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// All members hold a result, and not the same one. With the lowest rank of the operation's
    /// View whose result is not that of the majority; `None` if no result has a majority.
    Disputed(Option<Rank>),
    /// An operation of some members, of which some participants have gone: they may have committed
    /// it before, and no member that is left can know.
    Indeterminate,
}

layout!(enum Failure { 1 => Disputed(odd), 2 => Indeterminate });
