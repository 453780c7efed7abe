//! The nodes that this node observes, if it is an observer.

use super::event::Event;
use super::status_exchange::StatusExchange;
use crate::identity::MemberId;
use crate::link::{PskNumber, SecureChannel, Stream, into_control};
use crate::report::document::StatusDocument;
use crate::trace;
use std::collections::BTreeMap;
use std::io;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Most nodes that are observed: sixteen machines with several programs each.
const NODES_MAX: usize = 128;

/// The observed nodes and what they have said. Dropping it ends the links.
pub(super) struct Observed {
    events: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    nodes: BTreeMap<MemberId, Node>,
    links: u64,
}

/// What an observed node has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Its status, or nothing new.
    Status,
    /// That it has left. It is not observed any more.
    Left,
    /// Nothing, and its link has ended. It is not observed any more.
    End,
    /// The same, and it has never said anything: it has ended the link itself.
    Refusal,
    /// The same, but its answer has not come in time.
    Silence,
}

struct Node {
    /// The number of its link, by which reports of an earlier link are recognised.
    link: u64,
    psk: PskNumber,
    task: AbortHandle,
    /// What it has said last.
    document: Option<StatusDocument>,
}

impl Observed {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Observed {
        Observed { events, tasks: JoinSet::new(), nodes: BTreeMap::new(), links: 0 }
    }

    /// Observes the node at the other end of this link, unless it is observed already.
    pub(super) fn observe(&mut self, stream: Box<dyn Stream>, channel: SecureChannel) {
        let node = channel.peer.id;
        if self.nodes.contains_key(&node) || self.nodes.len() >= NODES_MAX {
            return;
        }
        while self.tasks.try_join_next().is_some() {}
        self.links += 1;
        let (link, psk, events) = (self.links, channel.psk, self.events.clone());
        let task = self.tasks.spawn(ask_again_and_again(link, stream, channel, events));
        self.nodes.insert(node, Node { link, psk, task, document: None });
    }

    /// The node has said this, or its link has ended.
    pub(super) fn told(
        &mut self,
        node: MemberId,
        link: u64,
        document: Result<Box<StatusDocument>, io::ErrorKind>,
    ) -> Told {
        let Some(known) = self.nodes.get_mut(&node).filter(|known| known.link == link) else {
            return Told::Status;
        };
        let told = match &document {
            Ok(document) if document.is_closed() => Told::Left,
            Ok(_) => Told::Status,
            Err(io::ErrorKind::TimedOut) => Told::Silence,
            Err(_) if known.document.is_none() => Told::Refusal,
            Err(_) => Told::End,
        };
        known.document = document.ok().map(|document| *document);
        if told != Told::Status {
            self.nodes.remove(&node).inspect(|node| node.task.abort());
        }
        told
    }

    /// Ends the links with nodes, or by keys, for which `stays` returns false, and returns these
    /// nodes.
    pub(super) fn retain(&mut self, stays: impl Fn(MemberId, PskNumber) -> bool) -> Vec<MemberId> {
        let leave = self.nodes.iter().filter(|(id, node)| !stays(**id, node.psk));
        let leave: Vec<MemberId> = leave.map(|(id, _)| *id).collect();
        for node in &leave {
            self.nodes.remove(node).inspect(|node| node.task.abort());
        }
        leave
    }

    /// What the nodes have said last, ordered by job, name and key.
    pub(super) fn documents(&self) -> Vec<StatusDocument> {
        let mut all: Vec<_> =
            self.nodes.values().filter_map(|node| node.document.clone()).collect();
        all.sort_by(|a, b| (&a.job, &a.name, &a.node).cmp(&(&b.job, &b.name, &b.node)));
        all
    }
}

/// Asks until the link ends. The node sets the pace.
async fn ask_again_and_again(
    link: u64,
    stream: Box<dyn Stream>,
    channel: SecureChannel,
    events: mpsc::Sender<Event>,
) {
    let peer = channel.peer.clone();
    let mut exchange = StatusExchange::over(into_control(stream, channel));
    let is_of_peer = |document: &StatusDocument| {
        document.is_of(peer.id.node)
            && document.name == peer.name.as_str()
            && document.job == peer.job.as_str()
    };
    let node = peer.id;
    let ended = loop {
        match exchange.ask().await {
            Ok(document) if is_of_peer(&document) => {
                let document = Ok(Box::new(document));
                if events.send(Event::Observed { node, link, document }).await.is_err() {
                    return;
                }
            }
            Ok(_) => {
                trace::warn!(peer = %node, "a node speaks for another one");
                break io::ErrorKind::InvalidData;
            }
            Err(error) => {
                trace::debug!(peer = %node, %error, "a node is not observed any more");
                break error.kind();
            }
        }
    };
    let _ = events.send(Event::Observed { node, link, document: Err(ended) }).await;
}
