//! A link that moves, over in-memory connections.

use super::*;
use crate::link::{Phase, data_pair};
use crate::node::event::{Event, LinkEnd};
use crate::protocol::{OpId, Rank};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

struct End {
    halves: Halves,
    moves: Moves,
    told: mpsc::Receiver<Event>,
    ended: mpsc::UnboundedReceiver<LinkEnd>,
}

fn end(link: Box<dyn DataLink>) -> End {
    let (reports, told, ended) = Reports::to_test();
    let (link, moves, _) = data_link(link, reports);
    End { halves: link.split(), moves, told, ended }
}

fn ends() -> (End, End) {
    let (a, b) = data_pair();
    (end(a), end(b))
}

fn offer(a: &Moves, b: &Moves) {
    let (at_a, at_b) = data_pair();
    assert!(a.offer(at_a).is_some() && b.offer(at_b).is_some());
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

/// Whether this node's direction has moved to the offered connection, and the other one has not.
fn has_gone(moves: &Moves) -> bool {
    let state = lock(&moves.shared.state);
    state.offer.as_ref().is_some_and(|offer| offer.departure == Departure::Done)
}

fn has_moved(told: &mut mpsc::Receiver<Event>) -> bool {
    matches!(told.try_recv(), Ok(Event::Moved { .. }))
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
    let first = Arc::clone(&lock(&a.shared.state).connection);
    let sending = lock(&first.outgoing);
    a.go();
    assert!(a.offer(late).is_none(), "another link is to be the next one");
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
        End { halves: (mut a_to, mut a_from, a_end), moves: a, told: mut a_told, .. },
        End { halves: b_halves, moves: b, told: mut b_told, .. },
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
        let sent =
            [scope.spawn(|| send(&mut a_to, &enough)), scope.spawn(|| send(&mut b_to, &enough))];
        let received = [scope.spawn(|| receive(&mut b_from)), scope.spawn(|| receive(&mut a_from))];
        for n in 1..=MOVES {
            offer(&a, &b);
            // Both ends take turns in moving first.
            let (first, then, told, back) = if n % 2 == 0 {
                (&a, &b, &mut b_told, &mut a_told)
            } else {
                (&b, &a, &mut a_told, &mut b_told)
            };
            first.go();
            until(|| has_moved(told));
            then.go();
            until(|| has_moved(back));
            // The next link may be offered when both ends have completed the move.
            until(|| {
                lock(&a.shared.state).offer.is_none() && lock(&b.shared.state).offer.is_none()
            });
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
    until(|| lock(&at_b.moves.shared.state).offer.is_none());
    // There is nothing to move to.
    at_b.moves.go();
    at_a.halves.0.send(&header(1, 3), b"old").expect("sent");
    assert_eq!(next(at_b.halves.1.as_mut()).expect("received"), (1, b"old".to_vec()));
    offer(&at_a.moves, &at_b.moves);
    at_a.moves.go();
    until(|| has_gone(&at_a.moves));
    let (further, _) = data_pair();
    assert!(at_a.moves.offer(further).is_none(), "a direction goes by the one that was offered");
    at_a.halves.0.send(&header(2, 3), b"new").expect("sent");
    assert_eq!(next(at_b.halves.1.as_mut()).expect("received"), (2, b"new".to_vec()));
    assert!(has_moved(&mut at_b.told) && !has_moved(&mut at_b.told));
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
    until(|| has_gone(&at_a.moves));
    end.shutdown();
    assert!(waiting.join().expect("no panic").is_err());
    until(|| at_a.halves.0.send(&header(0, 0), &[]).is_err());
}

#[test]
fn the_end_is_reported_when_the_engine_drops_its_receiver() {
    let (mut at_a, _at_b) = ends();
    drop(at_a.halves.0);
    assert!(at_a.ended.try_recv().is_err(), "the receiver is still there");
    drop(at_a.halves.1);
    assert_eq!(at_a.ended.try_recv().map(|end| end.peer).ok(), Some(Rank(1)));
    assert!(at_a.ended.try_recv().is_err(), "it has ended once");
}
