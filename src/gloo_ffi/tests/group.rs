//! A test group: all ranks of a View in one process, with a board for each.

use super::super::backend::GlooEngine;
use super::super::pair::GlooOrNative;
use crate::collective::{Backend, Board, BoardFault, Engine, Finished, Input, Job, NativeEngine};
use crate::link::{DataLink, memory, sealed_tcp, tcp};
use crate::memory::Pool;
use crate::protocol::{
    AutoCodecs, Call, EngineChoice, EngineFault, EngineKind, EngineReason, Lane, OpId, Plan,
    PlanClass, Rank, Schedule, View, view_of,
};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The timeout of all waits; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Outcome = (Rank, OpId, Result<Finished, EngineFault>);

/// The kind of link between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cables {
    Memory,
    Tcp,
    SealedTcp,
}

/// The ranks of a View, with one backend each and links between all pairs.
pub struct Group {
    pub engine: GlooEngine,
    pub backends: Vec<Arc<dyn Backend>>,
    pub outcomes: Receiver<Outcome>,
    pub report: Sender<Outcome>,
}

impl Group {
    pub fn new(size: usize, cables: Cables) -> Group {
        Group::of(&GlooEngine::new(Pool::new()), size, &TestBoard::shared(size)).linked(cables)
    }

    /// Makes a group with both engines; those of an even size start with the native engine.
    pub fn of_both(native: &NativeEngine, size: usize, cables: Cables) -> Group {
        let gloo = GlooEngine::new(Pool::new());
        let (kind, why) = match size % 2 {
            0 => (EngineKind::Native, EngineReason::Uneven),
            _ => (EngineKind::Gloo, EngineReason::AllHaveGloo),
        };
        let view = View { engine: EngineChoice { kind, why }, ..view_of(size as u8) };
        let both = GlooOrNative::new(gloo.clone(), native.clone());
        Group::opened(gloo, &both, &Arc::new(view), &TestBoard::shared(size)).linked(cables)
    }

    /// Makes a group with a pool for each rank.
    pub fn with_pools(pools: &[Pool], cables: Cables) -> Group {
        let (view, boards) = (Arc::new(view_of(pools.len() as u8)), TestBoard::shared(pools.len()));
        let engines: Vec<_> = pools.iter().map(|pool| GlooEngine::new(pool.clone())).collect();
        let open = |me: Rank| {
            let board = Arc::clone(&boards[me.index()]) as Arc<dyn Board>;
            engines[me.index()].open(&view, me, board)
        };
        let backends = view.ranks().map(open).collect();
        let (report, outcomes) = channel();
        Group { engine: engines[0].clone(), backends, outcomes, report }.linked(cables)
    }

    /// Makes a group without links.
    pub fn of(engine: &GlooEngine, size: usize, boards: &[Arc<TestBoard>]) -> Group {
        Group::opened(engine.clone(), engine, &Arc::new(view_of(size as u8)), boards)
    }

    fn opened(
        engine: GlooEngine,
        opens: &dyn Engine,
        view: &Arc<View>,
        boards: &[Arc<TestBoard>],
    ) -> Group {
        let open =
            |me: Rank| opens.open(view, me, Arc::clone(&boards[me.index()]) as Arc<dyn Board>);
        let backends = view.ranks().map(open).collect();
        let (report, outcomes) = channel();
        Group { engine, backends, outcomes, report }
    }

    fn linked(self, cables: Cables) -> Group {
        for a in self.ranks() {
            for b in self.ranks().filter(|b| *b > a) {
                let (left, right) = cables.pair();
                self.backends[a.index()].attach(b, left);
                self.backends[b.index()].attach(a, right);
            }
        }
        self
    }

    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.backends.len() as u8).map(Rank)
    }

    pub fn start(
        &self,
        me: Rank,
        op: OpId,
        call: Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Arc<Plan>,
        input: &[u8],
    ) {
        self.start_with(me, op, call, sync_root, plan, &Input::Borrowed(input));
    }

    pub fn start_with(
        &self,
        me: Rank,
        op: OpId,
        call: Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Arc<Plan>,
        input: &Input<'_>,
    ) {
        let report = self.report.clone();
        let done = Box::new(move |result| drop(report.send((me, op, result))));
        self.backends[me.index()].start(Job {
            op,
            call,
            plan: Arc::clone(plan),
            sync_root,
            model: input.model(),
            done,
        });
        self.backends[me.index()].feed(op, input);
    }

    /// Tells all other ranks that `peer` has started `op`.
    pub fn credit_from(&self, op: OpId, peer: Rank) {
        for me in self.ranks().filter(|me| *me != peer) {
            self.backends[me.index()].credit(op, peer);
        }
    }

    pub fn outcome(&self) -> Outcome {
        self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time")
    }

    /// Runs one call on all ranks, started in a random order; returns the outcomes by rank.
    pub fn run(
        &self,
        op: OpId,
        call: Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Arc<Plan>,
        inputs: &[Vec<u8>],
        chance: &mut Chance,
    ) -> Vec<Finished> {
        for me in chance.shuffled(self.ranks().collect()) {
            self.start(me, op, call, sync_root, plan, &inputs[me.index()]);
            self.credit_from(op, me);
        }
        let mut finished: Vec<(Rank, Finished)> = (0..self.backends.len())
            .map(|_| {
                let (rank, of, result) = self.outcome();
                assert_eq!(of, op);
                (rank, result.unwrap_or_else(|fault| panic!("{call} on rank {rank}: {fault}")))
            })
            .collect();
        self.backends.iter().for_each(|backend| backend.retire(op));
        finished.sort_by_key(|(rank, _)| *rank);
        finished.into_iter().map(|(_, finished)| finished).collect()
    }
}

impl Cables {
    pub fn pair(self) -> (Box<dyn DataLink>, Box<dyn DataLink>) {
        match self {
            Cables::Memory => memory(),
            Cables::Tcp => tcp(),
            Cables::SealedTcp => sealed_tcp(),
        }
    }
}

#[derive(Default)]
struct Entries {
    set: Mutex<BTreeMap<String, Vec<u8>>>,
    changed: Condvar,
}

/// A board whose entries all ranks of a test share; each rank closes its own.
pub struct TestBoard {
    entries: Arc<Entries>,
    closed: Mutex<bool>,
    refuses: Mutex<bool>,
}

impl TestBoard {
    /// Makes one board per rank.
    pub fn shared(size: usize) -> Vec<Arc<TestBoard>> {
        let entries = Arc::default();
        let board = |_| TestBoard {
            entries: Arc::clone(&entries),
            closed: Mutex::default(),
            refuses: Mutex::default(),
        };
        (0..size).map(board).map(Arc::new).collect()
    }

    /// Refuses all further keys.
    pub fn refuse(&self) {
        *lock(&self.refuses) = true;
    }
}

impl Board for TestBoard {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), BoardFault> {
        if *lock(&self.refuses) {
            return Err(BoardFault::Refused);
        }
        lock(&self.entries.set).entry(key.to_string()).or_insert_with(|| value.to_vec());
        self.entries.changed.notify_all();
        Ok(())
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, BoardFault> {
        let missing = |entries: &mut BTreeMap<String, Vec<u8>>| {
            !entries.contains_key(key) && !*lock(&self.closed)
        };
        let waited =
            self.entries.changed.wait_timeout_while(lock(&self.entries.set), timeout, missing);
        let (entries, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *lock(&self.closed) {
            return Err(BoardFault::Closed);
        }
        entries.get(key).cloned().ok_or(BoardFault::TimedOut)
    }

    fn close(&self) {
        let _entries = lock(&self.entries.set);
        *lock(&self.closed) = true;
        self.entries.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn bytes(finished: &Finished) -> Vec<u8> {
    let mut out = vec![0; finished.output.len()];
    finished.output.copy_to(&mut out);
    out
}

pub fn op(lane: u64, number: u64) -> OpId {
    OpId { lane: Lane(lane), number }
}

pub fn plan(schedule: Schedule) -> Arc<Plan> {
    plan_in(schedule, 256 * 1024)
}

pub fn plan_in(schedule: Schedule, chunk_bytes: u32) -> Arc<Plan> {
    let classes =
        vec![PlanClass { bytes_max: u64::MAX, chunk_bytes, schedule, auto: AutoCodecs::NONE }];
    Arc::new(Plan { revision: 0, reason: String::new(), classes })
}

/// Splitmix64 (Steele, Lea, Flood 2014).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn shuffled<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
        items
    }
}
