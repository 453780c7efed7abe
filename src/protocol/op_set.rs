//! A fixed-size summary of the operations that a member has committed in a View, with their
//! results: their number and an order-independent digest.

use super::committed_op::CommittedOp;
use crate::wire::Encode;
use crate::wire::layout::layout;

/// An accumulator for a set of operations. It supports insertion and comparison only.
///
/// The digest is the XOR of the XXH3-128 of each operation with its result digest. It detects
/// accidental differences; it does not resist members that lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpSet {
    len: u64,
    digest: u128,
}

layout!(OpSet { len, digest });

impl OpSet {
    /// Adds `op`, which must not be in the set.
    pub fn insert(&mut self, op: CommittedOp) {
        self.len += 1;
        self.digest ^= xxhash_rust::xxh3::xxh3_128(&op.to_bytes());
    }

    /// Number of operations.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Extend<CommittedOp> for OpSet {
    fn extend<I: IntoIterator<Item = CommittedOp>>(&mut self, ops: I) {
        ops.into_iter().for_each(|op| self.insert(op));
    }
}

#[cfg(test)]
mod tests {
    use super::super::op_id::{Lane, OpId};
    use super::*;
    use crate::wire::assert_codec;

    fn of(numbers: &[u64]) -> OpSet {
        let mut set = OpSet::default();
        let op = |number: &u64| CommittedOp {
            op: OpId { lane: Lane::MAIN, number: *number },
            digest: 7,
        };
        set.extend(numbers.iter().map(op));
        set
    }

    #[test]
    fn the_order_is_nothing_and_the_members_are_all() {
        assert_eq!(of(&[1, 2, 3]), of(&[3, 1, 2]));
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 4]));
        assert_ne!(of(&[1]), of(&[]));
        assert_eq!(of(&[5, 6]).len(), 2);
        let mut other = OpSet::default();
        other.insert(CommittedOp { op: OpId { lane: Lane::MAIN, number: 1 }, digest: 8 });
        assert_ne!(other, of(&[1]), "another result");
        assert_codec(&of(&[0, 1 << 40]));
    }
}
