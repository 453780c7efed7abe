//! The handle of a running observer.

use super::cluster::{Cluster, EventStream};
use super::config::Config;
use super::start::NodeRole;
use crate::identity::{Name, NodeId};
use crate::node::Command;
use crate::report::document::StatusDocument;
use crate::report::{LookedBack, NodeInfo, Result, Status};
use std::fmt;
use tokio::sync::{oneshot, watch};

/// A node that observes its cluster: every job, its members, its links and plan, and why each node
/// waits. It holds the cluster key and is a member of no group: no member counts it, asks it, or
/// waits for it.
///
/// Each node tells it one [`StatusDocument`] per second at most, and has up to 48 observers; the
/// oldest gives way. An observer has links with up to 128 nodes, and takes no further ones.
/// Observers observe each other too.
///
/// ```no_run
/// # async fn example() -> potluck::Result<()> {
/// let mut observer = potluck::Observer::start(potluck::Config::home()).await?;
/// while observer.changed().await {
///     for node in observer.nodes() {
///         println!("{} of job {}: {}", node.name, node.job, node.state_text);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Observer {
    node: Cluster,
    status: watch::Receiver<Status>,
    observed: watch::Receiver<Vec<StatusDocument>>,
}

impl Observer {
    /// Starts an observer. Of the configuration it uses the parts for the network, the keys, the
    /// files and the name. Like [`Cluster::join_with`] it needs no async runtime.
    ///
    /// # Errors
    /// Those of [`Cluster::join_with`].
    pub async fn start(config: Config) -> Result<Observer> {
        let node = Cluster::start(config, NodeRole::Observer).await?;
        let (mut status, mut observed) =
            (node.handles.status.clone(), node.handles.observed.clone());
        // The first state is a change, too.
        status.mark_changed();
        observed.mark_unchanged();
        Ok(Observer { node, status, observed })
    }

    /// The newest documents of the other nodes of the cluster, ordered by job, name and key. A node
    /// is listed while its connection stands. Without the documents that other observers have
    /// heard.
    pub fn nodes(&self) -> Vec<StatusDocument> {
        self.observed.borrow().clone()
    }

    /// The status of this observer: its state is
    /// [`State::Observing`](crate::report::State::Observing), or
    /// [`State::Alone`](crate::report::State::Alone), and then [`Status::reasons`] says why.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until the status has changed, or a node has told its document again, since the last
    /// call; the first call returns at once. False when the observer has ended. Cancel-safe.
    pub async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.status.changed() => changed.is_ok(),
            changed = self.observed.changed() => changed.is_ok(),
        }
    }

    /// Asks all nodes that are observed now to look back: to report whether they hear this
    /// observer's announcements and reach its addresses, and the time on their clocks. Question and
    /// answer travel in packets of full size, so a path that drops those shows as a missing answer.
    /// Takes up to 12 s if an answer is missing, and up to 24 s beside another call. A node that
    /// leaves meanwhile is not in the result. Two calls at a time both return the answers to the
    /// later question. If dropped, the answers are discarded.
    pub async fn look_back(&self) -> Vec<LookedBack> {
        let handles = &self.node.handles;
        let (begun, begins) = oneshot::channel();
        let mut round = handles.looked_back.clone();
        let command = Command::LookBack(begun);
        if handles.commands.send(command).await.is_err() || begins.await.is_err() {
            return Vec::new();
        }
        let Ok(round) = round.wait_for(|round| round.waits_for.is_empty()).await else {
            return Vec::new();
        };
        let nodes = self.nodes();
        let named = |node: NodeId| {
            let document = nodes.iter().find(|document| document.is_of(node));
            let name = document.map(|document| Name::from_lossy(&document.name));
            NodeInfo { node, name }
        };
        let answers = round.answers.iter();
        answers
            .map(|(node, sight)| LookedBack { peer: named(*node), sight: sight.clone() })
            .collect()
    }

    /// The events of this observer from now on, for example [`Event::FirstMet`](crate::Event).
    pub fn events(&self) -> EventStream {
        self.node.events()
    }

    /// Ends the observer. Returns when it has ended.
    pub async fn leave(self) {
        self.node.leave().await;
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.borrow();
        write!(f, "Observer({} {}, {})", status.name, status.node, status.state)
    }
}
