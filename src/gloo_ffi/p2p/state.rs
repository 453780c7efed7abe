//! The state of an endpoint, behind its lock. It carries out the decisions of [`Matching`]. Slow
//! work is handed to the caller, as a [`Frame`] to write or a [`ReceiveSlot`] to copy, each with a
//! hold on its memory.

use super::matching::{Matching, PeerFlow, Refusal};
use super::memory::Hold;
use super::outbox::{Departing, Item, Outbox, Turn, Unused};
use super::registered::{Direction, Landed, Registered};
use super::stream::{
    Arrival, Departure, Misfit, Pace, Payload, Piece, Posting, RegionId, Span, frames,
};
use crate::collective::Generation;
use crate::link::{DataHeader, DataReceiver, DataSender, Phase, Shutdown};
use crate::memory::{Block, OutOfMemory};
use crate::protocol::{EngineFault, OpId, Rank};
use crate::trace;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar};

/// The state of an endpoint.
pub struct EndpointState {
    /// Which message belongs to which receive.
    pub(super) matching: Matching,
    outboxes: Vec<Outbox>,
    regions: BTreeMap<RegionId, Registered>,
    /// Operations that some peers may not have begun; their waits have no timeout.
    pub(super) patient: BTreeSet<OpId>,
    regions_made: u64,
    me: Rank,
}

/// A frame to write, with a hold on its bytes.
pub struct Frame {
    departing: Departing,
    hold: Option<Hold>,
}

/// A frame that has been written.
pub struct Written(Departing);

/// Threads to notify after a frame was written.
pub struct Notices {
    /// The sender thread of the same link.
    pub sender: Option<Arc<Condvar>>,
    /// Threads that wait for the message.
    pub waiters: Option<Arc<Condvar>>,
}

/// A piece to copy or read to its place.
pub struct ReceiveSlot {
    peer_flow: PeerFlow,
    piece: Piece,
    payload: Payload,
    hold: Hold,
    landed: Option<Landed>,
}

/// A message that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    peer_flow: PeerFlow,
    region: RegionId,
}

/// Work for the thread that posted a receive.
pub enum Posted {
    /// Nothing: the message will arrive.
    Awaited,
    /// Write a credit.
    Credit(Frame),
    /// Copy a message that has already arrived.
    Here(ReceiveSlot),
}

/// A peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offence;

impl EndpointState {
    /// The state of rank `me` among `size` ranks, without links.
    pub fn new(me: Rank, size: usize) -> EndpointState {
        EndpointState {
            matching: Matching::new(me, size),
            outboxes: std::iter::repeat_with(Outbox::default).take(size).collect(),
            regions: BTreeMap::new(),
            patient: BTreeSet::new(),
            regions_made: 0,
            me,
        }
    }

    /// See [`Endpoint::begin_patiently`](super::endpoint::Endpoint::begin_patiently).
    pub fn begin_patiently(&mut self, op: OpId) {
        self.matching.begin(op);
        self.patient.insert(op);
    }

    /// See [`Endpoint::hurry`](super::endpoint::Endpoint::hurry).
    pub fn hurry(&mut self, op: OpId) {
        if self.patient.remove(&op) {
            // A thread that waits since long before looks at the time when it wakes up, and begins
            // to count then.
            self.matching.note_moved(op);
        }
    }

    /// Fails an operation, unless it has failed before.
    pub fn fail(&mut self, op: OpId, fault: EngineFault) {
        if self.matching.fail(op, fault) {
            self.patient.remove(&op);
            self.stop(op);
        }
    }

    /// Forgets an operation.
    pub fn retire(&mut self, op: OpId) {
        self.matching.retire(op);
        self.patient.remove(&op);
        self.stop(op);
    }

    /// The generation of the link to `peer`.
    pub fn generation(&self, peer: Rank) -> Option<Generation> {
        self.outboxes.get(peer.index())?.link.generation()
    }

    /// Starts to use a link, unless one is in use, there is no such peer, or the endpoint is
    /// closed.
    pub fn connect(&mut self, peer: Rank, end: &Arc<dyn Shutdown>) -> Option<Generation> {
        let outbox = self.outboxes.get_mut(peer.index()).filter(|_| peer != self.me)?;
        let generation = outbox.link.connect(end)?;
        self.matching.connect(peer);
        Some(generation)
    }

    /// Brings the sending half of a link in use.
    pub fn bring(&mut self, peer: Rank, generation: Generation, half: Box<dyn DataSender>) {
        self.outboxes[peer.index()].give_back(generation, half);
    }

    /// Removes a link that is in use and returns it, to be shut down. Fails the operations that
    /// need it.
    pub fn lose(
        &mut self,
        peer: Rank,
        generation: Generation,
        fault: EngineFault,
    ) -> Option<Unused> {
        let unused = self.outboxes[peer.index()].disconnect(generation)?;
        for op in self.matching.lose(peer, fault) {
            self.fail(op, fault);
        }
        Some(unused)
    }

    /// Fails everything. Returns the links, to be shut down.
    pub fn close(&mut self) -> Vec<Unused> {
        for op in self.matching.close() {
            self.stop(op);
        }
        // Wakes also the threads that wait on operations that never began.
        self.regions
            .values()
            .filter_map(Registered::waiters)
            .for_each(|changed| changed.notify_all());
        self.outboxes.iter_mut().filter_map(Outbox::close).collect()
    }

    /// Adds a region.
    pub fn register(&mut self, region: Registered) -> RegionId {
        self.regions_made += 1;
        let id = RegionId(self.regions_made);
        self.regions.insert(id, region);
        id
    }

    /// Removes a region and its messages. No new hold on it is given after that.
    pub fn unregister(&mut self, op: OpId, id: RegionId) {
        self.regions.remove(&id);
        let held = self.matching.forget(op, id);
        if held || self.outboxes.iter().any(|outbox| outbox.has(|span| span.region == id)) {
            // Without the dropped message the peer would take the next one of the flow for it.
            self.fail(op, EngineFault::Cancelled);
        }
    }

    /// Sends a message. Returns a frame if the calling thread must write it.
    pub fn send(&mut self, to: PeerFlow, span: Span) -> Result<Option<Frame>, EngineFault> {
        if u32::try_from(frames(span.len)).is_err() {
            return Err(EngineFault::Unfit);
        }
        match self.matching.send(to, span) {
            Ok(Departure::Now(pace)) => Ok(self.queue(Item::message(to, span), to.peer, pace)),
            Ok(Departure::Held) => Ok(None),
            Err(fault) => Err(self.refuse(to.op, fault)),
        }
    }

    /// Posts a receive.
    pub fn post(&mut self, from: PeerFlow, span: Span) -> Result<Posted, EngineFault> {
        match self.matching.post(from, span) {
            Ok(Posting::Awaited(Pace::Eager)) => Ok(Posted::Awaited),
            Ok(Posting::Awaited(Pace::Credited)) => {
                let mine = self.queue(Item::credit(from), from.peer, Pace::Eager);
                Ok(mine.map_or(Posted::Awaited, Posted::Credit))
            }
            Ok(Posting::Here(block)) => {
                let piece =
                    Piece { region: span.region, message: span.offset, before: 0, last: true };
                Ok(self
                    .receive_slot(from, piece, Payload::Here(block))
                    .map_or(Posted::Awaited, Posted::Here))
            }
            Err(Refusal::Fault(fault)) => Err(self.refuse(from.op, fault)),
            Err(Refusal::Misfit(misfit)) => {
                self.misfit(from, misfit);
                Err(EngineFault::Protocol(from.peer))
            }
        }
    }

    /// Handles a frame that has been read. Returns a piece to copy, if it belongs into a region.
    pub fn receive(
        &mut self,
        from: Rank,
        header: &DataHeader,
        block: Block,
    ) -> Result<Option<ReceiveSlot>, Offence> {
        let peer_flow = PeerFlow { op: header.op, peer: from, flow: header.flow };
        match header.phase {
            Phase::Message => self.arrive(peer_flow, header.chunk as usize, Payload::Here(block)),
            Phase::Posted if header.chunk == 0 && header.len == 0 => {
                self.credit(peer_flow).map(|()| None)
            }
            Phase::Posted | Phase::Reduce | Phase::Gather => Err(Offence),
        }
    }

    /// Handles a frame that was dropped because there is no memory for it: its operation fails.
    pub fn lacks(
        &mut self,
        from: Rank,
        header: &DataHeader,
        lack: OutOfMemory,
    ) -> Result<Option<ReceiveSlot>, Offence> {
        let peer_flow = PeerFlow { op: header.op, peer: from, flow: header.flow };
        if self.matching.wants(peer_flow).map_err(|_| Offence)? {
            self.fail(header.op, lack.into());
        }
        Ok(None)
    }

    /// Finds the place of a large piece that is still to be read. Without one the caller reads the
    /// payload and drops it.
    pub fn expect(
        &mut self,
        from: Rank,
        header: &DataHeader,
    ) -> Result<Option<ReceiveSlot>, Offence> {
        let peer_flow = PeerFlow { op: header.op, peer: from, flow: header.flow };
        self.arrive(peer_flow, header.chunk as usize, Payload::Coming(header.len as usize))
    }

    /// Records a complete message. Returns the condition variable to notify.
    pub fn landed(&mut self, received: Received) -> Option<Arc<Condvar>> {
        self.complete(
            received.peer_flow.op,
            received.peer_flow.peer,
            received.region,
            Direction::Receive,
        )
    }

    /// Takes the next frame to `peer`, if there is one and no thread is writing.
    pub fn take(&mut self, peer: Rank) -> Option<Frame> {
        let outbox = self.outboxes.get_mut(peer.index())?;
        while let Some(departing) = outbox.next() {
            let Some(span) = departing.bytes else { return Some(Frame { departing, hold: None }) };
            if let Some(hold) = self.regions.get(&span.region).and_then(Registered::hold) {
                return Some(Frame { departing, hold: Some(hold) });
            }
            // Cannot happen: removing a region fails its operation, which purges its messages.
            outbox.give_back(departing.generation, departing.half);
        }
        None
    }

    /// Records a written frame. Returns the threads to notify.
    pub fn written(&mut self, peer: Rank, Written(departing): Written) -> Notices {
        let op = departing.header.op;
        self.matching.note_moved(op);
        let outbox = &mut self.outboxes[peer.index()];
        outbox.give_back(departing.generation, departing.half);
        let sender = outbox.is_ready().then(|| Arc::clone(&outbox.changed));
        let waiters = match departing.bytes {
            Some(span) if departing.last => self.complete(op, peer, span.region, Direction::Send),
            _ => None,
        };
        Notices { sender, waiters }
    }

    /// The condition variable of a link's sender thread.
    pub fn sender(&self, peer: Rank) -> Arc<Condvar> {
        Arc::clone(&self.outboxes[peer.index()].changed)
    }

    /// The result of a wait, if there is one now.
    pub fn outcome(
        &mut self,
        op: OpId,
        id: RegionId,
        direction: Direction,
    ) -> Result<Option<Option<Rank>>, EngineFault> {
        self.matching.check(op)?;
        Ok(self.regions.get_mut(&id).and_then(|region| region.outcome(direction)))
    }

    /// Counts a thread that waits on a region.
    pub fn enter(&mut self, id: RegionId) -> Option<Arc<Condvar>> {
        self.regions.get_mut(&id).map(Registered::enter)
    }

    /// A thread has stopped waiting there.
    pub fn leave(&mut self, id: RegionId) {
        if let Some(region) = self.regions.get_mut(&id) {
            region.leave();
        }
    }

    /// Ends one wait. Returns the condition variable to notify.
    pub fn abort(&mut self, id: RegionId, direction: Direction) -> Option<Arc<Condvar>> {
        self.regions.get_mut(&id)?.abort(direction)
    }

    fn arrive(
        &mut self,
        from: PeerFlow,
        left: usize,
        payload: Payload,
    ) -> Result<Option<ReceiveSlot>, Offence> {
        match self.matching.arrive(from, left, payload) {
            Ok(Some(Arrival::Into(piece, payload))) => Ok(self.receive_slot(from, piece, payload)),
            Ok(Some(Arrival::Dropped | Arrival::Kept) | None) => Ok(None),
            Err(Misfit::Violation) => Err(Offence),
            Err(misfit) => {
                self.misfit(from, misfit);
                Ok(None)
            }
        }
    }

    /// Handles a credit. This is a receiver thread, so it leaves the writing to the sender thread.
    fn credit(&mut self, to: PeerFlow) -> Result<(), Offence> {
        let Some(span) = self.matching.credit(to).map_err(|_| Offence)? else { return Ok(()) };
        let outbox = &mut self.outboxes[to.peer.index()];
        outbox.push(Item::message(to, span), Pace::Credited);
        if outbox.is_ready() {
            outbox.changed.notify_all();
        }
        Ok(())
    }

    fn receive_slot(
        &self,
        peer_flow: PeerFlow,
        piece: Piece,
        payload: Payload,
    ) -> Option<ReceiveSlot> {
        let region = self.regions.get(&piece.region)?;
        Some(ReceiveSlot {
            peer_flow,
            piece,
            payload,
            hold: region.hold()?,
            landed: region.landed(),
        })
    }

    fn queue(&mut self, item: Item, peer: Rank, pace: Pace) -> Option<Frame> {
        let outbox = &mut self.outboxes[peer.index()];
        if outbox.push(item, pace) == Turn::Mine {
            return self.take(peer);
        }
        if outbox.is_ready() {
            outbox.changed.notify_all();
        }
        None
    }

    fn complete(
        &mut self,
        op: OpId,
        peer: Rank,
        id: RegionId,
        direction: Direction,
    ) -> Option<Arc<Condvar>> {
        if !self.matching.completed(op, peer) {
            return None;
        }
        self.regions.get_mut(&id)?.complete(direction, peer)
    }

    fn misfit(&mut self, from: PeerFlow, misfit: Misfit) {
        if let Misfit::Length { posted, sent } = misfit {
            let PeerFlow { op, peer, flow } = from;
            trace::warn!(?op, %peer, flow, posted_bytes = posted, sent_bytes = sent, "a message \
                is not as long as its receive");
        }
        self.fail(from.op, EngineFault::Protocol(from.peer));
    }

    /// Passes on the fault of a call. Any fault but the caller's own mistake fails the operation.
    fn refuse(&mut self, op: OpId, fault: EngineFault) -> EngineFault {
        if fault != EngineFault::Unfit {
            self.fail(op, fault);
        }
        fault
    }

    /// Drops the queued frames of an operation and wakes its waiting threads.
    fn stop(&mut self, op: OpId) {
        self.outboxes.iter_mut().for_each(|outbox| outbox.purge(op));
        let of_op = self.regions.values().filter(|region| region.op == op);
        of_op.filter_map(Registered::waiters).for_each(|changed| changed.notify_all());
    }
}

impl Frame {
    /// The generation of the link that it uses.
    pub fn generation(&self) -> Generation {
        self.departing.generation
    }

    /// Writes the frame; blocks while the peer does not read. `None` if the link is broken.
    pub fn write(self) -> Option<Written> {
        let Frame { mut departing, hold } = self;
        let bytes = hold
            .as_ref()
            .zip(departing.bytes)
            .map_or(&[][..], |(hold, span)| hold.bytes(span.offset, span.len));
        departing.half.send(&departing.header, bytes).ok()?;
        Some(Written(departing))
    }
}

impl Written {
    /// The length of its payload.
    pub fn payload_bytes(&self) -> u32 {
        self.0.header.len
    }
}

impl ReceiveSlot {
    /// Copies a piece that has been read, or reads it straight to its place. Returns the message if
    /// it is complete.
    ///
    /// # Errors
    /// The errors of reading: the link is over.
    pub fn write(self, from: &mut dyn DataReceiver) -> io::Result<Option<Received>> {
        match &self.payload {
            Payload::Here(block) => self.hold.write(self.piece.at(), block.bytes()),
            Payload::Coming(len) => {
                self.hold.fill(self.piece.at(), *len, |into| from.payload(into))?;
            }
        }
        Ok(self.written())
    }

    /// Copies a piece that has been read.
    pub fn copy(self) -> Option<Received> {
        if let Payload::Here(block) = &self.payload {
            self.hold.write(self.piece.at(), block.bytes());
        }
        self.written()
    }

    fn written(self) -> Option<Received> {
        let ReceiveSlot { peer_flow, piece, payload, hold, landed } = self;
        if let Some(landed) = landed.filter(|_| payload.len() > 0) {
            landed(
                piece.message,
                hold.bytes(piece.message, piece.before + payload.len()),
                piece.before,
            );
        }
        piece.last.then_some(Received { peer_flow, region: piece.region })
    }
}
