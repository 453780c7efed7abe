//! A data link that can migrate to another path without losing or repeating a frame. The engine
//! does not notice.
//!
//! A second link between the same two members is [offered](Moves::offer) at both ends. Then each
//! direction moves on its own:
//!
//! ```text
//! sender    old link: ... frame frame LAST      new link: FIRST frame frame ...
//! receiver  reads the old link up to LAST, waits for FIRST on the new link, goes on there
//! ```
//!
//! At each end a thread reads the new link until FIRST arrives, because that may happen at any
//! time.

#[cfg(all(test, potluck_threads))]
mod schedules;

use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown};
use crate::os::{Condvar, Mutex, MutexGuard, Race, thread};
use crate::protocol::{Lane, OpId};
use std::io;
use std::sync::{Arc, PoisonError};

/// The handle by which the driver moves a data link. Cheap to clone.
#[derive(Clone)]
pub(super) struct Moves {
    line: Arc<Line>,
}

struct Line {
    /// `None` after the engine has dropped its sender. Locked while a frame is sent.
    sender: Mutex<Option<Box<dyn DataSender>>>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Ends of the link in use, and of its predecessor while one direction still uses that.
    ends: Vec<Arc<dyn Shutdown>>,
    offer: Option<Offer>,
    offers: u64,
    closed: bool,
    /// The predecessor's receiver, read up to LAST. Dropping it would end its link while the other
    /// direction may still use it, or the sent LAST may be in flight. It is dropped at the next
    /// move, when both have long arrived.
    retired: Option<Box<dyn DataReceiver>>,
}

/// A link that was offered as the next path.
struct Offer {
    number: u64,
    end: Arc<dyn Shutdown>,
    /// This node's direction is about to move.
    goes: bool,
    /// `None` once this node's direction has moved.
    sender: Option<Box<dyn DataSender>>,
    arrival: Arrival,
}

/// The state of the other direction.
enum Arrival {
    /// No FIRST yet: it uses the old link.
    Awaited,
    /// FIRST has arrived on the new link.
    There(Box<dyn DataReceiver>),
    /// The new link ended before FIRST arrived.
    Ended,
    /// It has moved to the new link.
    Taken,
}

/// The link as the engine gets it.
struct Movable {
    line: Arc<Line>,
    receiver: MovableReceiver,
}

struct MovableSender(Arc<Line>);

struct MovableReceiver {
    line: Arc<Line>,
    receiver: Box<dyn DataReceiver>,
    moved: Box<dyn Fn() + Send>,
}

/// The last frame on the old link, and the first one on the new. Their lane belongs to no
/// operation.
const LAST: DataHeader = frame(0);
const FIRST: DataHeader = frame(1);

const fn frame(flow: u32) -> DataHeader {
    DataHeader {
        op: OpId { lane: Lane::MOVES, number: 0 },
        flow,
        chunk: 0,
        phase: Phase::Message,
        len: 0,
    }
}

/// A link for an engine, and the handle that moves it. `moved` is called on the receiving thread
/// when LAST has arrived, before the wait for FIRST on the link that was offered last. It must not
/// block.
pub(super) fn movable(
    link: Box<dyn DataLink>,
    moved: Box<dyn Fn() + Send>,
) -> (Box<dyn DataLink>, Moves) {
    let (sender, receiver, end) = link.split();
    let state = State { ends: vec![end], offer: None, offers: 0, closed: false, retired: None };
    let line = Arc::new(Line {
        sender: Mutex::new(Some(sender)),
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    let receiver = MovableReceiver { line: Arc::clone(&line), receiver, moved };
    (Box::new(Movable { line: Arc::clone(&line), receiver }), Moves { line })
}

impl Moves {
    /// Offers a link as the next path, in place of an earlier offer. Returns false, and ends the
    /// link, if the data link is closed, a direction already uses the earlier offer, or no thread
    /// can be started.
    pub(super) fn offer(&self, link: Box<dyn DataLink>) -> bool {
        let (sender, mut receiver, end) = link.split();
        let mut state = self.line.state();
        let is_closed = state.closed;
        if Race::OfferUnchecked.is_seeded() {
            drop(state);
            state = self.line.state();
        }
        if is_closed || state.offer.as_ref().is_some_and(Offer::is_chosen) {
            drop(state);
            end.shutdown();
            return false;
        }
        state.offers += 1;
        let number = state.offers;
        let before = state.offer.replace(Offer {
            number,
            end,
            goes: false,
            sender: Some(sender),
            arrival: Arrival::Awaited,
        });
        drop(state);
        if let Some(before) = before {
            before.end.shutdown();
        }
        let line = Arc::clone(&self.line);
        let wait = move || {
            let came = receiver.header().is_ok_and(|header| header == FIRST);
            line.arrived(number, if came { Arrival::There(receiver) } else { Arrival::Ended });
        };
        let waits = thread::Builder::new().name("potluck-path".to_owned()).spawn(wait).is_ok();
        if !waits {
            self.withdraw();
        }
        waits
    }

    /// Whether a link is offered that has not ended, or a direction uses one.
    pub(super) fn is_offered(&self) -> bool {
        let is_alive = |offer: &Offer| !matches!(offer.arrival, Arrival::Ended);
        self.line.state().offer.as_ref().is_some_and(is_alive)
    }

    /// Ends the offered link, unless a direction uses it.
    pub(super) fn withdraw(&self) {
        let offer = self.line.state().offer.take_if(|offer| !offer.is_chosen());
        if let Some(offer) = offer {
            offer.end.shutdown();
        }
    }

    /// Whether the peer's direction uses the offered link, and this node's does not and is not
    /// about to.
    pub(super) fn has_arrived(&self) -> bool {
        let is_alone = |offer: &Offer| {
            matches!(offer.arrival, Arrival::Taken) && offer.sender.is_some() && !offer.goes
        };
        self.line.state().offer.as_ref().is_some_and(is_alone)
    }

    /// Moves this node's direction to the offered link. Returns at once; the move happens when the
    /// frame being sent has left. False, and nothing happens, without an offer that stands.
    pub(super) fn go(&self) -> bool {
        let line = Arc::clone(&self.line);
        // From now on no other link may take the place of the offered one.
        let goes = |goes| {
            let mut state = self.line.state();
            let offer = state.offer.as_mut();
            let offer = offer.filter(|offer| !matches!(offer.arrival, Arrival::Ended));
            offer.map(|offer| offer.goes = goes).is_some()
        };
        if !goes(true) {
            return false;
        }
        // Without a thread the direction stays on its link, which still works.
        let name = "potluck-path".to_owned();
        let is_going = thread::Builder::new().name(name).spawn(move || line.go()).is_ok();
        if !is_going {
            goes(false);
        }
        is_going
    }
}

impl Offer {
    fn is_in_use(&self) -> bool {
        self.sender.is_none() || matches!(self.arrival, Arrival::Taken)
    }

    /// Whether a direction uses it or is about to.
    fn is_chosen(&self) -> bool {
        self.goes || self.is_in_use()
    }

    fn is_done(&self) -> bool {
        self.sender.is_none() && matches!(self.arrival, Arrival::Taken)
    }
}

impl Line {
    fn go(&self) {
        let mut sender = self.sender();
        let Some(old) = sender.as_mut() else { return };
        let Some(mut next) = self.state().offer.as_mut().and_then(|offer| offer.sender.take())
        else {
            return;
        };
        // An error ends the link, and its receiver reports that.
        if old.send(&LAST, &[]).is_ok() && next.send(&FIRST, &[]).is_ok() {
            drop(sender.replace(next));
        }
        drop(sender);
        self.settle(self.state());
    }

    /// Records that FIRST has arrived on the link offered under this number, or that the link has
    /// ended.
    fn arrived(&self, number: u64, arrival: Arrival) {
        let mut state = self.state();
        let mut gone = None;
        match state.offer.as_mut().filter(|offer| offer.number == number) {
            // No direction uses it yet.
            Some(offer) if matches!(arrival, Arrival::Ended) && !offer.is_in_use() => {
                gone = state.offer.take();
            }
            Some(offer) => offer.arrival = arrival,
            None => {}
        }
        drop(state);
        drop(gone);
        self.changed.notify_all();
    }

    /// Waits for FIRST on the offered link, then replaces `old` by its receiver.
    fn next(&self, old: &mut Box<dyn DataReceiver>) -> io::Result<()> {
        let mut state = self.state();
        loop {
            if state.closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            // LAST without an offered link violates the protocol.
            let offer = state.offer.as_mut().ok_or(io::ErrorKind::InvalidData)?;
            match std::mem::replace(&mut offer.arrival, Arrival::Taken) {
                Arrival::There(receiver) => {
                    let retired = state.retired.replace(std::mem::replace(old, receiver));
                    self.settle(state);
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

    /// Forgets the old link when both directions have moved.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        let Some(done) = state.offer.take_if(|offer| offer.is_done()) else { return };
        state.ends = vec![done.end];
    }

    fn sender(&self) -> MutexGuard<'_, Option<Box<dyn DataSender>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shutdown for Line {
    fn shutdown(&self) {
        let mut state = self.state();
        state.closed = true;
        let ends: Vec<Arc<dyn Shutdown>> = state
            .ends
            .iter()
            .chain(state.offer.as_ref().map(|offer| &offer.end))
            .map(Arc::clone)
            .collect();
        drop(state);
        self.changed.notify_all();
        ends.iter().for_each(|end| end.shutdown());
    }
}

impl DataLink for Movable {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(MovableSender(Arc::clone(&self.line))), Box::new(self.receiver), self.line)
    }
}

impl DataSender for MovableSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        self.0.sender().as_mut().ok_or(io::ErrorKind::NotConnected)?.send(header, payload)
    }
}

impl Drop for MovableSender {
    fn drop(&mut self) {
        // Outside of the lock, because dropping it ends a stream.
        let sender = self.0.sender().take();
        drop(sender);
    }
}

impl DataReceiver for MovableReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        loop {
            let header = self.receiver.header()?;
            if header.op.lane != Lane::MOVES {
                return Ok(header);
            }
            if header != LAST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            (self.moved)();
            self.line.next(&mut self.receiver)?;
        }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.receiver.payload(into)
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        self.receiver.skip(len)
    }
}

impl Drop for MovableReceiver {
    fn drop(&mut self) {
        self.line.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::data_pair;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

    struct End {
        halves: Halves,
        moves: Moves,
        moved: Arc<AtomicUsize>,
    }

    fn end(link: Box<dyn DataLink>) -> End {
        let moved = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&moved);
        let (link, moves) =
            movable(link, Box::new(move || _ = told.fetch_add(1, Ordering::SeqCst)));
        End { halves: link.split(), moves, moved }
    }

    fn ends() -> (End, End) {
        let (a, b) = data_pair();
        (end(a), end(b))
    }

    fn offer(a: &Moves, b: &Moves) {
        let (at_a, at_b) = data_pair();
        assert!(a.offer(at_a) && b.offer(at_b));
    }

    fn header(number: u64, len: usize) -> DataHeader {
        let op = OpId { lane: Lane::MAIN, number };
        DataHeader { op, flow: 0, chunk: 0, phase: Phase::Gather, len: len as u32 }
    }

    fn next(from: &mut dyn DataReceiver) -> io::Result<(u64, Vec<u8>)> {
        let header = from.header()?;
        let mut payload = vec![0; header.len as usize];
        from.payload(&mut payload)?;
        Ok((header.op.number, payload))
    }

    /// Waits for a result of another thread.
    fn until(mut what: impl FnMut() -> bool) {
        let began = Instant::now();
        while !what() {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not come");
            thread::yield_now();
        }
    }

    #[test]
    fn once_a_direction_is_to_move_no_other_link_takes_the_place_of_the_offered_one() {
        let (
            End { halves: (mut a_to, mut a_from, _a_end), moves: a, .. },
            End { halves: (mut b_to, mut b_from, _b_end), moves: b, .. },
        ) = ends();
        offer(&a, &b);
        let (late, _far) = data_pair();
        // A frame is being sent, so the move has to wait.
        let sending = a.line.sender();
        a.go();
        assert!(!a.offer(late), "another link is to be the next one");
        a.withdraw();
        drop(sending);
        a_to.send(&header(1, 3), &[1, 2, 3]).expect("sent");
        assert_eq!(next(b_from.as_mut()).expect("received"), (1, vec![1, 2, 3]));
        b.go();
        b_to.send(&header(2, 0), &[]).expect("sent");
        assert_eq!(next(a_from.as_mut()).expect("received"), (2, vec![]));
    }

    #[test]
    fn frames_come_once_and_in_order_while_the_link_moves_again_and_again() {
        const MOVES: usize = 50;
        let (
            End { halves: (mut a_to, mut a_from, a_end), moves: a, moved: a_moved },
            End { halves: b_halves, moves: b, moved: b_moved },
        ) = ends();
        let (mut b_to, mut b_from, b_end) = b_halves;
        // Each end sends until `enough` is set, and returns how many frames it sent.
        let enough = Arc::new(AtomicUsize::new(0));
        let send = |to: &mut Box<dyn DataSender>, enough: &AtomicUsize| {
            let mut number = 0u64;
            while enough.load(Ordering::SeqCst) == 0 {
                let len = (number as usize * 7919) % 3000;
                to.send(&header(number, len), &vec![number as u8; len]).expect("sent");
                number += 1;
            }
            to.send(&header(u64::MAX, 0), &[]).expect("sent");
            number
        };
        let receive = |from: &mut Box<dyn DataReceiver>| {
            for expected in 0u64.. {
                let (number, payload) = next(from.as_mut()).expect("received");
                if number == u64::MAX {
                    return expected;
                }
                assert_eq!(number, expected);
                assert!(
                    payload.len() == (number as usize * 7919) % 3000
                        && payload.iter().all(|byte| *byte == number as u8)
                );
            }
            unreachable!("numbers do not end")
        };
        thread::scope(|scope| {
            let sent = [
                scope.spawn(|| send(&mut a_to, &enough)),
                scope.spawn(|| send(&mut b_to, &enough)),
            ];
            let received =
                [scope.spawn(|| receive(&mut b_from)), scope.spawn(|| receive(&mut a_from))];
            for n in 1..=MOVES {
                offer(&a, &b);
                // Both ends take turns in moving first.
                let (first, then, told, back) = if n % 2 == 0 {
                    (&a, &b, &b_moved, &a_moved)
                } else {
                    (&b, &a, &a_moved, &b_moved)
                };
                first.go();
                until(|| told.load(Ordering::SeqCst) == n);
                then.go();
                until(|| back.load(Ordering::SeqCst) == n);
                // The next link may be offered when both ends have completed the move.
                until(|| a.line.state().offer.is_none() && b.line.state().offer.is_none());
            }
            enough.store(1, Ordering::SeqCst);
            let sent = sent.map(|thread| thread.join().expect("no panic"));
            let received = received.map(|thread| thread.join().expect("no panic"));
            assert_eq!(sent, received);
            println!("{} and {} frames over {MOVES} moves", sent[0], sent[1]);
        });
        drop((a_end, b_end));
    }

    #[test]
    fn one_that_is_withdrawn_or_ends_is_not_missed_and_another_may_come() {
        let (mut at_a, mut at_b) = ends();
        offer(&at_a.moves, &at_b.moves);
        at_a.moves.withdraw();
        until(|| at_b.moves.line.state().offer.is_none());
        // There is nothing to move to.
        at_b.moves.go();
        at_a.halves.0.send(&header(1, 3), b"old").expect("sent");
        assert_eq!(next(at_b.halves.1.as_mut()).expect("received"), (1, b"old".to_vec()));
        offer(&at_a.moves, &at_b.moves);
        at_a.moves.go();
        until(|| {
            at_a.moves.line.state().offer.as_ref().is_some_and(|offer| offer.sender.is_none())
        });
        let (further, _) = data_pair();
        assert!(!at_a.moves.offer(further), "a direction goes by the one that was offered");
        at_a.halves.0.send(&header(2, 3), b"new").expect("sent");
        assert_eq!(next(at_b.halves.1.as_mut()).expect("received"), (2, b"new".to_vec()));
        assert_eq!(at_b.moved.load(Ordering::SeqCst), 1);
        // The other direction has not moved, and works.
        at_b.halves.0.send(&header(3, 0), &[]).expect("sent");
        assert_eq!(next(at_a.halves.1.as_mut()).expect("received"), (3, Vec::new()));
    }

    #[test]
    fn a_move_to_what_was_not_offered_ends_the_link() {
        let (a, b) = data_pair();
        let (mut liar, _back, _end) = a.split();
        let mut honest = end(b);
        liar.send(&LAST, &[]).expect("sent");
        assert_eq!(
            honest.halves.1.header().expect_err("nothing was offered").kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn a_shutdown_wakes_who_waits_for_the_first_frame_on_the_new_link() {
        let (mut at_a, at_b) = ends();
        let (mut from, end) = (at_b.halves.1, at_b.halves.2);
        offer(&at_a.moves, &at_b.moves);
        let waiting = thread::spawn(move || from.header().map(drop));
        at_a.moves.go();
        until(|| {
            at_a.moves.line.state().offer.as_ref().is_some_and(|offer| offer.sender.is_none())
        });
        end.shutdown();
        assert!(waiting.join().expect("no panic").is_err());
        until(|| at_a.halves.0.send(&header(0, 0), &[]).is_err());
    }
}
