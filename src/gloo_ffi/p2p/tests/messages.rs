//! Messages arrive complete and in order, for every size, time and link.

use super::super::endpoint::Endpoint;
use super::super::stream::{EAGER_OP_BYTES, PIECE};
use super::group::{A, B, Buffer, Group, LINKS, PATIENCE, marked, op};
use crate::collective::suite::Chance;
use crate::gloo_ffi::p2p::registered::Direction;
use crate::link::memory;
use crate::protocol::{EngineFault, Rank};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

#[test]
fn a_receive_posted_when_its_message_is_here_takes_it_over() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        // The operation has not begun at the receiver when the message arrives. A later message on
        // another flow shows that it has arrived.
        group.ends[0].begin(op(0));
        group.ends[0].begin(op(1));
        let from =
            Buffer::new(&group.ends[0], op(0), [vec![1; 100], vec![2; 100], vec![3; 100]].concat());
        let signal = Buffer::new(&group.ends[0], op(1), vec![9]);
        from.region().send(B, 7, 0, 100).expect("sent");
        from.region().send(B, 7, 100, 100).expect("sent");
        signal.region().send(B, 0, 0, 1).expect("sent");
        group.ends[1].begin(op(1));
        let heard = Buffer::new(&group.ends[1], op(1), vec![0]);
        heard.region().recv(A, 0, 0, 1).expect("posted");
        assert_eq!(heard.received(), Ok(Some(A)), "{name}");
        group.ends[1].begin(op(0));
        let into = Buffer::new(&group.ends[1], op(0), vec![0; 300]);
        into.region().recv(A, 7, 0, 100).expect("posted");
        from.region().send(B, 7, 200, 100).expect("sent");
        into.region().recv(A, 7, 100, 100).expect("posted");
        into.region().recv(A, 7, 200, 100).expect("posted");
        for _ in 0..3 {
            assert_eq!((into.received(), from.sent()), (Ok(Some(A)), Ok(Some(B))), "{name}");
        }
        assert_eq!(into.take(), from.take(), "{name}: in the order they were sent");
        drop((signal, heard));
        group.end();
    }
}

#[test]
fn empty_messages_may_have_any_offset_and_others_must_be_inside() {
    let group = Group::new(2, memory);
    group.begin(op(0));
    let [a, b] = [0, 1].map(|rank| Buffer::new(&group.ends[rank], op(0), vec![0; 10]));
    a.region().send(B, 0, usize::MAX, 0).expect("empty");
    b.region().recv(A, 0, 1000, 0).expect("empty");
    assert_eq!(b.received(), Ok(Some(A)));
    assert_eq!(a.sent(), Ok(Some(B)));
    for (offset, len) in [(0, 11), (10, 1), (usize::MAX, 2), (1, usize::MAX)] {
        assert_eq!(a.region().send(B, 0, offset, len), Err(EngineFault::Unfit));
        assert_eq!(a.region().recv(B, 0, offset, len), Err(EngineFault::Unfit));
    }
    // None of these calls has counted.
    a.region().send(B, 0, 9, 1).expect("inside");
    b.region().recv(A, 0, 0, 1).expect("inside");
    assert_eq!(b.received(), Ok(Some(A)));
    drop((a, b));
    group.end();
}

#[test]
fn messages_of_all_sizes_go_both_ways_at_once() {
    let sizes = [
        0,
        1,
        EAGER_OP_BYTES,
        EAGER_OP_BYTES + 1,
        PIECE - 1,
        PIECE,
        PIECE + 1,
        2 * PIECE,
        5_000_003,
    ];
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        for (number, size) in sizes.into_iter().enumerate() {
            let op = op(number as u64);
            group.begin(op);
            thread::scope(|scope| {
                for me in [A, B] {
                    let (end, peer) = (&group.ends[me.index()], Rank(1 - me.0));
                    scope.spawn(move || {
                        let out = Buffer::new(end, op, marked(size, u64::from(me.0)));
                        let into = Buffer::new(end, op, vec![0; size]);
                        out.region().send(peer, 3, 0, size).expect("sent");
                        into.region().recv(peer, 3, 0, size).expect("posted");
                        assert_eq!(out.sent(), Ok(Some(peer)), "{name} {size}");
                        assert_eq!(into.received(), Ok(Some(peer)), "{name} {size}");
                        assert!(
                            into.take() == marked(size, u64::from(peer.0)),
                            "{name} {size}: other bytes"
                        );
                        end.retire(op);
                    });
                }
            });
        }
        let total = sizes.iter().sum::<usize>() as u64;
        for end in &group.ends {
            assert_eq!(
                (end.traffic().sent_bytes, end.traffic().received_bytes),
                (total, total),
                "{name}"
            );
        }
        group.end();
    }
}

#[test]
fn whoever_asks_hears_of_each_message_as_it_comes() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        group.begin(op(0));
        let sizes = [5, 0, EAGER_OP_BYTES, 3 * PIECE + 9];
        let total: usize = sizes.iter().sum();
        let bytes = marked(total, 4);
        let out = Buffer::new(&group.ends[0], op(0), bytes.clone());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = {
            let heard = Arc::clone(&heard);
            Arc::new(move |offset, bytes: &[u8], before| {
                heard.lock().expect("whole").push((offset, bytes.to_vec(), before));
            })
        };
        let into = Buffer::hearing(&group.ends[1], op(0), vec![0; total], hear);
        let mut offset = 0;
        let mut expected = Vec::new();
        for size in sizes {
            out.region().send(B, 0, offset, size).expect("sent");
            into.region().recv(A, 0, offset, size).expect("posted");
            assert_eq!(into.received(), Ok(Some(A)), "{name}");
            for before in (0..size).step_by(PIECE) {
                expected.push((
                    offset,
                    bytes[offset..offset + size.min(before + PIECE)].to_vec(),
                    before,
                ));
            }
            offset += size;
        }
        assert!(*heard.lock().expect("whole") == expected, "{name}");
        drop((out, into));
        group.end();
    }
}

#[test]
fn a_flow_without_credit_holds_up_no_other() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        group.begin(op(0));
        group.begin(op(1));
        let out = Buffer::new(&group.ends[0], op(0), vec![1; 2_000_000]);
        let other = Buffer::new(&group.ends[0], op(1), vec![2; 2_000_000]);
        out.region().send(B, 0, 0, 2_000_000).expect("held");
        for (region, number, slot) in [(out.region(), 0, 1), (other.region(), 1, 0)] {
            region.send(B, slot, 0, 1_000_000).expect("sent");
            let into = Buffer::new(&group.ends[1], op(number), vec![0; 1_000_000]);
            into.region().recv(A, slot, 0, 1_000_000).expect("posted");
            assert_eq!(
                (into.received(), region.wait_send(PATIENCE)),
                (Ok(Some(A)), Ok(Some(B))),
                "{name}"
            );
        }
        let into = Buffer::new(&group.ends[1], op(0), vec![0; 2_000_000]);
        into.region().recv(A, 0, 0, 2_000_000).expect("posted");
        assert_eq!((into.received(), out.sent()), (Ok(Some(A)), Ok(Some(B))), "{name}");
        assert!(into.take() == vec![1; 2_000_000], "{name}");
        drop((out, other));
        group.end();
    }
}

#[test]
fn links_may_come_after_the_calls() {
    let group = Group::apart(2);
    group.begin(op(0));
    let out = Buffer::new(&group.ends[0], op(0), marked(600_000, 1));
    let into = Buffer::new(&group.ends[1], op(0), vec![0; 600_000]);
    out.region().send(B, 0, 0, 100).expect("waits");
    out.region().send(B, 0, 100, 599_900).expect("waits");
    into.region().recv(A, 0, 0, 100).expect("waits");
    into.region().recv(A, 0, 100, 599_900).expect("waits");
    group.connect(0, 1, memory());
    for _ in 0..2 {
        assert_eq!((into.received(), out.sent()), (Ok(Some(A)), Ok(Some(B))));
    }
    assert!(into.take() == out.take());
    group.end();
}

/// Threads of all ranks run operations concurrently. Each operation has flows to every other rank,
/// posted and sent in random order.
#[test]
fn many_operations_and_slots_at_once() {
    const RANKS: usize = 3;
    let seed = 0x0707;
    println!("seed {seed}");
    for (name, link) in LINKS {
        let group = Group::new(RANKS, link);
        thread::scope(|scope| {
            for (me, end) in group.ends.iter().enumerate() {
                for thread in 0..3 {
                    scope.spawn(move || {
                        (0..6).for_each(|number| {
                            exchange(end, (me, RANKS), thread * 100 + number, seed);
                        });
                    });
                }
            }
        });
        assert_eq!(group.ends[0].kept(), (0, 0), "{name}");
        group.end();
    }
}

/// The messages still to send to a peer, or to receive from it, in one slot: offsets and lengths.
struct Errand {
    peer: usize,
    direction: Direction,
    slot: u64,
    spans: VecDeque<(usize, usize)>,
}

/// Runs rank `me`'s part of one operation among all ranks.
fn exchange(end: &Endpoint, (me, ranks): (usize, usize), number: u64, seed: u64) {
    let (this, lens) = (op(number), draw_lens(seed ^ number << 16));
    let total = lens.iter().flatten().sum();
    let salt = |from: usize, to: usize| (from * 8 + to) as u64 ^ number << 8;
    end.begin(this);
    let peers: Vec<usize> = (0..ranks).filter(|rank| *rank != me).collect();
    let buffer = |bytes| Buffer::new(end, this, bytes);
    let outs: BTreeMap<usize, Buffer> =
        peers.iter().map(|peer| (*peer, buffer(marked(total, salt(me, *peer))))).collect();
    let intos: BTreeMap<usize, Buffer> =
        peers.iter().map(|peer| (*peer, buffer(vec![0; total]))).collect();
    let mut errands: Vec<Errand> = peers.iter().flat_map(|peer| errands_of(*peer, &lens)).collect();
    let mut order = Chance(seed ^ number << 20 ^ (me as u64) << 40);
    while !errands.is_empty() {
        let pick = order.below(errands.len() as u64) as usize;
        let Errand { peer, direction, slot, spans } = &mut errands[pick];
        let rank = Rank(*peer as u8);
        let done = match (spans.pop_front(), direction) {
            (Some((offset, len)), Direction::Send) => {
                outs[peer].region().send(rank, *slot, offset, len)
            }
            (Some((offset, len)), Direction::Receive) => {
                intos[peer].region().recv(rank, *slot, offset, len)
            }
            (None, _) => {
                errands.swap_remove(pick);
                continue;
            }
        };
        done.expect("an honest call");
    }
    for (peer, _) in peers.iter().flat_map(|peer| lens.iter().flatten().map(move |len| (peer, len)))
    {
        let rank = Rank(*peer as u8);
        assert_eq!(
            (outs[peer].sent(), intos[peer].received()),
            (Ok(Some(rank)), Ok(Some(rank))),
            "operation {number}"
        );
    }
    for (peer, into) in intos {
        assert!(into.take() == marked(total, salt(peer, me)), "operation {number}: other bytes");
    }
    drop(outs);
    end.retire(this);
}

fn errands_of(peer: usize, lens: &[Vec<usize>]) -> Vec<Errand> {
    let (mut offset, mut errands) = (0, Vec::new());
    for (slot, lens) in lens.iter().enumerate() {
        let mut next = |len: &usize| {
            offset += len;
            (offset - len, *len)
        };
        let spans: VecDeque<_> = lens.iter().map(&mut next).collect();
        for direction in [Direction::Send, Direction::Receive] {
            errands.push(Errand {
                peer,
                direction,
                slot: (slot as u64) << 32,
                spans: spans.clone(),
            });
        }
    }
    errands
}

/// Lengths of the messages by slot; the same on all ranks.
fn draw_lens(seed: u64) -> Vec<Vec<usize>> {
    let mut chance = Chance(seed);
    let len = |chance: &mut Chance| match chance.below(40) {
        0..4 => 0,
        4..36 => chance.below(600) as usize,
        36..39 => chance.below(40_000) as usize,
        _ => chance.below(600_000) as usize,
    };
    let slots = 1 + chance.below(4);
    (0..slots).map(|_| (0..1 + chance.below(80)).map(|_| len(&mut chance)).collect()).collect()
}

#[test]
fn waits_can_be_aborted() {
    let group = Group::new(2, memory);
    group.begin(op(0));
    let into = Buffer::new(&group.ends[0], op(0), vec![0; 8]);
    into.region().abort_recv();
    assert_eq!(into.received(), Ok(None), "an abort before the wait");
    let begun = Barrier::new(2);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            begun.wait();
            [into.sent(), into.received()]
        });
        begun.wait();
        into.region().abort_send();
        into.region().abort_recv();
        assert_eq!(waiting.join().expect("no panic"), [Ok(None), Ok(None)]);
    });
    drop(into);
    group.end();
}
