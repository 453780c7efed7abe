//! One rank's end of all its links, with a sender and a receiver thread for each.
//!
//! One lock protects all state. It is held for short steps only: no bytes are copied or written
//! under it. A receiver thread reads a header, asks for the destination of the payload, reads the
//! payload straight to it and wakes the waiting threads. It never writes and never waits for a
//! program, since there is room for every frame that a peer may send.

use super::matching::PeerFlow;
use super::registered::Direction;
use super::state::{EndpointState, Frame, Offence, Posted, ReceiveSlot, Received};
use super::stream::{EAGER_OP_BYTES, RegionId, Span};
use crate::collective::{Carried, Generation, LinkUser, Threads, attach};
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown};
use crate::memory::{Block, OutOfMemory, Pool};
use crate::protocol::{EngineFault, OpId, Rank};
use crate::report::Traffic;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages between this rank and the other ranks of its View. All clones are one endpoint;
/// dropping the last one closes it.
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

/// Closes the endpoint when dropped. Threads and regions keep only the `Core`, so that they do not
/// keep the endpoint open.
struct Owner(Arc<Core>);

/// The state that threads and regions share.
pub struct Core {
    state: Mutex<EndpointState>,
    carried: Carried,
    pool: Pool,
    threads: Arc<Threads>,
}

impl Endpoint {
    /// Creates the endpoint of rank `me` among `size` ranks. Received data that is not read
    /// straight to its destination goes to blocks of `pool`.
    pub fn new(me: Rank, size: usize, pool: Pool, threads: Arc<Threads>) -> Endpoint {
        let (state, carried) = (Mutex::new(EndpointState::new(me, size)), Carried::new(size));
        let core = Core { state, carried, pool, threads };
        Endpoint(Arc::new(Owner(Arc::new(core))))
    }

    /// Takes over the data link to `peer`. A later link to the same peer replaces the earlier one;
    /// operations that need the earlier one fail with [`EngineFault::LinkLost`].
    pub fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        attach((self.core(), &self.core().threads), peer, link);
    }

    /// `op` exchanges messages from now on. Messages that arrived before were kept. Has no effect
    /// if `op` began, failed or was retired before.
    pub fn begin(&self, op: OpId) {
        self.core().lock().matching.begin(op);
    }

    /// Like [`begin`](Endpoint::begin), but waits of `op` do not time out before
    /// [`hurry`](Endpoint::hurry), since peers may not have begun.
    pub fn begin_patiently(&self, op: OpId) {
        self.core().lock().begin_patiently(op);
    }

    /// All peers have begun: waits of `op` time out from now on. A thread that is already waiting
    /// measures from its last wake-up, which may be before this call.
    pub fn hurry(&self, op: OpId) {
        self.core().lock().hurry(op);
    }

    /// All current and later sends, receives and waits of `op` fail with `fault`, unless `op`
    /// already has a fault. Later frames for it are dropped.
    pub fn cancel(&self, op: OpId, fault: EngineFault) {
        self.core().lock().fail(op, fault);
    }

    /// Forgets `op`, which is over. Later frames for it are dropped. Threads that still wait get
    /// [`EngineFault::Cancelled`].
    pub fn retire(&self, op: OpId) {
        self.core().lock().retire(op);
    }

    /// The fault of `op`, if it failed here; `None` after it was retired.
    pub fn fault(&self, op: OpId) -> Option<EngineFault> {
        self.core().lock().matching.fault(op)
    }

    /// The fault that ended the link to a peer, of the first peer that has none now.
    #[cfg(feature = "gloo")]
    pub fn lost(&self) -> Option<EngineFault> {
        self.core().lock().matching.lost()
    }

    /// Shuts the links down. All operations fail with [`EngineFault::Closed`], and the threads end.
    pub fn close(&self) {
        self.core().close();
    }

    /// The traffic of the links so far.
    pub fn traffic(&self) -> Traffic {
        self.core().carried.all()
    }

    /// The part of the traffic with `peer`.
    #[cfg(feature = "gloo")]
    pub fn traffic_with(&self, peer: Rank) -> Traffic {
        self.core().carried.with(peer)
    }

    /// The number of known operations, and the bytes of messages without a posted receive.
    #[cfg(any(test, fuzzing))]
    pub fn kept(&self) -> (usize, usize) {
        self.core().lock().matching.kept()
    }

    /// The state that the threads of its links share.
    pub fn core(&self) -> &Arc<Core> {
        &self.0.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Core {
    pub(super) fn send(&self, to: PeerFlow, span: Span) -> Result<(), EngineFault> {
        let mine = self.lock().send(to, span)?;
        if let Some(frame) = mine {
            self.write(to.peer, frame);
        }
        Ok(())
    }

    pub(super) fn recv(&self, from: PeerFlow, span: Span) -> Result<(), EngineFault> {
        let posted = self.lock().post(from, span)?;
        match posted {
            Posted::Awaited => {}
            Posted::Credit(frame) => self.write(from.peer, frame),
            Posted::Here(slot) => self.copy_arrived(slot),
        }
        Ok(())
    }

    pub(super) fn wait(
        &self,
        op: OpId,
        id: RegionId,
        direction: Direction,
        patience: Duration,
    ) -> Result<Option<Rank>, EngineFault> {
        let mut state = self.lock();
        let (mut moved, mut since) = (state.matching.moved(op), Instant::now());
        loop {
            if let Some(outcome) = state.outcome(op, id, direction)? {
                return Ok(outcome);
            }
            let now_moved = state.matching.moved(op);
            if now_moved != moved || state.patient.contains(&op) {
                (moved, since) = (now_moved, Instant::now());
            }
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                state.fail(op, EngineFault::Stalled);
                return Err(state.matching.fault(op).unwrap_or(EngineFault::Stalled));
            }
            let Some(changed) = state.enter(id) else { return Err(EngineFault::Closed) };
            state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.leave(id);
        }
    }

    pub(super) fn abort(&self, id: RegionId, direction: Direction) {
        let waiters = self.lock().abort(id, direction);
        notify(waiters);
    }

    /// Writes a frame that this thread has taken, without the lock.
    fn write(&self, peer: Rank, frame: Frame) {
        let generation = frame.generation();
        let Some(written) = frame.write() else {
            return self.lose(peer, generation, EngineFault::LinkLost(peer));
        };
        self.carried.sent(peer, written.payload_bytes());
        let done = self.lock().written(peer, written);
        notify(done.sender);
        notify(done.waiters);
    }

    /// Copies a message that has already arrived to its place, without the lock.
    fn copy_arrived(&self, slot: ReceiveSlot) {
        self.received(slot.copy());
    }

    fn received(&self, message: Option<Received>) {
        if let Some(message) = message {
            let waiters = self.lock().landed(message);
            notify(waiters);
        }
    }

    /// Reads a payload into a block; drops it if there is no memory for that.
    fn read(
        &self,
        receiver: &mut dyn DataReceiver,
        len: usize,
    ) -> io::Result<Result<Block, OutOfMemory>> {
        let mut block = match self.pool.block(len) {
            Ok(block) => block,
            Err(lack) => return receiver.skip(len).map(|()| Err(lack)),
        };
        receiver.payload(block.bytes_mut())?;
        Ok(Ok(block))
    }

    fn close(&self) {
        let unused = self.lock().close();
        for (end, _half) in unused {
            end.shutdown();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkUser for Core {
    type Scratch = ();

    fn generation(&self, peer: Rank) -> Option<Generation> {
        self.lock().generation(peer)
    }

    fn connect(&self, peer: Rank, end: &Arc<dyn Shutdown>) -> Option<Generation> {
        self.lock().connect(peer, end)
    }

    fn lose(&self, peer: Rank, generation: Generation, fault: EngineFault) {
        let unused = self.lock().lose(peer, generation, fault);
        if let Some((end, _half)) = unused {
            end.shutdown();
        }
    }

    fn send_all(&self, peer: Rank, generation: Generation, sender: Box<dyn DataSender>) {
        let mut state = self.lock();
        state.bring(peer, generation, sender);
        while state.generation(peer) == Some(generation) {
            if let Some(frame) = state.take(peer) {
                drop(state);
                self.write(peer, frame);
                state = self.lock();
            } else {
                let changed = state.sender(peer);
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Small payloads are read before their destination is known; large ones are read straight to
    /// it.
    fn receive(
        &self,
        from: Rank,
        generation: Generation,
        header: &DataHeader,
        receiver: &mut dyn DataReceiver,
        (): &mut (),
    ) -> io::Result<()> {
        let len = header.len as usize;
        let is_large = header.phase == Phase::Message && len > EAGER_OP_BYTES;
        let read = if is_large { None } else { Some(self.read(receiver, len)?) };
        let place = {
            let mut state = self.lock();
            if state.generation(from) != Some(generation) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.carried.received(from, header.len);
            match read {
                None => state.expect(from, header),
                Some(Ok(block)) => state.receive(from, header, block),
                Some(Err(lack)) => state.lacks(from, header, lack),
            }
        };
        match place {
            Ok(Some(slot)) => self.received(slot.write(receiver)?),
            Ok(None) if is_large => receiver.skip(len)?,
            Ok(None) => {}
            Err(Offence) => {
                self.lose(from, generation, EngineFault::Protocol(from));
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }
}

fn notify(whom: Option<Arc<Condvar>>) {
    if let Some(changed) = whom {
        changed.notify_all();
    }
}
