//! All ranks of a View in one process.

use super::super::backend::{Backend, EngineCall, Finished};
use super::super::input::Input;
use super::super::threads::Threads;
use crate::link::{DataLink, Ends};
use crate::memory::{Block, DType};
use crate::protocol::{Algorithm, Call, CallKind, EngineFault, Lane, OpId, Plan, PlanClass, Rank};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The longest wait for anything; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Outcome = (Rank, OpId, Result<Finished, EngineFault>);

/// The backends of a View, and the threads of their engines.
pub struct Opened {
    pub backends: Vec<Arc<dyn Backend>>,
    pub threads: Vec<Arc<Threads>>,
}

/// The ranks of a View with one backend each.
pub struct Group {
    pub backends: Vec<Arc<dyn Backend>>,
    pub threads: Vec<Arc<Threads>>,
    pub outcomes: Receiver<Outcome>,
    pub report: Sender<Outcome>,
}

impl Group {
    /// A group without links.
    pub fn of(Opened { backends, threads }: Opened) -> Group {
        let (report, outcomes) = channel();
        Group { backends, threads, outcomes, report }
    }

    /// Connects all pairs.
    pub fn linked(self, ends: fn() -> Ends) -> Group {
        self.linked_as(ends, |_, link| link)
    }

    /// Connects all pairs by the links that `wrap` makes of each rank's ends.
    pub fn linked_as(
        self,
        ends: fn() -> Ends,
        wrap: impl Fn(Rank, Box<dyn DataLink>) -> Box<dyn DataLink>,
    ) -> Group {
        for a in self.ranks() {
            for b in self.ranks().filter(|b| *b > a) {
                let (left, right) = ends();
                self.backends[a.index()].attach(b, wrap(a, left));
                self.backends[b.index()].attach(a, wrap(b, right));
            }
        }
        self
    }

    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.backends.len() as u8).map(Rank)
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
        self.backends[me.index()].start(EngineCall {
            model,
            ..engine_call(me, op, call, sync_root, plan, &self.report)
        });
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
        self.begin(me, op, call, sync_root, plan, input.model());
        self.backends[me.index()].feed(op, input);
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

    /// Tells all other ranks that `peer` has started `op`.
    pub fn credit_from(&self, op: OpId, peer: Rank) {
        for me in self.ranks().filter(|me| *me != peer) {
            self.backends[me.index()].credit(op, peer);
        }
    }

    pub fn cancel(&self, op: OpId) {
        self.backends.iter().for_each(|backend| backend.cancel(op));
    }

    pub fn retire(&self, op: OpId) {
        self.backends.iter().for_each(|backend| backend.retire(op));
    }

    pub fn outcome(&self) -> Outcome {
        self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time")
    }

    /// The results of `op` by rank, of which all ranks succeed.
    pub fn results(&self, op: OpId) -> Vec<Finished> {
        let mut finished: Vec<(Rank, Finished)> = self
            .ranks()
            .map(|_| {
                let (rank, of, result) = self.outcome();
                assert_eq!(of, op);
                (rank, result.unwrap_or_else(|fault| panic!("{op} on rank {rank}: {fault}")))
            })
            .collect();
        finished.sort_by_key(|(rank, _)| *rank);
        finished.into_iter().map(|(_, finished)| finished).collect()
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
        let finished = self.results(op);
        self.retire(op);
        finished
    }

    /// The payload bytes that all ranks have sent.
    pub fn sent_bytes(&self) -> u64 {
        self.backends.iter().map(|backend| backend.traffic().sent_bytes).sum()
    }

    /// How many threads of operations run. The native engine has none.
    #[cfg(feature = "gloo")]
    pub fn running(&self) -> usize {
        self.threads.iter().map(|threads| threads.running()).sum()
    }

    pub fn panics(&self) -> usize {
        self.threads.iter().map(|threads| threads.panics()).sum()
    }

    /// Drops all backends, and with them their calls; all threads end, and none has panicked.
    /// Returns the outcomes that no test has asked for.
    pub fn end(self) -> Vec<Outcome> {
        let Group { backends, threads, outcomes, report } = self;
        drop((backends, report));
        for threads in threads {
            assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
        }
        outcomes.iter().collect()
    }
}

/// Waits until this is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// A call that reports its outcome to `report`.
pub fn engine_call(
    me: Rank,
    op: OpId,
    call: Call,
    sync_root: Option<(Rank, u64)>,
    plan: &Arc<Plan>,
    report: &Sender<Outcome>,
) -> EngineCall {
    let report = report.clone();
    let done = Box::new(move |result| drop(report.send((me, op, result))));
    EngineCall { op, call, plan: Arc::clone(plan), sync_root, lengths: None, model: None, done }
}

pub fn call(kind: CallKind, dtype: DType, count: usize) -> Call {
    Call::new(kind, dtype, count as u64)
}

pub fn f32_call(kind: CallKind, count: usize) -> Call {
    call(kind, DType::F32, count)
}

pub fn bytes(finished: &Finished) -> Vec<u8> {
    let mut out = vec![0; finished.output.len()];
    finished.output.copy_to(out.as_mut_slice());
    out
}

pub fn op(lane: u64, number: u64) -> OpId {
    OpId { lane: Lane::of_view(lane), number }
}

/// A plan that uses `algorithm` for every buffer.
pub fn plan(chunk_bytes: u32, algorithm: Algorithm) -> Arc<Plan> {
    let class = PlanClass::new(u64::MAX, chunk_bytes, algorithm);
    Arc::new(Plan { revision: 0, reason: String::new(), classes: vec![class] })
}

/// The same but for buffers of at most `bytes_max`, which all ranks send each other: in this plan
/// all reach each other.
pub fn plan_with_small(bytes_max: u64, chunk_bytes: u32, algorithm: Algorithm) -> Arc<Plan> {
    let mut plan = Arc::unwrap_or_clone(plan(chunk_bytes, algorithm));
    let large = plan.classes[0].clone();
    plan.classes.insert(0, PlanClass { bytes_max, algorithm: Algorithm::OneShot, ..large });
    Arc::new(plan)
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

/// Numbers of all sizes, and the special ones among them.
pub fn f32s(count: usize, chance: &mut Chance) -> Vec<f32> {
    let special =
        [0x7fc0_0001, 0xff80_1234, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 0, 1, 0x8000_0007];
    (0..count)
        .map(|_| match chance.below(64) {
            n @ 0..8 => f32::from_bits(special[n as usize]),
            n => (chance.next() as i32 as f32) * 2f32.powi(n as i32 - 40),
        })
        .collect()
}
