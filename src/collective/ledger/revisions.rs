//! Layer: Core.
//!
//! The plan revision of each operation, which is the same on every member; see
//! [`Revising`](crate::collective::Revising).

use super::{Ledger, Misbehaviour};
use crate::collective::revision::LANES_TOLD_MAX;
use crate::defect::Defect;
use crate::view::{Lane, OpId};

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
    oldest: u32,
    /// Later revisions, ascending, each with its first call in each lane. Earlier ones stay because
    /// a member that is behind still makes calls that others have begun under them.
    since: Vec<(u32, Vec<OpId>)>,
    /// The highest revision proposed so far.
    seen: u32,
    held: Option<Held>,
}

/// The hold: calls wait for this revision. `next` is the answer to rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    revision: u32,
    next: Option<Vec<OpId>>,
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

impl Ledger {
    /// The revision of a call in a new lane.
    pub fn revision(&self) -> u32 {
        self.revisions.current()
    }

    /// The revision of an operation; `None` while it is unknown.
    pub fn revision_of(&self, op: OpId) -> Option<u32> {
        let called = self.entries.get(&op.whole()).filter(|entry| entry.call.is_some());
        called.map_or(Some(self.revisions.agreed_for(op.whole())), |entry| entry.revision)
    }

    /// The number of undecided operations that are begun here or elsewhere, without those held
    /// here.
    pub fn moving(&self) -> usize {
        let is_held = |op: &&OpId| {
            self.entries
                .get(op)
                .is_some_and(|entry| entry.call.is_some() && entry.revision.is_none())
        };
        self.open().filter(|op| !is_held(op)).count()
    }

    /// Whether an undecided or future operation may run under this revision.
    pub fn uses(&self, revision: u32) -> bool {
        let mut open = self
            .entries
            .values()
            .filter(|entry| entry.outcome.is_none())
            .filter_map(|entry| entry.revision);
        self.revisions.has(revision) || open.any(|used| used == revision)
    }

    /// Holds every collective that is called from now on, until [`switch`](Ledger::switch). Returns
    /// the number of the next call in each lane in which this member lists an own call, or `None`
    /// if there are more than `LANES_TOLD_MAX` of them. A repeated call for the same revision
    /// returns the same.
    ///
    /// In a lane without own calls on the list, every participant has decided all that was called
    /// there, so nothing in it has begun under an earlier plan and is still under way.
    ///
    /// # Errors
    /// Another revision is being agreed on, or this one is not newer than all before.
    pub fn hold(&mut self, revision: u32) -> Result<Option<Vec<OpId>>, Misbehaviour> {
        if let Some(held) = &self.revisions.held {
            return if held.revision == revision {
                Ok(held.next.clone())
            } else {
                Err(Misbehaviour)
            };
        }
        if revision <= self.revisions.seen {
            return Err(Misbehaviour);
        }
        let own =
            self.entries.iter().filter(|(op, e)| e.call.is_some() && op.lane.ends().is_none());
        let mut next: Vec<OpId> =
            own.map(|(op, _)| OpId { lane: op.lane, number: self.next_in(op.lane) }).collect();
        next.dedup();
        let next = Some(next).filter(|next| next.len() <= LANES_TOLD_MAX);
        self.revisions.held = Some(Held { revision, next: next.clone() });
        self.revisions.seen = revision;
        Ok(next)
    }

    /// Whether the agreement on this revision is over: switched to, or given up.
    pub fn is_past(&self, revision: u32) -> bool {
        revision <= self.revisions.seen
            && self.revisions.held.as_ref().is_none_or(|held| held.revision != revision)
    }

    /// Ends the hold. In each lane, calls from the number in `first` on run under the new revision;
    /// in lanes that are not in `first`, all do. With `None` the plan stays as it was.
    ///
    /// # Errors
    /// Nothing is held for this revision, or a call that has begun here would change its plan.
    pub fn switch(&mut self, revision: u32, first: Option<&[OpId]>) -> Result<(), Misbehaviour> {
        let held = self
            .revisions
            .held
            .as_ref()
            .filter(|held| held.revision == revision)
            .ok_or(Misbehaviour)?;
        if let Some(first) = first {
            let begun = held.next.as_ref().ok_or(Misbehaviour)?;
            if begun.iter().any(|op| number_in(first, op.lane) < op.number) {
                return Err(Misbehaviour);
            }
            self.revisions.since.push((revision, first.to_vec()));
        }
        self.revisions.held = None;
        let keeps = self.seeded.has(Defect::KeepsHeld);
        let waiting = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.call.is_some() && entry.revision.is_none() && !keeps);
        for (op, entry) in waiting {
            entry.revision = Some(self.revisions.agreed_for(*op));
        }
        self.forget_revisions();
        Ok(())
    }

    /// Forgets revisions under which this member makes no further calls.
    fn forget_revisions(&mut self) {
        let is_behind = |first: &[OpId]| first.iter().any(|op| self.next_in(op.lane) < op.number);
        let over = self.revisions.since.iter().take_while(|(_, first)| !is_behind(first)).count();
        if let Some((revision, _)) = self.revisions.since.drain(..over).next_back() {
            self.revisions.oldest = revision;
        }
    }
}

fn number_in(first: &[OpId], lane: Lane) -> u64 {
    first.iter().find(|op| op.lane == lane).map_or(0, |op| op.number)
}
