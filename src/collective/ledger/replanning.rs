//! How the ledger changes to another plan of its View.

use super::revisions::{Held, number_in};
use super::{Ledger, Misbehaviour};
use crate::protocol::{LANES_TOLD_MAX, Lane, Mutant, OpId};

impl Ledger {
    /// The revision of a call in a new lane.
    pub fn revision(&self) -> u32 {
        self.revisions.current()
    }

    /// The revision of this member's next call in a lane, as far as it is agreed on. A member that
    /// is behind makes calls that others have begun under an earlier revision than the current one.
    pub fn revision_of_next(&self, lane: Lane) -> u32 {
        let next = OpId { lane, number: self.next_in(lane) };
        let told = self.entries.get(&next).and_then(|entry| self.revisions.told_revision(entry));
        told.or_else(|| self.revisions.of_a_new_call(next))
            .unwrap_or_else(|| self.revisions.agreed_for(next))
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
            // This member makes no calls in the lanes of groups without it.
            let concerns_me = |op: &&OpId| op.lane.participants(self.size).contains(self.me);
            let first = first.iter().filter(concerns_me).copied().collect();
            self.revisions.since.push((revision, first));
        }
        self.revisions.held = None;
        let keeps = self.mutation.has(Mutant::KeepsHeld);
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
