//! The state that a node must keep across restarts, so that its promises stay binding.

use crate::protocol::{Accepted, Ballot};
use crate::wire::layout::layout;

/// The durable state of the agreement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    /// The highest promised ballot; lower ones are refused.
    pub promised: Ballot,
    /// The newest accepted View. Only promised ballots are installed, so the next installation has
    /// a strictly higher ballot.
    pub accepted: Option<Accepted>,
}

layout!(Durable { promised, accepted });

impl Default for Durable {
    fn default() -> Durable {
        Durable { promised: Ballot::ZERO, accepted: None }
    }
}
