//! The state that a node must keep across restarts, so that its promises stay binding.

use crate::protocol::{Accepted, Ballot};
use crate::wire::{Decode, Encode, Malformed, Reader, put_option};

/// The durable state of the agreement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    /// The highest promised ballot; lower ones are refused.
    pub promised: Ballot,
    /// The newest accepted View. Only promised ballots are installed, so the next installation has
    /// a strictly higher ballot.
    pub accepted: Option<Accepted>,
}

impl Default for Durable {
    fn default() -> Durable {
        Durable { promised: Ballot::ZERO, accepted: None }
    }
}

impl Encode for Durable {
    fn encode(&self, out: &mut Vec<u8>) {
        self.promised.encode(out);
        put_option(out, self.accepted.as_ref());
    }
}

impl Decode for Durable {
    fn decode(r: &mut Reader<'_>) -> Result<Durable, Malformed> {
        Ok(Durable { promised: Ballot::decode(r)?, accepted: r.option()? })
    }
}
