//! The commands.

use crate::arguments::{Copying, Reduction};
use crate::flights::Flights;
use crate::gradients::Gradients;
use crate::message::Message;
use crate::step::Step;
use crate::train::Training;
use serde::Deserialize;

/// One command, a line of the input.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    Join {
        min: Option<usize>,
        /// In the syntax of `POTLUCK_PARTITION`.
        partition: Option<String>,
        /// Report the events of the group as `happened`.
        #[serde(default)]
        events: bool,
    },
    Context {
        min: Option<usize>,
        within_s: Option<f64>,
        /// Report the status right after the context.
        #[serde(default)]
        status_at_once: bool,
    },
    AllReduce(Reduction),
    /// Many `all_reduce` calls, several in flight.
    Flights(Flights),
    DropAllReduce(Reduction),
    ForgetAllReduce(Reduction),
    Broadcast(Copying),
    AllGather(Copying),
    Reduce(Reduction),
    ReduceScatter(Reduction),
    Gather(Copying),
    Scatter(Copying),
    AllToAll(Copying),
    Send(Message),
    Recv(Message),
    Step(Step),
    Barrier,
    Sync {
        version: u64,
        bytes: usize,
        #[serde(default)]
        seed: u64,
        /// Leave this many bytes of address space to the call.
        room: Option<u64>,
    },
    Train(Training),
    Gradients(Gradients),
    Status,
    /// Observe the cluster in place of joining a group.
    Observe,
    /// The nodes that are observed.
    Observed,
    Block {
        s: f64,
    },
    Leave,
}
