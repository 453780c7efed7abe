//! Calls that hang: open for longer than a bound while all nodes run, all links carry and all
//! programs have called. It is looked at all the time, so nothing is healed before.

use super::super::claims::Claim;
use super::world::World;
use crate::collective::Ledger;
use crate::protocol::{Ballot, Member, OpId, View};
use std::collections::{BTreeMap, BTreeSet};

/// Longest time for a call to be answered. Nodes may have to meet, to wait for slow disks, or to
/// give up one that does not answer, and then to agree on a View.
pub(super) const HANG_MS: u64 = 30_000;

/// A call of a node in the View of this ballot.
type Waiting = (u8, Ballot, OpId);

/// The calls that nothing holds up, and since when.
#[derive(Default)]
pub(super) struct Hangs {
    since: BTreeMap<Waiting, u64>,
}

impl World {
    /// Looks for calls that hang.
    pub(super) fn watch_calls(&mut self) {
        if !self.network.resends || !self.is_quiet() {
            self.hangs.since.clear();
            return;
        }
        let (now, waiting) = (self.now, self.forsaken());
        self.hangs.since.retain(|call, _| waiting.contains(call));
        for call in waiting {
            let since = *self.hangs.since.entry(call).or_insert(now);
            if now >= since + HANG_MS {
                let (n, ballot, op) = call;
                self.tell_story(n, || format!("{op} of {} hangs", ballot.round));
                self.history.expect(Claim::Answered, false);
            }
        }
    }

    /// Whether all nodes run and all links carry. A disk may do what it likes: others do not wait
    /// for it, and its node gives its calls up.
    fn is_quiet(&self) -> bool {
        let living = self.living();
        let runs = |n: &u8| self.nodes[n].paused.is_none();
        let carry = |a: &u8, b: &u8| !self.network.is_muted(*a, *b);
        self.network.weather.refused == 0
            && living.iter().all(runs)
            && living.iter().all(|a| living.iter().all(|b| carry(a, b)))
    }

    /// The open calls that wait for no program: all who are with them in the View have called.
    pub(super) fn forsaken(&self) -> BTreeSet<Waiting> {
        let of = |n: u8| self.forsaken_at(n).unwrap_or_default();
        self.living().into_iter().flat_map(of).collect()
    }

    fn forsaken_at(&self, n: u8) -> Option<Vec<Waiting>> {
        let book = &self.nodes[&n].book;
        let (view, ledger) = (book.view.as_ref()?, book.ledger.as_ref()?);
        let open = ledger.undecided().filter(|op| !self.waits_for_a_call(view, *op));
        Some(open.map(|op| (n, view.ballot, op)).collect())
    }

    /// Whether a program in this View may still make this call. In a View that one of its members
    /// has left off, none has to.
    fn waits_for_a_call(&self, view: &View, op: OpId) -> bool {
        let takes_part = |m: &Member| {
            let rank = view.rank_of(m.id);
            rank.is_some_and(|rank| op.lane.participants(view.size()) >> rank.0 & 1 == 1)
        };
        let books = view.members.iter().filter(|m| takes_part(m)).map(|m| {
            let n = self.whose(m.id)?;
            let book = &self.nodes[&n].book;
            let is_here = book.view.as_ref().is_some_and(|theirs| theirs.ballot == view.ballot);
            book.ledger.as_ref().filter(|ledger| is_here && !ledger.is_frozen())
        });
        let all: Option<Vec<&Ledger>> = books.collect();
        all.is_some_and(|all| all.iter().any(|ledger| !ledger.has_called(op)))
    }
}
