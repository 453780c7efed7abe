//! What a call returns, apart from what it writes.

use potluck::DType;

/// What a call returns, apart from what it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Done,
    /// The rank whose message has come.
    From(usize),
    /// The state that all members hold now.
    State(Vec<u8>),
    /// The parts of all ranks, in rank order.
    Parts {
        /// The bytes of all elements.
        bytes: Vec<u8>,
        /// Their type.
        dtype: DType,
        /// The elements of each rank.
        lengths: Vec<usize>,
    },
}
