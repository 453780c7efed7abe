//! Layer: Face.
//!
//! Everybody brings what they have, everybody gets the sum: the computers on a home or lab network
//! as one all-reduce group.
//!
//! ```no_run
//! # async fn example() -> potluck::Result<()> {
//! use potluck::Cluster;
//!
//! let cluster = Cluster::join().await?;
//! let mut ctx = cluster.context().await?; // waits until there are two
//! let mut numbers = vec![1.0f32; 1000];
//! ctx.all_reduce(&mut numbers).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it goes
//!
//! A [`Cluster`] is this node. It finds others by multicast DNS, lets in who holds the cluster key,
//! and agrees with them on a *View*: who is in, in which order, and how they talk. A [`Context`] is
//! one View, and never becomes another one: when machines come or go, calls end with an error and
//! [`Context::renewed`] waits for the next View.
//!
//! [`Builder`] and [`Config`] set what differs from [`Config::home`]. [`Config::loopback`] is for
//! several processes on one machine, [`Config::local`] for several nodes in one process, which is
//! how to test a program that uses potluck.
//!
//! # What a call promises
//!
//! - *All or nothing.* A call that returns `Ok` did so, or will, on every member that goes on.
//!   Members that go on together get the same answer.
//! - *The buffer* is written once, at the end, and only on `Ok`. On every error, and when a future
//!   is dropped, it is as it was.
//! - *The same bits* on every rank, and again for the same View, plan and inputs.
//!   [`Context::fold_order`] says in which order values are added, [`reference_sum`] works it out
//!   in the plainest way.
//! - *Disagreement is an error.* Ranks that call different things at one place of the program all
//!   get [`Error::Mismatch`], which names two of them.
//! - *A NaN is a number like others*, and so is an infinity, unless a reduction is asked to
//!   [`reject_non_finite`](AllReduce::reject_non_finite): then the operation never happened, for
//!   all members.
//! - *Several calls can count as one.* What is called in a [`Context::step`] is written together,
//!   or not at all.
//! - *Messages are calls of two.* [`Context::send`] and [`Context::recv`] promise to their two ends
//!   what the others promise to all.
//! - *A dead member ends a wait; a living one does not.* Who lives and has not called is waited
//!   for, and [`Status::waiting`] names it. `deadline`, which every call has, gives up for all.
//!
//! A call that is asked to do with [`best_effort`](AllReduce::best_effort) keeps all of this but
//! the first: it is not voted on.
//!
//! Futures may be dropped at any time. That gives the operation up for all members, unless this one
//! has voted for its result already; then the result is kept, over changes of the View too, and the
//! next call waits for somebody to look at it: see [`Context::take_result`].
//!
//! # State
//!
//! Members that joined later, or were cut off, do not hold what the others do. Calls in such a View
//! return [`Error::NeedsSync`] until [`Context::sync`] has brought them together; nodes that keep
//! nothing in step join with [`Builder::stateless`]. Histories are compared, not contents: nodes
//! that have done nothing together yet count as agreed, so programs that start from files must
//! start from equal ones.
//!
//! # Training
//!
//! [`GradientSync`] takes the mean of a model's gradients while they are computed, and goes from
//! View to View. A [`Codec`] makes them shorter on the wire; with [feedback](Codec::with_feedback)
//! what it rounds away is added to the next step's.
//!
//! # A cut network
//!
//! Each part that has enough members goes on, and when parts meet one history wins. Where two
//! histories are worse than standing still, [`Partition`] lets only a majority of named machines go
//! on, or only all of them: set it by [`Builder::partition`], the same everywhere.
//! [`Cluster::events`] tells who came and went, and why.
//!
//! # Engines
//!
//! A View runs on potluck's own engine or, when every member was built with the feature `gloo` and
//! all of them reach each other directly, on Gloo. [`Builder::engine`] says what a node offers,
//! [`Context::engine`] and [`Context::engine_reason`] what calls run on by now and why: where links
//! turn out to differ, a group that is on Gloo only because all have it goes on natively, without a
//! call that fails. The promises above hold on both.
//!
//! # Threads
//!
//! One for the control plane, one for the disk, two for each other member of a View, and on Gloo
//! one for each operation that is under way; where a View has both engines ready, two more for each
//! other member. Any executor may poll the futures; none of them needs a tokio runtime of yours,
//! and [`blocking`] is for programs that have no executor at all. The library prints nothing and
//! installs nothing; what happens is told by `tracing`.
//!
//! # Numbers and traces
//!
//! [`Cluster::metrics`] counts operations by kind and outcome, their bytes and times, and the bytes
//! that went to and came from each other node. With the feature `metrics` the same numbers go to
//! the recorder that the program has installed behind the crate `metrics`, under names that begin
//! with `potluck_`; install it before joining, or it will not hear what they mean. Numbers of edges
//! arrive there a few times per second, all others as things happen.
//!
//! In the trace each operation is a span `op` at level debug, from its first poll to its decision,
//! with its `kind`, `view`, `op` (lane and number), `bytes` and `engine`, and at the end `outcome`
//! and `duration_us`.
//!
//! # Limits
//!
//! At most 16 members; no mean of integers; Linux, and macOS untested. The README lists what is
//! planned, SECURITY.md what is not defended.

pub mod blocking;
mod calls;
mod cluster;
mod collective;
mod compression;
mod config;
mod context;
mod copying;
mod defect;
mod discovery;
mod driver;
mod election;
mod engine;
mod error;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(feature = "gloo", test))]
mod gloo_ffi;
mod gradients;
mod graph;
mod identity;
mod keys;
mod link;
mod metrics;
mod partition;
mod plan;
mod relay;
#[cfg(test)]
mod simulation;
mod start;
mod status;
mod surroundings;
mod topology;
mod view;
mod wire;
mod wires;

// The public interface is:
pub use calls::{
    AllGather, AllReduce, AllReduceOwned, AllToAll, Barrier, Broadcast, Codec, Commit, Gather,
    Owned, Receiving, Reduce, ReduceScatter, Scatter, Sending, Step, StepReduction, Sync,
    Undecodable,
};
pub use cluster::{Cluster, EventStream, StatusStream};
#[doc(hidden)]
pub use collective::Arithmetic;
pub use collective::{
    Bf16, Call, Coarsest, CodecId, DType, Element, EngineFault, F16, FeedbackProblem,
    GradientProblem, Kind, Mode, ReduceOp, Rejection, Traffic, reference as reference_sum,
};
pub use config::{Admission, Builder, Config, Engine, Network};
pub use context::Context;
pub use discovery::{Activity, InterfaceReport, Skip};
pub use engine::EngineKind;
pub use error::{Cause, ConfigProblem, Error, Mismatched, Peer, Result};
pub use events::{Event, Loss, Who};
pub use gradients::{GradientStep, GradientSync};
pub use graph::{LinkDirection, LinkPath, Topology, TopologyLink};
pub use identity::{
    ClusterKey, FileAction, IdentityProblem, Kept, KeyTextError, Name, NodeId, NodeIdTextError,
};
pub use keys::{Keys, MachineIdentity, StoredKey};
pub use metrics::{EdgeMetrics, Metrics, OperationMetrics};
pub use partition::{Partition, RosterProblem};
pub use plan::{Plan, SizeClass, Way, WeightedTree};
pub use start::gloo_version;
pub use status::{
    AloneBecause, AloneOn, Counters, Forecast, KeptOut, PathStatus, PeerStatus, PlanShare,
    Quarantined, State, Status, ViewStatus, Waiting,
};
pub use surroundings::{Kinship, Neighbour, Surroundings, look_around};
pub use topology::{FoldOrder, FoldSegment, FoldTree, InterfaceKind};
pub use view::{Ballot, Lane, OpId, Rank, ViewDigest, ViewId};

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What must not compile does not.
#[cfg(doctest)]
#[doc = include_str!("../tests/sharing.md")]
struct Sharing;
