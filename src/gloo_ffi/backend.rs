//! Layer: Shells.
//!
//! The Gloo engine in one View: what may begin, the threads it runs on, and how it ends.
//!
//! An operation gets a thread for itself: one that is idle, else a new one. It begins before it is
//! known what the others call, as the first messages go at once; should they differ, what an odd
//! message did to it is held back until the descriptors tell who is to blame. Everything is said
//! under one short lock; `done` is called under none.

use super::collective::Part;
use super::context::{Context, Failure, version};
use super::task::Task;
use super::turnout::Turnout;
use crate::collective::p2p::Endpoint;
use crate::collective::threads::Threads;
use crate::collective::{
    Backend, Board, Done, Engine, EngineFault, Finished, Input, Job, Pool, Staging, Traffic,
};
use crate::engine::EngineKind;
use crate::link::DataLink;
use crate::view::{OPS_IN_FLIGHT_MAX, OpId, Rank, View};
use std::collections::{BTreeMap, VecDeque};
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

/// What the threads and the callers share. They do not keep the backend itself, so that dropping
/// that ends them.
struct Core {
    me: Rank,
    size: usize,
    endpoint: Endpoint,
    board: Arc<dyn Board>,
    pool: Pool,
    threads: Arc<Threads>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    turnout: Turnout,
    /// Started, and without their contribution.
    unfed: BTreeMap<OpId, (Task, Done)>,
    /// Fed, and without a thread.
    ready: VecDeque<Work>,
    /// Failed by a message of this rank, of which it is not known whether it calls the same.
    doubtful: BTreeMap<OpId, (Rank, Done)>,
    crew: Crew,
    stage: Stage,
}

/// What a thread carries out.
struct Work {
    op: OpId,
    task: Task,
    input: Staging,
    done: Done,
}

/// The threads of a View.
#[derive(Default)]
struct Crew {
    all: usize,
    /// Those that wait for work, or will as soon as they run.
    idle: usize,
}

enum Stage {
    /// The first thread waits for the others' addresses.
    Connecting,
    Connected(Arc<Context>),
    /// Nothing can run any more, for this reason.
    Ended(EngineFault),
}

/// Every operation in flight may have one.
const THREADS_MAX: usize = OPS_IN_FLIGHT_MAX;

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

    /// Waits until the threads of all its backends have ended; gives how many have not when
    /// `timeout` is over.
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
    pub fn new(
        me: Rank,
        size: usize,
        board: Arc<dyn Board>,
        pool: Pool,
        threads: &Arc<Threads>,
    ) -> GlooBackend {
        let endpoint = Endpoint::new(me, size, pool.clone(), Arc::clone(threads));
        let state = State {
            turnout: Turnout::new(me, size),
            unfed: BTreeMap::new(),
            ready: VecDeque::new(),
            doubtful: BTreeMap::new(),
            crew: Crew { all: 1, idle: 0 },
            stage: Stage::Connecting,
        };
        let (threads, state, changed) = (Arc::clone(threads), Mutex::new(state), Condvar::new());
        let core = Arc::new(Core { me, size, endpoint, board, pool, threads, state, changed });
        let ending = Ending(Arc::clone(&core));
        // When a thread cannot be had `ending` is dropped with the closure, which ends all jobs.
        core.threads.spawn("potluck-gloo".to_string(), move || ending.0.connect());
        GlooBackend { core }
    }
}

impl Backend for GlooBackend {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        self.core.endpoint.attach(peer, link);
    }

    fn start(&self, job: Job) {
        self.core.start(job);
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        self.core.feed(op, input);
    }

    fn credit(&self, op: OpId, peer: Rank) {
        self.core.credit(op, peer);
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

    fn traffic_with(&self, peer: Rank) -> Traffic {
        self.core.endpoint.traffic_with(peer)
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
    fn start(self: &Arc<Core>, job: Job) {
        let Ok(task) = Task::of(&job.call, &job.plan, job.sync_root, self.size) else {
            return (job.done)(Err(EngineFault::Unfit));
        };
        let (op, mut state) = (job.op, self.lock());
        let refused = match state.stage {
            Stage::Ended(fault) => Some(fault),
            _ => (!state.turnout.start(op)).then_some(EngineFault::Cancelled),
        };
        if let Some(fault) = refused {
            drop(state);
            return (job.done)(Err(fault));
        }
        // Before anybody can be told that it is started here: from then on messages may come.
        self.endpoint.begin_patiently(op);
        if state.turnout.is_complete(op) {
            self.endpoint.hurry(op);
        }
        state.unfed.insert(op, (task, job.done));
    }

    /// Gloo takes a contribution in one piece.
    fn feed(self: &Arc<Core>, op: OpId, input: &Input<'_>) {
        let Some((task, done)) = self.lock().unfed.remove(&op) else { return };
        // Copied under no lock. Nobody can give it up meanwhile, as whoever does finds neither of
        // the two.
        let Some(input) = contribution(&task, input, self.me, self.size, &self.pool) else {
            self.endpoint.cancel(op, EngineFault::Unfit);
            return done(Err(EngineFault::Unfit));
        };
        let mut state = self.lock();
        let refused = match state.stage {
            Stage::Ended(fault) => Some(fault),
            _ => state.turnout.is_over(op).then_some(EngineFault::Cancelled),
        };
        if let Some(fault) = refused {
            drop(state);
            return done(Err(fault));
        }
        state.ready.push_back(Work { op, task, input, done });
        self.staff(&mut state);
        drop(state);
        self.changed.notify_one();
    }

    fn credit(&self, op: OpId, peer: Rank) {
        let mut state = self.lock();
        state.turnout.credit(op, peer);
        if state.turnout.is_complete(op) {
            self.endpoint.hurry(op);
        }
        let guilty = state.doubtful.get(&op).is_some_and(|(of, _)| *of == peer);
        let doubtful = if guilty { state.doubtful.remove(&op) } else { None };
        drop(state);
        if let Some((peer, done)) = doubtful {
            done(Err(EngineFault::Protocol(peer)));
        }
    }

    /// Has as many threads wait as there is work, within bounds. Before the context is there nobody
    /// can work.
    fn staff(self: &Arc<Core>, state: &mut State) {
        while let Stage::Connected(context) = &state.stage
            && state.crew.idle < state.ready.len()
            && state.crew.all < THREADS_MAX
        {
            (state.crew.all, state.crew.idle) = (state.crew.all + 1, state.crew.idle + 1);
            let (core, context) = (Arc::clone(self), Arc::clone(context));
            // When a thread cannot be had, another one that is through takes the work: the first
            // one always stays.
            self.threads.spawn("potluck-gloo".to_string(), move || core.work(&context));
        }
    }

    /// `op` is given up or decided: it does not begin any more.
    fn end(&self, op: OpId) {
        let mut state = self.lock();
        state.turnout.end(op);
        let waiting = state.take_ready(op).map(|work| work.done);
        let waiting = waiting.or_else(|| state.unfed.remove(&op).map(|(_, done)| done));
        let waiting = waiting.or_else(|| state.doubtful.remove(&op).map(|(_, done)| done));
        drop(state);
        if let Some(done) = waiting {
            done(Err(EngineFault::Cancelled));
        }
    }

    /// Nothing runs any more, for this reason; the first one stands.
    fn close(&self, fault: EngineFault) {
        let mut state = self.lock();
        let before = match state.stage {
            Stage::Ended(_) => None,
            _ => Some(std::mem::replace(&mut state.stage, Stage::Ended(fault))),
        };
        let ready = std::mem::take(&mut state.ready).into_iter().map(|work| work.done);
        let unfed = std::mem::take(&mut state.unfed).into_values().map(|(_, done)| done);
        let doubtful = std::mem::take(&mut state.doubtful).into_values().map(|(_, done)| done);
        drop(state);
        if fault == EngineFault::Closed {
            self.endpoint.close();
            self.board.close();
        }
        self.changed.notify_all();
        for done in ready.chain(unfed).chain(doubtful) {
            done(Err(fault));
        }
        // With it Gloo's context, if nobody works on it.
        drop(before);
    }

    /// The first thread: connects, then works like the others.
    fn connect(self: &Arc<Core>) {
        let context = match Context::connect(&self.endpoint, &self.board, self.me, self.size) {
            Ok(context) => Arc::new(context),
            Err(exception) => {
                if matches!(self.lock().stage, Stage::Connecting) {
                    tracing::warn!(%exception, gloo = version(), "Gloo could not connect the members of the view");
                }
                return self.close(EngineFault::Gloo);
            }
        };
        tracing::debug!(
            gloo = version(),
            rank = self.me.0,
            size = self.size,
            "Gloo has connected the members of the view"
        );
        {
            let mut state = self.lock();
            if !matches!(state.stage, Stage::Connecting) {
                return;
            }
            state.stage = Stage::Connected(Arc::clone(&context));
            state.crew.idle += 1;
            self.staff(&mut state);
        }
        self.work(&context);
    }

    /// Takes one operation after the other until the backend is closed.
    fn work(&self, context: &Context) {
        while let Some(Work { op, task, input, done }) = self.next() {
            let part = Part { context, op, me: self.me, size: self.size, pool: &self.pool };
            let result = carried_out(&part, &task, input);
            self.conclude(op, result, done);
            self.lock().crew.idle += 1;
        }
    }

    /// Reports a result, unless it is to be seen first who is to blame for it.
    fn conclude(&self, op: OpId, result: Result<Finished, EngineFault>, done: Done) {
        if let Err(EngineFault::Protocol(peer)) = result {
            let mut state = self.lock();
            if state.turnout.is_over(op) {
                drop(state);
                return done(Err(EngineFault::Cancelled));
            }
            if matches!(state.stage, Stage::Connected(_)) && state.turnout.is_unheard(op, peer) {
                state.doubtful.insert(op, (peer, done));
                return;
            }
        }
        done(result);
    }

    /// Waits for an operation; `None` when the backend is closed.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if matches!(state.stage, Stage::Ended(_)) {
                return None;
            }
            if let Some(next) = state.ready.pop_front() {
                state.crew.idle -= 1;
                return Some(next);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_ready(&mut self, op: OpId) -> Option<Work> {
        let at = self.ready.iter().position(|work| work.op == op)?;
        self.ready.remove(at)
    }
}

/// The first thread's hold on the backend: letting go of it, in whichever way, ends all jobs.
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

/// The contribution to a task in blocks cut as that asks for; none of a member that contributes
/// nothing. `None` when it is not as long.
fn contribution(
    task: &Task,
    input: &Input<'_>,
    me: Rank,
    size: usize,
    pool: &Pool,
) -> Option<Staging> {
    let lengths = if task.contributes(me) { task.layout(size) } else { Vec::new() };
    if !lengths.is_empty() && lengths.iter().sum::<usize>() != input.len() {
        return None;
    }
    let mut start = 0;
    let blocks = lengths.into_iter().map(|length| {
        let piece = start..start + length;
        start = piece.end;
        input.piece(pool, piece)
    });
    Some(Staging { blocks: blocks.collect::<Option<_>>()? })
}
