//! The sizes of its group that a node asks for.

use super::rank::MEMBERS_MAX;
use crate::wire::layout::layout;
use derive_more::Display;

/// How many members a node wants its group to have. Nodes of one group may differ in this.
///
/// All three are 1 to 32, `min_members <= members <= max_members`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    members: u8,
    min_members: u8,
    max_members: u8,
}

layout!(Sizes { members, min_members, max_members } if Sizes::is_consistent);

/// A setting that limits the size of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum SizeSetting {
    /// The members with which the group begins.
    #[display("members")]
    Members,
    /// The members with which the group goes on.
    #[display("min_members")]
    MinMembers,
    /// The members that the group may have.
    #[display("max_members")]
    MaxMembers,
    /// The rule for a partitioned network, which names a roster.
    #[display("partition")]
    Partition,
}

/// The reason for refusing the sizes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum SizesProblem {
    /// A size is not between 1 and 32.
    #[display("{setting} is {given}; it must be between 1 and {MEMBERS_MAX}")]
    OutOfRange {
        /// The size.
        setting: SizeSetting,
        /// Its value.
        given: usize,
    },
    /// The group would begin with fewer members than it needs to go on.
    #[display("min_members is {min_members}; it must not be larger than members, {members}")]
    BeginsBelowMin {
        /// The members with which the group begins.
        members: usize,
        /// The members with which it goes on.
        min_members: usize,
    },
    /// The group would begin with more members than it may have.
    #[display("max_members is {max_members}; it must not be smaller than members, {members}")]
    BeginsAboveMax {
        /// The members with which the group begins.
        members: usize,
        /// The members that it may have.
        max_members: usize,
    },
    /// The roster of the partition rule demands more members.
    #[display("{setting} is {given}; the partition rule needs {needed} members of its roster")]
    BelowRoster {
        /// The size.
        setting: SizeSetting,
        /// Its value.
        given: usize,
        /// The members that the rule needs.
        needed: usize,
    },
}

/// Two members begin and go on, and there may be 32.
impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { members: 2, min_members: 2, max_members: MEMBERS_MAX as u8 }
    }
}

impl Sizes {
    /// These sizes: begin with `members`, go on with `min_members`, have at most `max_members`.
    ///
    /// # Errors
    /// [`SizesProblem`] if one is not 1 to 32, or they are not in order.
    pub fn new(
        members: usize,
        min_members: usize,
        max_members: usize,
    ) -> Result<Sizes, SizesProblem> {
        let in_range = |setting, given| match u8::try_from(given) {
            Ok(size) if (1..=MEMBERS_MAX).contains(&given) => Ok(size),
            _ => Err(SizesProblem::OutOfRange { setting, given }),
        };
        let sizes = Sizes {
            members: in_range(SizeSetting::Members, members)?,
            min_members: in_range(SizeSetting::MinMembers, min_members)?,
            max_members: in_range(SizeSetting::MaxMembers, max_members)?,
        };
        if members < min_members {
            return Err(SizesProblem::BeginsBelowMin { members, min_members });
        }
        if members > max_members {
            return Err(SizesProblem::BeginsAboveMax { members, max_members });
        }
        Ok(sizes)
    }

    /// The number of members with which a group begins. The largest number that one of its members
    /// asks for counts.
    pub fn members(self) -> usize {
        usize::from(self.members)
    }

    /// The members that a View needs before this node hands it out, also when the group has begun.
    pub fn min_members(self) -> usize {
        usize::from(self.min_members)
    }

    /// The most members that a View with this node may have.
    pub fn max_members(self) -> usize {
        usize::from(self.max_members)
    }

    fn is_consistent(&self) -> bool {
        Sizes::new(self.members(), self.min_members(), self.max_members()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Decode, Encode, Malformed, assert_codec};

    #[test]
    fn sizes_are_checked_where_they_are_set_and_where_they_arrive() {
        assert_codec(&Sizes::default());
        assert_codec(&Sizes::new(3, 1, 32).expect("they are in order"));
        for (given, problem) in [
            ([0, 1, 1], "members is 0; it must be between 1 and 32"),
            ([2, 0, 2], "min_members is 0; it must be between 1 and 32"),
            ([2, 2, 33], "max_members is 33; it must be between 1 and 32"),
            ([256, 2, 2], "members is 256; it must be between 1 and 32"),
            ([2, 3, 3], "min_members is 3; it must not be larger than members, 2"),
            ([4, 2, 3], "max_members is 3; it must not be smaller than members, 4"),
        ] {
            let refused = Sizes::new(given[0], given[1], given[2]).map_err(|why| why.to_string());
            assert_eq!(refused, Err(problem.to_owned()));
            let bytes = given.map(|size| size as u8);
            assert_eq!(Sizes::from_bytes(&bytes), Err(Malformed::Inconsistent), "{given:?}");
        }
        assert_eq!(Sizes::default().to_bytes(), [2, 2, 32]);
    }
}
