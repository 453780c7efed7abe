//! The place of a member in a View.

use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// Most members of a View. A further node stays outside and says so.
pub const MEMBERS_MAX: usize = 16;

/// A member's index in a View, `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

impl Rank {
    /// Converts a caller's rank; one above 255 becomes 255, which is never valid.
    pub(crate) fn clamped(rank: usize) -> Rank {
        Rank(u8::try_from(rank).unwrap_or(u8::MAX))
    }

    /// The rank as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// By hand: a rank out of range is `TooLong`.
impl Encode for Rank {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}

impl Decode for Rank {
    fn decode(r: &mut Reader<'_>) -> Result<Rank, Malformed> {
        let rank = r.u8()?;
        if usize::from(rank) < MEMBERS_MAX { Ok(Rank(rank)) } else { Err(Malformed::TooLong) }
    }
}
