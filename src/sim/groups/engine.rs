//! The native engine without threads: a task of each data link moves its frames, because virtual
//! time does not wait for a thread. Schedules, folds, codecs and flow control are the engine's own.

use crate::collective::{Backend, Board, Engine, EngineCall, Input, NativeBackend, NativeEngine};
use crate::link::DataLink;
use crate::protocol::{Enclosed, EngineKind, OpId, Rank, View};
use crate::report::Traffic;
use std::sync::Arc;
use std::time::Duration;

/// The engine of one host.
pub struct SimEngine(pub NativeEngine);

struct SimBackend(NativeBackend);

/// Interval between two polls of a link.
const LOOK: Duration = Duration::from_millis(3);

impl Engine for SimEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn open(&self, view: &Arc<View>, me: Rank, _board: Arc<dyn Board>) -> Arc<dyn Backend> {
        Arc::new(SimBackend(self.0.backend(view, me)))
    }
}

impl Backend for SimBackend {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        let (mut sender, mut receiver, shutdown) = link.split();
        let Some(ends) = self.0.attach_without_threads(peer, &shutdown) else { return };
        tokio::spawn(async move {
            while ends[0].turn(sender.as_mut(), receiver.as_mut()) {
                tokio::time::sleep(LOOK).await;
            }
        });
    }

    fn start(&self, engine_call: EngineCall) {
        self.0.start(engine_call);
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        self.0.feed(op, input);
    }

    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        self.0.feed_enclosing(op, input)
    }

    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        self.0.receive_enclosed(op, from, enclosed);
    }

    fn credit(&self, op: OpId, peer: Rank) {
        self.0.credit(op, peer);
    }

    fn cancel(&self, op: OpId) {
        self.0.cancel(op);
    }

    fn retire(&self, op: OpId) {
        self.0.retire(op);
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn traffic_with(&self, peer: Rank) -> Traffic {
        self.0.traffic_with(peer)
    }

    fn close(&self) {
        self.0.close();
    }
}
