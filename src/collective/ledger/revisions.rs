//! Layer: Core.
//!
//! Which revision of the plan an operation runs under: the same on every member, see
//! [`Revising`](crate::collective::Revising).

use super::{Ledger, Misbehaviour};
use crate::collective::revision::LANES_TOLD_MAX;
use crate::view::{Lane, OpId};

/// The revisions there were, and one that is being agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Revisions {
    /// Of the View itself: messages between two ranks keep to it, as only these two count them.
    first: u32,
    /// What everything before `since` runs under.
    oldest: u32,
    /// Later ones, ascending, each with the call in each lane from which on it is used. A member
    /// that is behind still calls what others have begun before.
    since: Vec<(u32, Vec<OpId>)>,
    /// The highest that was proposed.
    seen: u32,
    held: Option<Held>,
}

/// Calls are held for a revision.
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

    fn agreed_for(&self, op: OpId) -> u32 {
        let begun =
            self.since.iter().rev().find(|(_, first)| op.number >= number_in(first, op.lane));
        begun.map_or(self.oldest, |(revision, _)| *revision)
    }
}

impl Ledger {
    /// The revision that a call in a new lane runs under.
    pub fn revision(&self) -> u32 {
        self.revisions.current()
    }

    /// The revision that an operation runs under; `None` as long as that is not known.
    pub fn revision_of(&self, op: OpId) -> Option<u32> {
        let called = self.entries.get(&op.whole()).filter(|entry| entry.call.is_some());
        called.map_or(Some(self.revisions.agreed_for(op.whole())), |entry| entry.revision)
    }

    /// How many operations are begun here or elsewhere and not decided; without those that are held
    /// here.
    pub fn moving(&self) -> usize {
        let is_held = |op: &&OpId| {
            self.entries
                .get(op)
                .is_some_and(|entry| entry.call.is_some() && entry.revision.is_none())
        };
        self.open().filter(|op| !is_held(op)).count()
    }

    /// Whether an operation may run under this revision that is not decided, or not called yet.
    pub fn uses(&self, revision: u32) -> bool {
        let mut open = self
            .entries
            .values()
            .filter(|entry| entry.outcome.is_none())
            .filter_map(|entry| entry.revision);
        self.revisions.has(revision) || open.any(|used| used == revision)
    }

    /// Holds every collective that is called from now on, until [`switch`](Ledger::switch). Gives
    /// the number of the next call in each lane, `None` when they are too many to be told; the same
    /// again when this is said again.
    ///
    /// # Errors
    /// Another revision is being agreed on, or this one was before.
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
        let shared = self.numbers.iter().filter(|(lane, _)| lane.ends().is_none());
        let next: Vec<OpId> =
            shared.map(|(lane, number)| OpId { lane: *lane, number: *number }).collect();
        let next = Some(next).filter(|next| next.len() <= LANES_TOLD_MAX);
        self.revisions.held = Some(Held { revision, next: next.clone() });
        self.revisions.seen = revision;
        Ok(next)
    }

    /// Whether this revision has been switched to, or given up.
    pub fn is_past(&self, revision: u32) -> bool {
        revision <= self.revisions.seen
            && self.revisions.held.as_ref().is_none_or(|held| held.revision != revision)
    }

    /// Ends the hold: in each lane calls from these numbers on run under the new revision, and in
    /// lanes that are not named all of them. `None` when the plan stays as it was.
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
        let waiting = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.call.is_some() && entry.revision.is_none());
        for (op, entry) in waiting {
            entry.revision = Some(self.revisions.agreed_for(*op));
        }
        self.forget_revisions();
        Ok(())
    }

    /// Those before which this member calls nothing any more.
    fn forget_revisions(&mut self) {
        let next = |lane| self.numbers.get(&lane).copied().unwrap_or(0);
        let is_behind = |first: &[OpId]| first.iter().any(|op| next(op.lane) < op.number);
        let over = self.revisions.since.iter().take_while(|(_, first)| !is_behind(first)).count();
        if let Some((revision, _)) = self.revisions.since.drain(..over).next_back() {
            self.revisions.oldest = revision;
        }
    }
}

fn number_in(first: &[OpId], lane: Lane) -> u64 {
    first.iter().find(|op| op.lane == lane).map_or(0, |op| op.number)
}
