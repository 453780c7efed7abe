//! The identifier of an operation: a lane and a number in it.

use super::group_ranks::GroupRanks;
use super::rank::{MEMBERS_MAX, Rank};
use super::rank_set::RankSet;
use crate::wire::layout::layout;
use std::fmt;

/// Most calls of one step.
pub const PARTS_MAX: usize = 64;

/// One operation of a View, or one call of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The lane that numbers it.
    pub lane: Lane,
    /// Its number in the lane; every View starts at 0.
    pub number: u64,
}

layout!(OpId { lane, number });

/// A sequence of operations in program order. Concurrent tasks use different lanes.
///
/// A lane belongs to a group of ranks, which number its operations: all of the View, or those of a
/// sub-group. Each lane of a caller has lanes below it: one for the messages of each ordered pair
/// of ranks, numbered by these two alone, and one for the calls of its steps, with 64 numbers for
/// each step. All ranks in it are those of the View.
///
/// ```text
///  bit    63       62      61    60-43  42-38    37-33         32-0
///      +--------+-------+-------+-----+-------+---------+---------------+    +---------------+
///      |messages| steps |choices|  0  |to rank|from rank| 0 main, tag+1 |    | ranks, 0: all |
///      +--------+-------+-------+-----+-------+---------+---------------+    +---------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The ranks of its sub-group; empty if it belongs to the whole View.
    group: RankSet,
    bits: u64,
}

layout!(Lane { bits, group });

impl Lane {
    /// The lane of the `Context` itself.
    pub const MAIN: Lane = Lane::of_view(0);

    /// For frames of bursts that measure a path and belong to no operation. Distinct from every
    /// caller's lane.
    pub(crate) const BURSTS: Lane = Lane::of_view(u64::MAX);

    /// For the last frame of a data link before it moves to another path; it belongs to no
    /// operation either.
    pub(crate) const MOVES: Lane = Lane::of_view(u64::MAX - 1);

    const FROM_AT: u32 = 33;
    const TO_AT: u32 = Lane::FROM_AT + Lane::RANK_BITS;
    const RANK_BITS: u32 = 5;
    const CALLER: u64 = (1 << Lane::FROM_AT) - 1;
    const ENDS: u64 = (1 << (Lane::TO_AT + Lane::RANK_BITS)) - 1 - Lane::CALLER;
    const CHOICES: u64 = 1 << 61;
    const STEPS: u64 = 1 << 62;
    const MESSAGES: u64 = 1 << 63;

    /// The lane of the whole View with these bits.
    pub(crate) const fn of_view(bits: u64) -> Lane {
        Lane { group: RankSet::EMPTY, bits }
    }

    /// Its bits, and those of the ranks of its sub-group: its form in a frame's header.
    pub(crate) fn to_bits(self) -> (u64, u32) {
        (self.bits, self.group.bits())
    }

    /// The lane of a caller's tag.
    pub fn tagged(tag: u32) -> Lane {
        Lane::of_view(u64::from(tag) + 1)
    }

    /// The lane of this tag of the same group.
    pub(crate) fn with_tag(self, tag: u32) -> Lane {
        Lane { bits: Lane::tagged(tag).bits, ..self }
    }

    /// The lane of this tag of the group of these ranks of a View of `size` members. A group of all
    /// ranks is the View itself.
    pub(crate) fn of_group(group: GroupRanks, tag: u32, size: usize) -> Lane {
        let is_group = group.set().is_part_of(size);
        Lane { group: if is_group { group.set() } else { RankSet::EMPTY }, ..Lane::tagged(tag) }
    }

    /// The lane before this one in the same group, by its bits.
    pub(crate) fn before(self) -> Option<Lane> {
        Some(Lane { bits: self.bits.checked_sub(1)?, ..self })
    }

    /// The lane after this one in the same group, by its bits.
    pub(crate) fn after(self) -> Option<Lane> {
        Some(Lane { bits: self.bits.checked_add(1)?, ..self })
    }

    /// The lane below this one for messages from one rank to another; both are below
    /// [`MEMBERS_MAX`].
    pub(crate) fn messages(self, from: Rank, to: Rank) -> Lane {
        let of = |rank: Rank| u64::from(rank.0) % MEMBERS_MAX as u64;
        let ends = of(from) << Lane::FROM_AT | of(to) << Lane::TO_AT;
        Lane { bits: self.bits & Lane::CALLER | Lane::MESSAGES | ends, ..self }
    }

    /// The sender and the receiver of its messages, if it is a lane of messages.
    pub(crate) fn ends(self) -> Option<(Rank, Rank)> {
        let at = |shift: u32| Rank((self.bits >> shift) as u8 % MEMBERS_MAX as u8);
        (self.bits & Lane::MESSAGES != 0).then(|| (at(Lane::FROM_AT), at(Lane::TO_AT)))
    }

    /// The ranks of the group that it belongs to, in a View of `size` members.
    pub(crate) fn group(self, size: usize) -> GroupRanks {
        if self.is_of_group() { GroupRanks::of(self.group) } else { GroupRanks::all(size) }
    }

    /// Whether it belongs to a sub-group.
    pub(crate) fn is_of_group(self) -> bool {
        !self.group.is_empty()
    }

    /// Whether all members take part in its operations, so that these are part of the history.
    pub(crate) fn is_of_all(self) -> bool {
        !self.is_of_group() && self.ends().is_none()
    }

    /// The participants of its operations: the two ends, or the ranks of its group in a View of
    /// `size` members.
    pub(crate) fn participants(self, size: usize) -> RankSet {
        match self.ends() {
            Some((from, to)) => RankSet::EMPTY.with(from).with(to),
            None => self.group(size).set(),
        }
    }

    /// The caller's lane above it.
    pub(crate) fn caller(self) -> Lane {
        Lane { bits: self.bits & Lane::CALLER, ..self }
    }

    /// The lane below this one for the names of this member's receives that have not chosen their
    /// sender. No other member hears of it.
    pub(crate) fn choices(self) -> Lane {
        Lane { bits: self.bits & Lane::CALLER | Lane::CHOICES, ..self }
    }

    pub(crate) fn is_of_choices(self) -> bool {
        self.bits & Lane::CHOICES != 0
    }

    fn of_steps(self) -> Lane {
        Lane { bits: self.bits | Lane::STEPS, ..self }
    }

    fn without_steps(self) -> Lane {
        Lane { bits: self.bits & !Lane::STEPS, ..self }
    }

    fn is_of_steps(self) -> bool {
        self.bits & Lane::STEPS != 0
    }

    /// Whether an honest member of a View of `size` may use it: it has one form, the ranks of its
    /// group are some of the View, and its ends, if any, are two of its group.
    pub(crate) fn fits(self, size: usize) -> bool {
        let known = Lane::CALLER | Lane::ENDS | Lane::STEPS | Lane::MESSAGES;
        let is_group = !self.is_of_group() || self.group.is_part_of(size);
        let group = self.group(size).set();
        let are_ends = match self.ends() {
            Some((from, to)) => from != to && group.contains(from) && group.contains(to),
            None => self.bits & Lane::ENDS == 0,
        };
        self.bits & !known == 0 && is_group && are_ends
    }
}

impl OpId {
    /// The identifier of call `index` of this step; `index` is below [`PARTS_MAX`].
    pub(crate) fn part(self, index: u8) -> OpId {
        let number = self.number.wrapping_mul(PARTS_MAX as u64).wrapping_add(u64::from(index));
        OpId { lane: self.lane.of_steps(), number }
    }

    /// The step that this call belongs to, and the call's index; `None` if it is not a call of a
    /// step.
    pub(crate) fn step(self) -> Option<(OpId, u8)> {
        let number = self.number / PARTS_MAX as u64;
        let step = OpId { lane: self.lane.without_steps(), number };
        self.lane.is_of_steps().then_some((step, (self.number % PARTS_MAX as u64) as u8))
    }

    /// The operation to vote on: the step of a call, else the operation itself.
    pub(crate) fn whole(self) -> OpId {
        self.step().map_or(self, |(step, _)| step)
    }

    /// The identifiers of all possible calls of this step.
    pub(crate) fn parts(self) -> impl Iterator<Item = OpId> {
        (0..PARTS_MAX as u8).map(move |index| self.part(index))
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bits & Lane::CALLER)?;
        if self.is_of_group() {
            let ranks: Vec<String> = self.group.iter().map(|rank| rank.to_string()).collect();
            write!(f, "[{}]", ranks.join(","))?;
        }
        if self.is_of_choices() && self.ends().is_none() {
            f.write_str(":any")?;
        }
        self.ends().map_or(Ok(()), |(from, to)| write!(f, ":{from}>{to}"))
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step() {
            Some((step, index)) => write!(f, "{step}/{index}"),
            None => write!(f, "{}.{}", self.lane, self.number),
        }
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: OpId = OpId { lane: Lane::of_view(8), number: 3 };

    #[test]
    fn messages_have_a_lane_for_each_way() {
        for tag in [Lane::MAIN, Lane::tagged(0), Lane::tagged(u32::MAX)] {
            let there = tag.messages(Rank(2), Rank(15));
            assert_eq!(there.ends(), Some((Rank(2), Rank(15))));
            assert_ne!(there, tag.messages(Rank(15), Rank(2)));
            assert_eq!(there.participants(16), set(&[2, 15]));
            assert_eq!((tag.ends(), tag.participants(3)), (None, set(&[0, 1, 2])));
        }
        assert!(
            Lane::tagged(4).messages(Rank(0), Rank(1))
                != Lane::tagged(5).messages(Rank(0), Rank(1))
        );
    }

    #[test]
    fn who_is_not_there_has_no_messages() {
        assert!(Lane::MAIN.fits(1) && Lane::MAIN.messages(Rank(0), Rank(2)).fits(3));
        assert!(!Lane::MAIN.messages(Rank(0), Rank(2)).fits(2));
        assert!(!Lane::MAIN.messages(Rank(1), Rank(1)).fits(2));
    }

    fn set(ranks: &[u8]) -> RankSet {
        ranks.iter().copied().map(Rank).collect()
    }

    fn group(ranks: &[u8]) -> GroupRanks {
        GroupRanks::of(set(ranks))
    }

    #[test]
    fn a_lane_of_a_group_is_that_of_its_ranks_alone() {
        let whole = Lane::tagged(u32::MAX);
        let some = Lane::of_group(group(&[1, 3]), u32::MAX, 4);
        assert_eq!((some.group(4), some.participants(4)), (group(&[1, 3]), set(&[1, 3])));
        assert!(some.is_of_group() && !some.is_of_all() && whole.is_of_all());
        assert!(some != whole && some != Lane::of_group(group(&[1, 2]), u32::MAX, 4));
        assert_eq!((some.caller(), some.with_tag(7)), (some, Lane::of_group(group(&[1, 3]), 7, 4)));
        let message = some.messages(Rank(3), Rank(1));
        assert_eq!(message.ends(), Some((Rank(3), Rank(1))));
        assert_eq!((message.caller(), message.group(4)), (some, group(&[1, 3])));
        assert!(!message.is_of_all() && !whole.messages(Rank(3), Rank(1)).is_of_all());
        let call = OpId { lane: some, number: 3 };
        assert!(
            call.parts()
                .all(|part| part.lane.fits(4) && part.step().is_some_and(|(step, _)| step == call))
        );
        assert!(call.part(5).lane.participants(4) == set(&[1, 3]));
    }

    #[test]
    fn a_group_of_all_is_the_view() {
        assert_eq!(Lane::of_group(GroupRanks::all(3), 4, 3), Lane::tagged(4));
        assert!(Lane::of_group(GroupRanks::all(3), 4, 4).is_of_group());
    }

    #[test]
    fn a_group_of_others_than_members_fits_no_view() {
        let some = Lane::of_group(group(&[1, 3]), 0, 4);
        assert!(some.fits(4) && some.fits(16) && !some.fits(3));
        assert!(!Lane::of_group(group(&[0, 1]), 0, 4).fits(2), "all ranks have no mask");
        assert!(some.messages(Rank(1), Rank(3)).fits(4));
        for (from, to) in [(1, 2), (0, 3), (1, 1)] {
            assert!(!some.messages(Rank(from), Rank(to)).fits(4), "{from} to {to}");
        }
        for bits in [1 << 43, 1 << 60, 1 << 61, 1 << Lane::FROM_AT] {
            assert!(!Lane::of_view(bits).fits(4), "{bits:x} has another form");
        }
    }

    #[test]
    fn the_calls_of_a_step_tell_which_step() {
        assert!(STEP.parts().enumerate().all(|(i, part)| part.step() == Some((STEP, i as u8))));
        assert_eq!(STEP.step(), None);
        let next = OpId { number: STEP.number + 1, ..STEP };
        assert!(STEP.parts().all(|part| next.parts().all(|other| other != part)));
    }

    #[test]
    fn people_can_read_them() {
        assert_eq!(STEP.to_string(), "8.3");
        assert_eq!(STEP.part(5).to_string(), "8.3/5");
        let message = OpId { lane: Lane::MAIN.messages(Rank(1), Rank(2)), number: 7 };
        assert_eq!(message.to_string(), "0:1>2.7");
        let some = Lane::of_group(group(&[0, 2]), 7, 3);
        assert_eq!(OpId { lane: some, number: 7 }.to_string(), "8[0,2].7");
        assert_eq!(some.messages(Rank(2), Rank(0)).to_string(), "8[0,2]:2>0");
    }
}
