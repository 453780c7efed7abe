//! The control links of this node: at most one per member, each with a send queue (`SendQueue`) and
//! a reader task.

use super::event::Event;
use super::link_priority::{FRESH, LinkPriority};
use super::open_session::OpenSession;
use super::reader::Reader;
use super::send_queue::{QueueOwner, SendQueue, WAITING_MAX};
use super::view_sender::SendQueues;
use crate::identity::{MemberId, NodeId};
use crate::link::{
    ControlReceiver, Hello, PathProof, PskNumber, Purpose, SecureChannel, Stream, into_control,
};
use crate::protocol::{MEMBERS_MAX, Message, Mutation, Rank};
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
pub(super) const LINKS_MAX: usize = 2 * MEMBERS_MAX;

/// How long a replaced or refused link is still read for messages in flight, and how long a link
/// that is over may take to send the queued messages. A peer that takes nothing holds up neither.
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
    mutation: Mutation,
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
    priority: LinkPriority,
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
    pub(super) fn new(me: NodeId, events: mpsc::Sender<Event>, mutation: Mutation) -> Peers {
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
            mutation,
        }
    }

    /// Decides between the present link of a member and a new connection.
    ///
    /// | present | new     | kept                                                               |
    /// | ------- | ------- | ------------------------------------------------------------------ |
    /// | none    | any     | the new one, if there are fewer than [`LINKS_MAX`] links           |
    /// | direct  | direct  | the one over a proven path, unless it is the present one and       |
    /// |         |         | [`Quiet`](Direct::Quiet); both the same: see [`LinkPriority::stays`]      |
    /// | direct  | relayed | the present one, unless it is [`Quiet`](Direct::Quiet)             |
    /// | relayed | direct  | the new one                                                        |
    /// | relayed | relayed | the one dialled by the smaller node id; same dialler: the new one, |
    /// |         |         | because a node tries at most one circuit at a time                 |
    pub(super) fn take(&mut self, arrival: Arrival, direct: Direct) -> Taken {
        let Arrival { stream, session, address, over, dialler } = arrival;
        let hello = session.peer.clone();
        let (id, path, psk) = (hello.id, session.path, session.psk);
        let smaller = self.me.min(id.node);
        let priority = LinkPriority {
            dialler,
            relinks: session.purpose == Purpose::Relink,
            number: session.number,
        };
        let is_refused =
            match self.links.get(&id).map(|before| (before, before.is_direct(), over.is_empty())) {
                None => self.links.len() >= LINKS_MAX,
                Some((_, true, false)) => direct == Direct::Good,
                Some((_, false, true)) => false,
                Some((before, false, false)) => {
                    before.priority.dialler == smaller && dialler != smaller
                }
                Some((before, true, true)) => {
                    let stood = before.since.elapsed();
                    let stays = if before.path == path {
                        before.priority.stays(stood, &priority, smaller)
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
        let (line, writer) = SendQueue::open(sender, self.mutation);
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
            priority,
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
        let mut links_at: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for link in self.links.values().filter(|link| link.is_direct()) {
            *links_at.entry(at(link)).or_default() += 1;
        }
        let of = |ip: IpAddr| links_at.get(&ip).copied().unwrap_or(0);
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

    /// The peer has said something over it. Returns whether it is the first time.
    pub(super) fn hears(&mut self) -> bool {
        !std::mem::replace(&mut self.is_heard, true)
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
/// sent before it learned of the other link, and a writer sends the queued messages.
fn linger(half: AbortHandle) {
    tokio::spawn(async move {
        tokio::time::sleep(LINGER).await;
        half.abort();
    });
}

#[cfg(test)]
mod tests;
