//! The choice of a cipher suite by two ends, for control links and data links.

use super::super::control::{ControlReceiver, ControlSender, into_control};
use super::super::data::into_data_link;
use super::super::endpoints::Endpoints;
use super::super::establish::{DataTerms, initiate, respond};
use super::super::handshake::{
    Initiator, MESSAGE2_BYTES, MESSAGE3_BYTES, control, local, respond as answer,
};
use super::super::handshake_limiter::Replays;
use super::super::local::Local;
use super::super::preamble::Purpose;
use super::super::refusal::Refusal;
use super::super::secure_channel::SecureChannel;
use super::super::tcp::{Bind, TcpNet};
use super::super::testing::header;
use super::super::transport::{DataReceiver, DataSender, Net, PAYLOAD_BYTES_MAX, Stream};
use super::*;
use crate::memory::Pool;
use crate::protocol::{Rank, ViewDigest};
use crate::wire::Encode;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SUITES: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
const DATA: Purpose = Purpose::Data { view: ViewDigest([9; 32]), src: Rank(0), dst: Rank(1) };
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

type Ends = ((Box<dyn Stream>, SecureChannel), (Box<dyn Stream>, SecureChannel));

/// (dialler's preference, listener's preference, suite of their link).
fn combinations() -> [(Suite, Suite, Suite); 4] {
    let [aes, chacha] = SUITES;
    [(aes, aes, aes), (aes, chacha, chacha), (chacha, aes, chacha), (chacha, chacha, chacha)]
}

fn nodes(dialler: Suite, listener: Suite) -> (Local, Local) {
    let (mut a, mut b) = (local(1, 1, 7), local(2, 2, 7));
    (a.hello.suite, b.hello.suite) = (dialler, listener);
    (a, b)
}

/// Links `a` to `b` over TCP, through `tap` if there is one.
async fn linked(a: &Local, b: &Local, purpose: Purpose, tap: Option<Tap>) -> Ends {
    let net = TcpNet::new(Bind::At(LOOPBACK));
    let mut listener = net.listen(&[]).await.expect("a port");
    let mut to = SocketAddr::new(LOOPBACK, listener.port());
    if let Some(tap) = tap {
        to = tap.in_front_of(to).await;
    }
    let near = net.dial(to).await.expect("connected");
    let far = listener.accept().await.expect("accepted").0;
    let replays = Mutex::new(Replays::default());
    let terms = DataTerms { view: ViewDigest([9; 32]), expect: a.hello.id };
    let (near, far) =
        tokio::join!(initiate(near, a, purpose, None), respond(far, b, &replays, |_| Some(terms)));
    (near.expect("a link"), far.expect("a link"))
}

/// A proxy that flips one bit of the dialler's bytes, at this offset behind its part of the
/// handshake.
#[derive(Clone, Copy)]
struct Tap {
    at: usize,
}

const HANDSHAKE_BYTES: usize = 64 + MESSAGE3_BYTES;

impl Tap {
    async fn in_front_of(self, real: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
        let here = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            let (near, _) = listener.accept().await.expect("accepted");
            let far = TcpStream::connect(real).await.expect("connected");
            let ((mut from, mut back), (mut answers, mut to)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
            let (mut part, mut passed, at) = (vec![0; 4096], 0, HANDSHAKE_BYTES + self.at);
            // An end of stream or an error means that either end has closed.
            while let Ok(n @ 1..) = from.read(&mut part).await {
                if (passed..passed + n).contains(&at) {
                    part[at - passed] ^= 1;
                }
                passed += n;
                if to.write_all(&part[..n]).await.is_err() {
                    break;
                }
            }
        });
        here
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 13 + i / 241) as u8).collect()
}

/// Sends a frame from one thread and receives it on another.
fn carry(to: &mut dyn DataSender, from: &mut dyn DataReceiver, len: usize) -> io::Result<Vec<u8>> {
    let sent = payload(len);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| from.recv(&Pool::new()));
        // If the receiver has ended the link, this fails too.
        let _ = to.send(&header(len), &sent);
        let (got, block) = receiving.join().expect("no panic")?;
        assert_eq!(got, header(len));
        Ok(block.bytes().to_vec())
    })
}

#[tokio::test]
async fn both_ends_of_a_data_link_choose_alike_and_understand_each_other() {
    for (dialler, listener, expected) in combinations() {
        let (a, b) = nodes(dialler, listener);
        let ((near, to_b), (far, to_a)) = linked(&a, &b, DATA, None).await;
        assert_eq!((to_b.suite, to_a.suite), (expected, expected), "{dialler} dials {listener}");
        assert_eq!((to_b.peer.suite, to_a.peer.suite), (listener, dialler));
        let (mut a_to, mut a_from, _) = into_data_link(near, to_b).expect("tcp").split();
        let (mut b_to, mut b_from, _) = into_data_link(far, to_a).expect("tcp").split();
        for len in [0, 1, 65_487, 300_000, PAYLOAD_BYTES_MAX] {
            assert_eq!(carry(&mut *a_to, &mut *b_from, len).expect("there"), payload(len));
            assert_eq!(carry(&mut *b_to, &mut *a_from, len).expect("back"), payload(len));
        }
    }
}

#[tokio::test]
async fn a_turned_bit_ends_a_data_link_of_either_suite() {
    for (dialler, listener, _) in combinations() {
        // In the record with the header, in its tag, and in a full record.
        for at in [2, 2 + 32 + 100_000 % 65_487, 90_000] {
            let (a, b) = nodes(dialler, listener);
            // The tap runs on this runtime, so the blocking threads must not.
            let ((near, to_b), (far, to_a)) = linked(&a, &b, DATA, Some(Tap { at })).await;
            let (mut to, _from, _) = into_data_link(near, to_b).expect("tcp").split();
            let (_to, mut from, _) = into_data_link(far, to_a).expect("tcp").split();
            let carried = tokio::task::spawn_blocking(move || carry(&mut *to, &mut *from, 100_000))
                .await
                .expect("no panic");
            let error = carried.expect_err("what was turned is not taken");
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidData,
                "{dialler} dials {listener}, byte {at}"
            );
        }
    }
}

#[tokio::test]
async fn control_links_follow_the_same_rule() {
    for (dialler, listener, expected) in combinations() {
        let (a, b) = nodes(dialler, listener);
        let ((near, to_b), (far, to_a)) = linked(&a, &b, Purpose::Control, None).await;
        assert_eq!((to_b.suite, to_a.suite), (expected, expected), "{dialler} dials {listener}");
        let (mut near, mut far): ((ControlSender, ControlReceiver), _) =
            (into_control(near, to_b), into_control(far, to_a));
        near.0.send(b"there").await.expect("sent");
        assert_eq!(far.1.recv().await.expect("received"), b"there");
        far.0.send(b"and back").await.expect("sent");
        assert_eq!(near.1.recv().await.expect("received"), b"and back");
    }
}

#[tokio::test]
async fn the_trace_says_what_protects_a_data_link() {
    for (dialler, listener, expected) in combinations() {
        let (a, b) = nodes(dialler, listener);
        for trusted in [false, true] {
            if trusted {
                a.set_trusted([LOOPBACK].into());
                b.set_trusted([LOOPBACK].into());
            }
            let (dialled, accepted) = linked(&a, &b, DATA, None).await;
            let said = if trusted {
                "none: both ends trust the wire".to_owned()
            } else {
                expected.to_string()
            };
            for (stream, channel) in [dialled, accepted] {
                let trace = traced(|| drop(into_data_link(stream, channel).expect("tcp")));
                assert!(trace.contains(&format!("protection=\"{said}\"")), "{trace}");
            }
        }
    }
}

/// The log of `doing` at level debug.
fn traced(doing: impl FnOnce()) -> String {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let writing = Mutex::new(writer);
    let listener = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(writing);
    tracing::subscriber::with_default(listener.finish(), doing);
    let mut said = String::new();
    io::Read::read_to_string(&mut reader, &mut said).expect("text");
    said
}

/// The handshake's cipher is a stream cipher, so an attacker that knows the layout can flip exactly
/// the bit that states the suite.
#[test]
fn whoever_turns_what_an_end_says_of_its_suite_makes_no_link() {
    for suite in SUITES {
        let (a, b) = nodes(suite, suite);
        // The engines, the partition rule, the endpoints and the host follow.
        let behind = 1 + 1 + 8 + Endpoints::BYTES + 16;
        let flags = |node: &Local| 64 + node.hello.to_bytes().len() - behind;
        let (initiator, first) = Initiator::start(&a, control()).expect("randomness");
        let (answered, message2) = answer(&b, control(), &first).expect("genuine");
        let mut bent = message2;
        bent[32 + 48 + flags(&b)] ^= 4;
        let (other, _) = Initiator::start(&a, control()).expect("randomness");
        assert_eq!(other.conclude(&bent).err(), Some(Refusal::WrongKey));
        let mut message3 = initiator.conclude(&message2).expect("genuine").message3;
        assert_eq!(
            (MESSAGE2_BYTES, MESSAGE3_BYTES),
            (32 + 48 + 340 + 16, 48 + 340 + 16),
            "the layout that is meant here"
        );
        message3[48 + flags(&a)] ^= 4;
        assert_eq!(answered.finish(&message3).err(), Some(Refusal::Forged));
    }
}
