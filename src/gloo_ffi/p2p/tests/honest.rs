//! The matching alone: two honest ranks whose calls and frames interleave in any order.

use super::super::matching::{Matching, PeerFlow};
use super::super::stream::{
    Arrival, Departure, EAGER_OP_BYTES, PIECE, Pace, Payload, Posting, RegionId, Span, frames,
};
use super::group::{A, B, op};
use crate::memory::{Block, Pool};
use crate::protocol::{OpId, Rank};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// A frame in flight from one rank to the other.
enum Sent {
    Piece { op: OpId, flow: u32, left: usize, block: Block },
    Credit { op: OpId, flow: u32 },
}

/// One rank. The region number of a message is its index in its flow.
struct Side {
    peer: Rank,
    matching: Matching,
    /// By flow: lengths of the messages still to send and of the receives still to post, and the
    /// number of those done.
    sends: Vec<VecDeque<usize>>,
    posts: Vec<VecDeque<usize>>,
    sent: Vec<u64>,
    posted: Vec<u64>,
    received: BTreeMap<usize, Vec<u64>>,
    /// Frames sent and not yet delivered. Eager messages and credits may overtake the others.
    urgent: VecDeque<Sent>,
    bulk: VecDeque<Sent>,
}

fn peer_flow(peer: Rank, flow: usize) -> PeerFlow {
    // Two operations with equal flow numbers, which must not be mixed up.
    PeerFlow { op: op(flow as u64 % 2), peer, flow: flow as u32 / 2 }
}

fn flow_of(op: OpId, flow: u32) -> usize {
    (flow as u64 * 2 + op.number) as usize
}

impl Side {
    fn new(me: Rank, peer: Rank, sends: &[Vec<usize>], posts: &[Vec<usize>]) -> Side {
        let queues =
            |lens: &[Vec<usize>]| lens.iter().map(|lens| lens.iter().copied().collect()).collect();
        Side {
            peer,
            matching: Matching::new(me, 2),
            sends: queues(sends),
            posts: queues(posts),
            sent: vec![0; sends.len()],
            posted: vec![0; posts.len()],
            received: BTreeMap::new(),
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
        }
    }

    fn send(&mut self, flow: usize) {
        let Some(len) = self.sends[flow].pop_front() else { return };
        let span = Span { region: RegionId(self.sent[flow]), offset: 0, len };
        self.sent[flow] += 1;
        match self.matching.send(peer_flow(self.peer, flow), span).expect("an honest send") {
            Departure::Now(pace) => self.say(flow, span, pace),
            Departure::Held => {}
        }
    }

    fn say(&mut self, flow: usize, span: Span, pace: Pace) {
        let PeerFlow { op, flow, .. } = peer_flow(self.peer, flow);
        let count = frames(span.len);
        for n in 0..count {
            // The block has the frame's length; its first byte identifies the message.
            let mut block =
                Pool::new().block((span.len - n * PIECE).min(PIECE)).expect("there is memory");
            if let Some(first) = block.bytes_mut().first_mut() {
                *first = span.region.0 as u8;
            }
            let piece = Sent::Piece { op, flow, left: count - 1 - n, block };
            if pace == Pace::Eager {
                self.urgent.push_back(piece);
            } else {
                self.bulk.push_back(piece);
            }
        }
    }

    fn post(&mut self, flow: usize) {
        let Some(len) = self.posts[flow].pop_front() else { return };
        let span = Span { region: RegionId(self.posted[flow]), offset: 0, len };
        self.posted[flow] += 1;
        let from = peer_flow(self.peer, flow);
        match self.matching.post(from, span).expect("an honest receive") {
            Posting::Here(block) => self.take(flow, span.region, &block),
            Posting::Awaited(Pace::Eager) => {}
            Posting::Awaited(Pace::Credited) => {
                self.urgent.push_front(Sent::Credit { op: from.op, flow: from.flow });
            }
        }
    }

    fn hear(&mut self, wire: Sent) {
        match wire {
            Sent::Credit { op, flow } => {
                let freed = self
                    .matching
                    .credit(PeerFlow { op, peer: self.peer, flow })
                    .expect("an honest credit");
                if let Some(span) = freed {
                    self.say(flow_of(op, flow), span, Pace::Credited);
                }
            }
            Sent::Piece { op, flow, left, block } => {
                let from = PeerFlow { op, peer: self.peer, flow };
                match self
                    .matching
                    .arrive(from, left, Payload::Here(block))
                    .expect("an honest frame")
                {
                    Some(Arrival::Into(piece, Payload::Here(block))) if piece.last => {
                        self.take(flow_of(op, flow), piece.region, &block);
                    }
                    Some(Arrival::Into(..) | Arrival::Kept) => {}
                    Some(Arrival::Dropped) | None => panic!("a message that is wanted was dropped"),
                }
            }
        }
    }

    fn take(&mut self, flow: usize, region: RegionId, block: &Block) {
        // Later frames carry the mark too.
        assert!(
            block.bytes().first().is_none_or(|first| *first == region.0 as u8),
            "another message than the receive's"
        );
        self.received.entry(flow).or_default().push(region.0);
        assert!(self.matching.completed(peer_flow(self.peer, flow).op, self.peer));
    }
}

fn lens() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let len = prop_oneof![
        4 => 0..2000usize,
        1 => Just(0),
        1 => prop::sample::select(vec![
            EAGER_OP_BYTES,
            EAGER_OP_BYTES + 1,
            PIECE,
            PIECE + 1,
            2 * PIECE + 3,
        ]),
    ];
    let flow = prop_oneof![
        3 => prop::collection::vec(len, 0..8),
        1 => prop::collection::vec(0..3usize, 0..100),
    ];
    prop::collection::vec(flow, 4..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn honest_ranks_never_offend_and_everything_arrives(
        there in lens(),
        back in lens(),
        steps in prop::collection::vec(0..u16::MAX, 0..600),
    ) {
        let mut sides = [Side::new(A, B, &there, &back), Side::new(B, A, &back, &there)];
        let total = |lens: &[Vec<usize>]| lens.iter().map(Vec::len).sum::<usize>() as u16;
        // After the random steps, run all that is left.
        let rest = (0..32 * (total(&there) + total(&back) + 1)).chain((0..8).cycle().take(4000));
        for step in steps.into_iter().chain(rest) {
            let (me, what, flow) = (usize::from(step % 2), step / 2 % 4, usize::from(step / 8 % 4));
            match what {
                0 => {
                    let other = &mut sides[1 - me];
                    let heard = other.urgent.pop_front().or_else(|| other.bulk.pop_front());
                    if let Some(wire) = heard { sides[me].hear(wire) }
                }
                1 => sides[me].matching.begin(op(flow as u64 % 2)),
                _ if sides[me].matching.check(op(flow as u64 % 2)).is_err() => {}
                2 => sides[me].send(flow),
                _ => sides[me].post(flow),
            }
        }
        for (side, lens) in sides.iter().zip([&back, &there]) {
            prop_assert!(side.urgent.is_empty() && side.bulk.is_empty());
            for (flow, lens) in lens.iter().enumerate() {
                let all: Vec<u64> = (0..lens.len() as u64).collect();
                prop_assert_eq!(side.received.get(&flow).cloned().unwrap_or_default(), all);
            }
            prop_assert_eq!(side.matching.kept().1, 0);
        }
    }
}
