//! Layer: Shells.
//!
//! The plans of a View: the one that it came with, and those that took its place.
//!
//! Which one a call runs under is agreed by number, see [`Revising`](crate::collective::Revising). A call that is made while that is
//! being agreed on is kept with a copy of its input and handed to the engine afterwards, on a thread of its own: the
//! control plane must not copy what may be large.

use super::{Envelope, State};
use crate::collective::{AbortReason, Block, Call, Input, Misbehaviour, PlanStep};
use crate::engine::EngineKind;
use crate::topology::Plan;
use crate::view::{OpId, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plans that calls may run under, and the calls that wait to know theirs.
pub(super) struct Plans {
    /// By revision.
    known: BTreeMap<u32, Arc<Plan>>,
    held: Vec<(Begun, Option<Block>)>,
}

/// What is to be handed to the engine.
#[derive(Clone, Copy)]
pub(super) enum Begun {
    /// A call with its own number.
    Whole(OpId, Call),
    /// A call of a step.
    Part(OpId, Call),
    /// The state of a sync, of this rank and so long.
    Sync(OpId, Call, (Rank, u64)),
}

impl Begun {
    pub(super) fn call(self) -> (OpId, Call) {
        match self {
            Begun::Whole(op, call) | Begun::Part(op, call) | Begun::Sync(op, call, _) => (op, call),
        }
    }

    pub(super) fn source(self) -> Option<(Rank, u64)> {
        if let Begun::Sync(_, _, source) = self { Some(source) } else { None }
    }
}

impl Plans {
    pub(super) fn new(first: &Plan) -> Plans {
        Plans { known: BTreeMap::from([(first.revision, Arc::new(first.clone()))]), held: Vec::new() }
    }

    fn of(&self, revision: u32) -> Arc<Plan> {
        // What a ledger names was proposed here, and is kept as long as the ledger may name it.
        self.known.get(&revision).or(self.known.values().next()).cloned().expect("the plan of the View is always used")
    }

    /// The View has ended: what waits is decided without the engine.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }
}

impl Envelope {
    /// The plan that calls run under by now. Those of a member that is behind the others may still run under the one before.
    pub fn plan(&self) -> Arc<Plan> {
        let state = self.lock();
        state.plans.of(state.ledger.revision())
    }

    /// Whether the engine runs by whatever plan it is given. Gloo's schedules go by rank.
    pub fn can_be_revised(&self) -> bool {
        self.view.engine.kind == EngineKind::Native
    }

    /// Another plan has come from rank 0: collectives that are called from now on are held. Gives what rank 0 is to hear.
    ///
    /// # Errors
    /// The plan does not fit this View, or is not the next one.
    pub fn hold(&self, plan: &Plan) -> Result<PlanStep, Misbehaviour> {
        let (revision, mut state) = (plan.revision, self.lock());
        if state.ledger.is_past(revision) {
            return Ok(PlanStep::Switched { revision });
        }
        if !plan.fits(self.view.size()) || !plan.is_for(self.view.engine.kind) {
            return Err(Misbehaviour);
        }
        let next = state.ledger.hold(revision)?;
        state.plans.known.entry(revision).or_insert_with(|| Arc::new(plan.clone()));
        Ok(PlanStep::Held { revision, next })
    }

    /// Rank 0 says from which call in each lane on the plan is used, `None` when it is not. What was held begins. Gives what rank 0 is to hear.
    ///
    /// # Errors
    /// Nothing is held for this plan, or a call that has begun would change its plan.
    pub fn switch(self: &Arc<Envelope>, revision: u32, first: Option<&[OpId]>) -> Result<PlanStep, Misbehaviour> {
        let mut state = self.lock();
        if !state.ledger.is_past(revision) {
            state.ledger.switch(revision, first)?;
            let State { ledger, plans, .. } = &mut *state;
            plans.known.retain(|revision, _| ledger.uses(*revision));
            let held = std::mem::take(&mut plans.held);
            drop(state);
            self.carry_out_held(held);
        }
        Ok(PlanStep::Switched { revision })
    }

    /// The plan of a call, or nothing: then the call is kept with its input until that is known.
    pub(super) fn plan_for(&self, begun: Begun, input: &Input<'_>) -> Option<Arc<Plan>> {
        let (op, _) = begun.call();
        let known = |state: &State| state.ledger.revision_of(op).map(|revision| state.plans.of(revision));
        if let Some(plan) = known(&self.lock()) {
            return Some(plan);
        }
        // Copied without the lock, so it may be known by now.
        let kept = input.kept();
        let mut state = self.lock();
        let plan = known(&state);
        if plan.is_none() && !state.ledger.is_frozen() {
            state.plans.held.push((begun, kept));
        }
        plan
    }

    fn carry_out_held(self: &Arc<Envelope>, held: Vec<(Begun, Option<Block>)>) {
        if held.is_empty() {
            return;
        }
        let (envelope, ops): (_, Vec<OpId>) = (Arc::clone(self), held.iter().map(|(begun, _)| begun.call().0.whole()).collect());
        let begin = move || {
            for (begun, kept) in held {
                envelope.carry_out(begun, &kept.map_or(Input::Nothing, Input::Lent));
            }
        };
        if std::thread::Builder::new().name("potluck-held".to_owned()).spawn(begin).is_err() {
            ops.into_iter().for_each(|op| self.give_up(op, AbortReason::Engine));
        }
    }
}
