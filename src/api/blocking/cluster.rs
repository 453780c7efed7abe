//! The handle of a running node, for programs without async.

use super::super::config::Config;
use super::super::elastic::{Next, Renewals};
use super::super::shared_state::SharedState;
use super::context::Context;
use super::wait::Wait;
use crate::report::{Event, Metrics, Result, Scan, Status, Topology};
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// A running node: [`potluck::Cluster`](super::super::cluster::Cluster) with blocking methods.
/// Clones are handles to the same node.
#[derive(Clone)]
pub struct Cluster {
    cluster: super::super::cluster::Cluster,
}

impl Cluster {
    /// Joins the group of this machine's default namespace on the local network. Returns as soon as
    /// the node runs.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the environment is invalid, there is no cluster
    /// key, no free port or no discovery. [`Error::Identity`](crate::Error::Identity) if a key or
    /// state file cannot be used.
    pub fn join() -> Result<Cluster> {
        Ok(super::super::cluster::Cluster::join().wait()?.into())
    }

    /// Joins with a configuration: a [`Config`] or a [`Builder`](super::super::config::Builder).
    ///
    /// # Errors
    /// Those of [`Cluster::join`]; also [`Error::Config`](crate::Error::Config) if the
    /// configuration is invalid.
    pub fn join_with(config: impl Into<Config>) -> Result<Cluster> {
        Ok(super::super::cluster::Cluster::join_with(config.into()).wait()?.into())
    }

    /// The newest View, once the group has begun and has at least `min_members` members. Waits
    /// without bound.
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
    /// [`Error::Closed`](crate::Error::Closed) when the node has left or the system starts no
    /// thread.
    pub fn context_within(&self, patience: Duration) -> Result<Context> {
        Ok(self.cluster.context_within(patience).wait()?.into())
    }

    /// Runs `step` until it says [`Break`](ControlFlow::Break), while members come and go; see
    /// [`potluck::Cluster::elastic`](super::super::cluster::Cluster::elastic), whose rules and
    /// errors are the same.
    ///
    /// ```no_run
    /// use potluck::blocking::{Cluster, Wait};
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// # fn example(cluster: &Cluster) -> potluck::Result<()> {
    /// let mut state = (0u64, vec![0.0f32; 1000]); // steps and weights
    /// cluster.elastic(&mut state, |ctx, (steps, weights)| {
    ///     let mut next = weights.clone();
    ///     next[*steps as usize % 1000] += 1.0;
    ///     ctx.all_reduce(&mut next).mean().wait()?;
    ///     (*steps, *weights) = (*steps + 1, next);
    ///     Ok(if *steps < 1000 { Continue(()) } else { Break(()) })
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`potluck::Cluster::elastic`](super::super::cluster::Cluster::elastic).
    pub fn elastic<S, B, F>(&self, state: &mut S, mut step: F) -> Result<B>
    where
        S: SharedState,
        F: FnMut(&mut Context, &mut S) -> Result<ControlFlow<B>>,
    {
        let mut renewals = Renewals::of(&self.cluster);
        let mut ctx = renewals.next(state).wait()?.into();
        loop {
            match renewals.after(step(&mut ctx, state))? {
                Next::Step => {}
                Next::Renew => ctx = renewals.next(state).wait()?.into(),
                Next::End(value) => return Ok(value),
            }
        }
    }

    /// The state of this node and of its group: a snapshot, at most about 50 ms old. The paths of
    /// the View and the reports on the interfaces are at most about 300 ms old.
    pub fn status(&self) -> Status {
        self.cluster.status()
    }

    /// The group as a graph; see
    /// [`potluck::Cluster::topology`](super::super::cluster::Cluster::topology).
    pub fn topology(&self) -> Option<Topology> {
        self.cluster.topology()
    }

    /// See [`potluck::Cluster::metrics`](super::super::cluster::Cluster::metrics).
    pub fn metrics(&self) -> Metrics {
        self.cluster.metrics()
    }

    /// The current status, then each change of it.
    pub fn watch(&self) -> StatusStream {
        StatusStream { stream: self.cluster.watch() }
    }

    /// The events of the group from now on; see
    /// [`potluck::Cluster::events`](super::super::cluster::Cluster::events).
    pub fn events(&self) -> EventStream {
        EventStream { stream: self.cluster.events() }
    }

    /// Leaves the group. The other members continue at once; every open call of this node ends with
    /// an error. Returns when the node has ended.
    pub fn leave(self) {
        self.cluster.leave().wait();
    }
}

/// The same node, for code without async.
impl From<super::super::cluster::Cluster> for Cluster {
    fn from(cluster: super::super::cluster::Cluster) -> Cluster {
        Cluster { cluster }
    }
}

/// The same node, for async code.
impl From<Cluster> for super::super::cluster::Cluster {
    fn from(cluster: Cluster) -> super::super::cluster::Cluster {
        cluster.cluster
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cluster.fmt(f)
    }
}

/// The events of a group as a blocking iterator. It ends when the node has ended.
pub struct EventStream {
    stream: super::super::cluster::EventStream,
}

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.stream.next().wait()
    }
}

/// The status changes of a node as a blocking iterator: the current status first, then each newer
/// one; intermediate changes may be skipped. It ends when the node has ended.
pub struct StatusStream {
    stream: super::super::cluster::StatusStream,
}

impl Iterator for StatusStream {
    type Item = Status;

    fn next(&mut self) -> Option<Status> {
        self.stream.next().wait()
    }
}

/// [`potluck::scan`](super::super::scan::scan), blocking.
///
/// # Errors
/// Those of [`potluck::scan`](super::super::scan::scan).
pub fn scan(config: Config, patience: Duration) -> Result<Scan> {
    super::super::scan::scan(config, patience).wait()
}
