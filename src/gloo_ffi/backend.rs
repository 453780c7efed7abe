//! The Gloo engine in one View: its operations, its threads, and its end.
//!
//! Each operation runs on a thread of its own: an idle one, or else a new one. It begins before
//! this rank knows the others' calls, because the first messages go at once. If a message does not
//! fit the call, the failure is held back until the descriptors show which member is at fault. One
//! short lock protects the state; `done` is never called under it.

use super::collective::Participant;
use super::context::{Context, Failure, version};
use super::exception::{Exception, ExceptionKind};
use super::p2p::Endpoint;
use super::rails::Rails;
use super::started::Started;
use super::task::Task;
use crate::collective::{
    Backend, Board, Done, Engine, EngineCall, Finished, Input, LinkParty, LinkUser, Threads,
};
use crate::link::DataLink;
use crate::memory::{Block, Pool};
use crate::protocol::{EngineFault, EngineKind, OPS_IN_FLIGHT_MAX, OpId, PARTS_MAX, Rank, View};
use crate::report::Traffic;
use crate::trace;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The engine: opens a Gloo backend per View.
#[derive(Clone, Debug, Default)]
pub struct GlooEngine {
    pool: Pool,
    threads: Arc<Threads>,
}

/// The Gloo backend of one View. Dropping it closes it.
pub struct GlooBackend {
    core: Arc<Core>,
}

/// The state that threads and callers share. Threads do not hold the backend itself, so that
/// dropping it ends them.
struct Core {
    me: Rank,
    size: usize,
    endpoint: Endpoint,
    board: Arc<dyn Board>,
    pool: Pool,
    threads: Arc<Threads>,
    rails: Arc<Rails>,
    state: Mutex<CoreState>,
    changed: Condvar,
}

struct CoreState {
    started: Started,
    /// Operations started here, waiting for this member's contribution.
    unfed: BTreeMap<OpId, (Task, Done)>,
    /// Operations with a contribution, waiting for a thread.
    ready: VecDeque<Work>,
    /// Operations that failed because of a message of this peer, before it was known whether the
    /// peer makes the same call.
    doubtful: BTreeMap<OpId, (Rank, Done)>,
    helpers: HelperPool,
    stage: Stage,
}

/// An operation for a thread to run.
struct Work {
    op: OpId,
    task: Task,
    input: Option<Block>,
    done: Done,
}

/// The number of threads of a View's backend.
#[derive(Default)]
struct HelperPool {
    all: usize,
    /// Threads that wait for work, including threads that are about to.
    idle: usize,
}

enum Stage {
    /// The first thread connects the context.
    Connecting,
    Connected(Arc<Context>),
    /// No operation can run, for this reason.
    Ended(EngineFault),
}

/// Every call of every operation in flight may have a thread: ranks begin the calls of different
/// lanes in different orders, and a thread waits for the same call on all ranks. With fewer threads
/// than calls, ranks could wait for each other.
const THREADS_MAX: usize = OPS_IN_FLIGHT_MAX * PARTS_MAX;

impl GlooEngine {
    /// Makes an engine that allocates working memory from `pool`.
    pub fn new(pool: Pool) -> GlooEngine {
        GlooEngine { pool, threads: Arc::default() }
    }

    /// The backend of one View.
    pub(super) fn backend(&self, view: &View, me: Rank, board: Arc<dyn Board>) -> GlooBackend {
        GlooBackend::new(me, view.size(), board, self.pool.clone(), &self.threads)
    }

    /// The threads of all its backends.
    #[cfg(test)]
    pub fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }
}

impl Engine for GlooEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Gloo
    }

    fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn open(&self, view: &Arc<View>, me: Rank, board: Arc<dyn Board>) -> Arc<dyn Backend> {
        Arc::new(self.backend(view, me, board))
    }
}

impl GlooBackend {
    /// Makes the backend of `me` among `size` ranks and starts to connect.
    pub fn new(
        me: Rank,
        size: usize,
        board: Arc<dyn Board>,
        pool: Pool,
        threads: &Arc<Threads>,
    ) -> GlooBackend {
        let endpoint = Endpoint::new(me, size, pool.clone(), Arc::clone(threads));
        let state = CoreState {
            started: Started::new(me, size),
            unfed: BTreeMap::new(),
            ready: VecDeque::new(),
            doubtful: BTreeMap::new(),
            helpers: HelperPool { all: 1, idle: 0 },
            stage: Stage::Connecting,
        };
        let (rails, threads) = (Rails::new(threads), Arc::clone(threads));
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let core =
            Arc::new(Core { me, size, endpoint, board, pool, threads, rails, state, changed });
        let ending = Ending(Arc::clone(&core));
        // If no thread can be started, `ending` is dropped with the closure, which ends all calls.
        core.threads.spawn("potluck-gloo".to_string(), move || ending.0.connect());
        GlooBackend { core }
    }

    /// The state that the threads of its links share, and their count.
    pub fn party(&self) -> LinkParty<'_, impl LinkUser> {
        (self.core.endpoint.core(), &self.core.threads)
    }
}

impl Backend for GlooBackend {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        self.core.endpoint.attach(peer, link);
    }

    fn start(&self, engine_call: EngineCall) {
        self.core.start(engine_call);
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        self.core.feed(op, input);
    }

    fn credit(&self, op: OpId, peer: Rank) {
        self.core.credit(op, peer);
    }

    fn cancel(&self, op: OpId) {
        // This wakes Gloo in its waits for messages of the operation.
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
    fn start(self: &Arc<Core>, engine_call: EngineCall) {
        let (call, plan, size) = (&engine_call.call, &engine_call.plan, self.size);
        let task = match &engine_call.lengths {
            Some(lengths) => Task::uneven(call, plan, lengths, self.me, size),
            None => Task::of(call, plan, engine_call.sync_root, size),
        };
        let Ok(task) = task else {
            return (engine_call.done)(Err(EngineFault::Unfit));
        };
        let (op, mut state) = (engine_call.op, self.lock());
        let refused = match state.stage {
            Stage::Ended(fault) => Some(fault),
            _ => (!state.started.start(op)).then_some(EngineFault::Cancelled),
        };
        if let Some(fault) = refused {
            drop(state);
            return (engine_call.done)(Err(fault));
        }
        // Before any peer can learn that the operation started here: from then on its messages may
        // arrive.
        self.endpoint.begin_patiently(op);
        if state.started.is_complete(op) {
            self.endpoint.hurry(op);
        }
        state.unfed.insert(op, (task, engine_call.done));
    }

    /// Copies this member's contribution and queues the operation.
    fn feed(self: &Arc<Core>, op: OpId, input: &Input<'_>) {
        let Some((task, done)) = self.lock().unfed.remove(&op) else { return };
        // The copy runs without the lock. Meanwhile the operation is in neither `unfed` nor
        // `ready`, so `end` cannot take its `done`; it is checked again below.
        let input = match contribution(&task, input, self.me, self.size, &self.pool) {
            Ok(input) => input,
            Err(fault) => {
                self.endpoint.cancel(op, fault);
                return done(Err(fault));
            }
        };
        let mut state = self.lock();
        let refused = match state.stage {
            Stage::Ended(fault) => Some(fault),
            _ => state.started.is_over(op).then_some(EngineFault::Cancelled),
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
        state.started.credit(op, peer);
        if state.started.is_complete(op) {
            self.endpoint.hurry(op);
        }
        let guilty = state.doubtful.get(&op).is_some_and(|(of, _)| *of == peer);
        let doubtful = if guilty { state.doubtful.remove(&op) } else { None };
        drop(state);
        if let Some((peer, done)) = doubtful {
            done(Err(EngineFault::Protocol(peer)));
        }
    }

    /// Starts threads until there is an idle one for each waiting operation, or the maximum is
    /// reached. Before the context is connected no thread can work.
    fn staff(self: &Arc<Core>, state: &mut CoreState) {
        while let Stage::Connected(context) = &state.stage
            && state.helpers.idle < state.ready.len()
            && state.helpers.all < THREADS_MAX
        {
            let (core, context) = (Arc::clone(self), Arc::clone(context));
            if !self.threads.spawn("potluck-gloo".to_string(), move || core.work(&context)) {
                // Another thread takes the work when it is done: the first thread always stays. The
                // next operation tries again.
                return;
            }
            (state.helpers.all, state.helpers.idle) =
                (state.helpers.all + 1, state.helpers.idle + 1);
        }
    }

    /// `op` was given up or decided: it does not begin any more.
    fn end(&self, op: OpId) {
        let mut state = self.lock();
        state.started.end(op);
        let waiting = state.take_ready(op).map(|work| work.done);
        let waiting = waiting.or_else(|| state.unfed.remove(&op).map(|(_, done)| done));
        let waiting = waiting.or_else(|| state.doubtful.remove(&op).map(|(_, done)| done));
        drop(state);
        if let Some(done) = waiting {
            done(Err(EngineFault::Cancelled));
        }
    }

    /// Ends all operations with `fault`. Only the first call sets the stage.
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
        self.rails.close();
        if fault == EngineFault::Closed {
            self.endpoint.close();
            self.board.close();
        }
        self.changed.notify_all();
        for done in ready.chain(unfed).chain(doubtful) {
            done(Err(fault));
        }
        // This also drops Gloo's context, unless a thread is working with it.
        drop(before);
    }

    /// The body of the first thread: connects the context, then works like the others.
    fn connect(self: &Arc<Core>) {
        let context = match Context::connect(&self.endpoint, &self.board, self.me, self.size) {
            Ok(context) => Arc::new(context),
            Err(exception) => {
                // Without a member Gloo is not to blame.
                let lost = self.endpoint.lost();
                if matches!(self.lock().stage, Stage::Connecting) && lost.is_none() {
                    trace::warn!(%exception, gloo = version(), "Gloo could not connect the \
                        members of the view");
                }
                return self.close(lost.unwrap_or(EngineFault::Gloo));
            }
        };
        trace::debug!(
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
            state.helpers.idle += 1;
            self.staff(&mut state);
        }
        self.work(&context);
    }

    /// The body of a thread: runs one operation after another until the backend is closed.
    fn work(&self, context: &Arc<Context>) {
        while let Some(Work { op, task, input, done }) = self.next() {
            let (rails, pool) = (&self.rails, &self.pool);
            let participant =
                Participant { context, rails, op, me: self.me, size: self.size, pool };
            let result = carried_out(&participant, &task, input);
            self.conclude(op, result, done);
            self.lock().helpers.idle += 1;
        }
    }

    /// Reports a result. A protocol fault is held back until the member at fault is known:
    ///
    /// ```text
    /// state of the operation                        outcome
    /// over (given up or decided)                    Cancelled
    /// the peer's start is known (its call agrees)   Protocol(peer)
    /// the peer's start is not known                 waits in `doubtful`, then:
    ///     credit of the peer                        Protocol(peer)
    ///     end of the operation                      Cancelled
    ///     close of the backend                      the fault of the backend
    /// ```
    fn conclude(&self, op: OpId, result: Result<Finished, EngineFault>, done: Done) {
        if let Err(EngineFault::Protocol(peer)) = result {
            let mut state = self.lock();
            if state.started.is_over(op) {
                drop(state);
                return done(Err(EngineFault::Cancelled));
            }
            if matches!(state.stage, Stage::Connected(_)) && state.started.is_unheard(op, peer) {
                state.doubtful.insert(op, (peer, done));
                return;
            }
        }
        done(result);
    }

    /// Waits for an operation; `None` after the backend was closed.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if matches!(state.stage, Stage::Ended(_)) {
                return None;
            }
            if let Some(next) = state.ready.pop_front() {
                state.helpers.idle -= 1;
                return Some(next);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CoreState> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoreState {
    fn take_ready(&mut self, op: OpId) -> Option<Work> {
        let at = self.ready.iter().position(|work| work.op == op)?;
        self.ready.remove(at)
    }
}

/// The first thread's guard: dropping it, also in a panic, ends all calls.
struct Ending(Arc<Core>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close(EngineFault::Gloo);
    }
}

/// Runs an operation. A panic, which would be a bug, becomes a failed call.
fn carried_out(
    participant: &Participant<'_>,
    task: &Task,
    input: Option<Block>,
) -> Result<Finished, EngineFault> {
    let op = participant.op;
    match catch_unwind(AssertUnwindSafe(|| participant.carry_out(task, input))) {
        Ok(Ok(finished)) => Ok(finished),
        Ok(Err(Failure::Links(fault))) => Err(fault),
        Ok(Err(Failure::Gloo(Exception { kind: ExceptionKind::Memory, .. }))) => {
            Err(EngineFault::Memory { bytes: task.bytes() as u64 })
        }
        Ok(Err(Failure::Gloo(exception))) => {
            trace::warn!(%op, %exception, "Gloo could not finish an operation");
            Err(EngineFault::Gloo)
        }
        Err(_) => {
            trace::error!(%op, "the Gloo engine has panicked: report this as a bug");
            Err(EngineFault::Gloo)
        }
    }
}

/// Copies the contribution to a task into a block, as Gloo needs it in one piece; `None` if it is
/// empty, or the member contributes nothing. [`EngineFault::Unfit`] if its length is wrong.
fn contribution(
    task: &Task,
    input: &Input<'_>,
    me: Rank,
    size: usize,
    pool: &Pool,
) -> Result<Option<Block>, EngineFault> {
    let bytes = task.input_bytes(size);
    if bytes == 0 || !task.contributes(me) {
        return Ok(None);
    }
    if bytes != input.len() {
        return Err(EngineFault::Unfit);
    }
    input.piece(pool, 0..bytes).map(Some)
}
