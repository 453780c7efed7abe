//! Gloo and the native engine in one View, over the same links: the plan of an operation selects
//! the engine.
//!
//! Only `start` tells which engine runs an operation, and a peer's credit may come before it; so
//! credits, cancellations and retirements go to both engines. The phase in the header tells their
//! frames apart: Gloo exchanges messages, the native engine chunks.

use super::backend::{GlooBackend, GlooEngine};
use super::shared_link::attach_both;
use crate::collective::{Backend, Board, Engine, EngineCall, Input, NativeBackend, NativeEngine};
use crate::link::{DataHeader, DataLink, Phase};
use crate::memory::Pool;
use crate::protocol::{Enclosed, EngineKind, OpId, Rank, View};
use crate::report::Traffic;
use std::sync::Arc;

/// Opens Gloo, and also the native engine: for plans of the View that use it, and for sub-groups.
#[derive(Clone, Debug)]
pub struct GlooOrNative {
    gloo: GlooEngine,
    native: NativeEngine,
}

/// The backends of both engines in one View.
struct Pair {
    gloo: GlooBackend,
    native: NativeBackend,
}

impl GlooOrNative {
    /// Combines the two engines.
    pub fn new(gloo: GlooEngine, native: NativeEngine) -> GlooOrNative {
        GlooOrNative { gloo, native }
    }
}

impl Engine for GlooOrNative {
    fn kind(&self) -> EngineKind {
        EngineKind::Gloo
    }

    fn pool(&self) -> Pool {
        self.gloo.pool()
    }

    fn open(&self, view: &Arc<View>, me: Rank, board: Arc<dyn Board>) -> Arc<dyn Backend> {
        let (gloo, native) = (self.gloo.backend(view, me, board), self.native.backend(view, me));
        Arc::new(Pair { gloo, native })
    }
}

impl Pair {
    fn both(&self) -> [&dyn Backend; 2] {
        [&self.gloo, &self.native]
    }

    fn sum(&self, traffic: impl Fn(&dyn Backend) -> Traffic) -> Traffic {
        self.both().into_iter().map(traffic).fold(Traffic::default(), Traffic::and)
    }
}

impl Backend for Pair {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        attach_both(self.gloo.party(), self.native.party(), is_message, peer, link);
    }

    fn start(&self, engine_call: EngineCall) {
        if engine_call.plan.is_for(EngineKind::Gloo) {
            self.gloo.start(engine_call);
        } else {
            self.native.start(engine_call);
        }
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        // The engine that did not start the operation ignores this.
        self.both().into_iter().for_each(|backend| backend.feed(op, input));
    }

    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        self.gloo.feed(op, input);
        self.native.feed_enclosing(op, input)
    }

    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        // Gloo never encloses contributions.
        self.native.receive_enclosed(op, from, enclosed);
    }

    fn credit(&self, op: OpId, peer: Rank) {
        self.both().into_iter().for_each(|backend| backend.credit(op, peer));
    }

    fn cancel(&self, op: OpId) {
        self.both().into_iter().for_each(|backend| backend.cancel(op));
    }

    fn retire(&self, op: OpId) {
        self.both().into_iter().for_each(|backend| backend.retire(op));
    }

    fn traffic(&self) -> Traffic {
        self.sum(|backend| backend.traffic())
    }

    fn traffic_with(&self, peer: Rank) -> Traffic {
        self.sum(|backend| backend.traffic_with(peer))
    }

    fn close(&self) {
        self.both().into_iter().for_each(Backend::close);
    }
}

fn is_message(header: &DataHeader) -> bool {
    match header.phase {
        Phase::Message | Phase::Posted => true,
        Phase::Reduce | Phase::Gather => false,
    }
}
