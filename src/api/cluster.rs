//! The handle of a running node, and its streams of status and events.

use super::config::{Builder, Config};
use super::start::{self, NodeRole};
use crate::node::{Command, Handles};
use crate::protocol::Sizes;
use crate::report::{Event, Metrics, Result, Status, Topology};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{broadcast, oneshot, watch};

/// A running node. Clones are handles to the same node; it leaves the group when the last handle
/// and the last Context are dropped.
#[derive(Clone)]
pub struct Cluster {
    pub(super) handles: Arc<Handles>,
    pub(super) sizes: Sizes,
    trusted: Arc<[String]>,
    /// The completed steps of this node's elastic loops, which are the version of its state.
    pub(super) steps: Arc<AtomicU64>,
}

impl Cluster {
    /// Joins the group of this machine's default namespace on the local network.
    ///
    /// Returns as soon as the node runs; [`Cluster::context`] waits for other members. Needs no
    /// async runtime: the control plane runs its own on its own thread.
    ///
    /// # Errors
    /// Those of [`Cluster::join_with`]. Their texts say what to do.
    pub async fn join() -> Result<Cluster> {
        Cluster::join_with(Config::home()).await
    }

    /// A builder that starts from [`Config::home`].
    pub fn builder() -> Builder {
        Builder::new(Config::home())
    }

    /// Joins with a configuration. See [`Cluster::join`].
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the configuration is invalid, there is no cluster
    /// key, no free port or no discovery. [`Error::Identity`](crate::Error::Identity) if a key or
    /// state file cannot be used.
    pub async fn join_with(config: Config) -> Result<Cluster> {
        Cluster::start(config, NodeRole::Member).await
    }

    /// Starts a node in this role.
    pub(super) async fn start(config: Config, role: NodeRole) -> Result<Cluster> {
        let (sizes, trusted) = (config.sizes()?, config.trusted_links.clone().into());
        let handles = crate::node::spawn(move || start::open(config, role)).await?;
        Ok(Cluster { handles: Arc::new(handles), sizes, trusted, steps: Arc::default() })
    }

    /// The state of this node and of its group: a snapshot, at most about 50 ms old. The paths of
    /// the View and the reports on the interfaces are at most about 300 ms old.
    pub fn status(&self) -> Status {
        self.handles.status.borrow().clone()
    }

    /// The group as a graph: the measured links, and the share of data that the plan sends over
    /// each. A snapshot: the links are at most about 300 ms old, the rest as old as
    /// [`Cluster::status`]. `None` while this node is in no View.
    pub fn topology(&self) -> Option<Topology> {
        self.handles.status.borrow().topology()
    }

    /// Counters of this node's operations since it joined, over all Views and lanes. A snapshot: an
    /// operation whose call has just returned may still be missing.
    /// [`Context::traffic`](crate::Context::traffic) has the bytes of one View.
    pub fn metrics(&self) -> Metrics {
        self.handles.meter.metrics()
    }

    /// The current status, then each change of it.
    pub fn watch(&self) -> StatusStream {
        StatusStream { status: self.handles.status.clone(), first: true }
    }

    /// The events of the group from now on: new Views, and which members came and went, and why.
    /// [`Cluster::status`] has the current state.
    pub fn events(&self) -> EventStream {
        EventStream { events: self.handles.happened.resubscribe() }
    }

    /// Leaves the group. The other members continue at once; every open call of this node ends with
    /// an error. Returns when the node has ended.
    pub async fn leave(self) {
        let (done, gone) = oneshot::channel();
        if self.handles.commands.send(Command::Leave(done)).await.is_ok() {
            // An error means that the node has ended already.
            let _ = gone.await;
        }
    }

    /// A handle to a node whose control loop runs elsewhere.
    #[cfg(test)]
    pub(crate) fn of(handles: Handles) -> Cluster {
        Cluster {
            handles: Arc::new(handles),
            sizes: Sizes::default(),
            trusted: Arc::new([]),
            steps: Arc::default(),
        }
    }

    pub(crate) fn trusted(&self) -> &[String] {
        &self.trusted
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.handles.status.borrow();
        write!(f, "Cluster({} {}, {})", status.name, status.node, status.state)
    }
}

/// The events of a group. Up to 256 events are kept for a slow reader; after that [`Event::Lagged`]
/// reports how many were lost.
pub struct EventStream {
    events: broadcast::Receiver<Event>,
}

impl EventStream {
    /// The next event. `None` when the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(lost)) => Some(Event::Lagged(lost)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The status changes of a node.
pub struct StatusStream {
    status: watch::Receiver<Status>,
    first: bool,
}

impl StatusStream {
    /// The current status on the first call, then each newer one; intermediate changes may be
    /// skipped. `None` when the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Status> {
        if !std::mem::take(&mut self.first) {
            self.status.changed().await.ok()?;
        }
        Some(self.status.borrow_and_update().clone())
    }
}

impl Builder {
    /// Joins. See [`Cluster::join`].
    ///
    /// # Errors
    /// Those of [`Cluster::join_with`].
    pub async fn join(self) -> Result<Cluster> {
        Cluster::join_with(self.config).await
    }
}
