//! Layer: Core.
//!
//! What a node has to know again when it starts anew, for the promises it has given.

use crate::election::message::Accepted;
use crate::view::Ballot;
use crate::wire::{Decode, Encode, Malformed, Reader, put_option};

/// What outlives the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    /// Lower ballots are ignored.
    pub promised: Ballot,
    /// The newest accepted View. Nothing is installed that was not promised, so a next install is
    /// strictly later.
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
