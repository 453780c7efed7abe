//! The identifier of an operation: a lane and a number in it.

use super::rank::{MEMBERS_MAX, Rank};
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
/// Each lane of a caller has lanes below it: one for the messages of each ordered pair of ranks,
/// numbered by these two alone, and one for the calls of its steps, with 64 numbers for each step.
///
/// ```text
///  bit    63       62      61     60-48   47-44    43-40       39-0
///      +--------+-------+-------+-------+-------+---------+---------------+
///      |messages| steps |choices|   0   |to rank|from rank| 0 main, tag+1 |
///      +--------+-------+-------+-------+-------+---------+---------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub(crate) u64);

layout!(Lane(bits));

/// The participants of a lane's operations: bit `r` stands for rank `r`.
type Bits = u32;

impl Lane {
    /// The lane of the `Context` itself.
    pub const MAIN: Lane = Lane(0);

    /// For frames of bursts that measure a path and belong to no operation. Distinct from every
    /// caller's lane.
    pub(crate) const BURSTS: Lane = Lane(u64::MAX);

    /// For the last frame of a data link before it moves to another path; it belongs to no
    /// operation either.
    pub(crate) const MOVES: Lane = Lane(u64::MAX - 1);

    const BASE: u64 = (1 << 40) - 1;
    const RANK_BITS: u32 = 4;
    const FROM_AT: u32 = 40;
    const TO_AT: u32 = Lane::FROM_AT + Lane::RANK_BITS;
    const CHOICES: u64 = 1 << 61;
    const STEPS: u64 = 1 << 62;
    const MESSAGES: u64 = 1 << 63;

    /// The lane of a caller's tag.
    pub fn tagged(tag: u32) -> Lane {
        Lane(u64::from(tag) + 1)
    }

    /// The lane below this one for messages from one rank to another; both are below
    /// [`MEMBERS_MAX`].
    pub(crate) fn messages(self, from: Rank, to: Rank) -> Lane {
        let of = |rank: Rank| u64::from(rank.0) % MEMBERS_MAX as u64;
        Lane(
            self.0 & Lane::BASE
                | Lane::MESSAGES
                | of(from) << Lane::FROM_AT
                | of(to) << Lane::TO_AT,
        )
    }

    /// The sender and the receiver of its messages, if it is a lane of messages.
    pub(crate) fn ends(self) -> Option<(Rank, Rank)> {
        let at = |shift: u32| Rank((self.0 >> shift) as u8 % MEMBERS_MAX as u8);
        (self.0 & Lane::MESSAGES != 0).then(|| (at(Lane::FROM_AT), at(Lane::TO_AT)))
    }

    /// The participants of its operations as bits: the two ends, or all ranks below `size`.
    pub(crate) fn participants(self, size: usize) -> Bits {
        match self.ends() {
            Some((from, to)) => 1 << from.0 | 1 << to.0,
            None => (1 << size) - 1,
        }
    }

    /// The caller's lane above it.
    pub(crate) fn caller(self) -> Lane {
        Lane(self.0 & Lane::BASE)
    }

    /// The lane below this one for the names of this member's receives that have not chosen their
    /// sender. No other member hears of it.
    pub(crate) fn choices(self) -> Lane {
        Lane(self.0 & Lane::BASE | Lane::CHOICES)
    }

    pub(crate) fn is_of_choices(self) -> bool {
        self.0 & Lane::CHOICES != 0
    }

    fn is_of_steps(self) -> bool {
        self.0 & Lane::STEPS != 0
    }

    /// Whether its ends, if any, are two ranks of a View of `size`.
    pub(crate) fn fits(self, size: usize) -> bool {
        self.ends().is_none_or(|(from, to)| from != to && from.index() < size && to.index() < size)
    }
}

impl OpId {
    /// The identifier of call `index` of this step; `index` is below [`PARTS_MAX`].
    pub(crate) fn part(self, index: u8) -> OpId {
        let number = self.number.wrapping_mul(PARTS_MAX as u64).wrapping_add(u64::from(index));
        OpId { lane: Lane(self.lane.0 | Lane::STEPS), number }
    }

    /// The step that this call belongs to, and the call's index; `None` if it is not a call of a
    /// step.
    pub(crate) fn step(self) -> Option<(OpId, u8)> {
        let number = self.number / PARTS_MAX as u64;
        let step = OpId { lane: Lane(self.lane.0 & !Lane::STEPS), number };
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
        write!(f, "{}", self.0 & Lane::BASE)?;
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

    const STEP: OpId = OpId { lane: Lane(8), number: 3 };

    #[test]
    fn messages_have_a_lane_for_each_way() {
        for tag in [Lane::MAIN, Lane::tagged(0), Lane::tagged(u32::MAX)] {
            let there = tag.messages(Rank(2), Rank(15));
            assert_eq!(there.ends(), Some((Rank(2), Rank(15))));
            assert_ne!(there, tag.messages(Rank(15), Rank(2)));
            assert_eq!(there.participants(16), 1 << 2 | 1 << 15);
            assert_eq!((tag.ends(), tag.participants(3)), (None, 0b111));
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
    }
}
