//! Layer: Shells.
//!
//! The plans of a View: the one that it came with, and those that took its place.
//!
//! Which one a call runs under is agreed by number, see [`Revising`](crate::collective::Revising).
//! A call that is made while that is being agreed on is kept with a copy of its input and handed to
//! the engine afterwards, on a thread of its own: the control plane must not copy what may be
//! large.

use super::{Envelope, State};
use crate::collective::{
    AbortReason, Block, Call, CodecId, ENCLOSED_BYTES_MAX, Enclosed, Input, Job, Misbehaviour,
    PlanStep, Switch,
};
use crate::engine::EngineChoice;
use crate::topology::{Coding, Plan};
use crate::view::{OpId, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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
        Plans {
            known: BTreeMap::from([(first.revision, Arc::new(first.clone()))]),
            held: Vec::new(),
        }
    }

    fn of(&self, revision: u32) -> Arc<Plan> {
        // What a ledger names was proposed here, and is kept as long as the ledger may name it.
        self.known
            .get(&revision)
            .or(self.known.values().next())
            .cloned()
            .expect("the plan of the View is always used")
    }

    /// The View has ended: what waits is decided without the engine.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }
}

impl State {
    /// Takes the calls of which it is known by now under which plan they run.
    pub(super) fn no_longer_held(&mut self) -> Vec<(Begun, Option<Block>)> {
        let State { ledger, plans, .. } = self;
        plans
            .held
            .extract_if(.., |(begun, _)| ledger.revision_of(begun.call().0).is_some())
            .collect()
    }
}

impl Envelope {
    /// The plan that calls run under by now. Those of a member that is behind the others may still
    /// run under the one before.
    pub fn plan(&self) -> Arc<Plan> {
        let state = self.lock();
        state.plans.of(state.ledger.revision())
    }

    /// What such calls run on, and why.
    pub fn engine(&self) -> EngineChoice {
        self.view.engine_under(&self.plan())
    }

    /// What a call runs on, as far as its plan is known.
    pub(super) fn engine_of(&self, op: OpId) -> EngineChoice {
        let state = self.lock();
        let revision = state.ledger.revision_of(op).unwrap_or(state.ledger.revision());
        self.view.engine_under(&state.plans.of(revision))
    }

    /// Rank 0 thinks of another plan: collectives that are called from now on are held. Gives what
    /// rank 0 is to hear.
    ///
    /// # Errors
    /// Another one is being thought of, or this one was before.
    pub fn hold(&self, revision: u32) -> Result<PlanStep, Misbehaviour> {
        let mut state = self.lock();
        if state.ledger.is_past(revision) {
            return Ok(PlanStep::Switched { revision });
        }
        Ok(PlanStep::Held { revision, next: state.ledger.hold(revision)? })
    }

    /// Rank 0 says which plan comes and where it begins, or that none does. What was held begins.
    /// Gives what rank 0 is to hear.
    ///
    /// # Errors
    /// The plan does not fit this View or its links, nothing is held for it, or a call that has
    /// begun would change its plan.
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

    /// How many bytes reductions had since this was last asked, and how long they took: each from
    /// when everybody had called it and the one before was done.
    pub fn take_served(&self) -> Vec<(u64, Duration)> {
        self.lock().served.take()
    }

    /// Operations that are begun and not decided, without those that are held here for another
    /// plan.
    pub fn moving(&self) -> usize {
        self.lock().ledger.moving()
    }

    /// The plan of a call, or nothing: then the call is kept with its input until that is known.
    fn plan_for(&self, begun: Begun, input: &Input<'_>) -> Option<Arc<Plan>> {
        let (op, _) = begun.call();
        let known =
            |state: &State| state.ledger.revision_of(op).map(|revision| state.plans.of(revision));
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

    /// On a thread of its own.
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

    /// Hands a call to the engine, under the plan that is agreed for it; later, where that is not
    /// known yet.
    pub(super) fn carry_out(self: &Arc<Envelope>, begun: Begun, input: &Input<'_>) {
        if let Some(plan) = self.plan_for(begun, input) {
            self.carry_out_under(plan, begun, input);
        }
    }

    /// By which codec this member's contribution to a call is encoded that leaves it to the plan;
    /// `None` while that is not known, and afterwards.
    pub fn auto_codec(&self, op: OpId) -> Option<CodecId> {
        self.lock().slots.get(&op.whole())?.codecs.get(&op).copied()
    }

    /// Whether a call of this View has left its codec to the plan.
    pub fn asks_for_codecs(&self) -> bool {
        self.lock().asks_for_codecs
    }

    /// Notes by which codec this member's own contribution to `op` is encoded, where that was left
    /// to the plan.
    fn note_codec(&self, op: OpId, asked: &Call, coding: Coding) {
        let mut state = self.lock();
        state.asks_for_codecs = true;
        if let Some(slot) = state.slots.get_mut(&op.whole()) {
            slot.codecs.insert(op, coding.of(self.me));
            // What goes as it is can be compared with its forecast.
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
        // After the engine's start: the descriptor says that there is room for data. Before a feed
        // that takes time.
        let mut state = self.lock();
        let is_told = match begun {
            Begun::Whole(op, _) => state.ledger.describe(op),
            Begun::Part(part, call) => state.ledger.describe_part(part, call),
            Begun::Sync(op, ..) => {
                state.ledger.ready(op);
                true
            }
        };
        // What nobody is told of is over.
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

/// Contributions up to here may go to a peer before it has begun, and are there sooner than a
/// descriptor.
const SMALL_BYTES_MAX: usize = 64 * 1024;
