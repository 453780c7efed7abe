//! All ranks of a View in one process, over in-memory links that encode and decode every header.

use super::super::NativeEngine;
use super::super::run::lock;
use crate::collective::backend::{Backend, Engine, Finished, Job};
use crate::collective::board::ViewBoard;
use crate::collective::input::Input;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown};
use crate::memory::{Block, Pool};
use crate::os::{Condvar, Mutex};
use crate::protocol::{
    AutoCodecs, Call, EngineFault, Lane, OpId, Plan, PlanClass, Rank, Schedule, view_of,
};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The longest wait for anything; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Outcome = (Rank, OpId, Result<Finished, EngineFault>);

/// The ranks of a View with one backend each, all pairs connected.
pub struct Group {
    pub backends: Vec<Arc<dyn Backend>>,
    pub outcomes: Receiver<Outcome>,
    pub report: Sender<Outcome>,
}

impl Group {
    pub fn new(size: usize) -> Group {
        Group::with_links(size, |_, end| Box::new(end))
    }

    /// Like `new`, but over the links that `wrap` makes of each rank's ends.
    pub fn with_links(size: usize, wrap: impl Fn(Rank, End) -> Box<dyn DataLink>) -> Group {
        let pool = Pool::new();
        Group::of(&vec![pool; size], wrap)
    }

    /// A pool for each rank.
    pub fn with_pools(pools: &[Pool]) -> Group {
        Group::of(pools, |_, end| Box::new(end))
    }

    fn of(pools: &[Pool], wrap: impl Fn(Rank, End) -> Box<dyn DataLink>) -> Group {
        let view = Arc::new(view_of(pools.len() as u8));
        let open =
            |(me, pool): (Rank, &Pool)| NativeEngine::new(pool.clone()).open(&view, me, board(me));
        let backends: Vec<_> = view.ranks().zip(pools).map(open).collect();
        for a in view.ranks() {
            for b in view.ranks().filter(|b| *b > a) {
                let (left, right) = link_pair(4);
                backends[a.index()].attach(b, wrap(a, left));
                backends[b.index()].attach(a, wrap(b, right));
            }
        }
        let (report, outcomes) = channel();
        Group { backends, outcomes, report }
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
        self.begin(me, op, call, sync_root, plan, None);
        self.backends[me.index()].feed(op, &Input::Borrowed(input));
    }

    /// Like `start`, but hands contributions that go to all other ranks to them as descriptors do.
    fn start_enclosing(
        &self,
        me: Rank,
        op: OpId,
        call: Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Arc<Plan>,
        input: &[u8],
    ) {
        self.begin(me, op, call, sync_root, plan, None);
        if let Some(enclosed) =
            self.backends[me.index()].feed_enclosing(op, &Input::Borrowed(input))
        {
            for other in self.ranks().filter(|other| *other != me) {
                self.backends[other.index()].receive_enclosed(op, me, &enclosed);
            }
        }
    }

    /// Starts an operation without feeding it.
    pub fn begin(
        &self,
        me: Rank,
        op: OpId,
        call: Call,
        sync_root: Option<(Rank, u64)>,
        plan: &Arc<Plan>,
        model: Option<Block>,
    ) {
        self.backends[me.index()]
            .start(Job { model, ..job(me, op, call, sync_root, plan, &self.report) });
    }

    pub fn credit_from(&self, op: OpId, peer: Rank) {
        for me in self.ranks().filter(|me| *me != peer) {
            self.backends[me.index()].credit(op, peer);
        }
    }

    /// Runs one call on all ranks, started in an order drawn from `chance`. Returns the results by
    /// rank.
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
            let input = &inputs[me.index()];
            if chance.below(2) == 0 {
                self.start(me, op, call, sync_root, plan, input);
            } else {
                self.start_enclosing(me, op, call, sync_root, plan, input);
            }
            self.credit_from(op, me);
        }
        let mut finished: Vec<(Rank, Finished)> = (0..self.backends.len())
            .map(|_| {
                let (rank, of, result) =
                    self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time");
                assert_eq!(of, op);
                (rank, result.unwrap_or_else(|fault| panic!("rank {rank}: {fault}")))
            })
            .collect();
        self.backends.iter().for_each(|backend| backend.retire(op));
        finished.sort_by_key(|(rank, _)| *rank);
        finished.into_iter().map(|(_, finished)| finished).collect()
    }
}

/// A job that reports its outcome to `report`.
pub fn job(
    me: Rank,
    op: OpId,
    call: Call,
    sync_root: Option<(Rank, u64)>,
    plan: &Arc<Plan>,
    report: &Sender<Outcome>,
) -> Job {
    let report = report.clone();
    let done = Box::new(move |result| drop(report.send((me, op, result))));
    Job { op, call, plan: Arc::clone(plan), sync_root, model: None, done }
}

/// A board for an engine that does not use it.
pub fn board(me: Rank) -> Arc<ViewBoard> {
    Arc::new(ViewBoard::new(me, tokio::sync::mpsc::unbounded_channel().0))
}

/// The expected digest of a result with these bytes.
pub fn finished_digest(bytes: &[u8]) -> u128 {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_128};
    let hashes: Vec<u8> =
        bytes.chunks(256 * 1024).flat_map(|block| xxh3_64(block).to_le_bytes()).collect();
    xxh3_128(&hashes)
}

pub fn bytes(finished: &Finished) -> Vec<u8> {
    let mut out = vec![0; finished.output.len()];
    finished.output.copy_to(&mut out);
    out
}

pub fn op(lane: u64, number: u64) -> OpId {
    OpId { lane: Lane(lane), number }
}

pub fn plan(chunk_bytes: u32, schedule: Schedule) -> Arc<Plan> {
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

/// One direction of a link: a bounded queue of encoded frames.
struct Pipe {
    state: Mutex<(VecDeque<Vec<u8>>, bool)>,
    changed: Condvar,
    frames_max: usize,
}

/// One end of an in-memory link.
pub struct End {
    out: Arc<Pipe>,
    into: Arc<Pipe>,
}

pub struct EndSender(Arc<Pipe>);
pub struct EndReceiver(Arc<Pipe>, Vec<u8>);
struct Both(Arc<Pipe>, Arc<Pipe>);

pub fn link_pair(frames_max: usize) -> (End, End) {
    let pipe = || Arc::new(Pipe { state: Mutex::default(), changed: Condvar::new(), frames_max });
    let (a, b) = (pipe(), pipe());
    (End { out: Arc::clone(&a), into: Arc::clone(&b) }, End { out: b, into: a })
}

impl End {
    pub fn halves(self) -> (EndSender, EndReceiver, Arc<dyn Shutdown>) {
        let both = Both(Arc::clone(&self.out), Arc::clone(&self.into));
        (EndSender(self.out), EndReceiver(self.into, Vec::new()), Arc::new(both))
    }
}

impl DataLink for End {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let (sender, receiver, shutdown) = self.halves();
        (Box::new(sender), Box::new(receiver), shutdown)
    }
}

impl Pipe {
    fn end(&self) {
        lock(&self.state).1 = true;
        self.changed.notify_all();
    }
}

impl DataSender for EndSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        assert_eq!(header.len as usize, payload.len());
        let mut frame = header.to_bytes().to_vec();
        frame.extend_from_slice(payload);
        let mut state = self
            .0
            .changed
            .wait_while(lock(&self.0.state), |s| s.0.len() >= self.0.frames_max && !s.1)
            .expect("whole");
        if state.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.0.push_back(frame);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl DataReceiver for EndReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        let mut state = self
            .0
            .changed
            .wait_while(lock(&self.0.state), |s| s.0.is_empty() && !s.1)
            .expect("whole");
        if state.1 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let frame = state.0.pop_front().expect("waited for it");
        self.0.changed.notify_all();
        let header = *frame.first_chunk().expect("a frame begins with its header");
        self.1 = frame[DataHeader::BYTES..].to_vec();
        Ok(DataHeader::from_bytes(&header).expect("as it was written"))
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&std::mem::take(&mut self.1));
        Ok(())
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        assert_eq!(std::mem::take(&mut self.1).len(), len);
        Ok(())
    }
}

impl Shutdown for Both {
    fn shutdown(&self) {
        self.0.end();
        self.1.end();
    }
}
