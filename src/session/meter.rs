//! Metrics of a node's operations, measured from their beginning to their decision.
//!
//! One [`Meter`] counts for a node, over all its Views. One [`Measured`] is an operation in flight,
//! with its trace span.

#[cfg(feature = "metrics")]
mod facade;
mod measured;

pub use measured::Measured;

use crate::collective::Backend;
use crate::identity::{Name, NodeId};
use crate::os::{Mutex, lock};
use crate::protocol::{Call, CallKind, EngineKind, Outcome, Rank, View};
use crate::report::{EdgeMetrics, Metrics, OperationMetrics};
#[cfg(feature = "metrics")]
use crate::trace::unharmed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The counters of one node, from when it joins.
#[derive(Default)]
pub struct Meter {
    state: Mutex<MeterState>,
}

#[derive(Default)]
struct MeterState {
    operations: BTreeMap<&'static str, OperationMetrics>,
    /// Totals of the Views that have ended.
    edges: BTreeMap<NodeId, EdgeMetrics>,
    current: Option<Current>,
    busy: Busy,
    #[cfg(feature = "metrics")]
    told: facade::Published,
}

/// The View whose links carry data now.
struct Current {
    view: Arc<View>,
    me: Rank,
    backend: Arc<dyn Backend>,
}

/// The time during which at least one operation was in flight, in the current View.
#[derive(Default)]
struct Busy {
    under_way: usize,
    since: Option<Instant>,
    before: Duration,
}

impl Meter {
    /// A meter at zero.
    pub fn new() -> Meter {
        #[cfg(feature = "metrics")]
        unharmed(facade::describe);
        Meter::default()
    }

    /// A View begins, in which this node has rank `me`; the previous one is over.
    pub fn enter(&self, view: &Arc<View>, me: Rank, backend: &Arc<dyn Backend>) {
        let mut state = lock(&self.state);
        state.leave();
        state.current = Some(Current { view: Arc::clone(view), me, backend: Arc::clone(backend) });
    }

    /// The View is over, and its links are closed.
    pub fn leave(&self) {
        lock(&self.state).leave();
        self.report();
    }

    /// A node has a link after a time without one.
    pub fn linked(&self, node: NodeId, name: &Name) {
        if let Some(edge) = edge(&mut lock(&self.state).edges, node, name) {
            edge.links += 1;
        }
    }

    /// A snapshot of all counters.
    pub fn metrics(&self) -> Metrics {
        let state = lock(&self.state);
        Metrics { operations: state.operations.values().cloned().collect(), edges: state.edges() }
    }

    /// Passes the edges' counters to the program's recorder; the operations' counters are passed on
    /// at once.
    pub fn report(&self) {
        #[cfg(feature = "metrics")]
        {
            let mut state = lock(&self.state);
            let edges = state.edges();
            unharmed(|| state.told.tell(&edges));
        }
    }

    fn begun(&self, kind: &'static str, engine: EngineKind) {
        let mut state = lock(&self.state);
        state.busy.begin();
        state.operation(kind).begun += 1;
        drop(state);
        #[cfg(feature = "metrics")]
        unharmed(|| facade::begun(kind, engine));
        let _ = engine;
    }

    fn ended(
        &self,
        kind: &'static str,
        engine: EngineKind,
        bytes: u64,
        outcome: Outcome,
        duration: Duration,
    ) {
        let mut state = lock(&self.state);
        state.busy.end();
        let operation = state.operation(kind);
        match outcome {
            Outcome::Committed => {
                operation.committed += 1;
                operation.bytes += bytes;
                operation.duration_sum += duration;
                operation.duration_max = operation.duration_max.max(duration);
            }
            Outcome::Aborted(_) => operation.aborted += 1,
            Outcome::Indeterminate => operation.indeterminate += 1,
            Outcome::DigestMismatch { .. } => operation.failed += 1,
        }
        drop(state);
        #[cfg(feature = "metrics")]
        unharmed(|| facade::ended(kind, engine, bytes, outcome_name(outcome), duration));
        let _ = engine;
    }
}

impl MeterState {
    fn operation(&mut self, kind: &'static str) -> &mut OperationMetrics {
        self.operations
            .entry(kind)
            .or_insert_with(|| OperationMetrics { kind, ..OperationMetrics::default() })
    }

    fn edges(&self) -> Vec<EdgeMetrics> {
        let mut edges = self.edges.clone();
        self.current.iter().for_each(|current| current.add_to(&mut edges, self.busy.now()));
        edges.into_values().collect()
    }

    fn leave(&mut self) {
        if let Some(current) = self.current.take() {
            current.add_to(&mut self.edges, self.busy.now());
        }
        self.busy.start_again();
    }
}

impl Current {
    fn add_to(&self, edges: &mut BTreeMap<NodeId, EdgeMetrics>, busy: Duration) {
        for rank in self.view.ranks().filter(|rank| *rank != self.me) {
            let Some(member) = self.view.member(rank) else { continue };
            let traffic = self.backend.traffic_with(rank);
            let Some(edge) = edge(edges, member.id.node, &member.name) else { continue };
            edge.sent_bytes += traffic.sent_bytes;
            edge.received_bytes += traffic.received_bytes;
            edge.busy += busy;
        }
    }
}

impl Busy {
    fn begin(&mut self) {
        if self.under_way == 0 {
            self.since = Some(Instant::now());
        }
        self.under_way += 1;
    }

    fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.before = self.now();
            self.since = None;
        }
    }

    fn now(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Restarts at zero for the next View. Operations of this View that are still in flight count
    /// there until they end.
    fn start_again(&mut self) {
        self.before = Duration::ZERO;
        self.since = self.since.map(|_| Instant::now());
    }
}

/// The counters of a node; `None` if it is new and there is no room.
fn edge<'a>(
    edges: &'a mut BTreeMap<NodeId, EdgeMetrics>,
    node: NodeId,
    name: &Name,
) -> Option<&'a mut EdgeMetrics> {
    if edges.len() >= EDGES_MAX && !edges.contains_key(&node) {
        return None;
    }
    Some(edges.entry(node).or_insert_with(|| EdgeMetrics::new(node, name.clone())))
}

/// The name of the collective's method.
fn kind_name(call: &Call) -> &'static str {
    match call.kind {
        CallKind::AllReduce(_) => "all_reduce",
        CallKind::Broadcast { .. } => "broadcast",
        CallKind::AllGather => "all_gather",
        CallKind::Reduce { .. } => "reduce",
        CallKind::ReduceScatter(_) => "reduce_scatter",
        CallKind::Gather { .. } => "gather",
        CallKind::Scatter { .. } => "scatter",
        CallKind::AllToAll => "all_to_all",
        CallKind::AllGatherUneven => "all_gather_uneven",
        CallKind::AllToAllUneven => "all_to_all_uneven",
        CallKind::Barrier => "barrier",
        CallKind::Sync { .. } => "sync",
        CallKind::Message { .. } => "message",
        CallKind::Step { .. } => "step",
    }
}

/// Most nodes remembered: an open namespace admits every node, and a node may come with a new key
/// each time.
const EDGES_MAX: usize = 1024;

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::Aborted(_) => "aborted",
        Outcome::Indeterminate => "indeterminate",
        Outcome::DigestMismatch { .. } => "failed",
    }
}
