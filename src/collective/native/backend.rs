//! The native engine in one View: one sender and one receiver thread per link. The receiver threads
//! do the work.
//!
//! A receiver takes a frame, finds its operation, folds, and queues the resulting frames at the
//! outboxes of other peers. So a message costs one change of thread on its way through a member. A
//! receiver waits for other threads only at short locks, because every frame that a peer may send
//! has memory reserved for it.
//!
//! A small contribution may travel with a descriptor, see [`Enclosed`]. The control plane's thread
//! then does the receiver's work.
//!
//! The program's own thread feeds its contribution chunk by chunk. The frames of one chunk leave
//! while the next chunk is copied.
//!
//! Lock order: table, gate of an operation, outbox. The locks of a chunk and, inside it, of the
//! result are never held together with these three. `done` is called without any lock.

use super::super::backend::{Backend, EngineCall};
use super::super::input::Input;
#[cfg(test)]
use super::super::links::LinkThread;
use super::super::links::{Carried, Generation, LinkParty, LinkUser, attach};
use super::super::schedule::Schedule;
use super::super::threads::Threads;
use super::active_op::ActiveOp;
use super::op_progress::{OpProgress, OutgoingFrame, Progress, ReceiveSlot, Untaken};
use super::outbox::Outbox;
use super::table::{Early, Lacking, Refused, Routed, Table};
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown};
use crate::memory::{Block, OutOfMemory, Pool};
use crate::os::{Mutex, lock};
use crate::protocol::{Enclosed, EngineFault, Mutation, OpId, Rank};
use crate::report::Traffic;
use std::io;
use std::sync::Arc;

/// The native engine's backend for one View. Dropping it closes it.
pub struct NativeBackend {
    core: Arc<Core>,
}

/// The state that the threads share. The threads do not own the backend itself, so dropping the
/// backend ends them.
pub struct Core {
    me: Rank,
    outboxes: Vec<Outbox>,
    table: Mutex<Table>,
    pool: Pool,
    threads: Arc<Threads>,
    carried: Carried,
    mutation: Mutation,
}

/// A peer sent a frame outside the schedule.
struct Violation;

impl NativeBackend {
    /// Creates the backend of rank `me` among `size` ranks.
    pub fn new(
        me: Rank,
        size: usize,
        pool: Pool,
        threads: Arc<Threads>,
        mutation: Mutation,
    ) -> NativeBackend {
        let outboxes = std::iter::repeat_with(Outbox::default).take(size).collect();
        let core = Core {
            me,
            outboxes,
            table: Mutex::default(),
            pool,
            threads,
            carried: Carried::new(size),
            mutation,
        };
        NativeBackend { core: Arc::new(core) }
    }

    /// Whether an outbox has anything of the operation.
    #[cfg(all(test, potluck_threads))]
    pub fn has(&self, op: OpId) -> bool {
        self.core.outboxes.iter().any(|outbox| outbox.has(op))
    }

    /// Takes over a data link as [`attach`](Backend::attach) does, but without threads: the caller
    /// moves its frames by [`LinkThread::turn`].
    #[cfg(test)]
    pub(crate) fn attach_without_threads(
        &self,
        peer: Rank,
        shutdown: &Arc<dyn Shutdown>,
    ) -> Option<[LinkThread<Core>; 2]> {
        LinkThread::connect(&self.core, peer, shutdown)
    }

    /// The state that the threads of its links share, and their count.
    pub(crate) fn party(&self) -> LinkParty<'_, impl LinkUser> {
        (&self.core, &self.core.threads)
    }
}

impl Backend for NativeBackend {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        attach(self.party(), peer, link);
    }

    fn start(&self, engine_call: EngineCall) {
        self.core.start(engine_call);
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        self.core.feed(op, input);
    }

    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        self.core.feed_enclosing(op, input)
    }

    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        self.core.receive_enclosed(op, from, enclosed);
    }

    fn credit(&self, op: OpId, peer: Rank) {
        let core = &self.core;
        let Some(outbox) = core.outboxes.get(peer.index()) else { return };
        let active = lock(&core.table).credit(op, peer);
        outbox.give_back(op);
        let Some(active) = active else { return };
        match active.credit(peer, outbox) {
            Ok(false) => {}
            Ok(true) => core.violated(&active, peer, outbox.generation()),
            Err(lack) => core.lacks_queue(&active, peer, lack),
        }
    }

    fn cancel(&self, op: OpId) {
        self.core.retire(op);
    }

    fn retire(&self, op: OpId) {
        self.core.retire(op);
    }

    fn traffic(&self) -> Traffic {
        self.core.carried.all()
    }

    fn traffic_with(&self, peer: Rank) -> Traffic {
        self.core.carried.with(peer)
    }

    fn close(&self) {
        self.core.close();
    }
}

impl Drop for NativeBackend {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl LinkUser for Core {
    /// The frames that follow from a received one; empty between two frames.
    type Scratch = Vec<OutgoingFrame>;

    fn generation(&self, peer: Rank) -> Option<Generation> {
        self.outboxes.get(peer.index())?.generation()
    }

    fn connect(&self, peer: Rank, end: &Arc<dyn Shutdown>) -> Option<Generation> {
        self.outboxes.get(peer.index()).filter(|_| peer != self.me)?.connect(end)
    }

    fn lose(&self, peer: Rank, generation: Generation, fault: EngineFault) {
        if !self.outboxes[peer.index()].disconnect(generation) {
            return;
        }
        let active = lock(&self.table).active();
        for active in active.iter().filter(|active| active.progress().needs(peer)) {
            self.fail(active, fault);
        }
    }

    fn send_all(&self, peer: Rank, generation: Generation, mut sender: Box<dyn DataSender>) {
        while let Some(frame) = self.outboxes[peer.index()].next(generation) {
            if sender.send(&frame.outgoing.header, frame.outgoing.payload.bytes()).is_err() {
                return;
            }
            self.has_sent(&frame.of, &frame.outgoing);
        }
    }

    /// A payload with a place in an unfinished result is received straight into that place, any
    /// other payload into a block.
    fn receive(
        &self,
        from: Rank,
        generation: Generation,
        header: &DataHeader,
        receiver: &mut dyn DataReceiver,
        out: &mut Vec<OutgoingFrame>,
    ) -> io::Result<()> {
        let len = header.len as usize;
        if let Some((active, mut slot)) = self.receive_slot(from, header) {
            receiver.payload(slot.bytes_mut())?;
            let progress = active.progress().land_frame(slot, out);
            self.go_on(&active, progress, out);
        } else {
            match self.pool.block(len) {
                Ok(mut block) => {
                    receiver.payload(block.bytes_mut())?;
                    self.route(from, Some(generation), header, block, out);
                }
                Err(lack) => {
                    receiver.skip(len)?;
                    self.lacks(from, Some(generation), header, lack);
                }
            }
        }
        self.carried.received(from, header.len);
        Ok(())
    }
}

impl Core {
    fn start(&self, engine_call: EngineCall) {
        let EngineCall { op, call, plan, sync_root, lengths, model, done } = engine_call;
        let size = self.outboxes.len();
        let group = op.lane.group(size);
        let schedule = match lengths {
            Some(lengths) => Schedule::uneven(&call, &lengths, &plan, group.len()),
            None => Schedule::of(&call, sync_root, &plan, group.len()),
        };
        let schedule = schedule.map_err(|_| EngineFault::Unfit);
        let progress = schedule.and_then(|schedule| {
            OpProgress::new(op, (group, self.me), schedule, &self.pool, model.as_ref())
        });
        // Release the caller's memory as soon as it is no longer read.
        drop(model);
        let progress = match progress {
            Ok(progress) => progress.with(self.mutation),
            Err(fault) => return done(Err(fault)),
        };
        let mut run_and_done = Some((progress, done));
        let begun = lock(&self.table).begin(op, |credited| {
            let (progress, done) =
                run_and_done.take().expect("called at most once, and taken nowhere else before");
            Arc::new(ActiveOp::new(progress, done, size, credited))
        });
        match begun {
            Ok((active, early)) => self.begin(&active, early),
            Err(refused) => {
                let fault = if refused == Refused::Closed {
                    EngineFault::Closed
                } else {
                    EngineFault::Cancelled
                };
                if let Some((_, done)) = run_and_done {
                    done(Err(fault));
                }
            }
        }
    }

    fn begin(&self, active: &Arc<ActiveOp>, early: Early) {
        if let Some(lack) = early.lack {
            self.fail(active, lack.into());
            return;
        }
        if active.progress().is_empty() {
            return self.complete(active);
        }
        let mut out = Vec::new();
        for (from, header, block) in early.frames {
            if self.deliver(active, from, &header, block, &mut out).is_err() {
                self.violated(active, from, self.outboxes[from.index()].generation());
            }
        }
    }

    /// Takes this member's contribution. Does nothing if the operation has ended.
    fn feed(&self, op: OpId, input: &Input<'_>) {
        if let Some(active) = self.fitting(op, input) {
            self.feed_chunks(&active, input);
        }
    }

    /// Like `feed`, but returns the contribution instead of sending it, if it is one
    /// small chunk that goes unchanged to all other ranks.
    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        let active = self.fitting(op, input)?;
        let only = {
            let mut order = active.progress().feed_order();
            order.next().filter(|_| order.next().is_none())
        };
        let Some(chunk) = only else {
            self.feed_chunks(&active, input);
            return None;
        };
        let mut out = Vec::new();
        let progress = active.progress().contribute(chunk, input, &mut out);
        let enclosed = active.progress().enclose(&out);
        if enclosed.is_some() {
            for outgoing in out.drain(..) {
                self.has_sent(&active, &outgoing);
            }
        }
        self.go_on(&active, progress, &mut out);
        enclosed
    }

    fn fitting(&self, op: OpId, input: &Input<'_>) -> Option<Arc<ActiveOp>> {
        let active = lock(&self.table).find(op)?;
        if active.progress().fits(input) {
            return Some(active);
        }
        self.fail(&active, EngineFault::Unfit);
        None
    }

    fn feed_chunks(&self, active: &Arc<ActiveOp>, input: &Input<'_>) {
        let mut out = Vec::new();
        for chunk in active.progress().feed_order() {
            if active.is_over() {
                return;
            }
            let progress = active.progress().contribute(chunk, input, &mut out);
            self.go_on(active, progress, &mut out);
        }
    }

    /// Handles a contribution that arrived with a descriptor.
    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        let Some(outbox) = self.outboxes.get(from.index()) else { return };
        let phase = if enclosed.is_result { Phase::Gather } else { Phase::Reduce };
        let len = enclosed.bytes.len();
        // The cast loses nothing: there are at most `ENCLOSED_BYTES_MAX` bytes.
        let header =
            DataHeader { op, flow: enclosed.flow, chunk: enclosed.chunk, phase, len: len as u32 };
        match self.pool.block(len) {
            Ok(mut block) => {
                block.bytes_mut().copy_from_slice(&enclosed.bytes);
                self.route(from, outbox.generation(), &header, block, &mut Vec::new());
            }
            Err(lack) => self.lacks(from, outbox.generation(), &header, lack),
        }
        self.carried.received(from, header.len);
    }

    fn has_sent(&self, active: &Arc<ActiveOp>, outgoing: &OutgoingFrame) {
        self.carried.sent(outgoing.to, outgoing.header.len);
        if active.progress().sent(outgoing) == Progress::Complete {
            self.complete(active);
        }
    }

    /// There is no memory for a frame: its operation fails, and nothing else.
    fn lacks(
        &self,
        from: Rank,
        generation: Option<Generation>,
        header: &DataHeader,
        lack: OutOfMemory,
    ) {
        let lacking = lock(&self.table).lacks(from, header.op, lack);
        match lacking {
            Lacking::ActiveOp(active) => _ = self.fail(&active, lack.into()),
            Lacking::Nowhere => {}
            Lacking::Overrun => self.expel(from, generation),
        }
    }

    /// Ends the link of a peer that broke the protocol.
    fn expel(&self, peer: Rank, generation: Option<Generation>) {
        if let Some(generation) = generation {
            self.lose(peer, generation, EngineFault::Protocol(peer));
        }
    }

    fn receive_slot(
        &self,
        from: Rank,
        header: &DataHeader,
    ) -> Option<(Arc<ActiveOp>, ReceiveSlot)> {
        let active = lock(&self.table).find(header.op)?;
        let slot = active.progress().receive_slot(from, header)?;
        Some((active, slot))
    }

    /// Handles a frame from `from`, received over the link `generation` or with a descriptor.
    fn route(
        &self,
        from: Rank,
        generation: Option<Generation>,
        header: &DataHeader,
        block: Block,
        out: &mut Vec<OutgoingFrame>,
    ) {
        let routed = lock(&self.table).route(from, header, block);
        match routed {
            Routed::Taken => {}
            Routed::Overrun => self.expel(from, generation),
            Routed::Deliver(active, block) => {
                if self.deliver(&active, from, header, block, out).is_err() {
                    self.violated(&active, from, generation);
                }
            }
        }
    }

    fn deliver(
        &self,
        active: &Arc<ActiveOp>,
        from: Rank,
        header: &DataHeader,
        block: Block,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<(), Violation> {
        if active.is_over() {
            return Ok(());
        }
        match active.progress().receive(from, header, block, out) {
            Ok(progress) => self.go_on(active, Ok(progress), out),
            Err(Untaken::Fault(fault)) => self.go_on(active, Err(fault), out),
            // The operation may have ended on another thread meanwhile; then it accepts no frame.
            Err(Untaken::Violation) if active.is_over() => {}
            Err(Untaken::Violation) => return Err(Violation),
        }
        Ok(())
    }

    fn go_on(
        &self,
        active: &Arc<ActiveOp>,
        progress: Result<Progress, EngineFault>,
        out: &mut Vec<OutgoingFrame>,
    ) {
        for outgoing in out.drain(..) {
            let to = outgoing.to;
            if let Err(lack) = active.post(outgoing, &self.outboxes) {
                self.lacks_queue(active, to, lack);
            }
        }
        match progress {
            Ok(Progress::Going) => {}
            Ok(Progress::Complete) => self.complete(active),
            Err(fault) => _ = self.fail(active, fault),
        }
    }

    /// A frame for `to` is lost, because there is no memory to queue it. The operation fails; if it
    /// is complete here, the link ends, so that `to` does not wait for the frame.
    fn lacks_queue(&self, active: &Arc<ActiveOp>, to: Rank, lack: OutOfMemory) {
        if !self.fail(active, lack.into())
            && let Some(generation) = self.outboxes[to.index()].generation()
        {
            self.lose(to, generation, EngineFault::LinkLost(to));
        }
    }

    /// Hands out the result. The operation stays in the table until it is retired, since other
    /// ranks may still wait for its frames.
    fn complete(&self, active: &Arc<ActiveOp>) {
        if let Some(done) = active.take_done() {
            // No output: another thread has just cancelled the operation.
            done(active.progress().output().ok_or(EngineFault::Cancelled));
        }
    }

    /// `by` sent a frame outside the schedule. Until its descriptor has arrived this may be an
    /// honest mismatch between two programs, which the ledger will report; so the frame is only
    /// noted. After that the operation and the link fail.
    fn violated(&self, active: &Arc<ActiveOp>, by: Rank, generation: Option<Generation>) {
        if active.doubt(by) {
            return;
        }
        self.fail(active, EngineFault::Protocol(by));
        self.expel(by, generation);
    }

    /// Fails an operation. Returns false, and does nothing, if it is complete.
    fn fail(&self, active: &Arc<ActiveOp>, fault: EngineFault) -> bool {
        let Some(done) = active.take_done() else { return !active.progress().is_empty() };
        // In this order: the thread that retires the operation must not give its eager frames back
        // while another thread may still send some.
        active.end(&self.outboxes);
        lock(&self.table).fail(active.progress().op());
        done(Err(fault));
        true
    }

    fn retire(&self, op: OpId) {
        let active = lock(&self.table).retire(op);
        active.iter().for_each(|active| self.end(active, EngineFault::Cancelled));
        for outbox in &self.outboxes {
            outbox.give_back(op);
        }
    }

    /// Ends an operation, with this fault if it is not complete.
    fn end(&self, active: &ActiveOp, fault: EngineFault) {
        let done = active.take_done();
        active.end(&self.outboxes);
        if let Some(done) = done {
            done(Err(fault));
        }
    }

    fn close(&self) {
        let active = lock(&self.table).close();
        for outbox in &self.outboxes {
            outbox.close();
        }
        active.iter().for_each(|active| self.end(active, EngineFault::Closed));
    }
}

#[cfg(test)]
impl LinkThread<Core> {
    /// Moves all frames that can be moved without waiting, for a simulation without threads, whose
    /// links never block: `WouldBlock` from the receiver means that no whole frame is there.
    /// Returns false once the link is over.
    pub(crate) fn turn(
        &self,
        sender: &mut dyn DataSender,
        receiver: &mut dyn DataReceiver,
    ) -> bool {
        let outbox = &self.user.outboxes[self.peer.index()];
        while let Some(frame) = outbox.try_next(self.generation) {
            if sender.send(&frame.outgoing.header, frame.outgoing.payload.bytes()).is_err() {
                return false;
            }
            self.user.has_sent(&frame.of, &frame.outgoing);
        }
        let mut out = Vec::new();
        loop {
            let taken =
                receiver.header().and_then(|header| self.receive(&header, receiver, &mut out));
            match taken {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return outbox.generation() == Some(self.generation);
                }
                Err(_) => return false,
            }
        }
    }
}
