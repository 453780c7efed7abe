//! Layer: Shells.
//!
//! What one lock guards: the ledger, and what each call waits for.

use super::Decided;
use super::plans::Plans;
use crate::collective::{
    CodecId, Digest, Enclosed, EngineFault, Ledger, Measured, OpBody, Outcome, Staging,
};
use crate::view::{Lane, OpId, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// What one lock guards.
pub(super) struct State {
    pub(super) ledger: Ledger,
    pub(super) plans: Plans,
    pub(super) slots: BTreeMap<OpId, Slot>,
    /// Calls dropped after their vote: what was decided is kept until somebody asks.
    pub(super) lost: BTreeSet<OpId>,
    /// By lane: the digest of the state that a sync has brought this member last.
    pub(super) brought: BTreeMap<Lane, u128>,
    /// What went with descriptors, to be said again where a link broke: until the operation is
    /// decided, or by best effort until all have it.
    pub(super) enclosed: BTreeMap<OpId, Arc<Enclosed>>,
    pub(super) served: Served,
    /// Who is not in the next View.
    pub(super) gone: Vec<Rank>,
    /// This node has left the group.
    pub(super) left: bool,
    /// Somebody has left a codec to the plan.
    pub(super) asks_for_codecs: bool,
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
    /// Of its calls whose codec was left to the plan: by which one this member's contribution is
    /// encoded.
    pub(super) codecs: BTreeMap<OpId, CodecId>,
    /// The caller takes finite numbers only.
    pub(super) finite_only: bool,
    pub(super) is_sync: bool,
    /// For a sync: from whom the state comes, once all have said theirs.
    pub(super) source: Option<Option<(Rank, u64)>>,
    pub(super) fault: Option<EngineFault>,
    /// From its beginning until it is decided.
    pub(super) measured: Option<Measured>,
    /// How much it reduces for all, where it does.
    pub(super) reduced_bytes: Option<u64>,
    /// When all had called it.
    pub(super) agreed_at: Option<Instant>,
}

/// How long reductions took, from when everybody had called and the one before was done.
#[derive(Default)]
pub(super) struct Served {
    last: Option<Instant>,
    times: Vec<(u64, Duration)>,
}

impl Served {
    fn note(&mut self, bytes: u64, agreed_at: Instant) {
        let (from, now) = (self.last.map_or(agreed_at, |last| last.max(agreed_at)), Instant::now());
        self.last = Some(now);
        // Whoever does not ask for them wants none.
        if self.times.len() < SERVED_MAX {
            self.times.push((bytes, now.duration_since(from)));
        }
    }

    pub(super) fn take(&mut self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.times)
    }
}

/// More than are done between two looks at them.
const SERVED_MAX: usize = 64;

/// Most undecided operations whose contributions go with their descriptors: what more there are
/// must not queue in front of votes.
const ENCLOSED_OPS_MAX: usize = 16;

impl Slot {
    /// The bytes of the result, of a step those of its calls; `None` where it has none that counts.
    pub(super) fn bytes(&self) -> Option<usize> {
        let of_parts = || self.parts.values().map(|(part, _)| part.len()).sum();
        let bytes = self.output.as_ref().map(Staging::len);
        bytes
            .or((!self.parts.is_empty()).then(of_parts))
            .filter(|_| self.outcome == Some(Outcome::Committed))
    }
}

impl State {
    /// Whether one more contribution may go with its descriptor.
    pub(super) fn may_enclose(&self) -> bool {
        self.enclosed.len() < ENCLOSED_OPS_MAX
    }

    /// What goes with a message.
    pub(super) fn enclosed_with(&self, body: OpBody) -> Option<Arc<Enclosed>> {
        match body {
            OpBody::Describe(descriptor) => self.enclosed.get(&descriptor.op).cloned(),
            _ => None,
        }
    }

    /// The first call of the lane that was dropped after its vote.
    pub(super) fn lost_in(&self, lane: Lane) -> Option<OpId> {
        self.lost.iter().find(|op| op.lane.caller() == lane.caller()).copied()
    }

    pub(super) fn take(&mut self, op: OpId) -> Decided {
        let slot = self.slots.remove(&op).unwrap_or_default();
        let outcome = slot.outcome.unwrap_or(Outcome::Indeterminate);
        let committed = outcome == Outcome::Committed;
        let output = slot.output.filter(|_| committed);
        let parts =
            slot.parts.into_values().filter(|_| committed).map(|(output, _)| output).collect();
        Decided {
            outcome,
            output,
            parts,
            codecs: slot.codecs,
            fault: slot.fault,
            is_sync: slot.is_sync,
        }
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

impl State {
    /// An operation is decided.
    pub(super) fn note_served(&mut self, op: OpId, outcome: Outcome) {
        let served = self.slots.get(&op).and_then(|slot| slot.reduced_bytes.zip(slot.agreed_at));
        if let (Some((bytes, agreed_at)), Outcome::Committed) = (served, outcome) {
            self.served.note(bytes, agreed_at);
        }
    }
}

impl Slot {
    pub(super) fn agreed(&mut self, source: Option<(Rank, u64)>) -> Option<Waker> {
        self.agreed_at = Some(Instant::now());
        self.source = Some(source);
        // Only a sync has to do something now.
        source.and_then(|_| self.waker.take())
    }

    pub(super) fn decided(&mut self, outcome: Outcome) -> Option<Waker> {
        self.outcome = Some(outcome);
        self.waker.take()
    }
}
