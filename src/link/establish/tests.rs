//! Links from the first byte on: over TCP and a proxy, with members, strangers and recordings.

use super::super::control::into_control;
use super::super::data::into_data_link;
use super::super::endpoints::PathProof;
use super::super::handshake::local;
use super::super::hello::DataEncryption;
use super::super::memory::pipe;
use super::super::tcp::{Bind, TcpNet};
use super::super::transport::{Listener, Net};
use super::*;
use crate::protocol::Rank;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

type Outcome = Result<(Box<dyn Stream>, SecureChannel), Refusal>;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const DATA: Purpose = Purpose::Data { view: ViewDigest([9; 32]), src: Rank(0), dst: Rank(1) };

/// The lookup of a node that has rank 1 in one View, in which `first` has rank 0.
fn one_view(first: MemberId) -> impl Fn(&DataAsk) -> Option<DataTerms> {
    move |ask| {
        let known = ask.hint == [9; 8] && ask.src == Rank(0) && ask.dst == Rank(1);
        known.then_some(DataTerms { view: ViewDigest([9; 32]), expect: first })
    }
}

async fn meet(
    a: &Local,
    b: &Local,
    purpose: Purpose,
    streams: (Box<dyn Stream>, Box<dyn Stream>),
) -> (Outcome, Outcome) {
    let replays = Mutex::new(Replays::default());
    let views = one_view(local(1, 1, 7).hello.id);
    tokio::join!(initiate(streams.0, a, purpose, None), respond(streams.1, b, &replays, views))
}

async fn tcp_streams() -> (Box<dyn Stream>, Box<dyn Stream>) {
    let net = TcpNet::new(Bind::At(LOOPBACK));
    let mut listener = net.listen(&[]).await.expect("a port");
    let near = net.dial((LOOPBACK, listener.port()).into()).await.expect("connected");
    (near, listener.accept().await.expect("accepted").0)
}

/// Sends `bytes` to a responder and closes the connection; returns its refusal and the bytes it
/// sent.
async fn answer_to(bytes: &[u8], replays: &Mutex<Replays>) -> (Option<Refusal>, Vec<u8>) {
    let (mut near, far) = pipe();
    let b = local(2, 2, 7);
    let mut answer = Vec::new();
    let talking = async {
        near.write_all(bytes).await.expect("the pipe is wide enough");
        near.shutdown().await.expect("closed");
        near.read_to_end(&mut answer).await.expect("read");
    };
    let (refusal, ()) = tokio::join!(respond(far, &b, replays, one_view(b.hello.id)), talking);
    (refusal.err(), answer)
}

/// The three messages of a handshake between two nodes of one cluster.
async fn recorded() -> [Vec<u8>; 3] {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    let terms = super::super::handshake::control();
    let (initiator, first) = Initiator::start(&a, terms).expect("randomness");
    let (_, second) = super::super::handshake::respond(&b, terms, &first).expect("genuine");
    let third = initiator.conclude(&second).expect("genuine").message3;
    [first.to_vec(), second.to_vec(), third.to_vec()]
}

#[tokio::test]
async fn a_control_link_over_tcp() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    let (at_a, at_b) = meet(&a, &b, Purpose::Control, tcp_streams().await).await;
    let ((near, to_b), (far, to_a)) = (at_a.expect("a link"), at_b.expect("a link"));
    assert_eq!((to_b.peer.id, to_a.peer.id), (b.hello.id, a.hello.id));
    assert_eq!((to_b.path, to_a.path), (PathProof::Proven, PathProof::Proven));
    let ((mut to, _from), (_to, mut from)) = (into_control(near, to_b), into_control(far, to_a));
    to.send(b"welcome").await.expect("sent");
    assert_eq!(from.recv().await.expect("received"), b"welcome");
}

/// A connection of `net` to the listener through a program that forwards all bytes.
async fn proxied(
    net: TcpNet,
    listener: &mut Box<dyn Listener>,
) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let mut proxy = net.listen(&[]).await.expect("a port");
    let dialled = SocketAddr::new(LOOPBACK, proxy.port());
    let near = net.dial(dialled).await.expect("connected");
    let (mut outer, _) = proxy.accept().await.expect("accepted");
    let there = SocketAddr::new(LOOPBACK, listener.port());
    let mut inner = net.dial(there).await.expect("connected");
    let (far, _) = listener.accept().await.expect("accepted");
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok() });
    (near, far)
}

#[tokio::test]
async fn a_link_through_a_proxy_stands_and_proves_no_path() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    for purpose in [Purpose::Control, Purpose::Relink, DATA] {
        let net = TcpNet::new(Bind::At(LOOPBACK));
        let mut listener = net.listen(&[]).await.expect("a port");
        let streams = proxied(net, &mut listener).await;
        let (at_a, at_b) = meet(&a, &b, purpose, streams).await;
        let ((_, to_b), (_, to_a)) = (at_a.expect("a link"), at_b.expect("a link"));
        assert_eq!((to_b.path, to_a.path), (PathProof::Unproven, PathProof::Unproven));
    }
}

#[tokio::test]
async fn a_data_link_over_tcp_on_a_trusted_wire_and_on_another() {
    for trusted in [true, false] {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        if trusted {
            a.set_trusted([LOOPBACK].into());
            b.set_trusted([LOOPBACK].into());
        }
        let (at_a, at_b) = meet(&a, &b, DATA, tcp_streams().await).await;
        let ((near, to_b), (far, to_a)) = (at_a.expect("a link"), at_b.expect("a link"));
        let encryption = if trusted { DataEncryption::Waived } else { DataEncryption::Required };
        assert_eq!(
            (to_a.purpose, to_a.encryption, to_b.encryption),
            (DATA, encryption, encryption)
        );
        let (_to, mut from, _) = into_data_link(near, to_b).expect("tcp").split();
        let (mut to, _from, _) = into_data_link(far, to_a).expect("tcp").split();
        let header = super::super::testing::header(4);
        to.send(&header, b"data").expect("sent");
        let (got, block) = from.recv(&crate::memory::Pool::new()).expect("received");
        assert_eq!((got, block.bytes()), (header, b"data".as_slice()));
    }
}

#[tokio::test]
async fn a_member_gets_the_data_link_of_its_own_rank_only() {
    let (a, b, other) = (local(1, 1, 7), local(2, 2, 7), local(3, 3, 7));
    assert_eq!(meet(&other, &b, DATA, pipe()).await.1.err(), Some(Refusal::WrongRank));
    let elsewhere = Purpose::Data { view: ViewDigest([8; 32]), src: Rank(0), dst: Rank(1) };
    let claimed = Purpose::Data { view: ViewDigest([9; 32]), src: Rank(3), dst: Rank(1) };
    for purpose in [elsewhere, claimed] {
        let (at_a, at_b) = meet(&a, &b, purpose, pipe()).await;
        assert_eq!((at_a.err(), at_b.err()), (Some(Refusal::Closed), Some(Refusal::UnknownView)));
    }
}

#[tokio::test]
async fn the_initiator_stops_before_it_names_itself_to_somebody_else() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    let (near, far) = pipe();
    let replays = Mutex::new(Replays::default());
    let expect = Some(local(4, 4, 7).hello.id);
    let (at_a, at_b) = tokio::join!(
        initiate(near, &a, Purpose::Control, expect),
        respond(far, &b, &replays, |_| None)
    );
    assert_eq!((at_a.err(), at_b.err()), (Some(Refusal::WrongRank), Some(Refusal::Closed)));
}

#[tokio::test]
async fn a_stranger_hears_nothing() {
    let replays = Mutex::new(Replays::default());
    let stranger = local(1, 1, 8);
    let terms = super::super::handshake::control();
    let (_, wrong_key) = Initiator::start(&stranger, terms).expect("randomness");
    assert_eq!(answer_to(&wrong_key, &replays).await, (Some(Refusal::WrongKey), Vec::new()));
    let joiner = crate::identity::Selector::of(42).expect("below 100");
    let pairing = [&Preamble::of_pairing(joiner)[..], &[b'A'; 33]].concat();
    assert_eq!(answer_to(&pairing, &replays).await, (Some(Refusal::NotPotluck), Vec::new()));
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(40);
    assert_eq!(answer_to(&request, &replays).await, (Some(Refusal::NotPotluck), Vec::new()));
    let mut newer = recorded().await[0].clone();
    newer[4] = 200;
    assert_eq!(
        answer_to(&newer, &replays).await,
        (Some(Refusal::OtherVersion { theirs: 200 }), Vec::new())
    );
    let data = Terms {
        purpose: Purpose::Data { view: ViewDigest([1; 32]), src: Rank(0), dst: Rank(1) },
        ..terms
    };
    let (_, no_such_view) = Initiator::start(&stranger, data).expect("randomness");
    assert_eq!(answer_to(&no_such_view, &replays).await, (Some(Refusal::UnknownView), Vec::new()));
}

#[tokio::test]
async fn no_prefix_of_a_recorded_handshake_makes_a_link() {
    let [first, _, third] = recorded().await;
    let said: Vec<u8> = [first.clone(), third].concat();
    for end in 0..=said.len() {
        let replays = Mutex::new(Replays::default());
        let (refusal, answer) = answer_to(&said[..end], &replays).await;
        let expected = if end < said.len() { Refusal::Closed } else { Refusal::Forged };
        assert_eq!(refusal, Some(expected), "{end} bytes");
        assert_eq!(answer.len(), if end < first.len() { 0 } else { MESSAGE2_BYTES }, "{end} bytes");
    }
}

#[test]
fn an_unfinished_handshake_is_small_and_may_run_on_any_thread() {
    let (b, replays) = (local(2, 2, 7), Mutex::new(Replays::default()));
    let state = respond(pipe().1, &b, &replays, |_| None);
    fn is_send(_: &impl Send) {}
    is_send(&state);
    assert!(size_of_val(&state) <= 4096, "{} bytes", size_of_val(&state));
}

#[tokio::test]
async fn a_first_message_is_answered_once() {
    let [first, ..] = recorded().await;
    let replays = Mutex::new(Replays::default());
    assert_eq!(answer_to(&first, &replays).await.1.len(), MESSAGE2_BYTES);
    assert_eq!(answer_to(&first, &replays).await, (Some(Refusal::Replayed), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_for_the_whole_handshake() {
    let b = local(2, 2, 7);
    let [first, ..] = recorded().await;
    let (mut near, far) = pipe();
    let began = tokio::time::Instant::now();
    let drip = async {
        for byte in first {
            near.write_all(&[byte]).await.ok();
            tokio::time::sleep(Duration::from_millis(1900)).await;
        }
    };
    let replays = Mutex::new(Replays::default());
    tokio::select! {
        outcome = respond(far, &b, &replays, |_| None) => {
            assert_eq!(outcome.err(), Some(Refusal::TooSlow));
        }
        () = drip => panic!("the slow peer was heard out"),
    }
    assert_eq!(began.elapsed().as_secs(), 2);
    let (silent, _kept) = pipe();
    assert_eq!(initiate(silent, &b, Purpose::Control, None).await.err(), Some(Refusal::TooSlow));
}
