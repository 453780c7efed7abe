//! Layer: Face.
//!
//! A node in its group.

use crate::config::{Builder, Config};
use crate::context::Context;
use crate::driver::{self, Command, Handles};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::graph::Topology;
use crate::metrics::Metrics;
use crate::start;
use crate::status::Status;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, oneshot, watch};

/// A running node. Clones are handles to the same one; it leaves the group when the last handle and
/// Context are gone.
#[derive(Clone)]
pub struct Cluster {
    handles: Arc<Handles>,
    min_members: usize,
    trusted: Arc<[String]>,
}

impl Cluster {
    /// Joins the group of this machine's default namespace on the home network.
    ///
    /// Returns as soon as the node runs; [`Cluster::context`] waits for others. Needs no runtime of
    /// its own: the control plane has one, on its own thread.
    ///
    /// # Errors
    /// [`Error::Config`] or [`Error::Identity`], with what to do about it.
    pub async fn join() -> Result<Cluster> {
        Cluster::join_with(Config::home()).await
    }

    /// Sets what differs from [`Config::home`].
    pub fn builder() -> Builder {
        Builder::new(Config::home())
    }

    /// Joins with a configuration.
    pub async fn join_with(config: Config) -> Result<Cluster> {
        config.check()?;
        let (min_members, trusted) =
            (config.partition()?.members_wanted(), config.trusted_links.clone().into());
        let handles = driver::spawn(move || start::open(config)).await?;
        Ok(Cluster { handles: Arc::new(handles), min_members, trusted })
    }

    /// The newest View, once it has at least `min_members` members. Waits without bound.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node has left.
    pub async fn context(&self) -> Result<Context> {
        let mut views = self.handles.views.clone();
        loop {
            let newest = views.borrow_and_update().clone();
            if let Some(envelope) = newest.filter(|e| !e.is_frozen()) {
                return Ok(Context::new(envelope, self.clone()));
            }
            // A View that is being replaced is followed by the next one, unless this node ends.
            views.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Like [`Cluster::context`], for at most `patience`.
    ///
    /// # Errors
    /// [`Error::NotEnoughPeers`] when the time has passed, [`Error::Closed`] when the node has
    /// left.
    pub async fn context_within(&self, patience: Duration) -> Result<Context> {
        let started = Instant::now();
        let (give_up, given_up) = oneshot::channel::<()>();
        // Any executor may poll this, so the timer is a thread of ours; it ends early with the
        // receiver.
        let timer = std::thread::Builder::new().name("potluck-timer".to_owned()).spawn(move || {
            std::thread::park_timeout(patience);
            drop(give_up);
        });
        let timer = timer.map_err(|_| Error::Closed)?;
        tokio::select! {
            context = self.context() => {
                timer.thread().unpark();
                context
            }
            _ = given_up => {
                let present = self.status().view.map_or(1, |v| v.members.len());
                Err(Error::NotEnoughPeers { present, wanted: self.min_members, waited: started.elapsed() })
            }
        }
    }

    /// What this node knows about itself and the group: a snapshot, at most about 50 ms old.
    pub fn status(&self) -> Status {
        self.handles.status.borrow().clone()
    }

    /// The group as a graph, with what is known of the links and how much the plan sends over each:
    /// a snapshot, as old as [`Cluster::status`]. `None` while this node is in no View.
    pub fn topology(&self) -> Option<Topology> {
        self.handles.status.borrow().topology()
    }

    /// What this node's operations have cost since it joined, over all Views and lanes: a snapshot,
    /// exact for every operation whose call has returned. [`Context::traffic`] has the bytes of one
    /// View.
    pub fn metrics(&self) -> Metrics {
        self.handles.meter.metrics()
    }

    /// The status now, and again whenever it changes.
    pub fn watch(&self) -> StatusStream {
        StatusStream { status: self.handles.status.clone(), first: true }
    }

    /// What happens to the group from now on: Views, who came and went and why. How things stand is
    /// in [`Cluster::status`].
    pub fn events(&self) -> EventStream {
        EventStream { events: self.handles.happened.resubscribe() }
    }

    /// Leaves the group: the others go on at once. Every open call ends with an error. Returns when
    /// the node has gone.
    pub async fn leave(self) {
        let (done, gone) = oneshot::channel();
        if self.handles.commands.send(Command::Leave(done)).await.is_ok() {
            // An error means that it is gone already.
            let _ = gone.await;
        }
    }

    /// One whose driver runs elsewhere.
    #[cfg(test)]
    pub(crate) fn of(handles: Handles) -> Cluster {
        Cluster { handles: Arc::new(handles), min_members: 2, trusted: Arc::new([]) }
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

/// What happens to a group, as it happens. The last 256 events wait for whoever is late; then
/// [`Event::Lagged`] says how many were lost.
pub struct EventStream {
    events: broadcast::Receiver<Event>,
}

impl EventStream {
    /// The next event. `None` when the node is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(lost)) => Some(Event::Lagged(lost)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The changes of a node's status.
pub struct StatusStream {
    status: watch::Receiver<Status>,
    first: bool,
}

impl StatusStream {
    /// The present status at first, then each newer one; changes in between may be skipped. `None`
    /// when the node is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Status> {
        if !std::mem::take(&mut self.first) {
            self.status.changed().await.ok()?;
        }
        Some(self.status.borrow_and_update().clone())
    }
}
