//! The links over which nodes tell each other their status: those with observers, and, if this node
//! is an observer, those with all others.
//!
//! An observer holds the cluster key. It costs another node at most one document per second, and is
//! in no map of links, no heartbeat and no View. Whichever of the two reaches the other one dials:
//! an observer sees nodes that accept no connections.

use super::event::Event;
use super::look_back::LookBack;
use super::looking_back::LooksBack;
use super::status_link::{Said, StatusSender, read_all};
use super::told::Told;
use crate::identity::{MemberId, NodeId};
use crate::link::{ControlReceiver, ControlSender, PskNumber, SecureChannel, Stream, into_control};
use crate::report::document::StatusDocument;
use crate::report::{State, Status};
use crate::trace;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most observers of a node that is none: each machine of the largest group may have one. The
/// oldest gives way.
pub(super) const OBSERVERS_MAX: usize = 16;

/// Most links of an observer: sixteen machines with several programs each.
const NODES_MAX: usize = 128;

/// A status is told at most once in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Between two answers to look backs.
const LOOK_BACK_INTERVAL: Duration = Duration::from_secs(2);

/// An observer that has not asked for so long loses its link.
const IDLE: Duration = Duration::from_secs(60);

/// How long an answer may take: a status, and a look back with its dials.
const STATUS_WITHIN: Duration = Duration::from_secs(6);
const LOOK_BACK_WITHIN: Duration = Duration::from_secs(12);

/// How long the last words of the other end may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a node that has left waits for a question.
const UNASKED: Duration = Duration::from_millis(100);

/// The links, and what the other nodes have said. Dropping it ends them.
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
    task: AbortHandle,
    orders: mpsc::Sender<Order>,
    /// What the node has said last, if this node observes.
    document: Option<StatusDocument>,
}

/// What the control plane wants of a link.
enum Order {
    LookBack(LookBack),
    /// Another link with the same node stays.
    EndAsSpare,
}

/// What follows from what a node has told.
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
    /// Returns the node that has no link now because all places were taken: this one, or the
    /// oldest.
    pub(super) fn take(
        &mut self,
        stream: Box<dyn Stream>,
        channel: SecureChannel,
        address: SocketAddr,
        is_preferred: bool,
    ) -> Option<MemberId> {
        while self.tasks.try_join_next().is_some() {}
        let (id, is_of_observer) = (channel.peer.id, channel.peer.observer);
        let known = self.links.get(&id).map(|link| link.is_preferred);
        let mut gone = None;
        if known.is_none() && self.is_full() {
            if self.observes {
                return Some(id);
            }
            gone = self.drop_oldest();
        }
        self.number += 1;
        let (number, psk) = (self.number, channel.psk);
        let (orders, ordered) = mpsc::channel(1);
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
            task,
            orders,
            document: None,
        };
        if known == Some(true) && !is_preferred {
            end_as_spare(&link);
            return gone;
        }
        if let Some(mut spare) = self.links.remove(&id) {
            link.document = spare.document.take();
            end_as_spare(&spare);
        }
        self.links.insert(id, link);
        gone
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
    pub(super) fn told(&mut self, node: MemberId, number: u64, told: &Told) -> Outcome {
        let Some(link) = self.links.get_mut(&node).filter(|link| link.number == number) else {
            return Outcome::Stale;
        };
        let outcome = match told {
            Told::LookedBack(_) => Outcome::Heard,
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
            .iter()
            .filter(|(_, link)| link.orders.try_send(Order::LookBack(question.clone())).is_ok());
        asked.map(|(id, _)| *id).collect()
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

    /// What the nodes have said last, ordered by job, name and key.
    pub(super) fn documents(&self) -> Vec<StatusDocument> {
        let mut all: Vec<_> =
            self.links.values().filter_map(|link| link.document.clone()).collect();
        all.sort_by(|a, b| (&a.job, &a.name, &a.node).cmp(&(&b.job, &b.name, &b.node)));
        all
    }

    /// Tells the observers that the node has left, which its status says. Returns when they know.
    pub(super) async fn finish(&mut self) {
        let unasked = self.links.values().filter(|link| !link.is_of_observer);
        unasked.for_each(|link| link.task.abort());
        while self.tasks.join_next().await.is_some() {}
    }
}

fn end_as_spare(link: &Link) {
    // A link that has an order to carry out is aborted: the other end tries again.
    if link.orders.try_send(Order::EndAsSpare).is_err() {
        link.task.abort();
    }
}

/// One link, for its task.
struct Talk {
    node: MemberId,
    name: String,
    job: String,
    number: u64,
    /// Whether this node observes.
    asks: bool,
    /// Whether the other node observes.
    is_asked: bool,
    looks_back: LooksBack,
    status: watch::Receiver<Status>,
    events: mpsc::Sender<Event>,
}

/// The questions that are open on a link, and when something is to be done about them.
struct Open {
    /// The other end's question for the status, to be answered now or later.
    asked: bool,
    answer_at: Instant,
    /// When the other end must have asked, if it asks.
    idle_at: Option<Instant>,
    /// When the answers to this end's own questions must be there.
    status_by: Option<Instant>,
    looked_back_by: Option<Instant>,
}

impl Talk {
    /// Asks and answers until the link ends, which it tells.
    async fn run(self, link: (ControlSender, ControlReceiver), orders: mpsc::Receiver<Order>) {
        let (to, from) = (StatusSender::over(link.0), link.1);
        // A question and an answer of each kind.
        let (queue, said) = mpsc::channel(8);
        let ended = self.until_end(to, said, orders, read_all(from, queue)).await;
        trace::debug!(peer = %self.node, ?ended, "a link for the status has ended");
        self.tell(ended).await;
    }

    async fn tell(&self, told: Told) {
        let (node, number) = (self.node, self.number);
        // An error means that this node is leaving, which it still tells over the link.
        let _ = self.events.send(Event::StatusLink { node, number, told }).await;
    }

    /// Talks while `reading` fills the queue `said`. The other end may have said why it has ended
    /// the link: that is read even if nothing can be sent any more.
    async fn until_end(
        &self,
        mut to: StatusSender,
        mut said: mpsc::Receiver<Said>,
        mut orders: mpsc::Receiver<Order>,
        reading: impl Future<Output = io::Error>,
    ) -> Told {
        let mut read_error = None;
        let talking = async {
            match self.talk_on(&mut to, &mut said, &mut orders).await {
                Err(Told::End(kind)) if kind != io::ErrorKind::TimedOut => {
                    timeout(LAST_WORDS, self.last_words(&mut said))
                        .await
                        .ok()
                        .flatten()
                        .unwrap_or(Told::End(kind))
                }
                Err(ended) => ended,
                Ok(()) => Told::End(io::ErrorKind::UnexpectedEof),
            }
        };
        let (mut reading, mut talking) = (std::pin::pin!(reading), std::pin::pin!(talking));
        let ended = loop {
            tokio::select! {
                ended = &mut talking => break ended,
                error = &mut reading, if read_error.is_none() => read_error = Some(error.kind()),
            }
        };
        match (ended, read_error) {
            (Told::End(_), Some(kind)) => Told::End(kind),
            (ended, _) => ended,
        }
    }

    /// The reason that the other end has given for its end of the link, if any.
    async fn last_words(&self, said: &mut mpsc::Receiver<Said>) -> Option<Told> {
        while let Some(said) = said.recv().await {
            match said {
                Said::Status(document) if document.is_closed() && self.is_of_peer(&document) => {
                    return Some(Told::Status(document));
                }
                Said::Spare => return Some(Told::Spare),
                _ => {}
            }
        }
        None
    }

    /// Returns when nothing more can be read, or with another end of the link as the error.
    async fn talk_on(
        &self,
        to: &mut StatusSender,
        said: &mut mpsc::Receiver<Said>,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), Told> {
        let now = Instant::now();
        let mut open = Open {
            asked: false,
            answer_at: now,
            idle_at: self.is_asked.then(|| now + IDLE),
            status_by: None,
            looked_back_by: None,
        };
        let mut looking = JoinSet::new();
        let (mut look_at, mut status, mut left) = (now, self.status.clone(), self.status.clone());
        if self.asks {
            self.ask(to, &mut open).await?;
        }
        loop {
            tokio::select! {
                heard = said.recv() => match heard {
                    // The link has ended.
                    None => return Ok(()),
                    Some(Said::Ask) if !open.asked => {
                        open.asked = true;
                        open.idle_at = open.idle_at.map(|_| Instant::now() + IDLE);
                    }
                    Some(Said::LookBack(question)) if looking.is_empty() => {
                        let (answering, at) = (self.looks_back.clone(), look_at);
                        look_at = at.max(Instant::now()) + LOOK_BACK_INTERVAL;
                        let node = self.node;
                        looking.spawn(async move {
                            sleep_until(at).await;
                            answering.answer(node, question).await
                        });
                    }
                    Some(Said::Status(document)) if open.status_by.is_some() => {
                        if !self.is_of_peer(&document) {
                            trace::warn!(peer = %self.node, "a node speaks for another one");
                            return Err(Told::End(io::ErrorKind::InvalidData));
                        }
                        self.tell(Told::Status(document)).await;
                        self.ask(to, &mut open).await?;
                    }
                    Some(Said::LookedBack(answer)) if open.looked_back_by.is_some() => {
                        open.looked_back_by = None;
                        self.tell(Told::LookedBack(answer)).await;
                    }
                    Some(Said::Spare) => return Err(Told::Spare),
                    // A second question, or an answer to none.
                    _ => return Err(Told::End(io::ErrorKind::InvalidData)),
                },
                Some(order) = orders.recv() => match order {
                    Order::LookBack(question) => {
                        open.looked_back_by = Some(Instant::now() + LOOK_BACK_WITHIN);
                        send(to, &Said::LookBack(question)).await?;
                    }
                    Order::EndAsSpare => {
                        send(to, &Said::Spare).await?;
                        return Err(Told::Spare);
                    }
                },
                Some(Ok(answer)) = looking.join_next() => {
                    send(to, &Said::LookedBack(Box::new(answer))).await?;
                }
                () = at(open.asked.then_some(open.answer_at)) => self.answer(to, &mut open).await?,
                () = closed(&mut status), if open.asked && open.answer_at > Instant::now() => {
                    open.answer_at = Instant::now();
                }
                () = unasked(&mut left), if !open.asked => {
                    return Err(Told::End(io::ErrorKind::ConnectionAborted));
                }
                () = at(open.idle_at) => return Err(Told::End(io::ErrorKind::ConnectionAborted)),
                () = at(open.status_by) => return Err(Told::End(io::ErrorKind::TimedOut)),
                () = at(open.looked_back_by) => return Err(Told::End(io::ErrorKind::TimedOut)),
            }
        }
    }

    async fn ask(&self, to: &mut StatusSender, open: &mut Open) -> Result<(), Told> {
        open.status_by = Some(Instant::now() + STATUS_WITHIN);
        send(to, &Said::Ask).await
    }

    async fn answer(&self, to: &mut StatusSender, open: &mut Open) -> Result<(), Told> {
        open.asked = false;
        open.answer_at = Instant::now() + INTERVAL;
        let document = StatusDocument::from(&*self.status.borrow());
        let is_last = document.is_closed();
        send(to, &Said::Status(Box::new(document))).await?;
        if is_last { Err(Told::End(io::ErrorKind::ConnectionAborted)) } else { Ok(()) }
    }

    fn is_of_peer(&self, document: &StatusDocument) -> bool {
        document.is_of(self.node.node) && document.name == self.name && document.job == self.job
    }
}

async fn send(to: &mut StatusSender, said: &Said) -> Result<(), Told> {
    to.send(said).await.map_err(|error| Told::End(error.kind()))
}

/// Waits until then; for ever without a time.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}

/// Waits until this node has left.
async fn closed(status: &mut watch::Receiver<Status>) {
    // An error means that the node has ended.
    let _ = status.wait_for(|status| status.state == State::Closed).await;
}

/// The same, and a little longer: an observer asks at once when it has its answer.
async fn unasked(status: &mut watch::Receiver<Status>) {
    closed(status).await;
    sleep(UNASKED).await;
}
