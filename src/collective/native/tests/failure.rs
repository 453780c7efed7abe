//! Late starts, missing credit, broken links, invalid frames, and shutdown.

use super::super::NativeEngine;
use super::super::outbox::{EAGER_OP_BYTES, EAGER_OP_FRAMES, EAGER_PEER_BYTES};
use super::door::{DOOR, board};
use crate::collective::backend::{Backend, Engine};
use crate::collective::input::Input;
use crate::collective::suite::{
    Chance, Outcome, PATIENCE, bytes, engine_call, f32_call, op, plan, until,
};
use crate::link::{DataHeader, DataReceiver, DataSender, Phase, Shutdown, memory};
use crate::memory::{Pool, bytes_of};
use crate::protocol::{
    Algorithm, Call, CallKind, CodecId, EngineFault, OpId, Plan, Rank, ReduceOp, view_of,
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

/// Rank 0 of a View; the test plays its peers.
struct Alone {
    engine: NativeEngine,
    backend: Arc<dyn Backend>,
    peers: Vec<Peer>,
    report: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
}

/// Flow, chunk and phase.
type At = (u32, u32, Phase);

struct Peer {
    sender: Box<dyn DataSender>,
    receiver: Box<dyn DataReceiver>,
    shutdown: Arc<dyn Shutdown>,
}

impl Alone {
    fn new(size: usize) -> Alone {
        let engine = NativeEngine::default();
        let backend = engine.open(&Arc::new(view_of(size as u8)), Rank(0), board(Rank(0)));
        let (report, outcomes) = channel();
        let mut alone = Alone { engine, backend, peers: Vec::new(), report, outcomes };
        for rank in 1..size as u8 {
            let peer = alone.connect(Rank(rank));
            alone.peers.push(peer);
        }
        alone
    }

    fn connect(&self, rank: Rank) -> Peer {
        let (ours, theirs) = memory();
        self.backend.attach(rank, ours);
        let (sender, receiver, shutdown) = theirs.split();
        Peer { sender, receiver, shutdown }
    }

    fn start(&self, op: OpId, call: Call, plan: &Arc<Plan>) {
        let input = vec![0; call.count as usize * call.dtype.bytes()];
        self.begin(op, call, plan);
        self.backend.feed(op, &Input::Borrowed(&input));
    }

    /// Starts an operation without feeding it.
    fn begin(&self, op: OpId, call: Call, plan: &Arc<Plan>) {
        self.backend.start(engine_call(Rank(0), op, call, None, plan, &self.report));
    }

    fn outcome(&self) -> (OpId, Result<Vec<u8>, EngineFault>) {
        let (_, op, result) = self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time");
        (op, result.map(|finished| bytes(&finished)))
    }
}

impl Peer {
    fn send(&mut self, op: OpId, (flow, chunk, phase): At, payload: &[u8]) {
        let header = DataHeader { op, flow, chunk, phase, len: payload.len() as u32 };
        // In some tests the other end has already shut the link down.
        let _ = self.sender.send(&header, payload);
    }

    fn recv(&mut self) -> DataHeader {
        self.receiver.recv(&Pool::new()).expect("a frame").0
    }

    fn is_cut_off(&mut self) -> bool {
        self.receiver.recv(&Pool::new()).is_err()
    }
}

#[test]
fn lanes_may_be_started_in_different_orders() {
    let mut chance = Chance(11);
    println!("seed {}", chance.0);
    for algorithm in
        [Algorithm::OneShot, Algorithm::Ring { order: vec![Rank(1), Rank(0), Rank(2)] }]
    {
        let (group, plan) = (DOOR.group(3), plan(16 * 1024, algorithm));
        let (a, b, call) = (op(1, 0), op(2, 0), f32_call(SUM, 300_000));
        let input = vec![1.0f32; 300_000];
        // Ranks 0 and 1 call a, then b. Rank 2 calls b, awaits it, and only then calls a.
        let begin = |me: u8, op: OpId| {
            group.start(Rank(me), op, call, None, &plan, bytes_of(&input));
            group.credit_from(op, Rank(me));
        };
        for (me, op) in chance.shuffled(vec![(0, a), (1, a), (2, b)]) {
            begin(me, op);
        }
        begin(0, b);
        begin(1, b);
        let all_end = |of: OpId| {
            for _ in 0..3 {
                let (_, op, result) = group.outcome();
                assert_eq!(op, of);
                assert!(bytes(&result.expect("a sum")) == bytes_of(&vec![3.0f32; 300_000]));
            }
        };
        all_end(b);
        begin(2, a);
        all_end(a);
    }
}

#[test]
fn without_credit_a_peer_gets_its_eager_share_and_no_more() {
    let mut alone = Alone::new(2);
    let plan = plan(16 * 1024, Algorithm::OneShot);
    let large = f32_call(SUM, 256 * 1024);
    // The operations that fit into the peer's bound, one more, and a marker with credit from the
    // start.
    let eager_ops = (EAGER_PEER_BYTES / EAGER_OP_BYTES) as u64;
    for number in 0..=eager_ops {
        alone.start(op(0, number), large, &plan);
    }
    let mark = op(1, 0);
    alone.backend.credit(mark, Rank(1));
    alone.start(mark, f32_call(SUM, 1), &plan);
    let (mut eager, mut per_op) = (0, std::collections::BTreeMap::<OpId, usize>::new());
    loop {
        let header = alone.peers[0].recv();
        if header.op == mark {
            break;
        }
        eager += header.len as usize;
        *per_op.entry(header.op).or_default() += header.len as usize;
    }
    assert_eq!(eager, EAGER_PEER_BYTES);
    assert!(
        per_op.len() == eager_ops as usize && per_op.values().all(|bytes| *bytes == EAGER_OP_BYTES)
    );

    // With credit the rest is sent, once.
    alone.backend.credit(op(0, 3), Rank(1));
    let rest: usize = (0..60)
        .map(|_| alone.peers[0].recv())
        .map(|h| if h.op == op(0, 3) { h.len as usize } else { 0 })
        .sum();
    assert_eq!(rest, (1 << 20) - EAGER_OP_BYTES);
    // The used part of the bound is free again.
    alone.start(op(0, 100), large, &plan);
    let again: Vec<DataHeader> = (0..4).map(|_| alone.peers[0].recv()).collect();
    assert!(again.iter().all(|header| header.op == op(0, 100)));
}

#[test]
fn frames_that_come_before_the_start_are_used() {
    let mut alone = Alone::new(2);
    let plan = plan(16 * 1024, Algorithm::OneShot);
    let quarter = vec![2.0f32; 4096];
    for chunk in (0..4).rev() {
        alone.peers[0].send(op(0, 0), (0, chunk, Phase::Reduce), bytes_of(&quarter));
    }
    // The outcome of a later operation shows that the earlier frames have been handled.
    alone.start(op(1, 0), f32_call(SUM, 1), &plan);
    alone.peers[0].send(op(1, 0), (0, 0, Phase::Reduce), &[0; 4]);
    assert!(alone.outcome().1.is_ok());
    alone.start(op(0, 0), f32_call(SUM, 4 * 4096), &plan);
    assert!(alone.outcome().1 == Ok(bytes_of(&vec![2.0f32; 4 * 4096]).to_vec()));
}

#[test]
fn nonsense_costs_the_sender_its_link_and_nobody_else_theirs() {
    let plan = plan(1024, Algorithm::OneShot);
    let (good, part) = ((0, 0, Phase::Reduce), vec![0; 1024]);
    let nonsense: [&[(At, usize)]; 10] = [
        &[((1, 0, Phase::Reduce), 1024)],
        &[((u32::MAX, 0, Phase::Reduce), 1024)],
        &[((0, 4, Phase::Reduce), 1024)],
        &[((0, u32::MAX, Phase::Reduce), 1024)],
        &[((0, 0, Phase::Gather), 1024)],
        &[(good, 1020)],
        &[(good, 0)],
        &[(good, 1024), (good, 1024)],
        &[((0, 0, Phase::Message), 1024)],
        &[((0, 0, Phase::Posted), 0)],
    ];
    for frames in nonsense {
        for early in [false, true] {
            let mut alone = Alone::new(3);
            let call = f32_call(SUM, 1000);
            if !early {
                alone.start(op(0, 0), call, &plan);
                alone.backend.credit(op(0, 0), Rank(1));
            }
            for (at, len) in frames {
                alone.peers[0].send(op(0, 0), *at, &part[..*len]);
            }
            if early {
                // The outcome of another operation shows that they have been handled.
                alone.start(op(1, 0), f32_call(SUM, 1), &plan);
                alone.peers[0].send(op(1, 0), good, &[0; 4]);
                alone.peers[1].send(op(1, 0), good, &[0; 4]);
                assert!(alone.outcome().1.is_ok());
                alone.start(op(0, 0), call, &plan);
                alone.backend.credit(op(0, 0), Rank(1));
            }
            assert_eq!(
                alone.outcome(),
                (op(0, 0), Err(EngineFault::Protocol(Rank(1)))),
                "{frames:?}"
            );
            assert!(
                std::iter::repeat_with(|| alone.peers[0].is_cut_off()).take(100).any(|cut| cut)
            );
            // Rank 2 still serves an operation that does not need rank 1.
            alone.start(op(2, 0), f32_call(CallKind::Broadcast { root: Rank(2) }, 1), &plan);
            alone.peers[1].send(op(2, 0), (0, 0, Phase::Gather), &[1, 2, 3, 4]);
            assert_eq!(alone.outcome(), (op(2, 0), Ok(vec![1, 2, 3, 4])));
        }
    }
}

#[test]
fn who_gets_nothing_is_done_when_its_part_has_gone_and_not_before() {
    let mut alone = Alone::new(2);
    let plan = plan(16 * 1024, Algorithm::OneShot);
    let root = Rank(1);
    let elements = 2 * EAGER_OP_BYTES / 4;
    for (number, kind) in [CallKind::Gather { root }, CallKind::Reduce { op: ReduceOp::Sum, root }]
        .into_iter()
        .enumerate()
    {
        let op = op(number as u64, 0);
        alone.start(op, f32_call(kind, elements), &plan);
        let received =
            |alone: &mut Alone| (0..4).map(|_| alone.peers[0].recv().len as usize).sum::<usize>();
        assert_eq!(received(&mut alone), EAGER_OP_BYTES);
        assert!(alone.outcomes.try_recv().is_err(), "{kind:?}: half of it waits for credit");
        alone.backend.credit(op, root);
        assert_eq!((received(&mut alone), alone.outcome()), (EAGER_OP_BYTES, (op, Ok(Vec::new()))));
    }
    // Frames that are unsent when the link breaks are lost.
    alone.start(op(2, 0), f32_call(CallKind::Gather { root }, elements), &plan);
    alone.peers[0].shutdown.shutdown();
    assert_eq!(alone.outcome(), (op(2, 0), Err(EngineFault::LinkLost(root))));
}

#[test]
fn who_only_passes_on_is_done_when_that_has_gone() {
    let mut alone = Alone::new(3);
    let order = vec![Rank(1), Rank(0), Rank(2)];
    // One flow from rank 1 by way of rank 0 to rank 2, and one from rank 0.
    let op = op(0, 0);
    alone.start(
        op,
        f32_call(CallKind::Gather { root: Rank(2) }, 1),
        &plan(1024, Algorithm::Ring { order }),
    );
    assert_eq!(alone.peers[1].recv().flow, 0);
    assert!(alone.outcomes.try_recv().is_err(), "rank 1's part has not come");
    alone.peers[0].send(op, (1, 0, Phase::Gather), &[1, 2, 3, 4]);
    assert_eq!((alone.peers[1].recv().flow, alone.outcome()), (1, (op, Ok(Vec::new()))));
}

#[test]
fn data_of_another_call_costs_nothing_until_the_calls_are_known_to_be_the_same() {
    let mut alone = Alone::new(2);
    let plan = plan(1024, Algorithm::OneShot);
    alone.start(op(0, 0), f32_call(SUM, 10), &plan);
    // Rank 1 has called with 11 elements; its descriptor is still in flight.
    alone.peers[0].send(op(0, 0), (0, 0, Phase::Reduce), &[0; 44]);
    alone.start(op(1, 0), f32_call(SUM, 1), &plan);
    alone.peers[0].send(op(1, 0), (0, 0, Phase::Reduce), &[0; 4]);
    assert_eq!(alone.outcome().0, op(1, 0));
    alone.backend.cancel(op(0, 0));
    assert_eq!(alone.outcome(), (op(0, 0), Err(EngineFault::Cancelled)));
    assert!(!alone.peers[0].is_cut_off());
}

#[test]
fn too_much_before_the_start_is_a_fault_too() {
    for (len, frames) in [(EAGER_OP_BYTES / 4, 4), (0, EAGER_OP_FRAMES)] {
        let mut alone = Alone::new(2);
        alone.start(op(1, 0), f32_call(SUM, 1000), &plan(1024, Algorithm::OneShot));
        for chunk in 0..=frames as u32 {
            alone.peers[0].send(op(0, 0), (0, chunk, Phase::Reduce), &vec![0; len]);
        }
        assert_eq!(alone.outcome(), (op(1, 0), Err(EngineFault::Protocol(Rank(1)))));
    }
}

#[test]
fn whatever_a_peer_sends_no_thread_panics_and_every_job_ends() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        println!("seed {seed}");
        let mut alone = Alone::new(2);
        let ring = Algorithm::Ring { order: vec![Rank(0), Rank(1)] };
        let algorithm = if chance.below(2) == 0 { Algorithm::OneShot } else { ring };
        let root = Rank(chance.below(2) as u8);
        let kinds = [
            SUM,
            CallKind::Reduce { op: ReduceOp::Sum, root },
            CallKind::ReduceScatter(ReduceOp::Sum),
            CallKind::AllToAll,
        ];
        let more = [
            SUM,
            CallKind::Gather { root },
            CallKind::Scatter { root },
            CallKind::Broadcast { root },
        ];
        let kind = [kinds, more].concat()[chance.below(8) as usize];
        let codec = if kind == SUM && chance.below(2) == 0 { CodecId::Bf16 } else { CodecId::None };
        let call = Call { codec, ..f32_call(kind, 700) };
        alone.start(op(0, 0), call, &plan(1024, algorithm));
        for _ in 0..30 {
            let phase = if chance.below(2) == 0 { Phase::Reduce } else { Phase::Gather };
            let len = [0, 1, 188, 376, 380, 512, 1024, 1400][chance.below(8) as usize];
            let at = (chance.below(3) as u32, chance.below(3) as u32, phase);
            alone.peers[0].send(op(chance.below(2), chance.below(2)), at, &vec![0xff; len]);
        }
        alone.peers[0].shutdown.shutdown();
        assert_eq!(alone.outcome().0, op(0, 0));
        assert_eq!(
            (alone.engine.threads().wait(PATIENCE), alone.engine.threads().panics()),
            (0, 0)
        );
    }
}

#[test]
fn a_link_that_breaks_fails_what_needs_it_and_a_new_one_serves_what_comes_later() {
    let mut alone = Alone::new(3);
    let plan = plan(1024, Algorithm::OneShot);
    alone.start(op(0, 0), f32_call(SUM, 1000), &plan);
    alone.start(op(1, 0), f32_call(CallKind::Broadcast { root: Rank(2) }, 1), &plan);
    alone.peers[0].send(op(0, 0), (0, 0, Phase::Reduce), &[0; 1024]);
    alone.peers[0].shutdown.shutdown();
    assert_eq!(alone.outcome(), (op(0, 0), Err(EngineFault::LinkLost(Rank(1)))));
    alone.peers[1].send(op(1, 0), (0, 0, Phase::Gather), &[9; 4]);
    assert_eq!(alone.outcome(), (op(1, 0), Ok(vec![9; 4])));

    // An operation that starts without a link waits for the next one.
    alone.start(op(0, 1), f32_call(SUM, 1), &plan);
    alone.peers[0] = alone.connect(Rank(1));
    assert_eq!(alone.peers[0].recv().op, op(0, 1));
    for peer in &mut alone.peers {
        peer.send(op(0, 1), (0, 0, Phase::Reduce), bytes_of(&[1.5f32]));
    }
    assert_eq!(alone.outcome(), (op(0, 1), Ok(bytes_of(&[3.0f32]).to_vec())));

    // A link that replaces another one shuts that one down.
    alone.start(op(0, 2), f32_call(SUM, 1), &plan);
    let _newest = alone.connect(Rank(1));
    assert_eq!(alone.outcome(), (op(0, 2), Err(EngineFault::LinkLost(Rank(1)))));
}

#[test]
fn a_rank_that_dies_in_the_middle_hangs_nobody() {
    for algorithm in [Algorithm::OneShot, Algorithm::Ring { order: (0..4).map(Rank).collect() }] {
        let (group, plan) = (DOOR.group(4), plan(4096, algorithm));
        let input = vec![0; 400_000];
        for me in group.ranks() {
            group.start(me, op(0, 0), f32_call(SUM, 100_000), None, &plan, &input);
            group.credit_from(op(0, 0), me);
        }
        group.backends[2].close();
        // In a ring, ranks that are not its neighbours learn of the death from their own neighbours
        // or from the ledger. The test cancels in place of the ledger.
        let (mut failed, mut ended) = (0, 0);
        while ended < 4 {
            let (rank, _, result) = group.outcome();
            ended += 1;
            if let Err(fault) = result {
                failed += 1;
                assert!(
                    matches!(
                        fault,
                        EngineFault::LinkLost(_) | EngineFault::Closed | EngineFault::Cancelled
                    ),
                    "{rank}: {fault}"
                );
                group.cancel(op(0, 0));
            }
        }
        println!("{failed} of 4 failed");
    }
}

#[test]
fn what_is_over_stays_over() {
    let mut alone = Alone::new(2);
    let plan = plan(1024, Algorithm::OneShot);
    alone.start(op(0, 0), f32_call(SUM, 1000), &plan);
    alone.backend.cancel(op(0, 0));
    assert_eq!(alone.outcome(), (op(0, 0), Err(EngineFault::Cancelled)));
    alone.backend.retire(op(0, 1));
    alone.start(op(0, 1), f32_call(SUM, 1), &plan);
    assert_eq!(alone.outcome(), (op(0, 1), Err(EngineFault::Cancelled)));
    // Later frames for them are dropped; the link stays up.
    for _ in 0..1000 {
        alone.peers[0].send(op(0, 0), (7, 7, Phase::Gather), &[0; 900]);
        alone.peers[0].send(op(0, 1), (0, 0, Phase::Reduce), &[0; 900]);
    }
    alone.start(op(0, 2), f32_call(SUM, 1), &plan);
    alone.peers[0].send(op(0, 2), (0, 0, Phase::Reduce), &[0; 4]);
    assert_eq!(alone.outcome(), (op(0, 2), Ok(vec![0; 4])));
}

#[test]
fn a_backend_may_be_dropped_on_one_of_its_own_threads() {
    let mut alone = Alone::new(2);
    let plan = plan(1024, Algorithm::OneShot);
    let mut engine_call =
        engine_call(Rank(0), op(0, 0), f32_call(SUM, 1), None, &plan, &alone.report);
    // `done` empties the slot on the receiver thread, which thereby drops the last handle.
    let last = Arc::new(Mutex::new(Some(Arc::clone(&alone.backend))));
    let (slot, report) = (Arc::clone(&last), alone.report.clone());
    engine_call.done = Box::new(move |result| {
        drop(slot.lock().expect("whole").take());
        drop(report.send((Rank(0), op(0, 0), result)));
    });
    alone.backend.start(engine_call);
    alone.backend.feed(op(0, 0), &Input::Borrowed(&[0; 4]));
    let Alone { engine, backend, outcomes, peers: mut held, .. } = {
        let peers = std::mem::take(&mut alone.peers);
        Alone { peers, ..alone }
    };
    drop(backend);
    held[0].send(op(0, 0), (0, 0, Phase::Reduce), &[0; 4]);
    assert!(outcomes.recv_timeout(PATIENCE).expect("an outcome in time").2.is_ok());
    assert_eq!(engine.threads().wait(PATIENCE), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn many_backends_leave_no_thread_behind() {
    // No other test uses rank 15, so its threads can be told apart.
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| matches!(name.trim(), "potluck-tx-15" | "potluck-rx-15")).count()
    };
    let (engine, view) = (NativeEngine::default(), Arc::new(view_of(16)));
    let mut seen = 0;
    for round in 0..200 {
        let backend = engine.open(&view, Rank(0), board(Rank(0)));
        let (ours, theirs) = memory();
        backend.attach(Rank(15), ours);
        seen = seen.max(engine.threads().running());
        if round % 2 == 0 {
            drop(theirs);
            backend.close();
        }
    }
    assert!(seen >= 2);
    assert_eq!(engine.threads().wait(PATIENCE), 0);
    // The system needs a moment to remove a thread whose body has ended.
    until("no thread is left", || named() == 0);
}
