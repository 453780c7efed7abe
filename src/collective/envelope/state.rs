//! Layer: Shells.
//!
//! What one lock guards: the ledger, and what each call waits for.

use super::Decided;
use super::plans::Plans;
use crate::collective::{Digest, EngineFault, Ledger, Measured, Outcome, Staging};
use crate::view::{Lane, OpId, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// What one lock guards.
pub(super) struct State {
    pub(super) ledger: Ledger,
    pub(super) plans: Plans,
    pub(super) slots: BTreeMap<OpId, Slot>,
    /// Calls dropped after their vote: what was decided is kept until somebody asks.
    pub(super) lost: BTreeSet<OpId>,
}

/// What one call waits for.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) waker: Option<Waker>,
    pub(super) output: Option<Staging>,
    /// Of a step: the results of its calls, and their digests.
    pub(super) parts: BTreeMap<u8, (Staging, u128)>,
    /// How many calls it has, once that is known.
    pub(super) parts_all: Option<u8>,
    pub(super) outcome: Option<Outcome>,
    /// The caller takes finite numbers only.
    pub(super) finite_only: bool,
    /// For a sync: from whom the state comes, once all have said theirs.
    pub(super) source: Option<Option<(Rank, u64)>>,
    pub(super) fault: Option<EngineFault>,
    /// From its beginning until it is decided.
    pub(super) measured: Option<Measured>,
}

impl State {
    /// The first call of the lane that was dropped after its vote.
    pub(super) fn lost_in(&self, lane: Lane) -> Option<OpId> {
        self.lost.iter().find(|op| op.lane.caller() == lane.caller()).copied()
    }

    pub(super) fn take(&mut self, op: OpId) -> Decided {
        let slot = self.slots.remove(&op).unwrap_or_default();
        let outcome = slot.outcome.unwrap_or(Outcome::Indeterminate);
        let committed = outcome == Outcome::Committed;
        let output = slot.output.filter(|_| committed);
        let parts = slot.parts.into_values().filter(|_| committed).map(|(output, _)| output).collect();
        Decided { outcome, output, parts, fault: slot.fault }
    }

    /// A step is done here when it is ended and all its calls are.
    pub(super) fn note_step(&mut self, step: OpId) {
        let Some(slot) = self.slots.get(&step) else { return };
        if slot.parts_all.is_some_and(|all| usize::from(all) == slot.parts.len()) {
            let digest = Digest::of_all(slot.parts.values().map(|(_, digest)| *digest));
            self.ledger.done(step, digest);
        }
    }
}

impl Slot {
    pub(super) fn agreed(&mut self, source: Option<(Rank, u64)>) -> Option<Waker> {
        self.source = Some(source);
        self.waker.take()
    }

    pub(super) fn decided(&mut self, outcome: Outcome) -> Option<Waker> {
        self.outcome = Some(outcome);
        self.waker.take()
    }
}
