//! The control links of this node: at most one per member, each with a send queue (`SendQueue`) and
//! a reader task.

use super::claim::{Claim, FRESH};
use super::event::Event;
use super::open_session::OpenSession;
use super::reader::Reader;
use super::send_queue::{QueueOwner, SendQueue, WAITING_MAX};
use super::view_sender::SendQueues;
use crate::identity::{MemberId, NodeId};
use crate::link::{
    ControlReceiver, Hello, PathProof, PskNumber, Purpose, SecureChannel, Stream, into_control,
};
use crate::protocol::{Message, Rank, Seeded};
use crate::session::ViewSession;
use crate::topology::RoundTrip;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Most members with a link: one View, and as many nodes outside it.
pub(super) const LINKS_MAX: usize = 32;

/// How long a replaced or refused link is still read for messages in flight, and how long a link
/// that is over may take to send what is queued. A peer that takes nothing holds up neither.
const LINGER: Duration = Duration::from_secs(2);

/// All control links of this node, by member.
pub(super) struct Peers {
    me: NodeId,
    links: BTreeMap<MemberId, Link>,
    send_queues: SendQueues,
    session: OpenSession,
    generations: u64,
    events: mpsc::Sender<Event>,
    /// Writer tasks of direct links. [`Peers::flush`] waits for them when the node leaves.
    writers: tokio::task::JoinSet<()>,
    /// Writer tasks of relayed links, flushed before those of direct links.
    relayed_writers: tokio::task::JoinSet<()>,
    /// The rules that a test breaks in this node.
    seeded: Seeded,
}

/// A new authenticated connection. `over` is empty for a direct one.
pub(super) struct Arrival {
    pub(super) stream: Box<dyn Stream>,
    pub(super) session: SecureChannel,
    pub(super) address: SocketAddr,
    pub(super) over: Vec<MemberId>,
    pub(super) dialler: NodeId,
}

/// The state of the present direct link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direct {
    Good,
    /// The election has heard little over it.
    Quiet,
}

/// One control link.
pub(super) struct Link {
    pub(super) hello: Hello,
    /// Listen address of the peer; for a relayed link, that of its first relay.
    pub(super) address: SocketAddr,
    /// Relays from here to the peer, in order; empty for a direct link.
    pub(super) over: Vec<MemberId>,
    /// This end's address, for a direct link.
    pub(super) local: Option<SocketAddr>,
    /// Whether the peer itself has the address at which this end sees it.
    pub(super) path: PathProof,
    pub(super) round_trip: RoundTrip,
    /// When the last ping was sent that the member has answered over this link.
    answered: Option<Instant>,
    /// The peer has said anything over it.
    is_heard: bool,
    since: Instant,
    /// The pre-shared key that admitted the peer.
    psk: PskNumber,
    generation: u64,
    claim: Claim,
    line: QueueOwner,
    reader: AbortHandle,
    writer: AbortHandle,
}

/// The outcome of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The member had no link before.
    New,
    /// It replaced the present link.
    Replaced,
    /// The present link is kept, or there is no room.
    Refused,
}

impl Peers {
    pub(super) fn new(me: NodeId, events: mpsc::Sender<Event>, seeded: Seeded) -> Peers {
        let (writers, relayed_writers) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
        Peers {
            me,
            links: BTreeMap::new(),
            send_queues: SendQueues::default(),
            session: OpenSession::default(),
            generations: 0,
            events,
            writers,
            relayed_writers,
            seeded,
        }
    }

    /// Decides between the present link of a member and a new connection.
    ///
    /// | present | new     | kept                                                               |
    /// | ------- | ------- | ------------------------------------------------------------------ |
    /// | none    | any     | the new one, if there are fewer than [`LINKS_MAX`] links           |
    /// | direct  | direct  | the one over a proven path, unless it is the present one and       |
    /// |         |         | [`Quiet`](Direct::Quiet); both the same: see [`Claim::stays`]      |
    /// | direct  | relayed | the present one, unless it is [`Quiet`](Direct::Quiet)             |
    /// | relayed | direct  | the new one                                                        |
    /// | relayed | relayed | the one dialled by the smaller node id; same dialler: the new one, |
    /// |         |         | because a node tries at most one circuit at a time                 |
    pub(super) fn take(&mut self, arrival: Arrival, direct: Direct) -> Taken {
        let Arrival { stream, session, address, over, dialler } = arrival;
        let hello = session.peer.clone();
        let (id, path, psk) = (hello.id, session.path, session.psk);
        let smaller = self.me.min(id.node);
        let claim =
            Claim { dialler, relinks: session.purpose == Purpose::Relink, number: session.number };
        let is_refused =
            match self.links.get(&id).map(|before| (before, before.is_direct(), over.is_empty())) {
                None => self.links.len() >= LINKS_MAX,
                Some((_, true, false)) => direct == Direct::Good,
                Some((_, false, true)) => false,
                Some((before, false, false)) => {
                    before.claim.dialler == smaller && dialler != smaller
                }
                Some((before, true, true)) => {
                    let stood = before.since.elapsed();
                    let stays = if before.path == path {
                        before.claim.stays(stood, &claim, smaller)
                    } else {
                        before.path.is_proven() && direct == Direct::Good
                    };
                    if stays && stood <= FRESH {
                        self.hear_out(id, into_control(stream, session).1);
                        return Taken::Refused;
                    }
                    stays
                }
            };
        if is_refused {
            return Taken::Refused;
        }
        self.generations += 1;
        let generation = self.generations;
        let local = stream.local_addr().ok().filter(|_| over.is_empty());
        let (sender, receiver) = into_control(stream, session);
        let (line, writer) = SendQueue::over(sender, self.seeded);
        let writers = if over.is_empty() { &mut self.writers } else { &mut self.relayed_writers };
        let writer = writers.spawn(writer);
        let reader = self.reader(receiver, id, generation);
        // A link over the same path keeps the round-trip estimate.
        let same = self.links.get(&id).filter(|before| {
            before.local.map(|at| at.ip()) == local.map(|at| at.ip()) && before.over == over
        });
        let round_trip = same.map(|before| before.round_trip).unwrap_or_default();
        let since = Instant::now();
        let link = Link {
            hello,
            address,
            over,
            local,
            path,
            round_trip,
            answered: None,
            is_heard: false,
            since,
            psk,
            generation,
            claim,
            line,
            reader,
            writer,
        };
        let is_relayed = !link.is_direct();
        // Operations must not send over the new link before the replay of their earlier messages.
        self.send_queues.remove(id);
        match self.links.insert(id, link) {
            None => Taken::New,
            // The closed connection tells the peer at once that the direct link is no longer read.
            Some(before) if is_relayed && before.is_direct() => {
                before.reader.abort();
                linger(before.writer);
                Taken::Replaced
            }
            Some(before) => {
                linger(before.reader);
                linger(before.writer);
                Taken::Replaced
            }
        }
    }

    /// The member whose direct link gives way to one with `newcomer` at `ip`: if there is no place
    /// left, the oldest link of those with the address that has most, provided that it keeps at
    /// least as many as the newcomer's address then has. Members that `stays` selects keep theirs.
    pub(super) fn crowded_out_by(
        &self,
        newcomer: MemberId,
        ip: IpAddr,
        stays: impl Fn(MemberId) -> bool,
    ) -> Option<MemberId> {
        if self.links.len() < LINKS_MAX || self.links.contains_key(&newcomer) {
            return None;
        }
        let at = |link: &Link| link.address.ip().to_canonical();
        let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for link in self.links.values().filter(|link| link.is_direct()) {
            *places.entry(at(link)).or_default() += 1;
        }
        let of = |ip: IpAddr| places.get(&ip).copied().unwrap_or(0);
        let own = of(ip.to_canonical());
        let may_go = |(id, link): &(&MemberId, &Link)| {
            link.is_direct() && !stays(**id) && of(at(link)) > own + 1
        };
        let goes = self.links.iter().filter(may_go);
        goes.min_by_key(|(_, link)| (Reverse(of(at(link))), link.since)).map(|(id, _)| *id)
    }

    /// Reads a refused link for [`LINGER`]: the peer may have sent messages on it before it refuses
    /// the link, too.
    fn hear_out(&mut self, id: MemberId, receiver: ControlReceiver) {
        self.generations += 1;
        linger(self.reader(receiver, id, self.generations));
    }

    fn reader(&self, from: ControlReceiver, member: MemberId, generation: u64) -> AbortHandle {
        let (session, events) = (self.session.clone(), self.events.clone());
        let reader = Reader { member, generation, session, events, told: None };
        tokio::spawn(reader.read(from)).abort_handle()
    }

    /// Removes the link of an ended reader, and returns it. `None` if the member's present link is
    /// another one.
    pub(super) fn closed(&mut self, id: MemberId, generation: u64) -> Option<Link> {
        let current = self.links.get(&id).is_some_and(|l| l.generation == generation);
        if current { self.drop_link(id) } else { None }
    }

    /// Removes the member's link and stops reading it. Queued messages still leave, within
    /// [`LINGER`].
    pub(super) fn drop_link(&mut self, id: MemberId) -> Option<Link> {
        let link = self.unlink(id)?;
        link.reader.abort();
        linger(link.writer.clone());
        Some(link)
    }

    fn unlink(&mut self, id: MemberId) -> Option<Link> {
        self.send_queues.remove(id);
        self.links.remove(&id)
    }

    /// The send queues that operations use.
    pub(super) fn send_queues(&self) -> &SendQueues {
        &self.send_queues
    }

    /// The session to which the readers deliver messages of operations.
    pub(super) fn session(&self) -> &OpenSession {
        &self.session
    }

    /// Replays the operations of a session to this member, see [`SendQueues::replay`].
    pub(super) fn replay(&self, to: MemberId, session: &ViewSession, rank: Rank) {
        if let Some(link) = self.links.get(&to) {
            self.send_queues.replay(to, link.line.send_queue(), session, rank);
        }
    }

    /// There is nothing to replay to this member; operations send over its link themselves.
    pub(super) fn let_speak(&self, id: MemberId) {
        if let Some(link) = self.links.get(&id) {
            self.send_queues.add(id, link.line.send_queue());
        }
    }

    /// Queues a message. Returns false if the member has no link, or its link is over or has too
    /// many messages waiting. Such a link [has overrun](Peers::overrun); its successor gets a full
    /// replay.
    pub(super) fn send(&self, to: MemberId, message: Message) -> bool {
        self.say(to, |send_queue| send_queue.push(message))
    }

    /// As [`send`](Peers::send), for the replay of an earlier message over a new link: it does not
    /// count towards [`WAITING_MAX`].
    pub(super) fn send_again(&self, to: MemberId, message: Message) -> bool {
        self.say(to, |send_queue| send_queue.push_again(message))
    }

    fn say(&self, to: MemberId, push: impl FnOnce(&SendQueue) -> bool) -> bool {
        let send_queue = self.links.get(&to).map(|link| link.line.send_queue());
        send_queue.is_some_and(|send_queue| {
            let is_taken = push(send_queue);
            send_queue.wake();
            is_taken
        })
    }

    /// Whether a member has a direct link with room for relayed frames. They may fill three
    /// quarters of the queue; the rest is left to this node's own messages.
    pub(super) fn passes_on(&self, to: MemberId) -> bool {
        self.links
            .get(&to)
            .is_some_and(|l| l.is_direct() && l.line.send_queue().waiting() < WAITING_MAX / 4 * 3)
    }

    /// Members with a direct link.
    pub(super) fn direct(&self) -> impl Iterator<Item = MemberId> {
        self.links.iter().filter(|(_, l)| l.is_direct()).map(|(id, _)| *id)
    }

    pub(super) fn get(&self, id: MemberId) -> Option<&Link> {
        self.links.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&MemberId, &Link)> {
        self.links.iter()
    }

    /// Members whose link refused a message, with the link's generation. Ends the reader and the
    /// writer of each: the state is replayed over the next link.
    pub(super) fn overrun(&self) -> Vec<(MemberId, u64)> {
        let overrun = self.links.iter().filter(|(_, link)| link.line.send_queue().has_overrun());
        let ended = overrun.map(|(id, link)| {
            link.reader.abort();
            link.writer.abort();
            (*id, link.generation)
        });
        ended.collect()
    }

    /// Ends all relayed links. Returns their writer tasks, which end when the queued messages are
    /// sealed.
    pub(super) fn end_relayed(&mut self) -> tokio::task::JoinSet<()> {
        let relayed: Vec<MemberId> =
            self.links.iter().filter(|(_, link)| !link.is_direct()).map(|(id, _)| *id).collect();
        relayed.into_iter().for_each(|id| _ = self.drop_link(id));
        std::mem::take(&mut self.relayed_writers)
    }

    /// Ends all links after the queued messages of the direct ones have left.
    pub(super) async fn flush(&mut self) {
        let readers: Vec<AbortHandle> = self.links.values().map(|l| l.reader.clone()).collect();
        let linked: Vec<MemberId> = self.links.keys().copied().collect();
        linked.into_iter().for_each(|id| _ = self.unlink(id));
        while self.writers.join_next().await.is_some() {}
        readers.iter().for_each(AbortHandle::abort);
    }

    /// Removes finished writer tasks.
    pub(super) fn reap(&mut self) {
        while self.writers.try_join_next().is_some() {}
        while self.relayed_writers.try_join_next().is_some() {}
    }
}

impl Link {
    pub(super) fn is_direct(&self) -> bool {
        self.over.is_empty()
    }

    /// Whether it is a direct link over a proven path. Only the address of such a link is known to
    /// be the member's.
    pub(super) fn is_proven(&self) -> bool {
        self.is_direct() && self.path.is_proven()
    }

    /// The pre-shared key that admitted the peer.
    pub(super) fn psk(&self) -> PskNumber {
        self.psk
    }

    /// How long it has stood.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// The member has answered a ping that was sent then.
    pub(super) fn has_answered(&mut self, sent: Instant) {
        self.answered = self.answered.max(Some(sent));
    }

    /// The peer has said something over it.
    pub(super) fn hears(&mut self) {
        self.is_heard = true;
    }

    /// Whether the peer has said nothing at all over it.
    pub(super) fn is_unheard(&self) -> bool {
        !self.is_heard
    }

    /// When the last ping was sent that the member has answered over this link.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered
    }
}

/// Stops a reader or a writer after [`LINGER`]. Until then a reader delivers messages that the peer
/// sent before it learned of the other link, and a writer sends what is queued.
fn linger(half: AbortHandle) {
    tokio::spawn(async move {
        tokio::time::sleep(LINGER).await;
        half.abort();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Local, MemoryWorld, Net, Replays, initiate, local, respond};
    use std::net::IpAddr;
    use std::sync::Mutex;

    type End = (Box<dyn Stream>, SecureChannel);

    /// The two ends of a new connection, the dialler's first.
    async fn dialled(from: &Local, to: &Local) -> (End, End) {
        let (world, ip) = (MemoryWorld::new(), |n: u8| IpAddr::from([10, 0, 0, n]));
        let mut listener = world.host(ip(2)).listen(&[]).await.expect("a port");
        let near =
            world.host(ip(1)).dial((ip(2), listener.port()).into()).await.expect("connected");
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
        (Peers::new(node.hello.id.node, events, Seeded::NONE), heard)
    }

    fn take(peers: &mut Peers, end: End, dialler: NodeId) -> Taken {
        take_over(peers, end, dialler, Direct::Good)
    }

    fn take_over(
        peers: &mut Peers,
        (stream, session): End,
        dialler: NodeId,
        present: Direct,
    ) -> Taken {
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
        tokio::spawn(
            async move { tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok() },
        );
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
                    let (one, other) =
                        if detour_first { (detour, direct) } else { (direct, detour) };
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

    /// The pings that have arrived, and whether the present link has ended.
    async fn heard(peers: &mut Peers, events: &mut mpsc::Receiver<Event>) -> (Vec<u64>, bool) {
        tokio::time::sleep(Duration::from_millis(10)).await;
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
        tokio::time::sleep(Duration::from_millis(10)).await;
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
            let ((mut near, mut near_heard), (mut far, mut far_heard)) =
                (peers_of(from), peers_of(to));
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
}
