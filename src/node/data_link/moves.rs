//! A data link that can migrate to another path without losing or repeating a frame. The engine
//! does not notice.
//!
//! A second connection between the same two members is [offered](Moves::offer) at both ends. Then
//! each direction moves on its own:
//!
//! ```text
//! sender    old connection: ... frame frame LAST      new one: FIRST frame frame ...
//! receiver  reads the old one up to LAST, waits for FIRST on the new one, goes on there
//! ```
//!
//! At each end a thread reads the new connection until FIRST arrives, because that may happen at
//! any time.

#[cfg(all(test, potluck_threads))]
mod schedules;
#[cfg(test)]
mod tests;

use super::connection::{Bursts, Connection, Incoming, Outgoing, link_frame};
use super::reports::Reports;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown};
use crate::os::{Condvar, Mutex, MutexGuard, Race, lock, thread};
use crate::protocol::Lane;
use std::io;
use std::sync::{Arc, PoisonError};

/// The last frame on the old connection, and the first one on the new.
const LAST: DataHeader = link_frame(Lane::MOVES, 0, 0, 0);
const FIRST: DataHeader = link_frame(Lane::MOVES, 1, 0, 0);

/// The handle by which the control loop moves a data link. Cheap to clone.
#[derive(Clone)]
pub struct Moves {
    shared: Arc<SharedLink>,
}

/// The state that the ends of a data link and its moves share.
struct SharedLink {
    state: Mutex<MovingState>,
    changed: Condvar,
}

struct MovingState {
    /// The connection that both directions use, or used before the move that is under way.
    connection: Arc<Connection>,
    offer: Option<Offer>,
    closed: bool,
    /// The predecessor's receiving half, read up to LAST. Dropping it would end its connection
    /// while the other direction may still use it, or the sent LAST may be in flight. It is dropped
    /// at the next move, when both have long arrived.
    retired: Option<Incoming>,
}

/// A connection that was offered as the next one. When it is dropped without use, it ends.
struct Offer {
    connection: Arc<Connection>,
    departure: Departure,
    arrival: Arrival,
}

/// The state of this node's direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Departure {
    /// It uses the old connection.
    Unasked,
    /// It is to move as soon as the frame being sent has left.
    Asked,
    /// LAST and FIRST are being sent, or one of them has failed.
    Begun,
    /// It uses the new connection.
    Done,
}

/// The state of the other direction.
enum Arrival {
    /// No FIRST yet: it uses the old connection.
    Awaited,
    /// FIRST has arrived on the new connection.
    There(Incoming),
    /// The new connection ended before FIRST arrived.
    Ended,
    /// It uses the new connection.
    Taken,
}

/// The link as the engine gets it.
struct Movable {
    sender: Sender,
    receiver: Receiver,
}

/// The sending half: the connection that it used last.
struct Sender(Arc<Connection>);

struct Receiver {
    shared: Arc<SharedLink>,
    incoming: Incoming,
}

/// A link for an engine, and the handles that move it and that measure its first path.
pub fn data_link(link: Box<dyn DataLink>, reports: Reports) -> (Box<dyn DataLink>, Moves, Bursts) {
    let (connection, incoming) = Connection::new(link, reports);
    let sender = Sender(Arc::clone(&connection));
    let bursts = Bursts(Arc::clone(&connection));
    let state = MovingState { connection, offer: None, closed: false, retired: None };
    let shared = Arc::new(SharedLink { state: Mutex::new(state), changed: Condvar::new() });
    let receiver = Receiver { shared: Arc::clone(&shared), incoming };
    (Box::new(Movable { sender, receiver }), Moves { shared }, bursts)
}

impl Moves {
    /// Offers a link as the next connection, in place of an earlier offer, and returns the handle
    /// that measures its path. Returns `None`, and ends the link, if the data link is closed, a
    /// direction already uses the earlier offer, or no thread can be started.
    pub fn offer(&self, link: Box<dyn DataLink>) -> Option<Bursts> {
        let reports = lock(&self.shared.state).connection.reports.clone();
        let (connection, mut incoming) = Connection::new(link, reports);
        let bursts = Bursts(Arc::clone(&connection));
        let offer = Offer { connection, departure: Departure::Unasked, arrival: Arrival::Awaited };
        let mut state = lock(&self.shared.state);
        let is_closed = state.closed;
        if Race::OfferUnchecked.is_seeded() {
            drop(state);
            state = lock(&self.shared.state);
        }
        if is_closed || state.offer.as_ref().is_some_and(Offer::is_chosen) {
            drop(state);
            return None;
        }
        let before = state.offer.replace(offer);
        drop(state);
        drop(before);
        let shared = Arc::clone(&self.shared);
        let wait = move || {
            let has_come = incoming.header().is_ok_and(|header| header == FIRST);
            shared.arrived(incoming, has_come);
        };
        if path_thread(wait) {
            return Some(bursts);
        }
        self.withdraw();
        None
    }

    /// Whether a link is offered that has not ended, or a direction uses one.
    pub fn is_offered(&self) -> bool {
        lock(&self.shared.state).offer.as_ref().is_some_and(Offer::is_alive)
    }

    /// Ends the offered link, unless a direction uses it.
    pub fn withdraw(&self) {
        let offer = lock(&self.shared.state).offer.take_if(|offer| !offer.is_chosen());
        drop(offer);
    }

    /// Whether the peer's direction uses the offered link, and this node's does not and is not
    /// about to.
    pub fn has_arrived(&self) -> bool {
        let is_alone = |offer: &Offer| {
            matches!(offer.arrival, Arrival::Taken) && offer.departure == Departure::Unasked
        };
        lock(&self.shared.state).offer.as_ref().is_some_and(is_alone)
    }

    /// Moves this node's direction to the offered link. Returns at once; the move happens when the
    /// frame being sent has left. False, and nothing happens, without an offer that stands.
    pub fn go(&self) -> bool {
        let mut state = lock(&self.shared.state);
        let Some(offer) = state.offer.as_mut().filter(|offer| offer.is_alive()) else {
            return false;
        };
        if offer.departure != Departure::Unasked {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        // Without a thread the direction stays on its connection, which still works. The thread
        // waits for the lock that is held here.
        let is_going = path_thread(move || shared.go());
        if is_going {
            // From now on no other link may take the place of the offered one.
            offer.departure = Departure::Asked;
        }
        is_going
    }
}

/// Whether a thread was started for this.
fn path_thread(run: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name("potluck-path".to_owned()).spawn(run).is_ok()
}

impl Offer {
    fn is_alive(&self) -> bool {
        !matches!(self.arrival, Arrival::Ended)
    }

    fn is_in_use(&self) -> bool {
        let has_departed = matches!(self.departure, Departure::Begun | Departure::Done);
        has_departed || matches!(self.arrival, Arrival::Taken)
    }

    /// Whether a direction uses it or is about to.
    fn is_chosen(&self) -> bool {
        self.departure == Departure::Asked || self.is_in_use()
    }

    fn is_done(&self) -> bool {
        self.departure == Departure::Done && matches!(self.arrival, Arrival::Taken)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_in_use() {
            self.connection.shutdown.shutdown();
            Connection::close(&mut self.connection);
        }
    }
}

impl SharedLink {
    fn go(&self) {
        let mut connection = Arc::clone(&lock(&self.state).connection);
        connection.reports.traffic.count();
        Connection::in_use(&mut connection, |outgoing| self.depart(outgoing));
        self.end_move(lock(&self.state));
    }

    /// Sends LAST on this connection and FIRST on the offered one.
    fn depart(&self, outgoing: &mut Outgoing) {
        let Outgoing::Open(old) = outgoing else { return };
        let Some(next) = self.set_departure(Departure::Asked, Departure::Begun) else { return };
        // An error ends the link, and its receiver reports that.
        if old.send(&LAST, &[]).is_ok() && lock(&next.outgoing).send(&FIRST, &[]).is_ok() {
            *outgoing = Outgoing::Moved(next);
            self.set_departure(Departure::Begun, Departure::Done);
        }
    }

    /// Returns the offered connection, unless the departure is not `from`.
    fn set_departure(&self, from: Departure, to: Departure) -> Option<Arc<Connection>> {
        let mut state = lock(&self.state);
        let offer = state.offer.as_mut().filter(|offer| offer.departure == from)?;
        offer.departure = to;
        Some(Arc::clone(&offer.connection))
    }

    /// Records that FIRST has arrived on an offered connection, or that the connection has ended.
    fn arrived(&self, incoming: Incoming, has_come: bool) {
        let mut state = lock(&self.state);
        let mut gone = None;
        let is_its = |offer: &&mut Offer| Arc::ptr_eq(&offer.connection, &incoming.connection);
        match state.offer.as_mut().filter(is_its) {
            Some(offer) if has_come => offer.arrival = Arrival::There(incoming),
            Some(offer) if offer.is_in_use() => offer.arrival = Arrival::Ended,
            // No direction uses it yet.
            Some(_) => gone = state.offer.take(),
            None => {}
        }
        drop(state);
        drop(gone);
        self.changed.notify_all();
    }

    /// Waits for FIRST on the offered connection, then replaces `old` by its receiving half.
    fn next(&self, old: &mut Incoming) -> io::Result<()> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            // LAST without an offered link violates the protocol.
            let offer = state.offer.as_mut().ok_or(io::ErrorKind::InvalidData)?;
            match std::mem::replace(&mut offer.arrival, Arrival::Taken) {
                Arrival::There(incoming) => {
                    let retired = state.retired.replace(std::mem::replace(old, incoming));
                    self.end_move(state);
                    drop(retired);
                    return Ok(());
                }
                Arrival::Awaited => offer.arrival = Arrival::Awaited,
                Arrival::Ended => return Err(io::ErrorKind::ConnectionAborted.into()),
                Arrival::Taken => return Err(io::ErrorKind::InvalidData.into()),
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets the old connection when both directions have moved.
    fn end_move(&self, mut state: MutexGuard<'_, MovingState>) {
        if let Some(done) = state.offer.take_if(|offer| offer.is_done()) {
            state.connection = Arc::clone(&done.connection);
        }
    }
}

impl Shutdown for SharedLink {
    fn shutdown(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let connection = Arc::clone(&state.connection);
        let offered = state.offer.as_ref().map(|offer| Arc::clone(&offer.connection));
        drop(state);
        self.changed.notify_all();
        [Some(connection), offered].iter().flatten().for_each(|of| of.shutdown.shutdown());
    }
}

impl DataLink for Movable {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let shared = Arc::clone(&self.receiver.shared);
        (Box::new(self.sender), Box::new(self.receiver), shared)
    }
}

impl DataSender for Sender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        // Before the lock, which a burst may hold for one more frame.
        self.0.reports.traffic.count();
        Connection::in_use(&mut self.0, |outgoing| outgoing.send(header, payload))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        Connection::close(&mut self.0);
    }
}

impl DataReceiver for Receiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        loop {
            let header = self.incoming.header()?;
            if header.op.lane != Lane::MOVES {
                return Ok(header);
            }
            if header != LAST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.incoming.connection.reports.moved();
            self.shared.next(&mut self.incoming)?;
        }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.incoming.link.payload(into)
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        self.incoming.link.skip(len)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.shutdown();
        self.incoming.connection.reports.ended();
    }
}
