//! A committed operation, as named by Views and promises.

use super::op_id::OpId;
use crate::wire::layout::layout;

/// A committed operation and the digest of its result.
///
/// A member with another result, or none, does not share the commit: its call ends with
/// `Indeterminate`, and its history goes on without the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommittedOp {
    /// The operation.
    pub op: OpId,
    /// The digest that the members have voted for, see [`Vote::Done`](super::Vote::Done); 0 where
    /// every rank has a different result.
    pub digest: u128,
}

layout!(CommittedOp { op, digest });
