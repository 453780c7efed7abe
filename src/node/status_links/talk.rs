//! The talk over one link: questions for the status, their answers, and look backs.

use super::super::event::Event;
use super::super::look_back::LookBack;
use super::super::looking_back::LooksBack;
use super::super::status_link::{Said, StatusSender, read_all};
use super::super::told::Told;
use crate::identity::MemberId;
use crate::link::{ControlReceiver, ControlSender};
use crate::report::document::StatusDocument;
use crate::report::{State, Status};
use crate::trace;
use std::io;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A status is told at most once in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Between two answers to look backs.
const LOOK_BACK_INTERVAL: Duration = Duration::from_secs(2);

/// An observer that has not asked for so long loses its link.
const IDLE: Duration = Duration::from_secs(60);

/// How long an answer may take: a status, and a look back with its dials.
const STATUS_WITHIN: Duration = Duration::from_secs(6);
const LOOK_BACK_WITHIN: Duration = Duration::from_secs(12);

/// How long a link that the other end has ended as spare waits for the other link, which has its
/// documents and questions from then on.
const OTHER_LINK_WITHIN: Duration = STATUS_WITHIN;

/// How long the last words of the other end may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a node that has left waits for a question.
const UNASKED: Duration = Duration::from_millis(100);

/// An order of the control plane to a link.
pub(super) enum Order {
    LookBack(LookBack),
    /// Another link with the same node stays.
    EndAsSpare,
}

/// One link, for its task.
pub(super) struct Talk {
    pub(super) node: MemberId,
    pub(super) name: String,
    pub(super) job: String,
    pub(super) number: u64,
    /// Whether this node observes.
    pub(super) asks: bool,
    /// Whether the other node observes.
    pub(super) is_asked: bool,
    pub(super) looks_back: LooksBack,
    pub(super) status: watch::Receiver<Status>,
    pub(super) events: mpsc::Sender<Event>,
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
    /// The question that follows that answer, and replaces the one before it.
    look_back_next: Option<LookBack>,
}

impl Talk {
    /// Asks and answers until the link ends, which it tells.
    pub(super) async fn run(
        self,
        link: (ControlSender, ControlReceiver),
        mut orders: mpsc::Receiver<Order>,
    ) {
        let (to, from) = (StatusSender::new(link.0), link.1);
        // A question and an answer of each kind.
        let (queue, said) = mpsc::channel(8);
        let ended = self.until_end(to, said, &mut orders, read_all(from, queue)).await;
        trace::debug!(peer = %self.node, ?ended, "a link for the status has ended");
        orders.close();
        let mut unread = std::iter::from_fn(|| orders.try_recv().ok());
        let is_replaced = unread.any(|order| matches!(order, Order::EndAsSpare));
        if matches!(ended, Told::Spare) && !is_replaced {
            // The other end may know the other link before this node does. When that link comes
            // here, it replaces this one and aborts this task.
            sleep(OTHER_LINK_WITHIN).await;
        }
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
        orders: &mut mpsc::Receiver<Order>,
        reading: impl Future<Output = io::Error>,
    ) -> Told {
        let mut read_error = None;
        let talking = async {
            match self.talk_on(&mut to, &mut said, orders).await {
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

    /// Returns when nothing more can be read or this end has ended the link as spare, or with
    /// another end of the link as the error.
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
            look_back_next: None,
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
                        match open.look_back_next.take() {
                            Some(next) => self.ask_to_look_back(to, &mut open, next).await?,
                            None => self.tell(Told::LookedBack(answer)).await,
                        }
                    }
                    Some(Said::Spare) => return Err(Told::Spare),
                    // A second question, or an answer to none.
                    _ => return Err(Told::End(io::ErrorKind::InvalidData)),
                },
                Some(order) = orders.recv() => match order {
                    Order::LookBack(question) if open.looked_back_by.is_some() => {
                        open.look_back_next = Some(question);
                    }
                    Order::LookBack(question) => {
                        self.ask_to_look_back(to, &mut open, question).await?;
                    }
                    Order::EndAsSpare => {
                        send(to, &Said::Spare).await?;
                        return Ok(());
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

    async fn ask_to_look_back(
        &self,
        to: &mut StatusSender,
        open: &mut Open,
        question: LookBack,
    ) -> Result<(), Told> {
        open.looked_back_by = Some(Instant::now() + LOOK_BACK_WITHIN);
        send(to, &Said::LookBack(question)).await
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
