//! The plan revision of each operation, which is the same on every member; see
//! [`Revising`](super::super::revising::Revising).

use super::entry::Entry;
use crate::protocol::{Lane, OpId};

/// The revisions of a View's plan, and the one being agreed on.
///
/// ```text
/// number in lane L:   0 ...... 9 | 10 ..... 24 | 25 ......
/// revision:           oldest     | since[0].0  | since[1].0
///                                  since[0].1 has (L, 10), since[1].1 has (L, 25)
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Revisions {
    /// The View's own. Messages between two ranks always use it, because only these two count their
    /// numbers.
    first: u32,
    /// The revision of every call before the first one in `since`.
    pub(super) oldest: u32,
    /// Later revisions, ascending, each with its first call in each lane of this member. Earlier
    /// ones stay because a member that is behind still makes calls that others have begun under
    /// them.
    pub(super) since: Vec<(u32, Vec<OpId>)>,
    /// The highest revision proposed so far.
    pub(super) seen: u32,
    pub(super) held: Option<Held>,
}

/// The hold: calls wait for this revision. `next` is the answer to rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) revision: u32,
    pub(super) next: Option<Vec<OpId>>,
}

impl Revisions {
    pub(super) fn new(first: u32) -> Revisions {
        Revisions { first, oldest: first, since: Vec::new(), seen: first, held: None }
    }

    pub(super) fn current(&self) -> u32 {
        self.since.last().map_or(self.oldest, |(revision, _)| *revision)
    }

    /// Whether this member has the plan of a revision, and may still need it.
    pub(super) fn has(&self, revision: u32) -> bool {
        let since = self.since.iter().map(|(since, _)| *since);
        [self.first, self.oldest].into_iter().chain(since).any(|had| had == revision)
    }

    /// The revision under which another member has begun an operation, if it is known here.
    pub(super) fn told_revision(&self, entry: &Entry) -> Option<u32> {
        entry.told_revision().filter(|told| self.has(*told))
    }

    pub(super) fn of_a_new_call(&self, op: OpId) -> Option<u32> {
        if op.lane.ends().is_some() {
            Some(self.first)
        } else {
            Some(self.agreed_for(op)).filter(|_| self.held.is_none())
        }
    }

    /// The revision that is agreed on for a call with this number.
    pub(super) fn agreed_for(&self, op: OpId) -> u32 {
        let begun =
            self.since.iter().rev().find(|(_, first)| op.number >= number_in(first, op.lane));
        begun.map_or(self.oldest, |(revision, _)| *revision)
    }
}

pub(super) fn number_in(first: &[OpId], lane: Lane) -> u64 {
    first.iter().find(|op| op.lane == lane).map_or(0, |op| op.number)
}
