//! The observers of this node, which ask it for its status.
//!
//! An observer holds the cluster key. It costs this node at most one document per second, and is in
//! no map of links, no heartbeat and no View.

use super::status_exchange::StatusExchange;
use crate::identity::NodeId;
use crate::link::{PskNumber, SecureChannel, Stream, into_control};
use crate::report::document::StatusDocument;
use crate::report::{State, Status};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most observers at a time: each machine of the largest group may have one. The oldest gives way.
pub(super) const OBSERVERS_MAX: usize = 16;

/// An observer gets at most one document in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// An observer that has not asked for so long loses its link.
const IDLE: Duration = Duration::from_secs(60);

/// How long a node that has left waits for a question.
const UNASKED: Duration = Duration::from_millis(100);

/// The links with observers. Dropping it ends them.
pub(super) struct Observers {
    status: watch::Receiver<Status>,
    tasks: JoinSet<()>,
    /// The oldest first.
    links: VecDeque<Link>,
}

struct Link {
    node: NodeId,
    psk: PskNumber,
    task: AbortHandle,
}

impl Observers {
    pub(super) fn new(status: watch::Receiver<Status>) -> Observers {
        Observers { status, tasks: JoinSet::new(), links: VecDeque::new() }
    }

    /// Answers the questions that come over this link.
    pub(super) fn serve(&mut self, stream: Box<dyn Stream>, channel: SecureChannel) {
        self.forget_ended();
        if self.links.len() >= OBSERVERS_MAX {
            self.links.pop_front().inspect(|oldest| oldest.task.abort());
        }
        let (node, psk) = (channel.peer.id.node, channel.psk);
        let link = StatusExchange::over(into_control(stream, channel));
        let task = self.tasks.spawn(answer_all(link, self.status.clone()));
        self.links.push_back(Link { node, psk, task });
    }

    /// Ends the links with nodes, or by keys, for which `stays` returns false.
    pub(super) fn retain(&mut self, stays: impl Fn(NodeId, PskNumber) -> bool) {
        self.forget_ended();
        self.links.retain(|link| {
            let stays = stays(link.node, link.psk);
            if !stays {
                link.task.abort();
            }
            stays
        });
    }

    /// Tells the observers that the node has left, which its status says. Returns when they know.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn forget_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.links.retain(|link| !link.task.is_finished());
    }
}

/// Answers at most one question per [`INTERVAL`], and tells last that the node has left.
async fn answer_all(mut link: StatusExchange, status: watch::Receiver<Status>) {
    let mut closing = status.clone();
    loop {
        tokio::select! {
            asked = timeout(IDLE, link.question()) => {
                let Ok(Ok(())) = asked else { return };
            }
            // An observer asks at once when it has its answer.
            () = closed(&mut closing, UNASKED) => return,
        }
        let next = Instant::now() + INTERVAL;
        let document = StatusDocument::from(&*status.borrow());
        let is_last = status.borrow().state == State::Closed;
        if link.answer(&document).await.is_err() || is_last {
            return;
        }
        tokio::select! {
            () = sleep_until(next) => {}
            () = closed(&mut closing, Duration::ZERO) => {}
        }
    }
}

/// Waits until the node has left, and then for this time.
async fn closed(status: &mut watch::Receiver<Status>, after: Duration) {
    // An error means that the node has ended.
    let _ = status.wait_for(|status| status.state == State::Closed).await;
    sleep(after).await;
}
