//! The decision between two control links of one member, at both ends.

use super::*;
use crate::link::{Local, MemoryWorld, Net, Replays, initiate, local, respond};
use std::net::IpAddr;
use std::sync::Mutex;

type End = (Box<dyn Stream>, SecureChannel);

/// The two ends of a new connection, the dialler's first.
async fn dialled(from: &Local, to: &Local) -> (End, End) {
    let (world, ip) = (MemoryWorld::new(), |n: u8| IpAddr::from([10, 0, 0, n]));
    let mut listener = world.host(ip(2)).listen(&[]).await.expect("a port");
    let near = world.host(ip(1)).dial((ip(2), listener.port()).into()).await.expect("connected");
    let (far, _) = listener.accept().await.expect("accepted");
    linked((near, from), (far, to)).await
}

/// Both ends after the handshake over this connection.
async fn linked(
    (near, from): (Box<dyn Stream>, &Local),
    (far, to): (Box<dyn Stream>, &Local),
) -> (End, End) {
    let replays = Mutex::new(Replays::default());
    let (near, far) = tokio::join!(
        initiate(near, from, Purpose::Control, None),
        respond(far, to, &replays, |_| None)
    );
    (near.expect("a link"), far.expect("a link"))
}

/// The links of a node, none so far, and their events.
fn peers_of(node: &Local) -> (Peers, mpsc::Receiver<Event>) {
    let (events, heard) = mpsc::channel(64);
    (Peers::new(node.hello.id.node, events, Mutation::NONE), heard)
}

fn take(peers: &mut Peers, end: End, dialler: NodeId) -> Taken {
    take_over(peers, end, dialler, Direct::Good)
}

fn take_over(peers: &mut Peers, (stream, session): End, dialler: NodeId, present: Direct) -> Taken {
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    peers.take(Arrival { stream, session, address, over: Vec::new(), dialler }, present)
}

/// The same, through a machine that forwards all bytes.
async fn proxied(from: &Local, to: &Local) -> (End, End) {
    let (world, ip) = (MemoryWorld::new(), |n: u8| IpAddr::from([10, 0, 0, n]));
    let mut listener = world.host(ip(2)).listen(&[]).await.expect("a port");
    let mut proxy = world.host(ip(3)).listen(&[]).await.expect("a port");
    let near = world.host(ip(1)).dial((ip(3), proxy.port()).into()).await.expect("connected");
    let (mut outer, _) = proxy.accept().await.expect("accepted");
    let there = SocketAddr::new(ip(2), listener.port());
    let mut inner = world.host(ip(3)).dial(there).await.expect("connected");
    let (far, _) = listener.accept().await.expect("accepted");
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok() });
    linked((near, from), (far, to)).await
}

/// The proofs of the paths of the links that two nodes keep.
fn kept(near: &Peers, far: &Peers, ids: (MemberId, MemberId)) -> (bool, bool) {
    let at = |peers: &Peers, id| peers.get(id).expect("a link").is_proven();
    (at(near, ids.1), at(far, ids.0))
}

#[tokio::test(start_paused = true)]
async fn of_a_proxied_link_and_a_proven_one_both_ends_keep_the_proven_one() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    for (from, to) in [(&a, &b), (&b, &a)] {
        for (proxied_first_near, proxied_first_far) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let (detour, direct) = (proxied(from, to).await, dialled(from, to).await);
            let dialler = from.hello.id.node;
            let ((mut near, _heard), (mut far, _hears)) = (peers_of(from), peers_of(to));
            for (peers, detour, direct, detour_first) in [
                (&mut near, detour.0, direct.0, proxied_first_near),
                (&mut far, detour.1, direct.1, proxied_first_far),
            ] {
                let (one, other) = if detour_first { (detour, direct) } else { (direct, detour) };
                assert_eq!(take(peers, one, dialler), Taken::New);
                let second = take(peers, other, dialler);
                assert_eq!(second == Taken::Replaced, detour_first);
            }
            let ids = (from.hello.id, to.hello.id);
            assert_eq!(kept(&near, &far, ids), (true, true));
        }
    }
}

/// A node with these many links to nodes at each of these addresses, the oldest first.
async fn crowded(places: &[(u8, usize)]) -> (Peers, Vec<MemberId>) {
    let me = local(1, 1, 7);
    let ((mut peers, _), mut ids) = (peers_of(&me), Vec::new());
    for (host, count) in places {
        for _ in 0..*count {
            let other = local(2 + ids.len() as u8, 1, 7);
            let (stream, session) = dialled(&other, &me).await.1;
            let address = SocketAddr::from(([10, 0, 0, *host], 1));
            let (over, dialler) = (Vec::new(), other.hello.id.node);
            let arrival = Arrival { stream, session, address, over, dialler };
            assert_eq!(peers.take(arrival, Direct::Good), Taken::New);
            ids.push(other.hello.id);
            tokio::time::advance(Duration::from_millis(10)).await;
        }
    }
    (peers, ids)
}

#[tokio::test(start_paused = true)]
async fn the_oldest_link_of_the_fullest_address_gives_way_to_a_newcomer_of_another() {
    let newcomer = local(100, 1, 7).hello.id;
    let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
    let nobody = |_| false;
    let (peers, _) = crowded(&[(9, LINKS_MAX - 1)]).await;
    assert_eq!(peers.crowded_out_by(newcomer, ip(3), nobody), None, "there is a place left");
    let (peers, ids) = crowded(&[(3, 2), (9, LINKS_MAX - 5), (4, 3)]).await;
    assert_eq!(peers.crowded_out_by(newcomer, ip(5), nobody), Some(ids[2]));
    assert_eq!(peers.crowded_out_by(newcomer, ip(3), nobody), Some(ids[2]));
    assert_eq!(peers.crowded_out_by(newcomer, ip(9), nobody), None, "it is full of its own");
    assert_eq!(peers.crowded_out_by(ids[0], ip(3), nobody), None, "it has a link");
    let first = |id| id == ids[2];
    assert_eq!(peers.crowded_out_by(newcomer, ip(5), first), Some(ids[3]), "a member stays");
    let all_there = |id| ids[2..LINKS_MAX - 3].contains(&id);
    assert_eq!(peers.crowded_out_by(newcomer, ip(5), all_there), Some(ids[LINKS_MAX - 3]));
    assert_eq!(peers.crowded_out_by(newcomer, ip(3), all_there), None, "they are as many");
}

#[tokio::test(start_paused = true)]
async fn a_detour_replaces_only_a_quiet_link_and_yields_to_any_proven_one() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    let dialler = a.hello.id.node;
    let (mut near, _heard) = peers_of(&a);
    assert_eq!(take(&mut near, dialled(&a, &b).await.0, dialler), Taken::New);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // Later than AT_ONCE the same dialler's later link would stay.
    assert_eq!(take(&mut near, proxied(&a, &b).await.0, dialler), Taken::Refused);
    let detour = proxied(&a, &b).await.0;
    assert_eq!(take_over(&mut near, detour, dialler, Direct::Quiet), Taken::Replaced);
    let direct = dialled(&b, &a).await.1;
    assert_eq!(take(&mut near, direct, b.hello.id.node), Taken::Replaced);
}

/// Waits until all tasks wait: only then does paused time pass.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// The pings that have arrived, and whether the present link has ended.
async fn heard(peers: &mut Peers, events: &mut mpsc::Receiver<Event>) -> (Vec<u64>, bool) {
    idle().await;
    let (mut pings, mut ended) = (Vec::new(), false);
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Message { message: Message::Ping(number), .. } => pings.push(number),
            Event::Closed { member, generation, .. } => {
                ended |= peers.closed(member, generation).is_some();
            }
            _ => {}
        }
    }
    (pings, ended)
}

/// A link of `peers` whose other end takes nothing, with more queued than fits the connection.
async fn to_a_frozen_peer(
    peers: &mut Peers,
    [from, to]: [&Local; 2],
    over: Vec<MemberId>,
) -> (MemberId, End) {
    let ((stream, session), far) = dialled(from, to).await;
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let dialler = from.hello.id.node;
    let taken = peers.take(Arrival { stream, session, address, over, dialler }, Direct::Good);
    assert_eq!(taken, Taken::New);
    let id = to.hello.id;
    assert!((0..WAITING_MAX as u64).all(|number| peers.send(id, Message::Ping(number))));
    idle().await;
    assert!(
        peers.get(id).expect("it stands").line.send_queue().waiting() > 0,
        "it took everything"
    );
    (id, far)
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_over_ends_both_ways_although_its_peer_takes_nothing() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    type EndsIt = fn(&mut Peers, MemberId, Option<End>, NodeId);
    let ends: [(&str, bool, EndsIt); 4] = [
        ("dropped", false, |peers, id, _, _| _ = peers.drop_link(id)),
        ("ended by its reader", false, |peers, id, _, _| {
            let generation = peers.get(id).expect("it stands").generation;
            _ = peers.closed(id, generation);
        }),
        ("overrun", false, |peers, id, _, _| {
            while peers.send(id, Message::Ping(0)) {}
            for (id, generation) in peers.overrun() {
                _ = peers.closed(id, generation);
            }
        }),
        ("replaced", true, |peers, _, next, dialler| {
            assert_eq!(take(peers, next.expect("a link"), dialler), Taken::Replaced);
        }),
    ];
    for (how, is_replaced, end) in ends {
        let (mut peers, _heard) = peers_of(&a);
        let relays = if is_replaced { vec![local(3, 3, 7).hello.id] } else { Vec::new() };
        let (id, (mut stream, _)) = to_a_frozen_peer(&mut peers, [&a, &b], relays).await;
        let (next, _far) = dialled(&a, &b).await;
        end(&mut peers, id, Some(next).filter(|_| is_replaced), a.hello.id.node);
        tokio::time::sleep(2 * LINGER).await;
        peers.reap();
        let writers = peers.writers.len() + peers.relayed_writers.len();
        assert_eq!(writers, usize::from(is_replaced), "{how}: its writer still waits");
        // The connection is closed, not only left alone.
        let mut all = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all);
        let ended = tokio::time::timeout(LINGER, read).await;
        assert!(ended.is_ok(), "{how}: the connection still stands");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_dials_at_once_both_ends_keep_the_same_in_whatever_order_they_hear_of_them() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    let (at_a, at_b) = (a.hello.id, b.hello.id);
    for (from, to, same_order) in [(&a, &b, false), (&b, &a, false), (&a, &b, true)] {
        let ((first_near, first_far), (second_near, second_far)) =
            (dialled(from, to).await, dialled(from, to).await);
        let ((mut near, mut near_heard), (mut far, mut far_heard)) = (peers_of(from), peers_of(to));
        let dialler = from.hello.id.node;
        let [one, other] =
            if same_order { [first_far, second_far] } else { [second_far, first_far] };
        let (near_id, far_id) = if from.hello.id == at_a { (at_a, at_b) } else { (at_b, at_a) };
        take(&mut near, first_near, dialler);
        take(&mut far, one, dialler);
        // Messages on the link that goes away are delivered all the same.
        assert!(near.send(far_id, Message::Ping(1)) && far.send(near_id, Message::Ping(2)));
        take(&mut near, second_near, dialler);
        take(&mut far, other, dialler);
        assert_eq!(heard(&mut far, &mut far_heard).await, (vec![1], false));
        assert_eq!(heard(&mut near, &mut near_heard).await, (vec![2], false));
        tokio::time::sleep(2 * LINGER).await;
        assert!(near.send(far_id, Message::Ping(3)) && far.send(near_id, Message::Ping(4)));
        assert_eq!(heard(&mut far, &mut far_heard).await, (vec![3], false));
        assert_eq!(heard(&mut near, &mut near_heard).await, (vec![4], false));
    }
}
