//! Which memory is read and written, and when: no unnecessary copies, and no access to memory that
//! is not the engine's.

use super::super::NativeEngine;
use super::door::{DOOR, board};
use crate::collective::backend::{Engine, EngineCall, Finished};
use crate::collective::input::Input;
use crate::collective::suite::{Outcome, PATIENCE, bytes, engine_call, f32_call, op, plan, until};
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown, narrow};
use crate::memory::{Block, Pool, bytes_of};
use crate::os::Mutex;
use crate::os::lock;
use crate::protocol::{
    Algorithm, Call, CallKind, EngineFault, OpId, Plan, Rank, ReduceOp, view_of,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

fn ring(size: usize) -> Arc<Plan> {
    plan(4096, Algorithm::Ring { order: (0..size as u8).map(Rank).collect() })
}

/// The address range of a slice.
fn place(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr() as usize;
    start..start + bytes.len()
}

fn within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The buffers that a rank's links were given to send or to fill.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Touch>>>);

#[derive(Clone, Debug)]
struct Touch {
    header: DataHeader,
    received: bool,
    place: Range<usize>,
}

struct Spy(Box<dyn DataLink>, Log);
struct SpySender(Box<dyn DataSender>, Log);
struct SpyReceiver(Box<dyn DataReceiver>, Log, Option<DataHeader>);

impl DataLink for Spy {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let (sender, receiver, shutdown) = self.0.split();
        (
            Box::new(SpySender(sender, self.1.clone())),
            Box::new(SpyReceiver(receiver, self.1, None)),
            shutdown,
        )
    }
}

impl DataSender for SpySender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        lock(&self.1.0).push(Touch { header: *header, received: false, place: place(payload) });
        self.0.send(header, payload)
    }
}

impl DataReceiver for SpyReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        let header = self.0.header()?;
        self.2 = Some(header);
        Ok(header)
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let header = self.2.take().expect("its header came first");
        lock(&self.1.0).push(Touch { header, received: true, place: place(into) });
        self.0.payload(into)
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        self.2 = None;
        self.0.skip(len)
    }
}

fn traded(mut finished: Finished) -> Vec<f32> {
    assert_eq!(finished.output.blocks.len(), 1);
    let block = finished.output.blocks.pop().expect("one");
    // A sender thread may still hold the last frame.
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut block = block;
    loop {
        match block.trade::<f32>(None) {
            Ok(vec) => return vec,
            Err((back, _)) => block = back,
        }
        assert!(std::time::Instant::now() < deadline, "somebody keeps it");
        std::thread::yield_now();
    }
}

#[test]
fn of_what_is_lent_nothing_is_copied() {
    for size in 2..=5 {
        let logs: Vec<Log> = std::iter::repeat_with(Log::default).take(size).collect();
        let spied =
            |me: Rank, link| -> Box<dyn DataLink> { Box::new(Spy(link, logs[me.index()].clone())) };
        let group = DOOR.apart(size).linked_as(narrow, spied);
        let (op, call, plan) = (op(0, 0), f32_call(SUM, 20_011), ring(size));
        let inputs: Vec<Arc<Vec<f32>>> =
            (0..size).map(|me| Arc::new(vec![me as f32; 20_011])).collect();
        // All ranks start before the first is fed: frames that arrive before `start` are kept in
        // blocks.
        for me in group.ranks() {
            group.begin(me, op, call, None, &plan, Input::lent(&inputs[me.index()]).model());
            group.credit_from(op, me);
        }
        for me in group.ranks() {
            group.backends[me.index()].feed(op, &Input::lent(&inputs[me.index()]));
        }
        for _ in 0..size {
            let (me, _, result) = group.outcome();
            let result = traded(result.expect("a sum"));
            assert!(result.iter().all(|x| *x == (0..size).sum::<usize>() as f32));
            let (input, output) = (place(bytes_of(&inputs[me.index()])), place(bytes_of(&result)));
            let log = lock(&logs[me.index()].0).clone();
            let of = |phase, received| {
                log.iter().filter(move |t| t.header.phase == phase && t.received == received)
            };
            // The common sum is received in its place and sent on from there.
            assert!(
                of(Phase::Gather, true)
                    .chain(of(Phase::Gather, false))
                    .all(|touch| within(&touch.place, &output))
            );
            // The flow that begins here is sent from the lent memory. The flow that ends here
            // arrives in the place of its sum.
            let (first, last) = ((me.index() + size - 1) % size, me.index());
            let begins = |touch: &&Touch| touch.header.flow as usize == first;
            let ends = |touch: &&Touch| touch.header.flow as usize == last;
            assert!(of(Phase::Reduce, false).filter(begins).count() > 1);
            assert!(
                of(Phase::Reduce, false).filter(begins).all(|touch| within(&touch.place, &input))
            );
            assert!(of(Phase::Reduce, true).filter(ends).count() > 1);
            assert!(
                of(Phase::Reduce, true).filter(ends).all(|touch| within(&touch.place, &output))
            );
            // No thread writes to lent memory.
            assert!(
                log.iter()
                    .filter(|touch| touch.received)
                    .all(|touch| !within(&touch.place, &input))
            );
        }
        group.backends.iter().for_each(|backend| backend.retire(op));
        until("the engine has given back what it was lent", || {
            inputs.iter().all(|input| Arc::strong_count(input) == 1)
        });
        assert!(inputs.iter().enumerate().all(|(me, input)| input.iter().all(|x| *x == me as f32)));
    }
}

#[test]
fn the_first_chunk_is_at_its_peer_before_the_last_is_asked_for() {
    let group = DOOR.group(2);
    let (op, call) = (op(0, 0), f32_call(SUM, 10_000));
    for plan in [ring(2), plan(4096, Algorithm::OneShot)] {
        // Each plan uses another operation number.
        let op = OpId {
            number: u64::from(matches!(plan.classes[0].algorithm, Algorithm::OneShot)),
            ..op
        };
        let input = vec![1.0f32; 10_000];
        group.begin(Rank(1), op, call, None, &plan, None);
        group.credit_from(op, Rank(1));
        let before = group.backends[1].traffic().received_bytes;
        let last = Mutex::new(0..0);
        let watch = |range: &Range<usize>| {
            let mut asked = lock(&last);
            let first = asked.is_empty();
            *asked = range.clone();
            drop(asked);
            until(&format!("something leaves while {range:?} is not there"), || {
                first || group.backends[1].traffic().received_bytes > before
            });
        };
        group.begin(Rank(0), op, call, None, &plan, None);
        group.backends[0].feed(op, &Input::Watched(bytes_of(&input), &watch));
        group.credit_from(op, Rank(0));
        group.backends[1].feed(op, &Input::Borrowed(bytes_of(&input)));
        for _ in 0..2 {
            let (_, _, result) = group.outcome();
            assert!(bytes(&result.expect("a sum")) == bytes_of(&vec![2.0f32; 10_000]));
        }
    }
}

/// Rank 0 of two. The test sends rank 1's frames, and releases each payload when it chooses.
struct Slow {
    backend: Arc<dyn crate::collective::backend::Backend>,
    engine: NativeEngine,
    pool: Pool,
    frames: Sender<(DataHeader, u8)>,
    /// Receives the destination when the engine waits for a payload.
    asked: Receiver<Range<usize>>,
    allow: Sender<()>,
    outcomes: Receiver<Outcome>,
    report: Sender<Outcome>,
}

struct SlowReceiver {
    frames: Receiver<(DataHeader, u8)>,
    asked: Sender<Range<usize>>,
    allowed: Receiver<()>,
    fill: u8,
}

struct SlowLink(SlowReceiver);

/// Takes every frame.
struct Sink;

impl DataLink for SlowLink {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(Sink), Box::new(self.0), Arc::new(Sink))
    }
}

impl DataSender for Sink {
    fn send(&mut self, _: &DataHeader, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Shutdown for Sink {
    fn shutdown(&self) {}
}

impl DataReceiver for SlowReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        let (header, fill) = self.frames.recv().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.fill = fill;
        Ok(header)
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let half = into.len() / 2;
        into[..half].fill(self.fill);
        // The test may have ended and dropped its end.
        let _ = self.asked.send(place(into));
        self.allowed.recv().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        into[half..].fill(self.fill);
        Ok(())
    }

    fn skip(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

impl Slow {
    fn new() -> Slow {
        let pool = Pool::new();
        let engine = NativeEngine::new(pool.clone());
        let backend = engine.open(&Arc::new(view_of(2)), Rank(0), board(Rank(0)));
        let ((frames, told), (asking, asked), (allow, allowed)) = (channel(), channel(), channel());
        let receiver = SlowReceiver { frames: told, asked: asking, allowed, fill: 0 };
        backend.attach(Rank(1), Box::new(SlowLink(receiver)));
        let (report, outcomes) = channel();
        Slow { backend, engine, pool, frames, asked, allow, outcomes, report }
    }

    fn begin(&self, op: OpId, call: Call, plan: &Arc<Plan>, model: Option<Block>) {
        self.backend.start(EngineCall {
            model,
            ..engine_call(Rank(0), op, call, None, plan, &self.report)
        });
        self.backend.credit(op, Rank(1));
    }

    fn send(&self, op: OpId, flow: u32, phase: Phase, (len, fill): (usize, u8)) {
        self.frames
            .send((DataHeader { op, flow, chunk: 0, phase, len: len as u32 }, fill))
            .expect("the receiver lives");
    }

    fn asked(&self) -> Range<usize> {
        self.asked.recv_timeout(PATIENCE).expect("asked for in time")
    }

    fn outcome(&self) -> Result<Finished, EngineFault> {
        self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time").2
    }
}

#[test]
fn what_is_given_up_while_it_is_received_stays_until_that_is_over() {
    for retired in [false, true] {
        let slow = Slow::new();
        // Two flows of one chunk each; the second ends at rank 1, which sends its sum to rank 0.
        slow.begin(op(0, 0), f32_call(SUM, 2000), &ring(2), None);
        slow.send(op(0, 0), 1, Phase::Gather, (4000, 7));
        slow.asked();
        slow.backend.cancel(op(0, 0));
        if retired {
            slow.backend.retire(op(0, 0));
        }
        assert_eq!(slow.outcome().err(), Some(EngineFault::Cancelled));
        assert_eq!(
            slow.pool.idle_bytes(),
            0,
            "its memory is given to somebody else while it is written"
        );
        slow.allow.send(()).expect("it waits");
        drop((slow.frames, slow.allow));
        assert_eq!((slow.engine.threads().wait(PATIENCE), slow.engine.threads().panics()), (0, 0));
        drop(slow.backend);
        assert!(slow.pool.idle_bytes() >= 8000, "it came back afterwards");
    }
}

#[test]
fn a_link_that_breaks_in_the_middle_of_a_chunk_fails_what_it_is_for() {
    let mut slow = Slow::new();
    slow.begin(op(0, 0), f32_call(SUM, 2000), &ring(2), None);
    slow.backend.feed(op(0, 0), &Input::Borrowed(&[0; 8000]));
    slow.send(op(0, 0), 1, Phase::Gather, (4000, 7));
    slow.asked();
    drop(std::mem::replace(&mut slow.allow, channel().0));
    assert_eq!(slow.outcome().err(), Some(EngineFault::LinkLost(Rank(1))));
}

#[test]
fn nothing_is_written_to_a_result_that_is_handed_out() {
    for (phase, flow) in
        [(Phase::Gather, 1), (Phase::Reduce, 0), (Phase::Gather, 0), (Phase::Reduce, 1)]
    {
        let slow = Slow::new();
        let (input, plan) = (Arc::new(vec![1.0f32; 2000]), ring(2));
        let lent = Input::lent(&input);
        slow.begin(op(0, 0), f32_call(SUM, 2000), &plan, lent.model());
        slow.backend.feed(op(0, 0), &lent);
        slow.send(op(0, 0), 0, Phase::Reduce, (4000, 0));
        slow.send(op(0, 0), 1, Phase::Gather, (4000, 0));
        let places = [slow.asked(), {
            slow.allow.send(()).expect("it waits");
            slow.asked()
        }];
        slow.allow.send(()).expect("it waits");
        let finished = slow.outcome().expect("a sum");
        let before = bytes(&finished);
        // The same frame again with other contents, before the operation is retired.
        slow.send(op(0, 0), flow, phase, (4000, 9));
        let late = slow.asked();
        assert_eq!(bytes(&finished), before);
        let result = place(finished.output.blocks[0].bytes());
        assert!(places.iter().all(|place| within(place, &result)) && !within(&late, &result));
        slow.allow.send(()).expect("it waits");
        drop((slow.frames, slow.allow));
        assert_eq!((slow.engine.threads().wait(PATIENCE), slow.engine.threads().panics()), (0, 0));
        assert_eq!(bytes(&finished), before);
    }
}

#[test]
fn a_chunk_that_comes_twice_at_once_is_written_by_the_first() {
    let slow = Slow::new();
    slow.begin(op(0, 0), f32_call(SUM, 2000), &ring(2), None);
    for fill in [1, 2] {
        slow.send(op(0, 0), 1, Phase::Gather, (4000, fill));
    }
    let first = slow.asked();
    slow.allow.send(()).expect("it waits");
    let second = slow.asked();
    assert!(first.end <= second.start || second.end <= first.start, "the same place");
    slow.allow.send(()).expect("it waits");
    assert_eq!(slow.outcome().err(), Some(EngineFault::Protocol(Rank(1))));
}

/// As for every other end, in the suite of all engines.
#[test]
fn a_violation_may_end_a_job_before_it_is_fed() {
    let slow = Slow::new();
    slow.begin(op(0, 0), f32_call(SUM, 2000), &ring(2), None);
    slow.allow.send(()).expect("nobody waits yet");
    slow.send(op(0, 0), 5, Phase::Gather, (0, 0));
    assert!(slow.outcome().is_err());
    let input = Arc::new(vec![1.0f32; 2000]);
    slow.backend.feed(op(0, 0), &Input::lent(&input));
    assert_eq!(Arc::strong_count(&input), 1, "it is fed to nobody");
    assert_eq!(slow.backend.traffic().sent_bytes, 0);
    slow.backend.close();
    drop((slow.report, slow.frames, slow.allow));
    assert!(slow.outcomes.iter().next().is_none(), "done is called once");
}

#[test]
fn what_comes_before_the_feed_is_used() {
    let slow = Slow::new();
    slow.begin(op(0, 0), f32_call(SUM, 2000), &ring(2), None);
    slow.send(op(0, 0), 0, Phase::Reduce, (4000, 0));
    slow.allow.send(()).expect("nobody waits yet");
    slow.send(op(0, 0), 1, Phase::Gather, (4000, 0));
    slow.asked();
    slow.asked();
    assert!(slow.outcomes.try_recv().is_err());
    slow.backend.feed(op(0, 0), &Input::Borrowed(bytes_of(&vec![3.0f32; 2000])));
    slow.allow.send(()).expect("it waits");
    assert!(
        bytes(&slow.outcome().expect("a sum"))
            == bytes_of(&[vec![3.0f32; 1000], vec![0.0; 1000]].concat())
    );
}
