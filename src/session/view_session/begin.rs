//! Begins operations, under the plan of the moment.

use super::super::meter::Measured;
use super::ViewSession;
use super::plans::Begun;
use super::served::ServedOp;
use super::state::{SessionState, Start};
use crate::collective::{EngineCall, Input, Misbehaviour};
use crate::memory::Block;
use crate::os::lock;
use crate::protocol::{
    AbortReason, Call, CallKind, CodecId, ENCLOSED_BYTES_MAX, EngineChoice, EngineKind, Lane, OpId,
    Plan, PlanStep, Rank, Switch,
};
use std::sync::Arc;

impl ViewSession {
    /// The current plan. Late calls of a member that is behind the others may still run under an
    /// earlier one.
    pub fn plan(&self) -> Arc<Plan> {
        let state = lock(&self.state);
        state.plans.of(state.ledger.revision())
    }

    /// The plan of the next call in this lane, as far as it is agreed on: of the lane's group.
    pub fn plan_in(&self, lane: Lane) -> Arc<Plan> {
        let mut state = lock(&self.state);
        let revision = state.ledger.revision_of_next(lane);
        state.plans.in_lane(revision, lane, &self.view)
    }

    /// The engine for calls under the current plan, and the reason for its choice.
    pub fn engine(&self) -> EngineChoice {
        self.view.engine_under(&self.plan())
    }

    /// Phase 1 of a plan change: holds collectives that are called from now on. Returns the reply
    /// to rank 0.
    ///
    /// # Errors
    /// Another revision is being agreed on.
    pub fn hold(&self, revision: u32) -> Result<PlanStep, Misbehaviour> {
        let mut state = lock(&self.state);
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
        self: &Arc<ViewSession>,
        revision: u32,
        to: Option<&Switch>,
    ) -> Result<PlanStep, Misbehaviour> {
        let mut state = lock(&self.state);
        if !state.ledger.is_past(revision) {
            let suits = |plan: &Plan| {
                let engine = plan.engine();
                plan.fits(self.view.size()) && plan.is_for(engine) && self.view.runs(engine)
            };
            if to.is_some_and(|to| !suits(&to.plan) || !to.plan.avoids(&self.view.no_direct_link)) {
                return Err(Misbehaviour);
            }
            state.ledger.switch(revision, to.map(|to| &to.first[..]))?;
            let SessionState { ledger, plans, .. } = &mut *state;
            plans.known.extend(to.map(|to| (revision, Arc::new(to.plan.clone()))));
            plans.keep(|revision| ledger.uses(revision));
            let known = state.no_longer_held();
            drop(state);
            self.carry_out_held(known);
        }
        Ok(PlanStep::Switched { revision })
    }

    /// The reductions since the last call of this method, at most 64 of them.
    pub fn take_served(&self) -> Vec<ServedOp> {
        lock(&self.state).served.take()
    }

    /// The number of operations that are begun and undecided, without those held here for a plan.
    pub fn moving(&self) -> usize {
        lock(&self.state).ledger.moving()
    }

    /// Hands the held calls to the engine, on a new thread. If no thread can be started, the calls
    /// are aborted.
    pub(super) fn carry_out_held(self: &Arc<ViewSession>, held: Vec<(Begun, Option<Block>)>) {
        if held.is_empty() {
            return;
        }
        let (session, ops): (_, Vec<OpId>) =
            (Arc::clone(self), held.iter().map(|(begun, _)| begun.call().0.whole()).collect());
        let begin = move || {
            for (begun, kept) in held {
                session.carry_out(begun, &kept.map_or(Input::Nothing, Input::Lent));
            }
        };
        if std::thread::Builder::new().name("potluck-held".to_owned()).spawn(begin).is_err() {
            ops.into_iter().for_each(|op| self.give_up(op, AbortReason::Engine));
        }
    }

    /// Whether a call of this View has left its codec to the plan.
    pub fn asks_for_codecs(&self) -> bool {
        lock(&self.state).asks_for_codecs
    }

    /// Begins an operation with this member's contribution. A borrowed `input` is only read during
    /// this call. A sync reads nothing yet, see [`ViewSession::begin_sync`]. Returns the codec of
    /// the contribution, if the call's plan is known.
    pub fn begin(
        self: &Arc<ViewSession>,
        op: OpId,
        call: Call,
        input: &Input<'_>,
    ) -> Option<CodecId> {
        if matches!(call.kind, CallKind::Sync { .. }) {
            self.measured(op, &call, |state| {
                state.ledger.amend(op, call);
                state.ledger.describe(op);
            });
            return None;
        }
        let mut state = lock(&self.state);
        state.ledger.amend(op, call);
        let engine = self.engine_of(&mut state, op);
        let start = state.start_of((&self.view, self.me), op, &call);
        drop(state);
        let measured = Measured::begin(&self.meter, &self.view, engine, op, &call);
        let _in_its_span = measured.entered();
        self.run_or_hold(start, Begun::Whole(op, call), Some(measured), input)
    }

    /// Begins the call with this `index` of a step, as [`begin`](ViewSession::begin) does; `index`
    /// is below [`PARTS_MAX`](crate::protocol::PARTS_MAX).
    pub fn begin_part(
        self: &Arc<ViewSession>,
        step: OpId,
        index: u8,
        call: Call,
        input: &Input<'_>,
    ) -> Option<CodecId> {
        self.carry_out(Begun::Part(step.part(index), call), input)
    }

    /// Begins to transfer the state of a sync, after all members have agreed on its source and the
    /// source knows its length in bytes.
    pub fn begin_sync(
        self: &Arc<ViewSession>,
        op: OpId,
        call: Call,
        source: (Rank, u64),
        input: &Input<'_>,
    ) {
        self.carry_out(Begun::Sync(op, call, source), input);
    }

    /// Ends a step of `parts` calls, all of which have begun. `end` is the step's own call.
    pub fn end_step(&self, step: OpId, end: Call, parts: u8) {
        self.measured(step, &end, |state| {
            state.ledger.amend(step, end);
            if let Some(slot) = state.slots.get_mut(&step) {
                slot.parts_all = Some(parts);
            }
            state.ledger.describe(step);
            state.note_step(step);
        });
    }

    /// Gives up an operation instead of beginning it.
    pub fn refuse(&self, op: OpId, call: &Call, reason: AbortReason) {
        self.measured(op, call, |state| state.ledger.abort(op, reason));
    }

    /// Measures an operation that needs no engine now, from this `beginning` until it is decided.
    pub(super) fn measured(
        &self,
        op: OpId,
        call: &Call,
        beginning: impl FnOnce(&mut SessionState),
    ) {
        let engine = self.engine_of(&mut lock(&self.state), op);
        let measured = Measured::begin(&self.meter, &self.view, engine, op, call);
        let _in_its_span = measured.entered();
        let mut state = lock(&self.state);
        state.measure(op, measured);
        beginning(&mut state);
        self.execute_effects(state);
    }

    /// The engine of a call; if its plan is not known yet, the current plan's.
    fn engine_of(&self, state: &mut SessionState, op: OpId) -> EngineKind {
        let revision = state.ledger.revision_of(op).unwrap_or(state.ledger.revision());
        self.view.engine_under(&state.plans.in_lane(revision, op.lane, &self.view)).kind
    }

    /// Begins a call that is part of a measured one, or goes on.
    fn carry_out(self: &Arc<ViewSession>, begun: Begun, input: &Input<'_>) -> Option<CodecId> {
        let (op, call) = begun.call();
        let start = lock(&self.state).start_of((&self.view, self.me), op, &call);
        self.run_or_hold(start, begun, None, input)
    }

    /// Hands a call to the engine, or holds it until its plan is known.
    fn run_or_hold(
        self: &Arc<ViewSession>,
        start: Option<Start>,
        begun: Begun,
        measured: Option<Measured>,
        input: &Input<'_>,
    ) -> Option<CodecId> {
        let (start, measured) = match start {
            Some(start) => (start, measured),
            None => (self.hold_back(begun, measured, input)?, None),
        };
        let codec = start.codec;
        self.run(start, begun, measured, input);
        Some(codec)
    }

    /// Holds a call with a copy of its input. A call of a frozen View is not held, and one for
    /// whose input there is no memory fails. The copy is made without the lock: if the plan has
    /// become known meanwhile, the call is not held, and its start is returned.
    fn hold_back(
        &self,
        begun: Begun,
        measured: Option<Measured>,
        input: &Input<'_>,
    ) -> Option<Start> {
        let (op, call) = begun.call();
        let kept = input.kept(&self.pool);
        let mut state = lock(&self.state);
        measured.into_iter().for_each(|measured| state.measure(op, measured));
        let start = state.start_of((&self.view, self.me), op, &call);
        match kept {
            _ if start.is_some() => {}
            Ok(kept) if !state.ledger.is_frozen() => state.plans.held.push((begun, kept)),
            Ok(_) => {}
            Err(lack) => {
                drop(state);
                self.fail(op, lack.into());
                return None;
            }
        }
        self.execute_effects(state);
        start
    }

    /// Runs a call in the engine.
    fn run(
        self: &Arc<ViewSession>,
        start: Start,
        begun: Begun,
        measured: Option<Measured>,
        input: &Input<'_>,
    ) {
        let (op, call) = begun.call();
        let is_small = input.len() <= SMALL_BYTES_MAX && !matches!(begun, Begun::Sync(..));
        let encloses = is_small && start.may_enclose && input.len() <= ENCLOSED_BYTES_MAX;
        let session = Arc::clone(self);
        let done = Box::new(move |result| session.finished(op, call, result));
        let (plan, sync_root, model) = (start.plan, begun.source(), input.model());
        let lengths = start.lengths;
        self.backend.start(EngineCall { op, call, plan, sync_root, lengths, model, done });
        let mut enclosed = None;
        if encloses {
            enclosed = self.backend.feed_enclosing(op, input);
        } else if is_small {
            self.backend.feed(op, input);
        }
        // Only after the engine's start, because the descriptor grants credit. Before a large feed,
        // because that takes time.
        let mut state = lock(&self.state);
        measured.into_iter().for_each(|measured| state.measure(op, measured));
        let is_told = match begun {
            Begun::Whole(op, _) => state.ledger.describe(op),
            Begun::Part(part, call) => state.ledger.describe_part(part, call),
            Begun::Sync(op, _, (_, bytes)) => {
                state.ledger.ready(op, bytes);
                true
            }
        };
        // If no descriptor was sent, the operation has already ended.
        state
            .enclosed
            .extend(enclosed.filter(|_| is_told).map(|enclosed| (op, Arc::new(enclosed))));
        self.execute_effects(state);
        if !is_small {
            self.backend.feed(op, input);
        }
    }
}

/// Contributions up to this size are fed before the descriptor is sent. They may reach a peer
/// before it has begun the operation, and before the descriptor.
const SMALL_BYTES_MAX: usize = 64 * 1024;
