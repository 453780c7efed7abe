//! Layer: Host.
//!
//! The control links of this node: one per member, a reader and a writer task each.

use super::event::Event;
use crate::election::Message;
use crate::identity::{MemberId, NodeId};
use crate::link::{ControlReceiver, ControlSender, Hello, Session, Stream, into_control};
use crate::wire::{Decode, Encode};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Most members this node keeps links with: a View's worth, and as many that wait outside.
pub(super) const LINKS_MAX: usize = 32;

/// Messages that may wait for a slow peer; one that lets more pile up is treated as gone.
const WAITING_MAX: usize = 4096;

/// How long a link that another one replaced may deliver what is still on it.
const LINGER: Duration = Duration::from_secs(2);

/// The control links.
pub(super) struct Peers {
    me: NodeId,
    links: BTreeMap<MemberId, Link>,
    generations: u64,
    events: mpsc::Sender<Event>,
    /// Writers whose queue is to be flushed when the node leaves.
    writers: tokio::task::JoinSet<()>,
}

/// One control link.
pub(super) struct Link {
    pub(super) hello: Hello,
    /// Where its node listens.
    pub(super) address: SocketAddr,
    pub(super) local: Option<SocketAddr>,
    pub(super) rtt_us: Option<u32>,
    generation: u64,
    dialler: NodeId,
    outbox: mpsc::Sender<Message>,
    reader: AbortHandle,
}

/// What became of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The member had no link before.
    New,
    /// It replaced the link there was.
    Replaced,
    /// There is a better one already, or no room.
    Refused,
}

impl Peers {
    pub(super) fn new(me: NodeId, events: mpsc::Sender<Event>) -> Peers {
        Peers { me, links: BTreeMap::new(), generations: 0, events, writers: tokio::task::JoinSet::new() }
    }

    /// Of two links between the same two boots the one dialled by the smaller node id stays; of two with the same
    /// dialler the newer one, because the older is dead at the other end.
    pub(super) fn take(&mut self, stream: Box<dyn Stream>, session: Session, address: SocketAddr, dialler: NodeId) -> Taken {
        let hello = session.peer.clone();
        let id = hello.id;
        let smaller = self.me.min(id.node);
        let known = self.links.get(&id).map(|l| l.dialler);
        if known.is_some_and(|before| before == smaller && dialler != smaller) || known.is_none() && self.links.len() >= LINKS_MAX
        {
            return Taken::Refused;
        }
        self.generations += 1;
        let generation = self.generations;
        let local = stream.local_addr().ok();
        let (sender, receiver) = into_control(stream, session);
        let (outbox, queue) = mpsc::channel(WAITING_MAX);
        self.writers.spawn(write(sender, queue));
        let reader = tokio::spawn(read(receiver, id, generation, self.events.clone())).abort_handle();
        let rtt_us = self.links.get(&id).and_then(|l| l.rtt_us);
        let link = Link { hello, address, local, rtt_us, generation, dialler, outbox, reader };
        match self.links.insert(id, link) {
            None => Taken::New,
            Some(before) => {
                before.linger();
                Taken::Replaced
            }
        }
    }

    /// Whether this was the member's present link; it is gone then.
    pub(super) fn closed(&mut self, id: MemberId, generation: u64) -> Option<Link> {
        let current = self.links.get(&id).is_some_and(|l| l.generation == generation);
        if current { self.links.remove(&id) } else { None }
    }

    /// Closes the member's link without waiting for it.
    pub(super) fn drop_link(&mut self, id: MemberId) -> Option<Link> {
        let link = self.links.remove(&id)?;
        link.reader.abort();
        Some(link)
    }

    /// Queues a message; false when the member has no link or does not take what waits for it.
    pub(super) fn send(&self, to: MemberId, message: Message) -> bool {
        self.links.get(&to).is_some_and(|l| l.outbox.try_send(message).is_ok())
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

    /// Members with a link whose queue is full.
    pub(super) fn stuck(&self) -> Vec<(MemberId, u64)> {
        self.links.iter().filter(|(_, l)| l.outbox.capacity() == 0).map(|(id, l)| (*id, l.generation)).collect()
    }

    /// Ends all links once what is queued has left.
    pub(super) async fn flush(mut self) {
        let readers: Vec<AbortHandle> = self.links.values().map(|l| l.reader.clone()).collect();
        self.links.clear();
        while self.writers.join_next().await.is_some() {}
        readers.iter().for_each(AbortHandle::abort);
    }

    /// Lets go of writers that have ended.
    pub(super) fn reap(&mut self) {
        while self.writers.try_join_next().is_some() {}
    }
}

impl Link {
    /// What the peer has sent before it heard of the newer link still counts.
    fn linger(self) {
        let reader = self.reader;
        tokio::spawn(async move {
            tokio::time::sleep(LINGER).await;
            reader.abort();
        });
    }
}

async fn write(mut to: ControlSender, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        if to.send(&message.to_bytes()).await.is_err() {
            // The reader reports the end of the link.
            return;
        }
    }
}

async fn read(mut from: ControlReceiver, member: MemberId, generation: u64, events: mpsc::Sender<Event>) {
    let misbehaved = loop {
        let Ok(bytes) = from.recv().await else { break None };
        match Message::from_bytes(&bytes) {
            Ok(message) => {
                if events.send(Event::Message { from: member, message }).await.is_err() {
                    return;
                }
            }
            Err(malformed) => break Some(malformed.to_string()),
        }
    };
    // Without a driver nobody is left to tell.
    let _ = events.send(Event::Closed { member, generation, misbehaved }).await;
}
