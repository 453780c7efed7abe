//! Layer: Shells.
//!
//! One rank's end of all its links: a sender and a receiver thread for each.
//!
//! One lock orders everything, and is held for a few steps at a time: no byte is copied or written
//! under it. A receiver takes a header, asks where the bytes go, reads them straight to that place
//! and wakes whoever waits for them. It never writes and never waits for a program, as whatever a
//! peer may send has a place.

use super::matching::Way;
use super::outbox::Generation;
use super::region::{Direction, Registered, flow_of};
use super::state::{Frame, Landing, Offence, Posted, Received, State};
use super::stream::{EAGER_OP_BYTES, RegionId, Span};
use crate::collective::threads::Threads;
use crate::collective::{EngineFault, Pool, Traffic};
use crate::link::{DataLink, DataReceiver, Phase};
use crate::view::{OpId, Rank};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages between this rank and the others of its View. All clones are one endpoint; with the
/// last one it is closed.
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

/// The threads and regions do not keep this, so that dropping it ends them.
struct Owner(Arc<Core>);

/// What threads and regions share.
pub struct Core {
    state: Mutex<State>,
    pool: Pool,
    threads: Arc<Threads>,
}

impl Endpoint {
    /// An endpoint of `me` among `size` ranks. What comes is received into blocks of `pool`.
    pub fn new(me: Rank, size: usize, pool: Pool, threads: Arc<Threads>) -> Endpoint {
        let core = Core { state: Mutex::new(State::new(me, size)), pool, threads };
        Endpoint(Arc::new(Owner(Arc::new(core))))
    }

    /// Takes over the data link to `peer`. A later link to the same peer replaces the earlier one,
    /// and the operations that need that one fail with [`EngineFault::LinkLost`].
    pub fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        let (sender, receiver, end) = link.split();
        let core = self.core();
        let former = core.lock().generation(peer);
        if let Some(former) = former {
            core.lose(peer, former, EngineFault::LinkLost(peer));
        }
        let Some(generation) = core.lock().connect(peer, sender, &end) else {
            end.shutdown();
            return;
        };
        let (tx, rx) = (LinkEnd::new(core, peer, generation), LinkEnd::new(core, peer, generation));
        // When a thread cannot be had its LinkEnd is dropped with the closure, which ends the link.
        core.threads.spawn(format!("potluck-tx-{peer}"), move || tx.send_all());
        core.threads.spawn(format!("potluck-rx-{peer}"), move || rx.receive_all(receiver));
    }

    /// `op` exchanges messages from now on. What came early for it was kept until now. Nothing
    /// happens when it began, failed or was retired before.
    pub fn begin(&self, op: OpId) {
        self.core().lock().begin(op);
    }

    /// The same, but nobody's patience runs out before [`hurry`](Endpoint::hurry): peers may not
    /// have begun.
    pub fn begin_patiently(&self, op: OpId) {
        self.core().lock().begin_patiently(op);
    }

    /// All peers have begun: from now on patience counts.
    pub fn hurry(&self, op: OpId) {
        self.core().lock().hurry(op);
    }

    /// All present and later sends, receives and waits of `op` fail with `fault`, unless they have
    /// a fault already. What still comes for it is dropped.
    pub fn cancel(&self, op: OpId, fault: EngineFault) {
        self.core().lock().fail(op, fault);
    }

    /// `op` is over: it is forgotten, and what still comes for it dropped. Whoever should still
    /// wait gets [`EngineFault::Cancelled`].
    pub fn retire(&self, op: OpId) {
        self.core().lock().retire(op);
    }

    /// Why `op` failed here, if it did; not known any more when it is retired.
    pub fn fault(&self, op: OpId) -> Option<EngineFault> {
        self.core().lock().fault(op)
    }

    /// Shuts the links down. Everything fails with [`EngineFault::Closed`], and the threads end.
    pub fn close(&self) {
        self.core().close();
    }

    /// What the links have carried so far.
    pub fn traffic(&self) -> Traffic {
        self.core().lock().traffic()
    }

    /// The same of the links with `peer` alone.
    #[cfg(feature = "gloo")]
    pub fn traffic_with(&self, peer: Rank) -> Traffic {
        self.core().lock().traffic_with(peer)
    }

    /// Operations known, and bytes of messages that nobody has asked for.
    #[cfg(any(test, fuzzing))]
    pub fn kept(&self) -> (usize, usize) {
        self.core().lock().kept()
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Core {
    pub(super) fn register(&self, region: Registered) -> RegionId {
        self.lock().register(region)
    }

    pub(super) fn unregister(&self, op: OpId, id: RegionId) {
        self.lock().unregister(op, id);
    }

    pub(super) fn send(
        &self,
        op: OpId,
        region: RegionId,
        to: Rank,
        slot: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), EngineFault> {
        let way = Way { op, peer: to, flow: flow_of(slot) };
        let mine = self.lock().send(way, Span { region, offset, len })?;
        if let Some(frame) = mine {
            self.write(to, frame);
        }
        Ok(())
    }

    pub(super) fn recv(
        &self,
        op: OpId,
        region: RegionId,
        from: Rank,
        slot: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), EngineFault> {
        let way = Way { op, peer: from, flow: flow_of(slot) };
        let posted = self.lock().post(way, Span { region, offset, len })?;
        match posted {
            Posted::Awaited => {}
            Posted::Credit(frame) => self.write(from, frame),
            Posted::Here(landing) => self.land(landing),
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
        let (mut moved, mut since) = (state.moved(op), Instant::now());
        loop {
            if let Some(outcome) = state.outcome(op, id, direction)? {
                return Ok(outcome);
            }
            if state.moved(op) != moved || state.is_patient(op) {
                (moved, since) = (state.moved(op), Instant::now());
            }
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                state.fail(op, EngineFault::Stalled);
                return Err(state.fault(op).unwrap_or(EngineFault::Stalled));
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

    /// Writes a frame that this thread has taken; under no lock.
    fn write(&self, peer: Rank, frame: Frame) {
        let generation = frame.generation();
        let Some(written) = frame.write() else {
            return self.lose(peer, generation, EngineFault::LinkLost(peer));
        };
        let done = self.lock().written(peer, written);
        notify(done.sender);
        notify(done.waiters);
    }

    /// Copies a message that is here to its place; under no lock.
    fn land(&self, landing: Landing) {
        self.received(landing.copy());
    }

    fn received(&self, message: Option<Received>) {
        if let Some(message) = message {
            let waiters = self.lock().landed(message);
            notify(waiters);
        }
    }

    /// Takes the next frame of a link. Only what is small is read before its place is known: large
    /// pieces go straight there.
    ///
    /// # Errors
    /// The link is over.
    fn receive(
        &self,
        from: Rank,
        generation: Generation,
        receiver: &mut dyn DataReceiver,
    ) -> io::Result<()> {
        let header = receiver.header()?;
        let is_large = header.phase == Phase::Message && header.len as usize > EAGER_OP_BYTES;
        let mut block = self.pool.block(if is_large { 0 } else { header.len as usize });
        if !is_large {
            receiver.payload(block.bytes_mut())?;
        }
        let place = {
            let mut state = self.lock();
            if state.generation(from) != Some(generation) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            if is_large { state.expect(from, &header) } else { state.receive(from, &header, block) }
        };
        match place {
            Ok(Some(landing)) => self.received(landing.write(receiver)?),
            Ok(None) if is_large => {
                receiver.payload(self.pool.block(header.len as usize).bytes_mut())?
            }
            Ok(None) => {}
            Err(Offence) => {
                self.lose(from, generation, EngineFault::Protocol(from));
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// Ends a link, and the operations that need it, once.
    fn lose(&self, peer: Rank, generation: Generation, fault: EngineFault) {
        let line = self.lock().lose(peer, generation, fault);
        if let Some(line) = line {
            line.end.shutdown();
        }
    }

    fn close(&self) {
        let lines = self.lock().close();
        for line in lines {
            line.end.shutdown();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify(whom: Option<Arc<Condvar>>) {
    if let Some(changed) = whom {
        changed.notify_all();
    }
}

/// A thread's hold on a link: letting go of it, in whichever way, ends the link.
struct LinkEnd {
    core: Arc<Core>,
    peer: Rank,
    generation: Generation,
}

impl LinkEnd {
    fn new(core: &Arc<Core>, peer: Rank, generation: Generation) -> LinkEnd {
        LinkEnd { core: Arc::clone(core), peer, generation }
    }

    fn send_all(&self) {
        let mut state = self.core.lock();
        while state.generation(self.peer) == Some(self.generation) {
            if let Some(frame) = state.take(self.peer) {
                drop(state);
                self.core.write(self.peer, frame);
                state = self.core.lock();
            } else {
                let changed = state.sender(self.peer);
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn receive_all(&self, mut receiver: Box<dyn DataReceiver>) {
        // Whatever ends it, dropping this end says so.
        while self.core.receive(self.peer, self.generation, receiver.as_mut()).is_ok() {}
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        self.core.lose(self.peer, self.generation, EngineFault::LinkLost(self.peer));
    }
}
