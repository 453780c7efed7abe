//! The place of a member in a View.

use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// Most members of a View. A further node stays outside and says so.
pub const MEMBERS_MAX: usize = 32;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Rejection;

    #[test]
    fn a_number_is_a_rank_and_a_rank_a_number() {
        assert_eq!((Rank::from(3), usize::from(Rank(3)), Rank(3).index()), (Rank(3), 3, 3));
        assert!(Rank(3) == 3 && Rank(3) != 259 && Rank(3) < Rank::from(4));
        assert_eq!(format!("{}|{:>3}", Rank(7), Rank(7)), "7|  7");
    }

    /// A literal needs no type, and a number of any size stays a typed error.
    #[test]
    fn calls_take_numbers_and_ranks() {
        fn into(rank: impl Into<Rank>) -> Rank {
            rank.into()
        }
        assert_eq!([into(1), into(Rank(1)), into(usize::MAX)], [Rank(1), Rank(1), Rank(255)]);
        let rejection = Rejection::NoRoot { root: into(usize::MAX), size: 2 };
        assert!(rejection.to_string().starts_with("the root is rank 255"), "{rejection}");
    }
}
