//! The data behind the session's lock: the ledger, and one slot per pending call.

use super::super::meter::Measured;
use super::choices::Choices;
use super::decided::Decided;
use super::part_result::PartResult;
use super::plans::{Begun, Plans};
use super::served::Served;
use crate::collective::{Digest, Lanes, Ledger, SyncSource};
use crate::memory::{Block, Staging};
use crate::protocol::{
    Call, CodecId, Enclosed, EngineFault, Lane, Lengths, OpBody, OpId, OpMessage, Outcome, Plan,
    Rank, View,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// The data behind the session's lock.
pub(super) struct SessionState {
    pub(super) ledger: Ledger,
    pub(super) plans: Plans,
    pub(super) slots: BTreeMap<OpId, OpSlot>,
    /// Measurements of decided operations, to be ended without the lock.
    pub(super) ended: Vec<(Measured, Outcome)>,
    /// Calls dropped after this member's vote; their results are kept for `take_lost`.
    pub(super) lost: BTreeSet<OpId>,
    /// By lane: the digest of the state that the last sync delivered to this member.
    pub(super) brought: Lanes<u128>,
    /// Contributions sent with descriptors, for a replay after a link broke: kept until the
    /// operation is decided, for best-effort calls until all members have it.
    pub(super) enclosed: BTreeMap<OpId, Arc<Enclosed>>,
    pub(super) served: Served,
    /// Ranks that are not in the next View.
    pub(super) gone: Vec<Rank>,
    /// This node has left the group.
    pub(super) left: bool,
    /// The control plane has been asked to replace the View, see [`Ledger::must_end`].
    pub(super) must_end: bool,
    /// A call has left its codec to the plan.
    pub(super) asks_for_codecs: bool,
    /// Receives that have not chosen their sender.
    pub(super) choices: Choices,
}

/// One pending call.
#[derive(Default)]
pub(super) struct OpSlot {
    pub(super) waker: Option<Waker>,
    pub(super) output: Option<Staging>,
    /// For a step: the result and digest of each call, by index.
    pub(super) parts: BTreeMap<u8, (PartResult, u128)>,
    /// For a step: the index of the call that sums the weights, by the index of each call that is
    /// the sum of a weighted mean.
    pub(super) weighted_by: BTreeMap<u8, u8>,
    /// The number of calls of a step, once it is known.
    pub(super) parts_all: Option<u8>,
    /// It is an uneven call, whose first part exchanges the lengths.
    pub(super) is_uneven: bool,
    /// For an uneven call, the lengths of its parts, once they are known.
    pub(super) lengths: Option<Arc<Lengths>>,
    pub(super) outcome: Option<Outcome>,
    /// For calls that leave the codec to the plan: the codec of this member's contribution.
    pub(super) codecs: BTreeMap<OpId, CodecId>,
    /// Abort if the result is not finite.
    pub(super) finite_only: bool,
    pub(super) is_sync: bool,
    /// For a sync: the source of the state, once all descriptors are in. For other calls
    /// `Some(None)` then.
    pub(super) source: Option<Option<SyncSource>>,
    pub(super) fault: Option<EngineFault>,
    /// The measurement, from the beginning until the decision.
    pub(super) measured: Option<Measured>,
    /// Bytes that an all-reduce without codec reduces.
    pub(super) reduced_bytes: Option<u64>,
    /// The moment at which all descriptors were in.
    pub(super) agreed_at: Option<Instant>,
}

/// How a call starts, under the plan that it runs under.
pub(super) struct Start {
    pub(super) plan: Arc<Plan>,
    /// The codec of this member's contribution.
    pub(super) codec: CodecId,
    /// Whether its contribution may travel with its descriptor.
    pub(super) may_enclose: bool,
    /// For the data of an uneven call: the lengths of its parts.
    pub(super) lengths: Option<Arc<Lengths>>,
}

/// The part of an uneven call that exchanges the lengths.
pub(super) const LENGTHS: u8 = 0;

/// Most undecided operations whose contributions travel with their descriptors. More of them would
/// delay votes on the control link.
const ENCLOSED_OPS_MAX: usize = 16;

impl OpSlot {
    /// The bytes of the result, of a step those of its calls; `None` where it has none that counts.
    pub(super) fn bytes(&self) -> Option<usize> {
        let results = || self.parts.iter().filter(|(index, _)| !self.is_hidden(**index));
        let of_parts = || results().map(|(_, (part, _))| part.len()).sum();
        let bytes = self.output.as_ref().map(Staging::len);
        bytes
            .or((!self.parts.is_empty()).then(of_parts))
            .filter(|_| self.outcome == Some(Outcome::Committed))
    }

    /// Whether this call of a step sums the weights of others.
    pub(super) fn sums_weights(&self, index: u8) -> bool {
        self.weighted_by.values().any(|weights| *weights == index)
    }

    /// Whether the program does not get the result of this call of a step: a sum of weights, or the
    /// lengths of an uneven call.
    fn is_hidden(&self, index: u8) -> bool {
        self.sums_weights(index) || self.is_uneven && index == LENGTHS
    }

    /// Takes the results of the calls of a step, each with the sum of its weights.
    fn weighted(&mut self) -> Vec<PartResult> {
        let mut parts = std::mem::take(&mut self.parts);
        let sums = self.weighted_by.iter().filter_map(|(index, weights)| {
            Some((*index, PartResult::weight_sum(&parts.get(weights)?.0.output)))
        });
        for (index, sum) in sums.collect::<Vec<_>>() {
            parts.entry(index).and_modify(|(part, _)| part.weights = sum);
        }
        parts.retain(|index, _| !self.is_hidden(*index));
        parts.into_values().map(|(part, _)| part).collect()
    }
}

impl SessionState {
    /// How a call starts on this rank of the View; `None` while its plan is unknown. Notes its
    /// codec, for the residual of a call that was held until now.
    pub(super) fn start_of(
        &mut self,
        (view, me): (&View, Rank),
        op: OpId,
        call: &Call,
    ) -> Option<Start> {
        let plan = self.plans.in_lane(self.ledger.revision_of(op)?, op.lane, view);
        let coding = plan.coding(call);
        let codec = coding.of(op.lane.group(view.size()).in_group(me)?);
        self.asks_for_codecs |= matches!(call.codec, CodecId::Auto(_));
        if call.codec != CodecId::None
            && let Some(slot) = self.slots.get_mut(&op.whole())
        {
            slot.codecs.insert(op, codec);
        }
        if let Some(slot) = self.slots.get_mut(&op).filter(|_| op.lane.is_of_all()) {
            // A call of all members without codec can be compared with its predicted duration.
            slot.reduced_bytes = Call { codec: coding.codec(), ..*call }.reduced_by_all();
        }
        let whole = self.slots.get(&op.whole()).filter(|_| call.kind.has_lengths());
        let lengths = whole.and_then(|slot| slot.lengths.clone());
        Some(Start { plan, codec, may_enclose: self.enclosed.len() < ENCLOSED_OPS_MAX, lengths })
    }

    /// Measures an operation until it is decided.
    pub(super) fn measure(&mut self, op: OpId, measured: Measured) {
        match self.slots.get_mut(&op) {
            Some(slot) if slot.outcome.is_none() => slot.measured = Some(measured),
            decided => {
                let outcome = decided.and_then(|slot| slot.outcome);
                self.ended.push((measured, outcome.unwrap_or(Outcome::Indeterminate)));
            }
        }
    }

    /// An operation is decided: ends its measurement, and returns the caller's waker.
    pub(super) fn decided(&mut self, op: OpId, outcome: Outcome) -> Option<Waker> {
        let slot = self.slots.get_mut(&op)?;
        slot.outcome = Some(outcome);
        self.ended.extend(slot.measured.take().map(|measured| (measured, outcome)));
        slot.waker.take()
    }

    /// A message with these resolved operations, and with the contribution that its descriptor
    /// encloses.
    pub(super) fn message(&self, body: OpBody, resolved: Vec<OpId>) -> OpMessage {
        let enclosed = match body {
            OpBody::Describe(descriptor) => self.enclosed.get(&descriptor.op).cloned(),
            _ => None,
        };
        OpMessage { view: self.ledger.view(), body, resolved, enclosed }
    }

    /// The slot of a pending call that is undecided.
    pub(super) fn undecided(&mut self, op: OpId) -> Option<&mut OpSlot> {
        self.slots.get_mut(&op).filter(|slot| slot.outcome.is_none())
    }

    /// The first call of the lane that was dropped after its vote.
    pub(super) fn lost_in(&self, lane: Lane) -> Option<OpId> {
        self.lost.iter().find(|op| op.lane.caller() == lane.caller()).copied()
    }

    pub(super) fn take(&mut self, op: OpId) -> Decided {
        let mut slot = self.slots.remove(&op).unwrap_or_default();
        let outcome = slot.outcome.unwrap_or(Outcome::Indeterminate);
        let committed = outcome == Outcome::Committed;
        let parts = if committed { slot.weighted() } else { Vec::new() };
        let output = slot.output.filter(|_| committed);
        Decided {
            outcome,
            output,
            parts,
            codecs: slot.codecs,
            fault: slot.fault,
            is_sync: slot.is_sync,
        }
    }

    /// Reports a step as done when it is ended and all its calls have results.
    pub(super) fn note_step(&mut self, step: OpId) {
        let Some(slot) = self.slots.get(&step) else { return };
        if slot.parts_all.is_some_and(|all| usize::from(all) == slot.parts.len()) {
            let digest = Digest::of_all(slot.parts.values().map(|(_, digest)| *digest));
            self.ledger.done(step, digest);
        }
    }
}

impl SessionState {
    /// Records the duration of a committed reduction.
    pub(super) fn note_served(&mut self, op: OpId, outcome: Outcome) {
        let served = self.slots.get(&op).and_then(|slot| slot.reduced_bytes.zip(slot.agreed_at));
        if let (Some((bytes, agreed_at)), Outcome::Committed) = (served, outcome) {
            let revision = self.ledger.revision_of(op).unwrap_or(self.ledger.revision());
            self.served.note(bytes, agreed_at, self.plans.of(revision).revision);
        }
    }
}

impl OpSlot {
    pub(super) fn agreed(&mut self, source: Option<SyncSource>) -> Option<Waker> {
        self.agreed_at = Some(Instant::now());
        self.source = Some(source);
        // Only a sync waits for the agreement.
        source.and_then(|_| self.waker.take())
    }
}

impl SessionState {
    /// Takes the held calls whose plan is known now.
    pub(super) fn no_longer_held(&mut self) -> Vec<(Begun, Option<Block>)> {
        let SessionState { ledger, plans, .. } = self;
        plans
            .held
            .extract_if(.., |(begun, _)| ledger.revision_of(begun.call().0).is_some())
            .collect()
    }
}
