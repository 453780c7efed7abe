//! The place of a member in a View.

use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// Most members of a View. A further node stays outside and says so.
pub const MEMBERS_MAX: usize = 16;

/// A member's index in a View, `0..size`.
///
/// Calls accept a rank or a `usize`. A rank is compared with a number by `==`, and
/// [`index`](Rank::index) converts it to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub(crate) u8);

impl Rank {
    /// The rank as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A number above 255 becomes 255. No View has that rank, so a call with it is rejected.
impl From<usize> for Rank {
    fn from(rank: usize) -> Rank {
        Rank(u8::try_from(rank).unwrap_or(u8::MAX))
    }
}

impl From<Rank> for usize {
    fn from(rank: Rank) -> usize {
        rank.index()
    }
}

impl PartialEq<usize> for Rank {
    fn eq(&self, rank: &usize) -> bool {
        self.index() == *rank
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

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
