//! Two ranks, in the direction of the data.

use crate::protocol::Rank;

/// The sender and the receiver of a path.
pub type Pair = (Rank, Rank);
