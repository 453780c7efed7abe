//! Control links over byte streams: order, cancellation at every byte, and damaged records.

use super::super::handshake::channel_pair;
use super::super::memory::pipe;
use super::*;

fn linked() -> ((ControlSender, ControlReceiver), (ControlSender, ControlReceiver)) {
    let (near, far) = pipe();
    let (a, b) = channel_pair();
    (into_control(near, a), into_control(far, b))
}

/// A receiver, the raw stream that feeds it, and a sealer with the matching keys.
fn tapped() -> (Box<dyn Stream>, Sealer, ControlReceiver, ControlSender) {
    let (near, far) = pipe();
    let (a, b) = channel_pair();
    let (to, from) = into_control(far, b);
    (near, a.into_halves().0, from, to)
}

fn record(sealer: &mut Sealer, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 2 + plain.len() + TAG_BYTES];
    let n = sealer.seal(plain, &mut out[2..]).expect("room enough");
    out[..2].copy_from_slice(&(n as u16).to_le_bytes());
    out
}

#[tokio::test]
async fn messages_of_all_sizes_arrive_both_ways_in_order() {
    let ((mut a_to, mut a_from), (mut b_to, mut b_from)) = linked();
    let around = |size: usize| [size - 1, size, size + 1];
    let most = [CONTROL_BYTES_MAX - 1, CONTROL_BYTES_MAX, 3];
    let sizes = [[0, 1, 1000], around(PART_BYTES), most].concat();
    let sending = async {
        for size in sizes.iter().copied() {
            a_to.send(&vec![size as u8; size]).await.expect("sent");
            b_to.send(&vec![!size as u8; size]).await.expect("sent");
        }
    };
    let receiving = async {
        for size in sizes.iter().copied() {
            assert_eq!(b_from.recv().await.expect("received"), vec![size as u8; size]);
            assert_eq!(a_from.recv().await.expect("received"), vec![!size as u8; size]);
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn what_is_added_leaves_together_and_in_order() {
    let ((mut to, _a), (_b, mut from)) = linked();
    for size in [1, 0, 500] {
        to.add(&vec![size as u8; size]).expect("added");
    }
    let waits = to.unsent();
    assert_eq!(waits, 3 * (LENGTH_BYTES + TAG_BYTES) + 501);
    assert_eq!(
        to.add(&vec![0; CONTROL_BYTES_MAX + 1]).map_err(|e| e.kind()),
        Err(io::ErrorKind::InvalidInput)
    );
    assert_eq!(to.unsent(), waits, "a refused message is not added");
    to.flush().await.expect("sent");
    assert_eq!(to.unsent(), 0);
    to.send(b"behind").await.expect("sent");
    for size in [1, 0, 500] {
        assert_eq!(from.recv().await.expect("received"), vec![size as u8; size]);
    }
    assert_eq!(from.recv().await.expect("received"), b"behind");
}

#[tokio::test]
async fn a_longer_message_is_not_sent_and_the_link_goes_on() {
    let ((mut to, _a), (_b, mut from)) = linked();
    let refused = to.send(&vec![0; CONTROL_BYTES_MAX + 1]).await.map_err(|e| e.kind());
    assert_eq!(refused, Err(io::ErrorKind::InvalidInput));
    to.send(b"still here").await.expect("sent");
    assert_eq!(from.recv().await.expect("received"), b"still here");
}

#[tokio::test]
async fn receiving_may_be_dropped_at_every_byte() {
    let (mut raw, mut sealer, mut from, _to) = tapped();
    for byte in record(&mut sealer, b"piecemeal").into_iter().chain(record(&mut sealer, b"again")) {
        // Poll once, which cannot finish, and drop the future; then write one more byte.
        tokio::select! {
            biased;
            message = from.recv() => assert_eq!(message.expect("whole"), b"piecemeal"),
            () = std::future::ready(()) => (),
        }
        raw.write_all(&[byte]).await.expect("written");
    }
    assert_eq!(from.recv().await.expect("received"), b"again");
}

#[tokio::test]
async fn sending_may_be_dropped_and_nothing_is_torn() {
    let ((mut to, _a), (_b, mut from)) = linked();
    let message = vec![7; PART_BYTES];
    let mut taken = 0;
    // The pipe holds a few of these messages; every later send is dropped half way.
    for _ in 0..10 {
        tokio::select! {
            biased;
            sent = to.send(&message) => {
                sent.expect("sent");
                taken += 1;
            }
            () = std::future::ready(()) => (),
        }
    }
    assert!((1..10).contains(&taken), "{taken} sends went through");
    let receiving = tokio::spawn(async move {
        loop {
            let message = from.recv().await.expect("whole records");
            if message == b"last" {
                break;
            }
            assert_eq!(message, vec![7; PART_BYTES]);
        }
    });
    to.send(b"last").await.expect("sent");
    receiving.await.expect("no panic");
}

#[tokio::test]
async fn impossible_lengths_close_the_link_unread() {
    for length in [0, 15, (SEALED_BYTES_MAX + 1) as u16, u16::MAX] {
        let (mut raw, _sealer, mut from, _to) = tapped();
        raw.write_all(&length.to_le_bytes()).await.expect("written");
        assert_eq!(
            from.recv().await.map_err(|e| e.kind()),
            Err(io::ErrorKind::InvalidData),
            "{length}"
        );
        assert_eq!(
            from.recv().await.map_err(|e| e.kind()),
            Err(io::ErrorKind::InvalidData),
            "{length}, again"
        );
    }
}

#[tokio::test]
async fn a_message_without_an_end_closes_the_link() {
    let (mut raw, mut sealer, mut from, _to) = tapped();
    let receiving = tokio::spawn(async move { from.recv().await.map_err(|e| e.kind()) });
    for _ in 0..CONTROL_BYTES_MAX / PART_BYTES {
        raw.write_all(&record(&mut sealer, &[1; PART_BYTES])).await.expect("written");
    }
    raw.write_all(&record(&mut sealer, b"x")).await.expect("written");
    assert_eq!(receiving.await.expect("no panic"), Err(io::ErrorKind::InvalidData));
}

#[tokio::test]
async fn a_truncated_record_is_an_end_not_a_message() {
    let whole = record(&mut tapped().1, b"cut short").len();
    for cut in 0..whole {
        let (mut raw, mut sealer, mut from, _to) = tapped();
        raw.write_all(&record(&mut sealer, b"cut short")[..cut]).await.expect("written");
        drop(raw);
        assert_eq!(
            from.recv().await.map_err(|e| e.kind()),
            Err(io::ErrorKind::UnexpectedEof),
            "{cut} bytes"
        );
    }
}

#[tokio::test]
async fn a_flipped_bit_closes_the_link() {
    let whole = record(&mut tapped().1, b"bent").len();
    for at in 2..whole {
        let (mut raw, mut sealer, mut from, _to) = tapped();
        let mut bent = record(&mut sealer, b"bent");
        bent[at] ^= 0x10;
        raw.write_all(&bent).await.expect("written");
        raw.write_all(&record(&mut sealer, b"fine")).await.expect("written");
        assert_eq!(
            from.recv().await.map_err(|e| e.kind()),
            Err(io::ErrorKind::InvalidData),
            "byte {at}"
        );
        assert_eq!(
            from.recv().await.map_err(|e| e.kind()),
            Err(io::ErrorKind::InvalidData),
            "byte {at}, again"
        );
    }
}
