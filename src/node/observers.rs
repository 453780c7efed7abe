//! The observers of this node, which ask it for its status.
//!
//! An observer holds the cluster key. It costs this node at most one document per second, and is in
//! no map of links, no heartbeat and no View.

use super::status_exchange::StatusExchange;
use crate::identity::NodeId;
use crate::link::{PskNumber, SecureChannel, Stream, into_control};
use crate::report::Status;
use crate::report::document::StatusDocument;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

/// Most observers at a time: each machine of the largest group may have one. The oldest gives way.
pub(super) const OBSERVERS_MAX: usize = 16;

/// An observer gets at most one document in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// An observer that has not asked for so long loses its link.
const IDLE: Duration = Duration::from_secs(60);

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

    fn forget_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.links.retain(|link| !link.task.is_finished());
    }
}

async fn answer_all(mut link: StatusExchange, status: watch::Receiver<Status>) {
    while let Ok(Ok(())) = timeout(IDLE, link.question()).await {
        let next = Instant::now() + INTERVAL;
        let document = StatusDocument::from(&*status.borrow());
        if link.answer(&document).await.is_err() {
            return;
        }
        sleep_until(next).await;
    }
}
