//! The result of a call, apart from the elements that it writes.

use super::erased::Erased;
use potluck::DType;

/// The result of a call, apart from the elements that it writes.
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
        /// All elements.
        elements: Erased,
        /// Their type.
        dtype: DType,
        /// The elements of each rank.
        lengths: Vec<usize>,
    },
}
