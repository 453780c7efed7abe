//! The engine as the suite of all engines uses it, with a board for each rank.

use super::super::backend::GlooEngine;
use super::super::pair::GlooOrNative;
use crate::collective::suite::{Chance, Door, Group, Opened};
use crate::collective::{Backend, Board, BoardFault, Engine, NativeEngine};
use crate::memory::Pool;
use crate::protocol::{
    Algorithm, EngineChoice, EngineKind, EngineReason, Rank, ReduceOp, View, view_of,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub const SCHEDULES: [Algorithm; 3] =
    [Algorithm::GlooRing, Algorithm::GlooBcube, Algorithm::GlooExchange];

pub const DOOR: Door = Door {
    open: |view, pools| open(view, pools, &TestBoard::shared(pools.len())),
    algorithms,
    chunks: &[1024, 256 * 1024, 4 * 1024 * 1024],
    reductions: &[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max],
    scarce: (30_000, 16 * 1024),
};

/// The first `ranks` ranks of a View with these boards, without links.
pub fn with_boards(boards: &[Arc<TestBoard>], ranks: usize) -> Group {
    let view = Arc::new(view_of(boards.len() as u8));
    Group::of(open(&view, &vec![Pool::new(); ranks], boards))
}

/// A group with both engines, without links. Those of an even size start with the native engine.
pub fn both(size: usize) -> Group {
    let (gloo, native) = (GlooEngine::new(Pool::new()), NativeEngine::new(Pool::new()));
    let (kind, why) = match size % 2 {
        0 => (EngineKind::Native, EngineReason::Heterogeneous),
        _ => (EngineKind::Gloo, EngineReason::AllHaveGloo),
    };
    let view = Arc::new(View { engine: EngineChoice { kind, why }, ..view_of(size as u8) });
    let both = GlooOrNative::new(gloo.clone(), native.clone());
    let backends = opened(&view, &TestBoard::shared(size), &vec![both; size]);
    Group::of(Opened { backends, threads: vec![gloo.threads().clone(), native.threads().clone()] })
}

fn algorithms(_: usize, _: &mut Chance) -> Vec<Algorithm> {
    SCHEDULES.into()
}

fn open(view: &Arc<View>, pools: &[Pool], boards: &[Arc<TestBoard>]) -> Opened {
    let engines: Vec<_> = pools.iter().cloned().map(GlooEngine::new).collect();
    let backends = opened(view, boards, &engines);
    Opened { backends, threads: engines.iter().map(|engine| engine.threads().clone()).collect() }
}

fn opened<E: Engine>(
    view: &Arc<View>,
    boards: &[Arc<TestBoard>],
    engines: &[E],
) -> Vec<Arc<dyn Backend>> {
    let board = |me: Rank| Arc::clone(&boards[me.index()]) as Arc<dyn Board>;
    let ranks = view.ranks().zip(engines);
    ranks.map(|(me, engine)| engine.open(view, me, board(me))).collect()
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
