//! The links over which nodes tell each other their status: those with observers, and, if this node
//! is an observer, those with all others.
//!
//! An observer holds the cluster key. It costs another node at most one document per second, and is
//! in no map of links, no heartbeat and no View. Either of the two may dial, so an observer also
//! sees nodes that accept no connections.

mod talk;
#[cfg(test)]
mod tests;

use super::event::Event;
use super::look_back::LookBack;
use super::looking_back::LooksBack;
use super::told::Told;
use crate::discovery::Dial;
use crate::identity::{MemberId, NodeId};
use crate::link::{PskNumber, SecureChannel, Stream, into_control};
use crate::report::Status;
use crate::report::document::StatusDocument;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use talk::{Order, Talk};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Most observers of a node that is none: each machine of the largest group may have one, and some
/// more look for a moment. The oldest gives way.
pub(super) const OBSERVERS_MAX: usize = 48;

/// Most links of an observer: 32 machines with several programs each.
const NODES_MAX: usize = 128;

/// The pause between two dials for the renewal of a link, in milliseconds.
const RENEW_EVERY_MS: u64 = 1000;

/// Orders that wait for the task of a link, which takes them at once.
const ORDERS: usize = 4;

/// The links, and the documents of the other nodes. Dropping it ends them.
pub(super) struct StatusLinks {
    observes: bool,
    looks_back: LooksBack,
    status: watch::Receiver<Status>,
    events: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    links: BTreeMap<MemberId, Link>,
    number: u64,
}

struct Link {
    /// By which reports of an earlier link are recognised.
    number: u64,
    /// Whether the node with the smaller key has dialled: of two links this one stays.
    is_preferred: bool,
    is_of_observer: bool,
    /// Where the node listens.
    address: SocketAddr,
    psk: PskNumber,
    /// When the node was last dialled for a link by another key, in milliseconds.
    renewed_at: Option<u64>,
    task: AbortHandle,
    /// Closed once the link has ended. It may wait for another link with the node, see
    /// [`Told::Spare`].
    orders: mpsc::Sender<Order>,
    /// The question for a look back that is open.
    question: Option<LookBack>,
    /// The newest document of the node, if this node observes.
    document: Option<StatusDocument>,
}

/// The consequence of a node's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: the report is of a link that is no longer the node's.
    Stale,
    /// It has said something over its link, which stands.
    Heard,
    /// It has left. Its link is over.
    Left,
    /// Its link is over.
    Ended,
    /// The same, and it has never said anything: it has ended the link itself. Where it is.
    Refused(SocketAddr),
    /// The same, but its first answer has not come in time. Where it is.
    Silent(SocketAddr),
}

impl StatusLinks {
    pub(super) fn new(
        observes: bool,
        looks_back: LooksBack,
        status: watch::Receiver<Status>,
        events: mpsc::Sender<Event>,
    ) -> StatusLinks {
        StatusLinks {
            observes,
            looks_back,
            status,
            events,
            tasks: JoinSet::new(),
            links: BTreeMap::new(),
            number: 0,
        }
    }

    /// Takes a link with a node, which `is_preferred` if the node with the smaller key has dialled.
    /// Of two links with it the one by the newer cluster key stays; of two by the same key the
    /// preferred one. Returns the node that has no link now because all places were taken: this
    /// one, or the oldest.
    pub(super) fn take(
        &mut self,
        stream: Box<dyn Stream>,
        channel: SecureChannel,
        address: SocketAddr,
        is_preferred: bool,
    ) -> Option<MemberId> {
        while self.tasks.try_join_next().is_some() {}
        let (id, is_of_observer) = (channel.peer.id, channel.peer.observer);
        let known = self.links.get(&id).filter(|link| !link.has_ended());
        let known = known.map(|link| (self.place(link.psk), link.is_preferred));
        let mut gone = None;
        if !self.links.contains_key(&id) && self.is_full() {
            if self.observes {
                return Some(id);
            }
            gone = self.drop_oldest();
        }
        self.number += 1;
        let (number, psk) = (self.number, channel.psk);
        let (orders, ordered) = mpsc::channel(ORDERS);
        let talk = Talk {
            name: channel.peer.name.as_str().to_owned(),
            job: channel.peer.job.as_str().to_owned(),
            node: id,
            number,
            asks: self.observes,
            is_asked: is_of_observer,
            looks_back: self.looks_back.clone(),
            status: self.status.clone(),
            events: self.events.clone(),
        };
        let task = self.tasks.spawn(talk.run(into_control(stream, channel), ordered));
        let mut link = Link {
            number,
            is_preferred,
            is_of_observer,
            address,
            psk,
            renewed_at: None,
            task,
            orders,
            question: None,
            document: None,
        };
        if known.is_some_and(|known| (self.place(psk), is_preferred) < known) {
            end_as_spare(&link);
            return gone;
        }
        if let Some(mut spare) = self.links.remove(&id) {
            link.document = spare.document.take();
            // Its answer would come over the link that ends.
            if let Some(question) = spare.question.take() {
                link.ask_to_look_back(question);
            }
            end_as_spare(&spare);
        }
        self.links.insert(id, link);
        gone
    }

    /// Where a cluster key stands in the list of the accepted ones, in which the next key follows
    /// the current one. A node that has dropped the old key and one that accepts both order the two
    /// alike, because `None` is less than any place.
    fn place(&self, psk: PskNumber) -> Option<usize> {
        self.looks_back.local.psks().iter().position(|accepted| accepted.number == psk)
    }

    /// The dials that are due to renew links by cluster keys that are not accepted any more.
    pub(super) fn renewals(&mut self, now_ms: u64) -> Vec<Dial> {
        let accepted = self.looks_back.local.psks();
        let stale = self.links.iter_mut().filter(|(_, link)| {
            !accepted.iter().any(|accepted| accepted.number == link.psk)
                && link.renewed_at.is_none_or(|at| now_ms >= at + RENEW_EVERY_MS)
        });
        let dial = |(id, link): (&MemberId, &mut Link)| {
            link.renewed_at = Some(now_ms);
            Dial { to: link.address, expected: Some(id.boot), to_observer: true }
        };
        stale.map(dial).collect()
    }

    fn is_full(&self) -> bool {
        self.links.len() >= if self.observes { NODES_MAX } else { OBSERVERS_MAX }
    }

    fn drop_oldest(&mut self) -> Option<MemberId> {
        let oldest = self.links.iter().min_by_key(|(_, link)| link.number).map(|(id, _)| *id)?;
        self.links.remove(&oldest).inspect(|link| link.task.abort());
        Some(oldest)
    }

    /// A node has told something over link `number`.
    pub(super) fn on_told(&mut self, node: MemberId, number: u64, told: &Told) -> Outcome {
        let Some(link) = self.links.get_mut(&node).filter(|link| link.number == number) else {
            return Outcome::Stale;
        };
        let outcome = match told {
            Told::LookedBack(_) => {
                link.question = None;
                Outcome::Heard
            }
            Told::Status(document) if !document.is_closed() => {
                link.document = Some((**document).clone());
                Outcome::Heard
            }
            Told::Status(_) => Outcome::Left,
            Told::End(kind) if self.observes && link.document.is_none() => match kind {
                io::ErrorKind::TimedOut => Outcome::Silent(link.address),
                _ => Outcome::Refused(link.address),
            },
            Told::End(_) | Told::Spare => Outcome::Ended,
        };
        if outcome != Outcome::Heard {
            self.links.remove(&node).inspect(|link| link.task.abort());
        }
        outcome
    }

    /// Asks all nodes to look back, and returns them.
    pub(super) fn look_back(&mut self, question: &LookBack) -> Vec<MemberId> {
        let asked = self
            .links
            .iter_mut()
            .filter_map(|(id, link)| link.ask_to_look_back(question.clone()).then_some(*id));
        asked.collect()
    }

    /// Ends the links with nodes, or by keys, for which `stays` returns false, and returns these
    /// nodes.
    pub(super) fn retain(&mut self, stays: impl Fn(NodeId, PskNumber) -> bool) -> Vec<MemberId> {
        let leave = self.links.iter().filter(|(id, link)| !stays(id.node, link.psk));
        let leave: Vec<MemberId> = leave.map(|(id, _)| *id).collect();
        for node in &leave {
            self.links.remove(node).inspect(|link| link.task.abort());
        }
        leave
    }

    /// The newest documents of the nodes, ordered by job, name and key.
    pub(super) fn documents(&self) -> Vec<StatusDocument> {
        let mut all: Vec<_> =
            self.links.values().filter_map(|link| link.document.clone()).collect();
        all.sort_by(|a, b| (&a.job, &a.name, &a.node).cmp(&(&b.job, &b.name, &b.node)));
        all
    }

    /// Tells the observers that the node has left, which its status says. Returns when they know.
    pub(super) async fn finish(&mut self) {
        let unasked = self.links.values().filter(|link| !link.is_of_observer || link.has_ended());
        unasked.for_each(|link| link.task.abort());
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Link {
    fn has_ended(&self) -> bool {
        self.orders.is_closed()
    }

    /// If the link has ended, the next link with the node asks. Returns false if too many orders
    /// wait.
    fn ask_to_look_back(&mut self, question: LookBack) -> bool {
        let order = Order::LookBack(question.clone());
        let is_asked = self.has_ended() || self.orders.try_send(order).is_ok();
        if is_asked {
            self.question = Some(question);
        }
        is_asked
    }
}

fn end_as_spare(link: &Link) {
    // A link that has ended, or is behind with its orders, is aborted. The other end tries again.
    if link.orders.try_send(Order::EndAsSpare).is_err() {
        link.task.abort();
    }
}
