//! Failures, and the operations and links that survive them.

use super::super::matching::SLOTS_MAX;
use super::super::stream::{EAGER_OP_BYTES, PIECE};
use super::group::{A, B, Buffer, C, Group, LINKS, PATIENCE, marked, op};
use super::peer::alone;
use crate::collective::suite::until;
use crate::link::{Phase, held, memory};
use crate::protocol::EngineFault;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn the_loss_of_a_peer_fails_only_what_needs_it() {
    for (name, link) in LINKS {
        let group = Group::new(3, link);
        for number in 0..4 {
            group.begin(op(number));
        }
        let [needs, done, other, later] =
            [0, 1, 2, 3].map(|number| Buffer::new(&group.ends[0], op(number), vec![0; 100_000]));
        needs.region().recv(B, 0, 0, 10).expect("posted");
        // Rank 1 sends its last message, in the second operation, and leaves.
        let last = Buffer::new(&group.ends[1], op(1), marked(10, 0));
        last.region().send(A, 0, 0, 10).expect("sent");
        assert_eq!(last.sent(), Ok(Some(A)));
        let marker = Buffer::new(&group.ends[1], op(3), vec![1]);
        marker.region().send(A, 0, 0, 1).expect("sent");
        later.region().recv(B, 0, 0, 1).expect("posted");
        assert_eq!(later.received(), Ok(Some(B)), "{name}");
        drop((last, marker));
        group.ends[1].close();
        assert_eq!(needs.received(), Err(EngineFault::LinkLost(B)), "{name}");
        assert_eq!(group.ends[0].fault(op(0)), Some(EngineFault::LinkLost(B)), "{name}");
        // The message sent before is still received.
        done.region().recv(B, 0, 0, 10).expect("here");
        assert_eq!(done.received(), Ok(Some(B)), "{name}");
        assert_eq!(done.take()[..10], marked(10, 0), "{name}");
        // Rank 2 is not affected.
        let far = Buffer::new(&group.ends[2], op(2), marked(100_000, 5));
        other.region().recv(C, 0, 0, 100_000).expect("posted");
        far.region().send(A, 0, 0, 100_000).expect("sent");
        assert_eq!((other.received(), far.sent()), (Ok(Some(C)), Ok(Some(A))), "{name}");
        assert_eq!(later.region().send(B, 0, 0, 1), Err(EngineFault::LinkLost(B)), "{name}");
        assert_eq!(later.region().wait_recv(PATIENCE), Err(EngineFault::LinkLost(B)), "{name}");
        drop((needs, other, later, far));
        group.end();
    }
}

/// Whether its operation has begun here or not.
#[test]
fn a_message_without_memory_fails_its_operation_and_no_other() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        for (number, early) in [(0, true), (2, false)] {
            let (lacking, next) = (op(number), op(number + 1));
            group.ends[1].begin(lacking);
            if !early {
                group.ends[0].begin(lacking);
            }
            group.pools[0].refuse_above(99);
            let out = Buffer::new(&group.ends[1], lacking, marked(100, number));
            out.region().send(A, 0, 0, 100).expect("sent");
            until(&format!("it has arrived over {name}"), || {
                group.ends[0].fault(lacking).is_some()
            });
            group.pools[0].refuse_above(usize::MAX);
            group.ends[0].begin(lacking);
            let lacks = EngineFault::Memory { bytes: 100 };
            let into = Buffer::new(&group.ends[0], lacking, vec![0; 100]);
            assert_eq!(into.region().recv(B, 0, 0, 100), Err(lacks), "{name}");

            group.begin(next);
            let out = Buffer::new(&group.ends[1], next, marked(100, number));
            out.region().send(A, 0, 0, 100).expect("sent");
            let into = Buffer::new(&group.ends[0], next, vec![0; 100]);
            into.region().recv(B, 0, 0, 100).expect("posted");
            assert_eq!(into.received(), Ok(Some(B)), "{name}");
            assert!(into.take() == marked(100, number), "{name}");
        }
        group.end();
    }
}

#[test]
fn a_message_of_another_length_is_an_error_at_once_and_of_its_operation_alone() {
    let lens = [
        (10, 11),
        (11, 10),
        (0, 1),
        (1, 0),
        (10, 40_000),
        (PIECE + 1, PIECE),
        (PIECE + 1, 2 * PIECE),
        (2 * PIECE, PIECE + 1),
    ];
    for (name, link) in LINKS {
        let group = Group::new(3, link);
        for (number, (sent, posted)) in (1..).zip(lens) {
            for early in [true, false] {
                let op = op(2 * number + u64::from(early));
                group.begin(op);
                let out = Buffer::new(&group.ends[1], op, vec![0; 3 * PIECE]);
                let into = Buffer::new(&group.ends[0], op, vec![0; 3 * PIECE]);
                if early {
                    out.region().send(A, 0, 0, sent).expect("sent");
                }
                // The receive is posted so that a long message gets its credit. From here on the
                // two ends count differently.
                let posted = into.region().recv(B, 0, 0, posted);
                if !early {
                    out.region().send(A, 0, 0, sent).expect("sent");
                }
                if posted.is_ok() {
                    assert_eq!(into.received(), Err(EngineFault::Protocol(B)), "{name}: {sent}");
                }
                assert_eq!(group.ends[0].fault(op), Some(EngineFault::Protocol(B)));
                // The other two ranks continue, and so does another operation with the same peer.
                let far = Buffer::new(&group.ends[2], op, vec![3; 50_000]);
                far.region().recv(B, 0, 0, 50_000).expect("posted");
                let near = Buffer::new(&group.ends[1], op, vec![4; 50_000]);
                near.region().send(C, 0, 0, 50_000).expect("sent");
                assert_eq!((far.received(), near.sent()), (Ok(Some(B)), Ok(Some(C))), "{name}");
                ping(&group, 1000 + 2 * number + u64::from(early));
            }
        }
        group.end();
    }
}

#[test]
fn a_message_that_only_its_sender_takes_for_large_ends_by_patience() {
    let group = Group::new(2, memory);
    group.begin(op(0));
    let [into, out] = [0, 1].map(|rank| Buffer::new(&group.ends[rank], op(0), vec![0; 40_000]));
    out.region().send(A, 0, 0, 40_000).expect("held");
    into.region().recv(B, 0, 0, 10).expect("posted");
    assert_eq!(into.region().wait_recv(Duration::from_millis(20)), Err(EngineFault::Stalled));
    assert_eq!(out.region().wait_send(Duration::from_millis(20)), Err(EngineFault::Stalled));
    drop((into, out));
    group.end();
}

/// Sends a message in a new operation from rank 1 to rank 0.
fn ping(group: &Group, number: u64) {
    let [into, out] = [0, 1].map(|rank| {
        group.ends[rank].begin(op(number));
        Buffer::new(&group.ends[rank], op(number), vec![rank as u8; 30_000])
    });
    out.region().send(A, 0, 0, 30_000).expect("sent");
    into.region().recv(B, 0, 0, 30_000).expect("posted");
    assert_eq!((into.received(), out.sent()), (Ok(Some(B)), Ok(Some(A))));
    assert!(into.take() == vec![1; 30_000]);
    drop(out);
    group.ends.iter().for_each(|end| end.retire(op(number)));
}

#[test]
fn a_cancelled_operation_wakes_all_who_wait_and_the_next_one_works() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        for number in 0..100 {
            let this = op(number);
            group.begin(this);
            let [a, b] =
                [0, 1].map(|rank| Buffer::new(&group.ends[rank], this, vec![0; 2_000_000]));
            // More than is ever received, in both directions.
            a.region().send(B, 0, 0, 1_000_000).expect("sent");
            b.region().send(A, 1, 0, 1_000_000).expect("held");
            a.region().recv(B, 2, 0, 10).expect("posted");
            b.region().recv(A, 0, 0, 1_000_000).expect("posted");
            thread::scope(|scope| {
                let waiting = [
                    scope.spawn(|| a.region().wait_recv(PATIENCE)),
                    scope.spawn(|| a.region().wait_recv(PATIENCE)),
                    scope.spawn(|| b.region().wait_send(PATIENCE)),
                ];
                for end in &group.ends {
                    end.cancel(this, EngineFault::Cancelled);
                    end.cancel(this, EngineFault::Closed);
                }
                let ended = waiting.map(|waiting| waiting.join().expect("no panic"));
                assert_eq!(ended, [Err(EngineFault::Cancelled); 3], "{name}");
            });
            assert_eq!(a.region().send(B, 0, 0, 0), Err(EngineFault::Cancelled));
            assert_eq!(a.region().recv(B, 0, 0, 0), Err(EngineFault::Cancelled));
            assert_eq!(group.ends[0].fault(this), Some(EngineFault::Cancelled));
            drop((a, b));
            ping(&group, 1000 + number);
            group.ends.iter().for_each(|end| end.retire(this));
            assert_eq!(group.ends[0].fault(this), None);
        }
        group.end();
    }
}

/// Sends small messages until the link is full and the sending thread blocks. Returns the error
/// that ends it.
fn fill_up(group: &Group) -> Result<u64, EngineFault> {
    for number in 1.. {
        let this = op(number);
        group.ends[0].begin(this);
        let out = Buffer::new(&group.ends[0], this, vec![1; EAGER_OP_BYTES]);
        out.region().send(B, 0, 0, EAGER_OP_BYTES)?;
        out.sent()?;
    }
    Ok(0)
}

#[test]
fn a_thread_that_writes_to_a_peer_that_never_reads_is_freed_by_the_end() {
    let group = Group::apart(2);
    group.connect(0, 1, held());
    group.begin(op(0));
    let waiting = Buffer::new(&group.ends[0], op(0), vec![7; 100]);
    waiting.region().recv(B, 0, 0, 100).expect("posted");
    thread::scope(|scope| {
        let sending = scope.spawn(|| fill_up(&group));
        until("the link is full", || group.ends[0].traffic().sent_bytes >= 1 << 20);
        // No other operation waits for the blocked thread.
        group.ends[0].cancel(op(0), EngineFault::Cancelled);
        assert_eq!(waiting.received(), Err(EngineFault::Cancelled));
        group.ends[0].close();
        let ended = sending.join().expect("no panic");
        assert!(matches!(ended, Err(EngineFault::Closed | EngineFault::Unfit)), "{ended:?}");
    });
    drop(waiting);
    group.end();
}

#[test]
fn a_region_dropped_in_mid_send_is_not_touched_any_more() {
    let (end, mut peers, threads) = alone(2);
    end.begin(op(0));
    let out = Buffer::new(&end, op(0), vec![7; 20_000_000]);
    out.region().send(B, 0, 0, 20_000_000).expect("held");
    peers[0].say(op(0), 0, Phase::Posted, 0, &[]);
    // An in-memory link takes this much; the sender thread then blocks in the next frame.
    until("the link is full", || end.traffic().sent_bytes >= 2 << 20);
    end.cancel(op(0), EngineFault::Cancelled);
    assert_eq!(out.sent(), Err(EngineFault::Cancelled));
    thread::scope(|scope| {
        let dropping = scope.spawn(|| out.take());
        end.close();
        let mut bytes = dropping.join().expect("no panic");
        assert_eq!(bytes.len(), 20_000_000);
        bytes.fill(0);
    });
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
    assert_eq!(end.traffic().sent_bytes, 2 << 20, "the rest has not gone");
}

#[test]
fn a_region_dropped_in_mid_receive_drops_the_rest() {
    let (end, mut peers, threads) = alone(2);
    end.begin(op(0));
    let gone = Buffer::new(&end, op(0), vec![0; 2 * PIECE + 9]);
    gone.region().recv(B, 0, 0, 2 * PIECE + 9).expect("posted");
    gone.region().recv(B, 0, 0, 40_000).expect("posted");
    let kept = Buffer::new(&end, op(0), vec![0; 40_000]);
    kept.region().recv(B, 0, 0, 40_000).expect("posted");
    let peer = &mut peers[0];
    assert_eq!((0..3).map(|_| peer.hear().phase).collect::<Vec<_>>(), [Phase::Posted; 3]);
    peer.say(op(0), 0, Phase::Message, 2, &[1; PIECE]);
    until("the first piece is here", || end.traffic().received_bytes > 0);
    drop(gone);
    peer.say(op(0), 0, Phase::Message, 1, &[1; PIECE]);
    peer.say(op(0), 0, Phase::Message, 0, &[1; 9]);
    peer.say(op(0), 0, Phase::Message, 0, &[2; 40_000]);
    peer.say(op(0), 0, Phase::Message, 0, &[3; 40_000]);
    assert_eq!(kept.received(), Ok(Some(B)));
    assert!(
        kept.take() == vec![3; 40_000],
        "the receive that was posted third gets the third message"
    );
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
}

#[test]
fn memory_taken_from_an_unfinished_send_fails_its_operation() {
    let group = Group::new(2, memory);
    for number in [0, 1] {
        group.begin(op(number));
    }
    let out = Buffer::new(&group.ends[0], op(0), vec![0; 100_000]);
    out.region().send(B, 0, 0, 100_000).expect("held");
    drop(out);
    assert_eq!(group.ends[0].fault(op(0)), Some(EngineFault::Cancelled));
    assert_eq!(group.ends[0].fault(op(1)), None);
    ping(&group, 7);
    group.end();
}

#[test]
fn a_link_that_replaces_another_fails_what_was_under_way_on_it() {
    for (name, link) in LINKS {
        let group = Group::new(2, link);
        for number in 0..2 {
            group.begin(op(number));
        }
        let [needs, idle] =
            [0, 1].map(|number| Buffer::new(&group.ends[0], op(number), vec![0; 100]));
        needs.region().recv(B, 0, 0, 100).expect("posted");
        group.connect(0, 1, link());
        assert_eq!(needs.received(), Err(EngineFault::LinkLost(B)), "{name}");
        assert_eq!(group.ends[0].fault(op(1)), None);
        assert_eq!(
            idle.region().send(B, 0, 0, 1),
            Err(EngineFault::LinkLost(B)),
            "{name}: begun on the old link"
        );
        ping(&group, 7);
        drop((needs, idle));
        group.end();
    }
}

#[test]
fn the_end_fails_everything_and_ends_all_threads() {
    for (name, link) in LINKS {
        let group = Group::new(3, link);
        group.begin(op(0));
        let buffers = [0, 1, 2].map(|rank| Buffer::new(&group.ends[rank], op(0), vec![0; 10]));
        buffers[0].region().recv(B, 0, 0, 10).expect("posted");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| buffers[0].received());
            group.ends[0].close();
            assert_eq!(waiting.join().expect("no panic"), Err(EngineFault::Closed), "{name}");
        });
        group.ends[0].begin(op(1));
        let late = Buffer::new(&group.ends[0], op(1), vec![0; 10]);
        assert_eq!(late.region().send(B, 0, 0, 1), Err(EngineFault::Closed));
        assert_eq!(late.received(), Err(EngineFault::Closed));
        let (left, right) = link();
        group.ends[0].attach(B, left);
        let (_sender, mut receiver, _end) = right.split();
        assert!(
            receiver.recv(&crate::memory::Pool::new()).is_err(),
            "{name}: a closed endpoint takes no link"
        );
        drop((buffers, late));
        group.end();
    }
}

#[test]
fn an_endpoint_that_nobody_has_any_more_is_closed() {
    let (end, peers, threads) = alone(3);
    end.begin(op(0));
    let buffer = Buffer::new(&end, op(0), vec![0; 10]);
    drop(end.clone());
    buffer.region().recv(B, 0, 0, 10).expect("there is one more");
    drop(end);
    assert_eq!(buffer.received(), Err(EngineFault::Closed));
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
    drop(peers);
}

#[test]
fn patience_counts_only_from_when_all_have_begun() {
    let group = Group::new(2, memory);
    let endpoint = &group.ends[0];
    endpoint.begin_patiently(op(0));
    let buffer = Buffer::new(endpoint, op(0), vec![0; 10]);
    buffer.region().recv(B, 0, 0, 10).expect("posted");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| buffer.region().wait_recv(Duration::from_millis(10)));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            assert!(!waiting.is_finished(), "it ended after {:?}", begun.elapsed());
            thread::yield_now();
        }
        endpoint.hurry(op(0));
        assert_eq!(waiting.join().expect("no panic"), Err(EngineFault::Stalled));
    });
    group.end();
}

#[test]
fn time_before_all_have_begun_does_not_count() {
    const SHORT: Duration = Duration::from_secs(4);
    let group = Group::new(2, memory);
    group.ends[0].begin_patiently(op(0));
    group.ends[1].begin(op(0));
    let [a, b] = [0, 1].map(|rank| Buffer::new(&group.ends[rank], op(0), vec![0; 10]));
    a.region().recv(B, 0, 0, 10).expect("posted");
    thread::scope(|scope| {
        let begun = Instant::now();
        let until = |share: f64| {
            thread::sleep(SHORT.mul_f64(share).saturating_sub(begun.elapsed()));
        };
        let waiting = scope.spawn(|| a.region().wait_recv(SHORT));
        // Shortly before the thread wakes up that began to wait at the beginning.
        until(0.9);
        group.ends[0].hurry(op(0));
        until(1.3);
        b.region().send(A, 0, 0, 10).expect("sent");
        assert_eq!(waiting.join().expect("no panic"), Ok(Some(B)));
    });
    drop((a, b));
    group.end();
}

#[test]
fn a_wait_ends_when_nothing_moves_and_not_while_something_does() {
    const SHORT: Duration = Duration::from_secs(3);
    let group = Group::new(2, memory);
    group.begin(op(0));
    let [a, b] = [0, 1].map(|rank| Buffer::new(&group.ends[rank], op(0), vec![0; 200_000]));
    a.region().recv(B, 0, 0, 100_000).expect("posted");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.region().wait_recv(SHORT));
        let begun = Instant::now();
        // Another flow of the same operation moves, for longer than the patience.
        while begun.elapsed() < 2 * SHORT {
            b.region().recv(A, 1, 0, 10).expect("posted");
            a.region().send(B, 1, 100_000, 10).expect("sent");
            assert_eq!((b.received(), a.sent()), (Ok(Some(A)), Ok(Some(B))));
            thread::sleep(SHORT / 100);
        }
        b.region().send(A, 0, 0, 100_000).expect("sent");
        assert_eq!(waiting.join().expect("no panic"), Ok(Some(B)));
    });
    let begun = Instant::now();
    assert_eq!(a.region().wait_recv(Duration::from_millis(20)), Err(EngineFault::Stalled));
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!(group.ends[0].fault(op(0)), Some(EngineFault::Stalled));
    assert_eq!(a.sent(), Err(EngineFault::Stalled), "it fails as a whole");
    ping(&group, 7);
    drop((a, b));
    group.end();
}

#[test]
fn calls_out_of_their_time_are_errors() {
    let group = Group::new(2, memory);
    let end = &group.ends[0];
    let buffer = Buffer::new(end, op(0), vec![0; 10]);
    assert_eq!(buffer.region().send(B, 0, 0, 1), Err(EngineFault::Unfit), "not begun");
    assert_eq!(buffer.received(), Err(EngineFault::Unfit), "not begun");
    end.begin(op(0));
    for rank in [A, C] {
        assert_eq!(
            buffer.region().send(rank, 0, 0, 1),
            Err(EngineFault::Unfit),
            "itself, or nobody"
        );
        assert_eq!(
            buffer.region().recv(rank, 0, 0, 1),
            Err(EngineFault::Unfit),
            "itself, or nobody"
        );
    }
    let slots = (0..20).take_while(|slot| buffer.region().send(B, *slot, 0, 1).is_ok()).count();
    assert_eq!(slots, SLOTS_MAX);
    assert_eq!(end.fault(op(0)), None);
    end.retire(op(0));
    end.begin(op(0));
    assert_eq!(buffer.region().send(B, 0, 0, 1), Err(EngineFault::Cancelled), "over");
    assert_eq!(buffer.sent(), Err(EngineFault::Cancelled), "over");
    end.cancel(op(1), EngineFault::Protocol(B));
    end.begin(op(1));
    let early = Buffer::new(end, op(1), vec![0; 10]);
    assert_eq!(early.sent(), Err(EngineFault::Protocol(B)), "cancelled before it began");
    drop((buffer, early));
    group.end();
}
