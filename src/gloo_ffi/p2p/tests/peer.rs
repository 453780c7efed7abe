//! The test plays the peers: unusual frames of an honest peer, and protocol violations.

use super::super::endpoint::Endpoint;
use super::super::matching::SLOTS_MAX;
use super::super::stream::{
    EAGER_MESSAGES_MAX, EAGER_OP_BYTES, EAGER_PART_BYTES, EAGER_PART_MESSAGES_MAX, PIECE,
};
use super::group::{A, B, Buffer, PATIENCE, op};
use crate::collective::{EARLY_OPS_MAX, Threads};
use crate::link::{DataHeader, DataReceiver, DataSender, Phase, Shutdown, memory};
use crate::memory::Pool;
use crate::protocol::{EngineFault, OPS_IN_FLIGHT_MAX, OpId, PARTS_MAX, Rank};
use std::sync::Arc;

/// The far end of a link of rank 0.
pub struct Peer {
    sender: Box<dyn DataSender>,
    receiver: Box<dyn DataReceiver>,
    _end: Arc<dyn Shutdown>,
}

/// The endpoint of rank 0 among `size` ranks, and the far ends of its links.
pub fn alone(size: usize) -> (Endpoint, Vec<Peer>, Arc<Threads>) {
    let threads = Arc::new(Threads::default());
    let end = Endpoint::new(A, size, Pool::new(), Arc::clone(&threads));
    let peers = (1..size as u8).map(|rank| Peer::of(&end, Rank(rank))).collect();
    (end, peers, threads)
}

impl Peer {
    fn of(end: &Endpoint, rank: Rank) -> Peer {
        let (ours, theirs) = memory();
        end.attach(rank, ours);
        let (sender, receiver, _end) = theirs.split();
        Peer { sender, receiver, _end }
    }

    pub fn say(&mut self, op: OpId, flow: u32, phase: Phase, chunk: u32, bytes: &[u8]) {
        let header = DataHeader { op, flow, chunk, phase, len: bytes.len() as u32 };
        // In some tests the other end has already shut the link down.
        let _ = self.sender.send(&header, bytes);
    }

    pub fn hear(&mut self) -> DataHeader {
        self.receiver.recv(&Pool::new()).expect("a frame").0
    }

    fn is_cut_off(&mut self) -> bool {
        std::iter::repeat_with(|| self.receiver.recv(&Pool::new()))
            .take(1000)
            .any(|heard| heard.is_err())
    }
}

/// Whether rank 1 loses its link for the frames of `say`, together with the operation that waits
/// for it, while rank 2 keeps its link.
fn is_violation(say: impl Fn(&mut Peer)) -> bool {
    let (end, mut peers, threads) = alone(3);
    for number in 0..2 {
        end.begin(op(number));
    }
    let buffer = Buffer::new(&end, op(0), vec![0; 1_000_000]);
    buffer.region().recv(B, 9, 0, 1_000_000).expect("posted");
    let other = Buffer::new(&end, op(1), vec![0; 10]);
    other.region().recv(Rank(2), 0, 0, 10).expect("posted");
    peers[0].hear();
    say(&mut peers[0]);
    // The message that the operation waits for, unless the link is gone.
    for left in (0..4).rev() {
        peers[0].say(
            op(0),
            9,
            Phase::Message,
            left,
            &vec![1; if left > 0 { PIECE } else { 1_000_000 - 3 * PIECE }],
        );
    }
    let lost = match buffer.received() {
        Ok(from) => {
            assert_eq!(from, Some(B));
            false
        }
        Err(fault) => {
            assert_eq!(fault, EngineFault::Protocol(B));
            assert!(peers[0].is_cut_off());
            assert_eq!(buffer.region().send(B, 0, 0, 1), Err(EngineFault::Protocol(B)));
            true
        }
    };
    peers[1].say(op(1), 0, Phase::Message, 0, &[5; 10]);
    assert_eq!(other.received(), Ok(Some(Rank(2))), "rank 2 has nothing to do with it");
    drop((buffer, other));
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
    lost
}

#[test]
fn what_is_eager_may_come_at_any_time_and_nothing_more() {
    // For an operation that has begun, and for one that has not.
    for number in [1, 50] {
        let message = |peer: &mut Peer, flow: u32, len: usize| {
            peer.say(op(number), flow, Phase::Message, 0, &vec![1; len]);
        };
        assert!(!is_violation(|peer| message(peer, 0, EAGER_OP_BYTES)));
        assert!(is_violation(|peer| message(peer, 0, EAGER_OP_BYTES + 1)));
        assert!(!is_violation(|peer| (0..EAGER_MESSAGES_MAX).for_each(|_| message(peer, 0, 0))));
        assert!(is_violation(|peer| (0..=EAGER_MESSAGES_MAX).for_each(|_| message(peer, 0, 0))));
        assert!(!is_violation(|peer| (0..SLOTS_MAX as u32 - 1).for_each(|flow| message(
            peer,
            flow + 20,
            EAGER_OP_BYTES
        ))));
        assert!(is_violation(|peer| (0..=SLOTS_MAX as u32).for_each(|flow| message(
            peer,
            flow + 20,
            1
        ))));
        assert!(is_violation(|peer| peer.say(op(number), 0, Phase::Message, 1, &[1; PIECE])));
    }
}

#[test]
fn operations_that_have_not_begun_are_few() {
    for (phase, bytes) in [(Phase::Message, &[1][..]), (Phase::Posted, &[])] {
        let early = |count: u64| {
            move |peer: &mut Peer| {
                (0..count).for_each(|n| peer.say(op(100 + n), 0, phase, 0, bytes));
            }
        };
        assert!(!is_violation(early(EARLY_OPS_MAX as u64)), "{phase:?}");
        assert!(is_violation(early(EARLY_OPS_MAX as u64 + 1)), "{phase:?}");
    }
}

/// So many steps of so many calls each.
fn calls(steps: usize, of: usize) -> impl Iterator<Item = OpId> {
    let of = 0..of as u8;
    (0..steps as u64).flat_map(move |step| of.clone().map(move |call| op(100 + step).part(call)))
}

/// A member may list as many steps as other operations.
#[test]
fn a_step_that_has_not_begun_is_one_operation_with_all_its_calls() {
    let early = |steps: usize| {
        move |peer: &mut Peer| {
            calls(steps, 8).for_each(|call| peer.say(call, 0, Phase::Message, 0, &[1]));
        }
    };
    assert!(!is_violation(early(EARLY_OPS_MAX)));
    assert!(is_violation(early(EARLY_OPS_MAX + 1)));
}

/// A call of a step has smaller eager bounds than another operation.
#[test]
fn all_that_nobody_has_asked_for_is_bounded() {
    let call = op(100).part(3);
    let message = |peer: &mut Peer, call: OpId, flow: u32, len: usize| {
        peer.say(call, flow, Phase::Message, 0, &vec![1; len]);
    };
    assert!(!is_violation(|peer| message(peer, call, 0, EAGER_PART_BYTES)));
    assert!(is_violation(|peer| message(peer, call, 0, EAGER_PART_BYTES + 1)));
    assert!(!is_violation(
        |peer| (0..EAGER_PART_MESSAGES_MAX).for_each(|_| message(peer, call, 0, 0))
    ));
    assert!(is_violation(
        |peer| (0..=EAGER_PART_MESSAGES_MAX).for_each(|_| message(peer, call, 0, 0))
    ));

    let full = |peer: &mut Peer, flows: u32| {
        for call in calls(OPS_IN_FLIGHT_MAX, PARTS_MAX) {
            (0..flows).for_each(|flow| message(peer, call, flow, EAGER_PART_BYTES));
        }
    };
    assert!(!is_violation(|peer| full(peer, 2)));
    assert!(is_violation(|peer| full(peer, 3)));
    let empty = |peer: &mut Peer, messages: u64| {
        for call in calls(OPS_IN_FLIGHT_MAX, PARTS_MAX) {
            (0..messages)
                .for_each(|m| message(peer, call, (m / EAGER_PART_MESSAGES_MAX) as u32, 0));
        }
    };
    assert!(!is_violation(|peer| empty(peer, 2 * EAGER_PART_MESSAGES_MAX)));
    assert!(is_violation(|peer| empty(peer, 2 * EAGER_PART_MESSAGES_MAX + 1)));
}

#[test]
fn credits_are_empty_and_of_few_flows() {
    for number in [1, 50] {
        let credit = |peer: &mut Peer, flow| peer.say(op(number), flow, Phase::Posted, 0, &[]);
        assert!(!is_violation(|peer| (0..1000).for_each(|_| credit(peer, 0))));
        let flows = 0..=SLOTS_MAX as u32;
        assert!(is_violation(|peer| flows.clone().for_each(|flow| credit(peer, flow))));
        assert!(is_violation(|peer| peer.say(op(number), 0, Phase::Posted, 0, &[1])));
        assert!(is_violation(|peer| peer.say(op(number), 0, Phase::Posted, 1, &[])));
    }
}

#[test]
fn frames_of_the_other_engine_are_violations() {
    for phase in [Phase::Reduce, Phase::Gather] {
        assert!(is_violation(|peer| peer.say(op(0), 0, phase, 0, &[1])));
    }
}

#[test]
fn badly_cut_messages_are_violations_or_fail_their_operation() {
    assert!(is_violation(|peer| peer.say(op(1), 0, Phase::Message, u32::MAX, &[1; PIECE])));
    assert!(is_violation(|peer| peer.say(op(0), 9, Phase::Message, 3, &[1; PIECE - 1])));
    assert!(is_violation(|peer| peer.say(op(0), 9, Phase::Message, 0, &[1; PIECE + 1])));
    let (end, mut peers, threads) = alone(2);
    for (number, (left, second)) in [(1, PIECE), (2, 5), (0, 5)].into_iter().enumerate() {
        let this = op(number as u64);
        end.begin(this);
        let buffer = Buffer::new(&end, this, vec![0; 3 * PIECE]);
        buffer.region().recv(B, 0, 0, 3 * PIECE).expect("posted");
        peers[0].say(this, 0, Phase::Message, 2, &[1; PIECE]);
        peers[0].say(this, 0, Phase::Message, left, &vec![1; second]);
        let fits = left == 1 && second == PIECE;
        if fits {
            peers[0].say(this, 0, Phase::Message, 0, &[1; PIECE]);
        }
        assert_eq!(
            buffer.received(),
            if fits { Ok(Some(B)) } else { Err(EngineFault::Protocol(B)) }
        );
    }
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
}

#[test]
fn what_comes_for_an_operation_that_is_over_is_dropped() {
    let far_beyond = |number: u64| {
        move |peer: &mut Peer| {
            for flow in 0..100 {
                peer.say(op(number), flow, Phase::Message, 3, &[1; PIECE]);
                peer.say(op(number), flow, Phase::Posted, 0, &[]);
            }
        }
    };
    let (end, mut peers, threads) = alone(2);
    end.begin(op(2));
    end.cancel(op(2), EngineFault::Cancelled);
    end.cancel(op(3), EngineFault::Cancelled);
    end.begin(op(4));
    end.retire(op(4));
    end.retire(op(5));
    for number in 2..6 {
        far_beyond(number)(&mut peers[0]);
    }
    assert_eq!(end.kept(), (2, 0), "the two that failed are known");
    // Early room is returned when an operation begins, fails or is over.
    end.begin(op(0));
    let marker = Buffer::new(&end, op(0), Vec::new());
    for number in 100..100 + 2 * EARLY_OPS_MAX as u64 {
        marker.region().recv(B, 0, 0, 0).expect("posted");
        peers[0].say(op(number), 0, Phase::Message, 0, &[1; 10]);
        peers[0].say(op(0), 0, Phase::Message, 0, &[]);
        assert_eq!(marker.received(), Ok(Some(B)), "so the one before is here too");
        match number % 3 {
            0 => end.retire(op(number)),
            1 => end.cancel(op(number), EngineFault::Cancelled),
            _ => end.begin(op(number)),
        }
    }
    drop(marker);
    end.begin(op(1));
    let buffer = Buffer::new(&end, op(1), vec![0; 10]);
    buffer.region().recv(B, 0, 0, 10).expect("posted");
    peers[0].say(op(1), 0, Phase::Message, 0, &[1; 10]);
    assert_eq!(buffer.received(), Ok(Some(B)), "the link is still there");
    drop(buffer);
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
}

#[test]
fn a_credit_that_comes_before_its_operation_is_kept() {
    let (end, mut peers, threads) = alone(2);
    peers[0].say(op(0), 0, Phase::Posted, 0, &[]);
    peers[0].say(op(1), 0, Phase::Message, 0, &[1; 10]);
    end.begin(op(1));
    let marker = Buffer::new(&end, op(1), vec![0; 10]);
    marker.region().recv(B, 0, 0, 10).expect("posted");
    assert_eq!(marker.received(), Ok(Some(B)), "so the credit is here too");
    end.begin(op(0));
    let out = Buffer::new(&end, op(0), vec![0; 3 * PIECE]);
    out.region().send(B, 0, 0, PIECE + 1).expect("sent");
    out.region().send(B, 0, 0, PIECE + 2).expect("held");
    assert_eq!(out.sent(), Ok(Some(B)));
    let heard = [peers[0].hear(), peers[0].hear()]
        .map(|header| (header.chunk, header.len as usize, header.phase));
    assert_eq!(heard, [(1, PIECE, Phase::Message), (0, 1, Phase::Message)]);
    assert_eq!(end.traffic().sent_bytes, PIECE as u64 + 1, "the second has no credit");
    drop((marker, out));
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
}
