//! Begins operations, under the plan of the moment.

use super::Envelope;
use super::plans::Begun;
use super::state::State;
use crate::collective::{Input, Job, Misbehaviour};
use crate::memory::Block;
use crate::protocol::{
    AbortReason, Call, CodecId, Coding, ENCLOSED_BYTES_MAX, Enclosed, EngineChoice, OpId, Plan,
    PlanStep, Rank, Switch,
};
use std::sync::Arc;
use std::time::Duration;

impl Envelope {
    /// The current plan. Late calls of a member that is behind the others may still run under an
    /// earlier one.
    pub fn plan(&self) -> Arc<Plan> {
        let state = self.lock();
        state.plans.of(state.ledger.revision())
    }

    /// The engine for calls under the current plan, and the reason for its choice.
    pub fn engine(&self) -> EngineChoice {
        self.view.engine_under(&self.plan())
    }

    /// The engine of a call; if its plan is not known yet, the current plan's.
    pub(super) fn engine_of(&self, op: OpId) -> EngineChoice {
        let state = self.lock();
        let revision = state.ledger.revision_of(op).unwrap_or(state.ledger.revision());
        self.view.engine_under(&state.plans.of(revision))
    }

    /// Phase 1 of a plan change: holds collectives that are called from now on. Returns the reply
    /// to rank 0.
    ///
    /// # Errors
    /// Another revision is being agreed on.
    pub fn hold(&self, revision: u32) -> Result<PlanStep, Misbehaviour> {
        let mut state = self.lock();
        if state.ledger.is_past(revision) {
            return Ok(PlanStep::Switched { revision });
        }
        Ok(PlanStep::Held { revision, next: state.ledger.hold(revision)? })
    }

    /// Phase 2 of a plan change: rank 0 states the new plan and the first call of each lane under
    /// it, or that the plan stays. Starts the held calls. Returns the reply to rank 0; a repeated
    /// message gets the same reply.
    ///
    /// # Errors
    /// The plan does not fit this View or its links, nothing is held for this revision, or a call
    /// that has begun would change its plan.
    pub fn switch(
        self: &Arc<Envelope>,
        revision: u32,
        to: Option<&Switch>,
    ) -> Result<PlanStep, Misbehaviour> {
        let mut state = self.lock();
        if !state.ledger.is_past(revision) {
            let suits = |plan: &Plan| {
                let engine = plan.engine();
                plan.fits(self.view.size()) && plan.is_for(engine) && self.view.runs(engine)
            };
            if to.is_some_and(|to| !suits(&to.plan) || !to.plan.keeps_apart(&self.view.apart)) {
                return Err(Misbehaviour);
            }
            state.ledger.switch(revision, to.map(|to| &to.first[..]))?;
            let State { ledger, plans, .. } = &mut *state;
            plans.known.extend(to.map(|to| (revision, Arc::new(to.plan.clone()))));
            plans.known.retain(|revision, _| ledger.uses(*revision));
            let known = state.no_longer_held();
            drop(state);
            self.carry_out_held(known);
        }
        Ok(PlanStep::Switched { revision })
    }

    /// The bytes and the duration of each reduction since the last call of this method, at most 64
    /// of them. A duration starts when all members have called the reduction and the previous one
    /// is done.
    pub fn take_served(&self) -> Vec<(u64, Duration)> {
        self.lock().served.take()
    }

    /// The number of operations that are begun and undecided, without those held here for a plan.
    pub fn moving(&self) -> usize {
        self.lock().ledger.moving()
    }

    /// The plan of a call, or `None` after queueing the call with a copy of its input. A call of a
    /// frozen View is not queued, and one for whose input there is no memory fails.
    fn plan_for(&self, begun: Begun, input: &Input<'_>) -> Option<Arc<Plan>> {
        let (op, _) = begun.call();
        let known =
            |state: &State| state.ledger.revision_of(op).map(|revision| state.plans.of(revision));
        if let Some(plan) = known(&self.lock()) {
            return Some(plan);
        }
        let kept = match input.kept(&self.pool) {
            Ok(kept) => kept,
            Err(lack) => {
                self.fail(op, lack.into());
                return None;
            }
        };
        // The copy was made without the lock, so the plan may be known now.
        let mut state = self.lock();
        let plan = known(&state);
        if plan.is_none() && !state.ledger.is_frozen() {
            state.plans.held.push((begun, kept));
        }
        plan
    }

    /// Hands the held calls to the engine, on a new thread. If no thread can be started, the calls
    /// are aborted.
    pub(super) fn carry_out_held(self: &Arc<Envelope>, held: Vec<(Begun, Option<Block>)>) {
        if held.is_empty() {
            return;
        }
        let (envelope, ops): (_, Vec<OpId>) =
            (Arc::clone(self), held.iter().map(|(begun, _)| begun.call().0.whole()).collect());
        let begin = move || {
            for (begun, kept) in held {
                envelope.carry_out(begun, &kept.map_or(Input::Nothing, Input::Lent));
            }
        };
        if std::thread::Builder::new().name("potluck-held".to_owned()).spawn(begin).is_err() {
            ops.into_iter().for_each(|op| self.give_up(op, AbortReason::Engine));
        }
    }

    /// Hands a call to the engine under its agreed plan, or holds it until that plan is known.
    pub(super) fn carry_out(self: &Arc<Envelope>, begun: Begun, input: &Input<'_>) {
        if let Some(plan) = self.plan_for(begun, input) {
            self.carry_out_under(plan, begun, input);
        }
    }

    /// The codec of this member's contribution to a call that leaves the codec to the plan; `None`
    /// before the plan is known and after the call's result has been taken.
    pub fn auto_codec(&self, op: OpId) -> Option<CodecId> {
        self.lock().slots.get(&op.whole())?.codecs.get(&op).copied()
    }

    /// Whether a call of this View has left its codec to the plan.
    pub fn asks_for_codecs(&self) -> bool {
        self.lock().asks_for_codecs
    }

    /// Records the codec that the plan has chosen for this member's contribution to `op`.
    fn note_codec(&self, op: OpId, asked: &Call, coding: Coding) {
        let mut state = self.lock();
        state.asks_for_codecs = true;
        if let Some(slot) = state.slots.get_mut(&op.whole()) {
            slot.codecs.insert(op, coding.of(self.me));
            // A call without codec can be compared with its predicted duration.
            if op == op.whole() {
                slot.reduced_bytes = Call { codec: coding.codec(), ..*asked }.reduced_by_all();
            }
        }
    }

    fn carry_out_under(self: &Arc<Envelope>, plan: Arc<Plan>, begun: Begun, input: &Input<'_>) {
        let (op, call) = begun.call();
        if let CodecId::Auto(_) = call.codec {
            self.note_codec(op, &call, plan.coding(&call));
        }
        let is_small = input.len() <= SMALL_BYTES_MAX && !matches!(begun, Begun::Sync(..));
        self.start(op, call, plan, begun.source(), input);
        let mut enclosed = None;
        if is_small {
            enclosed = self.feed_small(op, input);
        }
        // Only after the engine's start, because the descriptor grants credit. Before a large feed,
        // because that takes time.
        let mut state = self.lock();
        let is_told = match begun {
            Begun::Whole(op, _) => state.ledger.describe(op),
            Begun::Part(part, call) => state.ledger.describe_part(part, call),
            Begun::Sync(op, ..) => {
                state.ledger.ready(op);
                true
            }
        };
        // If no descriptor was sent, the operation has already ended.
        state
            .enclosed
            .extend(enclosed.filter(|_| is_told).map(|enclosed| (op, Arc::new(enclosed))));
        self.settle(state);
        if !is_small {
            self.backend.feed(op, input);
        }
    }

    fn feed_small(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        if input.len() <= ENCLOSED_BYTES_MAX && self.lock().may_enclose() {
            return self.backend.feed_enclosing(op, input);
        }
        self.backend.feed(op, input);
        None
    }

    fn start(
        self: &Arc<Envelope>,
        op: OpId,
        call: Call,
        plan: Arc<Plan>,
        sync_root: Option<(Rank, u64)>,
        input: &Input<'_>,
    ) {
        let envelope = Arc::clone(self);
        let done = Box::new(move |result| envelope.finished(op, call, result));
        self.backend.start(Job { op, call, plan, sync_root, model: input.model(), done });
    }
}

/// Contributions up to this size are fed before the descriptor is sent. They may reach a peer
/// before it has begun the operation, and before the descriptor.
const SMALL_BYTES_MAX: usize = 64 * 1024;
