//! Layer: Shells.
//!
//! The Gloo engine in one View: what may begin, the thread on which it runs, and how it ends.
//!
//! The op thread takes one operation after the other as [`Order`] lets them in. Everything else is said to it under one
//! short lock; `done` is called under none.

use super::collective::Part;
use super::context::{Context, Failure, version};
use super::order::Order;
use super::task::Task;
use crate::collective::p2p::Endpoint;
use crate::collective::threads::Threads;
use crate::collective::{Backend, Block, Board, Call, Engine, EngineFault, Finished, Job, Pool, Staging, Traffic, Unfit};
use crate::engine::EngineKind;
use crate::link::DataLink;
use crate::topology::Plan;
use crate::view::{OpId, Rank, View};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(test)]
use std::time::Duration;

/// Opens Gloo backends.
#[derive(Clone, Debug, Default)]
pub struct GlooEngine {
    pool: Pool,
    threads: Arc<Threads>,
}

/// Gloo in one View. Dropping it closes it.
pub struct GlooBackend {
    core: Arc<Core>,
}

/// What the op thread and the callers share. The thread does not keep the backend itself, so that dropping that ends it.
struct Core {
    me: Rank,
    size: usize,
    endpoint: Endpoint,
    board: Arc<dyn Board>,
    pool: Pool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    order: Order,
    /// Started and not inside.
    waiting: BTreeMap<OpId, (Task, Job)>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Connecting, or connected.
    Open,
    /// Nothing can run any more, for this reason.
    Ended(EngineFault),
}

impl GlooEngine {
    /// An engine whose working memory comes from `pool`.
    pub fn new(pool: Pool) -> GlooEngine {
        GlooEngine { pool, threads: Arc::default() }
    }

    /// Threads of all its backends that run now.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.threads.running()
    }

    /// Threads that have ended by a panic; anything but 0 is a bug, here or in a job's `done`.
    #[cfg(test)]
    pub fn panics(&self) -> usize {
        self.threads.panics()
    }

    /// Waits until the threads of all its backends have ended; gives how many have not when `timeout` is over.
    #[cfg(test)]
    pub fn wait_for_threads(&self, timeout: Duration) -> usize {
        self.threads.wait(timeout)
    }
}

impl Engine for GlooEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Gloo
    }

    fn open(&self, view: &Arc<View>, me: Rank, board: Arc<dyn Board>) -> Arc<dyn Backend> {
        Arc::new(GlooBackend::new(me, view.size(), board, self.pool.clone(), &self.threads))
    }
}

impl GlooBackend {
    /// A backend of `me` among `size` ranks, which begins to connect at once.
    pub fn new(me: Rank, size: usize, board: Arc<dyn Board>, pool: Pool, threads: &Arc<Threads>) -> GlooBackend {
        let endpoint = Endpoint::new(me, size, pool.clone(), Arc::clone(threads));
        let state = State { order: Order::new(me, size), waiting: BTreeMap::new(), stage: Stage::Open };
        let core = Arc::new(Core { me, size, endpoint, board, pool, state: Mutex::new(state), changed: Condvar::new() });
        let ending = Ending(Arc::clone(&core));
        // When a thread cannot be had `ending` is dropped with the closure, which ends all jobs.
        threads.spawn("potluck-gloo".to_string(), move || ending.0.run());
        GlooBackend { core }
    }
}

impl Backend for GlooBackend {
    fn layout(&self, call: &Call, plan: &Plan, sync_root: Option<(Rank, u64)>) -> Result<Vec<usize>, Unfit> {
        Ok(Task::of(call, plan, sync_root, self.core.size)?.layout())
    }

    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        self.core.endpoint.attach(peer, link);
    }

    fn start(&self, job: Job) {
        self.core.start(job);
    }

    fn place(&self, op: OpId, number: u64) {
        self.core.tell(|state| state.order.place(op, number));
    }

    fn credit(&self, op: OpId, peer: Rank) {
        self.core.tell(|state| state.order.credit(op, peer));
    }

    fn cancel(&self, op: OpId) {
        // Gloo is woken where it waits for a message of this operation.
        self.core.endpoint.cancel(op, EngineFault::Cancelled);
        self.core.end(op);
    }

    fn retire(&self, op: OpId) {
        self.core.endpoint.retire(op);
        self.core.end(op);
    }

    fn traffic(&self) -> Traffic {
        self.core.endpoint.traffic()
    }

    fn close(&self) {
        self.core.close(EngineFault::Closed);
    }
}

impl Drop for GlooBackend {
    fn drop(&mut self) {
        self.core.close(EngineFault::Closed);
    }
}

impl Core {
    fn start(&self, job: Job) {
        let task = Task::of(&job.call, &job.plan, job.sync_root, self.size);
        let Some(task) = task.ok().filter(|task| fits(task, &job, self.me)) else {
            return (job.done)(Err(EngineFault::Unfit));
        };
        let mut state = self.lock();
        let refused = match state.stage {
            Stage::Ended(fault) => Some(fault),
            Stage::Open => (!state.order.start(job.op)).then_some(EngineFault::Cancelled),
        };
        if let Some(fault) = refused {
            drop(state);
            return (job.done)(Err(fault));
        }
        // Before anybody can be told that it is started here: from then on messages may come.
        self.endpoint.begin(job.op);
        state.waiting.insert(job.op, (task, job));
        drop(state);
        self.changed.notify_all();
    }

    fn tell(&self, word: impl FnOnce(&mut State)) {
        word(&mut self.lock());
        self.changed.notify_all();
    }

    /// `op` is given up or decided: it does not begin any more.
    fn end(&self, op: OpId) {
        let mut state = self.lock();
        state.order.end(op);
        let waiting = state.waiting.remove(&op);
        drop(state);
        self.changed.notify_all();
        if let Some((_, job)) = waiting {
            (job.done)(Err(EngineFault::Cancelled));
        }
    }

    /// Nothing runs any more, for this reason; the first one stands.
    fn close(&self, fault: EngineFault) {
        let mut state = self.lock();
        if state.stage == Stage::Open {
            state.stage = Stage::Ended(fault);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if fault == EngineFault::Closed {
            self.endpoint.close();
            self.board.close();
        }
        self.changed.notify_all();
        for (_, job) in waiting.into_values() {
            (job.done)(Err(fault));
        }
    }

    /// The op thread.
    fn run(&self) {
        let context = match Context::connect(&self.endpoint, &self.board, self.me, self.size) {
            Ok(context) => context,
            Err(exception) => {
                if self.lock().stage == Stage::Open {
                    tracing::warn!(%exception, gloo = version(), "Gloo could not connect the members of the view");
                }
                return self.close(EngineFault::Gloo);
            }
        };
        tracing::debug!(gloo = version(), rank = self.me.0, size = self.size, "Gloo has connected the members of the view");
        while let Some((task, job)) = self.next() {
            let Job { op, input, done, .. } = job;
            let part = Part { context: &context, op, me: self.me, size: self.size, pool: &self.pool };
            done(carried_out(&part, &task, input));
        }
    }

    /// Waits for the operation whose turn it is; `None` when the backend is closed.
    fn next(&self) -> Option<(Task, Job)> {
        let mut state = self.lock();
        loop {
            if state.stage != Stage::Open {
                return None;
            }
            if let Some(op) = state.order.next() {
                // What passes is started and not over, so it is there.
                if let Some(next) = state.waiting.remove(&op) {
                    return Some(next);
                }
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The op thread's hold on the backend: letting go of it, in whichever way, ends all jobs.
struct Ending(Arc<Core>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close(EngineFault::Gloo);
    }
}

/// A panic in here, which would be a bug, must not leave the job without an end.
fn carried_out(part: &Part<'_>, task: &Task, input: Staging) -> Result<Finished, EngineFault> {
    let op = part.op;
    match catch_unwind(AssertUnwindSafe(|| part.carry_out(task, input))) {
        Ok(Ok(finished)) => Ok(finished),
        Ok(Err(Failure::Links(fault))) => Err(fault),
        Ok(Err(Failure::Gloo(exception))) => {
            tracing::warn!(%op, %exception, "Gloo could not finish an operation");
            Err(EngineFault::Gloo)
        }
        Err(_) => {
            tracing::error!(%op, "the Gloo engine has panicked: report this as a bug");
            Err(EngineFault::Gloo)
        }
    }
}

/// Whether the job's blocks are cut as its task asks for; nobody looks at those of a member that contributes nothing.
fn fits(task: &Task, job: &Job, me: Rank) -> bool {
    !task.contributes(me) || job.input.blocks.iter().map(Block::len).eq(task.layout())
}
