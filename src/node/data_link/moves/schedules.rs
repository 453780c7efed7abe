//! A link that moves, in many orders of its threads (`make threads`).

use super::*;
use crate::link::{Phase, data_pair};
use crate::protocol::OpId;
use crate::sim::{explore, finds};
use shuttle::thread;
use std::io::ErrorKind;

const FRAMES: u64 = 4;

type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

fn ends() -> ((Halves, Moves), (Halves, Moves)) {
    let (a, b) = data_pair();
    let end = |link| {
        let (link, moves, _) = data_link(link, Reports::to_test().0);
        (link.split(), moves)
    };
    (end(a), end(b))
}

fn header(number: u64) -> DataHeader {
    let op = OpId { lane: Lane::MAIN, number };
    DataHeader { op, flow: 0, chunk: 0, phase: Phase::Gather, len: 1 }
}

/// Sends frames until one fails; returns the sender and how many it took.
fn send(mut to: Box<dyn DataSender>) -> (Box<dyn DataSender>, u64) {
    let sent = (0..FRAMES).take_while(|n| to.send(&header(*n), &[*n as u8]).is_ok()).count();
    (to, sent as u64)
}

/// Receives the frames in their order until all are here or one fails; returns the receiver and
/// how many came.
fn receive(mut from: Box<dyn DataReceiver>) -> (Box<dyn DataReceiver>, u64) {
    for number in 0..FRAMES {
        let Ok(header) = from.header() else { return (from, number) };
        let mut payload = [0];
        from.payload(&mut payload).expect("the payload follows its header");
        assert_eq!((header.op.number, payload), (number, [number as u8]));
    }
    (from, FRAMES)
}

/// Both ends send and receive. `meanwhile` runs on this thread, then everything must come to an
/// end. Returns how many frames each end received.
fn exchange(a: Halves, b: Halves, meanwhile: impl FnOnce()) -> [u64; 2] {
    let threads = [a, b].map(|(to, from, end)| {
        (thread::spawn(move || send(to)), thread::spawn(move || receive(from)), end)
    });
    meanwhile();
    // The halves are kept until all have ended, because dropping one may end the link.
    let ended = threads.map(|(sending, receiving, end)| {
        (sending.join().expect("no panic"), receiving.join().expect("no panic"), end)
    });
    ended.map(|(_, (_, came), _)| came)
}

fn offer(a: &Moves, b: &Moves) -> [bool; 2] {
    let (at_a, at_b) = data_pair();
    [a.offer(at_a).is_some(), b.offer(at_b).is_some()]
}

/// Both directions move twice while frames are sent: each frame comes once, in order, and all
/// threads end.
fn moves_twice() {
    let ((a_halves, a), (b_halves, b)) = ends();
    let is_settled = |moves: &Moves| lock(&moves.shared.state).offer.is_none();
    let came = exchange(a_halves, b_halves, || {
        for n in 0..2 {
            assert_eq!(offer(&a, &b), [true; 2]);
            let (first, then) = if n == 0 { (&a, &b) } else { (&b, &a) };
            first.go();
            then.go();
            // Another link may be offered when both ends have completed the move. They need not:
            // a receiver that has all frames reads no further.
            if !(is_settled(&a) && is_settled(&b)) {
                return;
            }
        }
    });
    assert_eq!(came, [FRAMES; 2]);
}

#[test]
fn frames_come_once_and_in_order_while_both_directions_move() {
    explore(moves_twice);
}

/// One end is shut down while links are offered and directions move: the frames that arrived are in
/// order, and no thread waits for ever.
fn shut_down() {
    let ((a_halves, a), (b_halves, b)) = ends();
    let end = Arc::clone(&a_halves.2);
    exchange(a_halves, b_halves, || {
        let (at_a, other) = data_pair();
        let ending = thread::spawn(move || end.shutdown());
        let offering = thread::spawn({
            let a = a.clone();
            move || a.offer(at_a).is_some()
        });
        let moving = thread::spawn({
            let (a, b) = (a.clone(), b.clone());
            move || {
                offer(&a, &b);
                b.go();
                a.go();
            }
        });
        offer(&b, &a);
        a.go();
        ending.join().expect("no panic");
        moving.join().expect("no panic");
        // The link was offered before, meanwhile or after. No end uses it, so it has ended.
        let _ = offering.join().expect("no panic");
        let (_to, mut from, _end) = other.split();
        assert_eq!(from.header().map_err(|error| error.kind()), Err(ErrorKind::NotConnected));
    });
}

#[test]
fn a_shutdown_ends_all_threads_and_every_offered_link() {
    explore(shut_down);
}

/// An offer is withdrawn at one end while neither direction moves: the link in use goes on, and
/// the threads that waited for the offered one end.
fn withdrawn() {
    let ((a_halves, a), (b_halves, b)) = ends();
    let came = exchange(a_halves, b_halves, || {
        let withdrawing = thread::spawn({
            let a = a.clone();
            move || a.withdraw()
        });
        offer(&a, &b);
        withdrawing.join().expect("no panic");
        a.withdraw();
    });
    assert_eq!(came, [FRAMES; 2]);
}

#[test]
fn an_offer_that_is_withdrawn_leaves_the_link_in_use() {
    explore(withdrawn);
}

#[test]
fn an_offer_that_is_checked_outside_of_the_lock_is_found() {
    finds(Race::OfferUnchecked, shut_down);
}
