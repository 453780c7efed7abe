//! The number of an attempt to agree on a View.

use crate::identity::{Boot, MemberId, NodeId};
use crate::wire::layout::layout;
use std::fmt;

/// The number of an attempt to agree on a View. Unique: a proposer uses a round once per boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Grows with every attempt; 0 is before all of them.
    pub round: u64,
    /// The proposer.
    pub proposer: MemberId,
}

layout!(Ballot { round, proposer });

impl Ballot {
    /// Lower than every ballot that can be proposed.
    pub const ZERO: Ballot =
        Ballot { round: 0, proposer: MemberId { node: NodeId([0; 32]), boot: Boot(0) } };
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", self.round, self.proposer)
    }
}
