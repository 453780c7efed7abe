//! Replay over new links while operations are told, in many orders of the threads (`make threads`).

use super::super::send_queue::QueueOwner;
use super::*;
use crate::collective::{Input, NativeEngine};
use crate::link::{ControlReceiver, control_link};
use crate::memory::{DType, bytes_of};
use crate::os::Race;
use crate::protocol::{AbortReason, Call, CallKind, Lane, Mutation, OpId, ReduceOp, view_of};
use crate::sim::{explore, finds};
use crate::wire::Decode;
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::thread;
use std::collections::BTreeMap;
use tokio::sync::mpsc::unbounded_channel;

const CALLERS: u64 = 2;
const CALLS: u64 = 2;
const LINKS: usize = 3;

/// A control link to the other member.
struct Link {
    line: QueueOwner,
    task: JoinHandle<()>,
    heard: ControlReceiver,
}

impl Link {
    fn new() -> Link {
        let ((half, _), (_, heard)) = control_link();
        let (line, task) = SendQueue::open(half, Mutation::NONE);
        Link { line, task: spawn(task), heard }
    }

    /// Ends the link. Returns how many descriptors and votes came of each operation, no vote before
    /// its descriptor.
    fn end(self) -> BTreeMap<OpId, [u64; 2]> {
        let Link { line, task, mut heard } = self;
        drop(line);
        block_on(task).expect("the task ends");
        let mut came: BTreeMap<OpId, [u64; 2]> = BTreeMap::new();
        while let Ok(bytes) = block_on(heard.recv()) {
            let Ok(Message::Op(message)) = Message::from_bytes(&bytes) else {
                panic!("another message")
            };
            match message.body {
                OpBody::Describe(descriptor) => came.entry(descriptor.op).or_default()[0] += 1,
                OpBody::Vote(op, _) => {
                    let [descriptors, votes] = came.entry(op).or_default();
                    assert!(*descriptors > 0, "a vote comes before its descriptor");
                    *votes += 1;
                }
                _ => {}
            }
        }
        came
    }
}

/// Begins operations, and votes on each.
fn operate(session: &Arc<ViewSession>, lane: Lane) {
    let (kind, dtype) = (CallKind::AllReduce(ReduceOp::Sum), DType::F32);
    let call = Call::new(kind, dtype, 1);
    for _ in 0..CALLS {
        let op = session.call(lane, call).expect("a number");
        session.begin(op, call, &Input::Borrowed(bytes_of(&[1f32])));
        session.give_up(op, AbortReason::Dropped);
    }
}

/// Over the last link the member hears of each operation once, over each earlier one at most once.
fn relinked() {
    let view = Arc::new(view_of(2));
    let (me, other) = (view.members[0].id, view.members[1].id);
    let send_queues = SendQueues::default();
    let op_sender = ViewSender::new(Arc::clone(&view), me, send_queues.clone(), Traffic::default());
    let op_sender = Arc::new(op_sender);
    let (engine, out) = (NativeEngine::default(), unbounded_channel().0);
    let session = Arc::new(ViewSession::open(view, Rank(0), &engine, out, op_sender));
    let callers: Vec<_> = (1..=CALLERS)
        .map(|lane| {
            let session = Arc::clone(&session);
            thread::spawn(move || operate(&session, Lane::of_view(lane)))
        })
        .collect();
    let links: Vec<Link> = (0..LINKS)
        .map(|_| {
            let link = Link::new();
            // As `Peers::take` does.
            send_queues.remove(other);
            send_queues.replay(other, link.line.send_queue(), &session, Rank(1));
            link
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
    for (n, link) in links.into_iter().enumerate() {
        let came = link.end();
        assert!(came.values().flatten().all(|times| *times <= 1), "said twice: {came:?}");
        if n + 1 == LINKS {
            let all = came.len() as u64 == CALLERS * CALLS && came.values().all(|c| *c == [1, 1]);
            assert!(all, "left out: {came:?}");
        }
    }
    session.close();
}

#[test]
fn every_message_of_an_operation_comes_once_over_a_new_link() {
    explore(relinked);
}

#[test]
fn a_replay_outside_of_the_lock_is_found() {
    finds(Race::LateReplay, relinked);
}
