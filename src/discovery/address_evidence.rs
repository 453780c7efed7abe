//! The knowledge of an address besides the outcome of its dials.

use crate::identity::{Boot, MemberId};

/// The knowledge of a dialled address. The first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEvidence {
    /// This member has had a link in this run. It announces the address, or nobody does and it has
    /// answered there.
    Answered(MemberId),
    /// This boot of our job announces it.
    Announced(Boot),
    /// The user has named it.
    ByHand,
    /// It was stored by an earlier run, or a member has named it.
    Hearsay,
}
