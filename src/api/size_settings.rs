//! The settings of a program or of the environment for the size of its group.

use crate::protocol::{MEMBERS_MAX, Partition, SizeSetting, Sizes, SizesProblem};
use std::str::FromStr;

/// The sizes that are set; `None` for those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SizeSettings {
    pub(super) members: Option<usize>,
    pub(super) min_members: Option<usize>,
    pub(super) max_members: Option<usize>,
}

impl SizeSettings {
    /// These settings, and `others` where these say nothing.
    pub(super) fn or(self, others: SizeSettings) -> SizeSettings {
        SizeSettings {
            members: self.members.or(others.members),
            min_members: self.min_members.or(others.min_members),
            max_members: self.max_members.or(others.max_members),
        }
    }

    /// The sizes under this rule. Without a setting a group goes on with two members, or with those
    /// that the roster demands, begins with as many as it goes on with, and has at most 32.
    pub(super) fn under(self, partition: &Partition) -> Result<Sizes, SizesProblem> {
        let max_members = self.max_members.unwrap_or(MEMBERS_MAX);
        let usual = match partition.roster() {
            Some(_) => self.demanded(partition.members_wanted())?,
            None => 2.min(self.members.unwrap_or(2)).min(max_members),
        };
        let min_members = self.min_members.unwrap_or(usual);
        Sizes::new(self.members.unwrap_or(min_members), min_members, max_members)
    }

    /// The members that a roster demands, which may be no more than any setting. A roster that
    /// cannot be used is refused with its own reason.
    fn demanded(self, needed: usize) -> Result<usize, SizesProblem> {
        let settings = [
            (SizeSetting::Members, self.members),
            (SizeSetting::MinMembers, self.min_members),
            (SizeSetting::MaxMembers, self.max_members),
        ];
        match settings.into_iter().find(|(_, given)| given.is_some_and(|given| given < needed)) {
            Some((setting, Some(given))) => {
                Err(SizesProblem::BelowRoster { setting, given, needed })
            }
            _ => Ok(needed.clamp(1, MEMBERS_MAX)),
        }
    }
}

/// Parses `N` (begin with), `M..K` (go on with, at most; either may be left out) or `N,M..K`.
impl FromStr for SizeSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeSettings, String> {
        let number = |part: &str| match part.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{:?} is no number of members", part.trim())),
        };
        let (first, range) = match text.split_once(',') {
            Some((first, range)) => (Some(first), Some(range)),
            None if text.contains("..") => (None, Some(text)),
            None => (Some(text), None),
        };
        let members = first.map_or(Ok(None), number)?;
        let Some(range) = range else {
            return Ok(SizeSettings { members, ..SizeSettings::default() });
        };
        let Some((low, high)) = range.split_once("..").filter(|_| range.trim() != "..") else {
            return Err(format!("{:?} is none of M..K, M.. and ..K", range.trim()));
        };
        let end = |part: &str| if part.trim().is_empty() { Ok(None) } else { number(part) };
        Ok(SizeSettings { members, min_members: end(low)?, max_members: end(high)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;

    fn set(members: usize, min_members: usize, max_members: usize) -> SizeSettings {
        let given = |size| (size > 0).then_some(size);
        SizeSettings {
            members: given(members),
            min_members: given(min_members),
            max_members: given(max_members),
        }
    }

    #[test]
    fn text_sets_the_beginning_or_a_range_or_both() {
        for (text, settings) in [
            ("3", set(3, 0, 0)),
            ("2..8", set(0, 2, 8)),
            ("2..", set(0, 2, 0)),
            (" .. 4 ", set(0, 0, 4)),
            ("3,2..8", set(3, 2, 8)),
            ("3, ..8", set(3, 0, 8)),
        ] {
            assert_eq!(text.parse(), Ok(settings), "{text:?}");
        }
        for text in ["", "..", "3,", "3,5", "three", "-1", "1...3", "2..=8", "2..8,3", "1..2..3"] {
            assert!(text.parse::<SizeSettings>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_follow_from_those_that_are_set() {
        let sizes = |settings: SizeSettings| settings.under(&Partition::Continue);
        for (settings, [members, min, max]) in [
            (set(0, 0, 0), [2, 2, 32]),
            (set(1, 0, 0), [1, 1, 32]),
            (set(3, 0, 0), [3, 2, 32]),
            (set(0, 1, 0), [1, 1, 32]),
            (set(0, 3, 0), [3, 3, 32]),
            (set(2, 1, 0), [2, 1, 32]),
            (set(0, 0, 1), [1, 1, 1]),
            (set(4, 2, 8), [4, 2, 8]),
        ] {
            assert_eq!(sizes(settings), Sizes::new(members, min, max), "{settings:?}");
        }
        assert!(sizes(set(2, 3, 0)).is_err() && sizes(set(4, 0, 3)).is_err());
        let outer = set(3, 0, 5).or(set(4, 2, 0));
        assert_eq!(outer, set(3, 2, 5));
    }

    #[test]
    fn no_size_is_below_what_the_roster_demands() {
        let roster =
            |n: u8| Partition::Majority { roster: (0..n).map(|n| NodeId([n; 32])).collect() };
        assert_eq!(set(0, 0, 0).under(&roster(5)), Sizes::new(3, 3, 32));
        assert_eq!(set(4, 0, 0).under(&roster(5)), Sizes::new(4, 3, 32));
        assert_eq!(set(0, 0, 0).under(&roster(1)), Sizes::new(1, 1, 32));
        for (settings, setting) in [
            (set(2, 0, 0), SizeSetting::Members),
            (set(0, 2, 0), SizeSetting::MinMembers),
            (set(0, 0, 2), SizeSetting::MaxMembers),
        ] {
            let problem = SizesProblem::BelowRoster { setting, given: 2, needed: 3 };
            assert_eq!(settings.under(&roster(5)), Err(problem));
        }
    }
}
