//! The behaviour that all implementations of `DataLink` share, over TCP and in memory.

use super::super::handshake::{channel_pair_of, channel_pair_over, control};
use super::super::memory_data_link::data_pair;
use super::super::suite::Suite;
use super::super::testing::sockets;
use super::super::transport::{PAYLOAD_BYTES_MAX, Phase};
use super::*;
use crate::memory::Pool;
use crate::protocol::{Lane, OpId};
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::Duration;

type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

fn tcp((a, b): (SecureChannel, SecureChannel)) -> (Halves, Halves) {
    tcp_of((a, b), |link| link)
}

/// Both senders use a writer thread.
fn pressed((a, b): (SecureChannel, SecureChannel)) -> (Halves, Halves) {
    tcp_of((a, b), TcpData::pressed)
}

fn tcp_of(
    (a, b): (SecureChannel, SecureChannel),
    made: fn(TcpData) -> TcpData,
) -> (Halves, Halves) {
    let (near, far) = sockets();
    let link =
        |socket, channel| Box::new(made(TcpData::new(socket, channel).expect("a link"))).split();
    (link(near, a), link(far, b))
}

fn all() -> Vec<(&'static str, (Halves, Halves))> {
    let (a, b) = data_pair();
    let trusted = super::super::terms::Terms { encryption: DataEncryption::Waived, ..control() };
    vec![
        ("memory", (a.split(), b.split())),
        ("tcp, AES-256-GCM", tcp(channel_pair_of(Suite::Aes256Gcm))),
        ("tcp, ChaCha20-Poly1305", tcp(channel_pair_of(Suite::ChaCha20Poly1305))),
        ("tcp, AES-256-GCM, two threads", pressed(channel_pair_of(Suite::Aes256Gcm))),
        ("tcp, ChaCha20-Poly1305, two threads", pressed(channel_pair_of(Suite::ChaCha20Poly1305))),
        ("tcp, trusted", tcp(channel_pair_over(trusted))),
        #[cfg(target_os = "linux")]
        ("shared memory", tcp(on_one_host(channel_pair_over(control())))),
        #[cfg(target_os = "linux")]
        ("shared memory, trusted", tcp(on_one_host(channel_pair_over(trusted)))),
    ]
}

/// The same sessions between two processes of one host.
#[cfg(target_os = "linux")]
fn on_one_host((mut a, mut b): (SecureChannel, SecureChannel)) -> (SecureChannel, SecureChannel) {
    (a.shares_host, b.shares_host) = (true, true);
    (a, b)
}

fn header(number: usize, len: usize) -> DataHeader {
    let op = OpId { lane: Lane::MAIN, number: number as u64 };
    DataHeader { op, flow: 1, chunk: number as u32, phase: Phase::Gather, len: len as u32 }
}

const SIZES: [usize; 10] = [
    0,
    1,
    65_486,
    65_487,
    65_488,
    65_519,
    2 * 65_487,
    256 * 1024,
    PAYLOAD_BYTES_MAX - 1,
    PAYLOAD_BYTES_MAX,
];

#[test]
fn frames_of_all_sizes_arrive_both_ways_in_order() {
    for (name, (a, b)) in all() {
        let talk = |(mut to, mut from, keep): Halves, salt: usize| {
            let sending = thread::spawn(move || {
                for (n, len) in SIZES.into_iter().enumerate() {
                    let payload: Vec<u8> = (0..len).map(|i| (i * 31 + n + salt) as u8).collect();
                    to.send(&header(n, len), &payload).expect("sent");
                }
                to
            });
            let receiving = thread::spawn(move || {
                let pool = Pool::new();
                for (n, len) in SIZES.into_iter().enumerate() {
                    let (got, block) = from.recv(&pool).expect("received");
                    assert_eq!(got, header(n, len));
                    assert!(
                        block
                            .bytes()
                            .iter()
                            .enumerate()
                            .all(|(i, b)| *b == (i * 31 + n + 1 - salt) as u8)
                    );
                }
                from
            });
            (sending, receiving, keep)
        };
        let (a, b) = (talk(a, 0), talk(b, 1));
        // Keep all halves to the end: dropping a receiver ends its link.
        let received = [a.1.join(), b.1.join()];
        let sent = [a.0.join(), b.0.join()];
        assert!(received.iter().all(Result::is_ok) && sent.iter().all(Result::is_ok), "{name}");
    }
}

#[test]
fn shutdown_frees_a_blocked_receiver_and_a_blocked_sender() {
    for (name, (a, b)) in all() {
        let ((mut to, mut from, end), _peer) = (a, b);
        let sending = thread::spawn(move || {
            loop {
                if let Err(error) = to.send(&header(0, PAYLOAD_BYTES_MAX), &[0; PAYLOAD_BYTES_MAX])
                {
                    return (to, error);
                }
            }
        });
        let receiving =
            thread::spawn(move || from.recv(&Pool::new()).map(drop).expect_err("nothing was sent"));
        end.shutdown();
        end.shutdown();
        let (mut to, _) = sending.join().expect("the sender ends");
        receiving.join().expect("the receiver ends");
        assert!(to.send(&header(0, 0), &[]).is_err(), "{name}: a send after the end");
    }
}

#[test]
fn after_shutdown_nothing_more_is_received() {
    for (name, (a, b)) in all() {
        let ((mut to, _from, _), (_to, mut from, end)) = (a, b);
        to.send(&header(0, 10), &[1; 10]).expect("sent");
        to.send(&header(1, 10), &[1; 10]).expect("sent");
        let pool = Pool::new();
        from.recv(&pool).expect("the first");
        end.shutdown();
        assert!(from.recv(&pool).is_err(), "{name}");
    }
}

#[test]
fn the_peer_of_an_ended_link_gets_an_error_on_both_halves() {
    for (name, (a, b)) in all() {
        let ((_to, _from, end), (mut to, mut from, _)) = (a, b);
        end.shutdown();
        assert!(from.recv(&Pool::new()).is_err(), "{name}");
        let refused = (0..1000)
            .any(|_| to.send(&header(0, PAYLOAD_BYTES_MAX), &[0; PAYLOAD_BYTES_MAX]).is_err());
        assert!(refused, "{name}");
    }
}

#[test]
fn what_was_sent_before_a_drop_arrives() {
    for (name, (a, b)) in all() {
        let ((mut to, from, _), (_to, mut back, _)) = (a, b);
        to.send(&header(0, 1000), &[5; 1000]).expect("sent");
        drop(to);
        let (got, block) = back.recv(&Pool::new()).expect(name);
        assert_eq!((got, block.bytes()), (header(0, 1000), [5; 1000].as_slice()));
        assert!(back.recv(&Pool::new()).is_err(), "{name}: the end");
        drop(from);
    }
}

/// Prints the speed of one core per direction: `cargo test --release -p potluck --lib
/// frame_after_frame -- --nocapture`.
#[test]
fn frame_after_frame_is_what_it_was() {
    const FRAMES: usize = 64;
    let payload: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|i| (i * 31 + i / 253) as u8).collect();
    for (name, (a, b)) in all() {
        let ((mut to, _from, _), (_to, mut from, _)) = (a, b);
        let [mut sending, mut receiving] = [Duration::ZERO; 2];
        thread::scope(|scope| {
            let (sent, sending) = (&payload, &mut sending);
            // Return the half, so that its drop ends nothing early.
            scope.spawn(move || {
                for n in 0..FRAMES {
                    *sending += worked(|| to.send(&header(n, sent.len()), sent).expect("sent"));
                }
                to
            });
            let mut into = vec![0; payload.len()];
            for n in 0..FRAMES {
                receiving += worked(|| {
                    assert_eq!(from.header().expect("received"), header(n, payload.len()));
                    from.payload(&mut into).expect("received");
                });
                assert_eq!(into, payload, "{name}");
                into.fill(0);
            }
        });
        let speed = |work: Duration| (FRAMES * PAYLOAD_BYTES_MAX) as f64 / work.as_nanos() as f64;
        println!(
            "{name}: a core sends {:.2} GB/s, receives {:.2} GB/s",
            speed(sending),
            speed(receiving)
        );
    }
}

/// The processor time that `doing` takes on this thread.
fn worked(doing: impl FnOnce()) -> Duration {
    let now = || {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("since the thread began")
    };
    let began = now();
    doing();
    now() - began
}

#[test]
fn a_header_that_lies_about_its_payload_is_not_sent() {
    for (name, (a, _b)) in all() {
        let (mut to, ..) = a;
        let error = to.send(&header(0, 5), b"four").expect_err(name);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
