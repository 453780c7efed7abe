//! Layer: Face.
//!
//! A node in its group, for a program without async.

use super::{Context, Wait};
use crate::config::Config;
use crate::error::Result;
use crate::events::Event;
use crate::graph::Topology;
use crate::metrics::Metrics;
use crate::status::Status;
use crate::surroundings::Surroundings;
use std::fmt;
use std::time::Duration;

/// A running node: [`potluck::Cluster`](crate::Cluster), whose methods wait here. Clones are
/// handles to the same one.
#[derive(Clone)]
pub struct Cluster {
    cluster: crate::Cluster,
}

impl Cluster {
    /// Joins the group of this machine's default namespace on the home network. Returns as soon as
    /// the node runs.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) or [`Error::Identity`](crate::Error::Identity), with
    /// what to do about it.
    pub fn join() -> Result<Cluster> {
        Ok(crate::Cluster::join().wait()?.into())
    }

    /// Joins with a configuration: a [`Config`], or a [`Builder`](crate::Builder) that has made
    /// one.
    ///
    /// # Errors
    /// As [`Cluster::join`].
    pub fn join_with(config: impl Into<Config>) -> Result<Cluster> {
        Ok(crate::Cluster::join_with(config.into()).wait()?.into())
    }

    /// The newest View, once it has at least `min_members` members. Waits without bound.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the node has left.
    pub fn context(&self) -> Result<Context> {
        Ok(self.cluster.context().wait()?.into())
    }

    /// Like [`Cluster::context`], for at most `patience`.
    ///
    /// # Errors
    /// [`Error::NotEnoughPeers`](crate::Error::NotEnoughPeers) when the time has passed,
    /// [`Error::Closed`](crate::Error::Closed) when the node has left.
    pub fn context_within(&self, patience: Duration) -> Result<Context> {
        Ok(self.cluster.context_within(patience).wait()?.into())
    }

    /// What this node knows about itself and the group: a snapshot, at most about 50 ms old.
    pub fn status(&self) -> Status {
        self.cluster.status()
    }

    /// The group as a graph; see [`potluck::Cluster::topology`](crate::Cluster::topology).
    pub fn topology(&self) -> Option<Topology> {
        self.cluster.topology()
    }

    /// See [`potluck::Cluster::metrics`](crate::Cluster::metrics).
    pub fn metrics(&self) -> Metrics {
        self.cluster.metrics()
    }

    /// The status now, and again whenever it changes.
    pub fn watch(&self) -> StatusStream {
        StatusStream { stream: self.cluster.watch() }
    }

    /// What happens to the group from now on; see
    /// [`potluck::Cluster::events`](crate::Cluster::events).
    pub fn events(&self) -> EventStream {
        EventStream { stream: self.cluster.events() }
    }

    /// Leaves the group: the others go on at once. Every open call ends with an error. Returns when
    /// the node has gone.
    pub fn leave(self) {
        self.cluster.leave().wait();
    }
}

/// The same node, for code without async.
impl From<crate::Cluster> for Cluster {
    fn from(cluster: crate::Cluster) -> Cluster {
        Cluster { cluster }
    }
}

/// The same node, for async code.
impl From<Cluster> for crate::Cluster {
    fn from(cluster: Cluster) -> crate::Cluster {
        cluster.cluster
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cluster.fmt(f)
    }
}

/// What happens to a group, each event when it is there. It ends when the node is gone.
pub struct EventStream {
    stream: crate::EventStream,
}

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.stream.next().wait()
    }
}

/// The changes of a node's status. The present one comes first, then each newer one when it is
/// there; changes in between may be skipped. It ends when the node is gone.
pub struct StatusStream {
    stream: crate::StatusStream,
}

impl Iterator for StatusStream {
    type Item = Status;

    fn next(&mut self) -> Option<Status> {
        self.stream.next().wait()
    }
}

/// [`potluck::look_around`](crate::look_around), which waits here.
///
/// # Errors
/// The same.
pub fn look_around(config: Config, patience: Duration) -> Result<Surroundings> {
    crate::look_around(config, patience).wait()
}
