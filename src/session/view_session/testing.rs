//! All members of a View in one process, on the native engine over links in memory.

use super::ViewSession;
use super::decided::Decided;
use super::op_sender::OpSender;
use crate::collective::{Input, NativeEngine, Outgoing};
use crate::memory::{Pool, Staging, bytes_of, bytes_of_mut};
use crate::os::lock;
use crate::protocol::{Call, Lane, OpId, OpMessage, Outcome, PlanStep, Rank, View};
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// All members of a View in one process.
pub(crate) struct Group {
    /// By rank.
    pub(crate) members: Vec<Arc<ViewSession>>,
    /// By rank: the pool of its engine.
    pub(crate) pools: Vec<Pool>,
    said: Vec<UnboundedReceiver<OpMessage>>,
    outgoing: Vec<UnboundedReceiver<Outgoing>>,
}

/// Keeps messages until the test delivers them.
struct Kept(UnboundedSender<OpMessage>);

impl OpSender for Kept {
    fn tell(&self, message: OpMessage) {
        // The group may have ended.
        let _ = self.0.send(message);
    }

    fn flush(&self) {}
}

/// The elements of a result.
pub(crate) fn numbers(output: &Staging) -> Vec<f32> {
    let mut numbers = vec![0f32; output.len() / 4];
    output.copy_to(bytes_of_mut(&mut numbers));
    numbers
}

impl ViewSession {
    /// Whether this member has voted `Done`.
    pub(crate) fn has_voted_done(&self, op: OpId) -> bool {
        lock(&self.state).ledger.has_voted_done(op)
    }
}

impl Group {
    pub(crate) fn of(view: View) -> Group {
        let group = Group::without_data_links(view);
        let ranks = || group.members[0].view().ranks();
        for (a, b) in ranks().flat_map(|a| ranks().filter(move |b| a < *b).map(move |b| (a, b))) {
            let (near, far) = crate::link::memory();
            group.members[a.index()].backend().attach(b, near);
            group.members[b.index()].backend().attach(a, far);
        }
        group
    }

    pub(crate) fn without_data_links(view: View) -> Group {
        let view = Arc::new(view);
        let pools: Vec<Pool> = view.ranks().map(|_| Pool::new()).collect();
        let open = |me: Rank| {
            let ((said, rx), (out, outgoing)) = (unbounded_channel(), unbounded_channel());
            let engine = NativeEngine::new(pools[me.index()].clone());
            let op_sender = Arc::new(Kept(said));
            let session = ViewSession::open(Arc::clone(&view), me, &engine, out, op_sender);
            (Arc::new(session), (rx, outgoing))
        };
        let (members, (said, outgoing)) = view.ranks().map(open).unzip();
        Group { members, pools, said, outgoing }
    }

    /// Takes the requests of a member to the control plane.
    pub(crate) fn take_outgoing(&mut self, member: usize) -> Vec<Outgoing> {
        std::iter::from_fn(|| self.outgoing[member].try_recv().ok()).collect()
    }

    /// Waits until a member has voted `Done`, without delivering a message.
    pub(crate) fn await_vote(&self, member: usize, op: OpId) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.members[member].has_voted_done(op) {
            assert!(Instant::now() < until, "it never votes");
            std::thread::yield_now();
        }
    }

    /// Takes a member's messages, so that the others never get them.
    pub(crate) fn take_said(&mut self, member: usize) -> Vec<OpMessage> {
        std::iter::from_fn(|| self.said[member].try_recv().ok()).collect()
    }

    /// Delivers the members' messages to each other.
    pub(crate) fn carry(&mut self) {
        for (from, said) in self.members[0].view().ranks().zip(&mut self.said) {
            while let Ok(message) = said.try_recv() {
                let audience = message.body.audience(self.members.len());
                let hears = |to: &&Arc<ViewSession>| audience.contains(to.me());
                for to in self.members.iter().filter(hears).filter(|to| to.me() != from) {
                    to.on_message(from, &message).expect("an honest member");
                }
            }
        }
    }

    pub(crate) fn decided(&mut self, member: usize, op: OpId) -> Decided {
        let session = Arc::clone(&self.members[member]);
        self.ready(|task| session.poll_decided(op, task))
    }

    /// Requires that each member gets this result.
    pub(crate) fn assert_results(&mut self, ops: &[OpId], expected: &[f32]) {
        (0..).zip(ops).for_each(|(member, op)| self.assert_result(member, *op, expected));
    }

    pub(crate) fn assert_result(&mut self, member: usize, op: OpId, expected: &[f32]) {
        let decided = self.decided(member, op);
        assert_eq!(decided.outcome, Outcome::Committed, "rank {member}");
        let output = decided.output.expect("a result");
        assert!(numbers(&output) == expected, "{op} at rank {member}");
    }

    /// Delivers messages until `poll` is ready; fails after 60 seconds.
    pub(crate) fn ready<T>(&mut self, mut poll: impl FnMut(&mut Task<'_>) -> Poll<T>) -> T {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            self.carry();
            match poll(&mut Task::from_waker(Waker::noop())) {
                Poll::Ready(ready) => return ready,
                Poll::Pending => assert!(Instant::now() < until, "it never ends"),
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn call_all(&self, call: Call) -> Vec<OpId> {
        self.members.iter().map(|member| member.call(Lane::MAIN, call).expect("a number")).collect()
    }

    pub(crate) fn begin_all(&self, ops: &[OpId], call: Call, inputs: &[Vec<f32>]) {
        for (member, (op, input)) in self.members.iter().zip(ops.iter().zip(inputs)) {
            member.begin(*op, call, &Input::Borrowed(bytes_of(input)));
        }
    }

    pub(crate) fn hold_all(&self) -> Vec<PlanStep> {
        self.members.iter().map(|member| member.hold(1).expect("the next plan")).collect()
    }
}
