//! Turns the computers of a home or lab network into one all-reduce group: every member contributes
//! a buffer, every member gets the sum.
//!
//! # Start here
//!
//! Two types to start from: [`Cluster`] is this program's node. [`Context`] is its rank in one
//! View, a set of agreed members, and has the collectives as methods. Below: a program, a table of
//! the other names by task, and the promises of a call; then state, training, a cut network,
//! engines, threads, metrics and limits.
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
//! [`Cluster::join`] starts this node. It finds others by multicast DNS, admits those that hold the
//! cluster key, and agrees with them on a *View*: the members, their ranks, and how they exchange
//! data. `potluck invite` makes the key on the first machine, and `potluck join` on the others
//! takes it over, by a short code.
//!
//! [`Cluster::context`] waits for a View and returns a [`Context`], which has the collectives as
//! methods. A Context never changes to another View: when members come or go, its calls end with an
//! error, and [`Context::renewed`] waits for the next View.
//!
//! Build with `--release`.
//!
//! # Names by task
//!
//! | task | names |
//! | --- | --- |
//! | join | [`Builder`], [`Config`], [`Admission`], [`Network`], [`EngineOffer`] |
//! | call | [`Context`], [`Step`] (several calls, one vote), [`ReduceOp`], [`Rank`] |
//! | choose the type of a buffer | [`Element`], [`Float`], [`DType`], [`struct@f16`], [`bf16`] |
//! | train a model | [`GradientSync`], [`Codec`], [`calls::AllReduce::weighted`] |
//! | continue while members come and go | [`Cluster::elastic`], [`SharedState`], [`Context::sync_with`] |
//! | handle failures | [`Error::can_renew`], [`Error`](enum@Error), [`Cause`], [`calls::Rejection`], [`Peer`] |
//! | decide which part of a cut network continues | [`Partition`] |
//! | begin with, go on with, have at most so many members | [`Builder::members`] |
//! | observe the group | [`Status`], [`Event`], [`report::Topology`], [`report::Metrics`] |
//! | wait for changes in the group | [`StatusStream`], [`EventStream`] |
//! | see how data moves | [`plan::ViewPlan`], [`plan::FoldOrder`] |
//! | see every group of the cluster | [`Observer`], [`report::document`] |
//! | look at the network without joining | [`scan`], [`report::Scan`] |
//! | see the nodes of this machine | [`local_nodes`], [`report::document`] |
//! | check this machine and this build | [`machine_faults`], [`gloo_version`] |
//! | manage keys and trust | [`keys::Keys`], [`keys::ClusterKey`], [`keys::Trust`], [`NodeId`] |
//! | let a machine in by a short code | [`keys::Invitation`], [`keys::join_by_code`] |
//! | call without async | [`blocking`] |
//! | test a program in one process | [`Config::local`], [`plan::reference_sum`] |
//!
//! The modules have the parts and results of these: [`calls`] the futures of a Context, [`keys`]
//! keys and invitations, [`plan`] how data moves, [`report`] the reports of a node about its group.
//!
//! [`Builder`] and [`Config`] set the values that differ from [`Config::home`].
//! [`Config::loopback`] is for several processes on one machine, [`Config::local`] for several
//! nodes in one process.
//!
//! # The promises of a call
//!
//! - *All or nothing.* A call that returns `Ok` has succeeded, or will succeed, on every member
//!   that continues. Members that continue together get the same answer.
//! - *The buffer* is written once, at the end, and only on `Ok`. On every error, and when a future
//!   is dropped, it is as it was.
//! - *The same bits* on every rank, and again for the same View, plan and inputs.
//!   [`Context::fold_order`] gives the order of the additions, and [`plan::reference_sum`] computes
//!   the sum sequentially in that order.
//! - *Disagreement is an error.* Ranks that call different things at one place of the program all
//!   get [`Error::Mismatch`], which names two of them.
//! - *A NaN or an infinity is a number like others*, unless a reduction is asked to
//!   [`reject_non_finite`](calls::AllReduce::reject_non_finite): then the operation is aborted for
//!   all members.
//! - *Several calls can count as one.* The calls of a [`Context::step`] are written together, or
//!   not at all.
//! - *Messages are calls of two.* [`Context::send`] and [`Context::recv`] promise to their two ends
//!   the same as the other calls to all members.
//! - *A dead member ends a wait; a living one does not.* A call waits for members that are alive
//!   and have not called, and [`Status::waiting`] names them. `deadline`, which every call has,
//!   aborts the call for all members.
//!
//! A call with [`best_effort`](calls::AllReduce::best_effort) is not voted on, so it does not keep
//! the first promise. A deadline, a dropped future, and a NaN or an infinity end it only on the
//! ranks that do not have its result yet. The other promises hold.
//!
//! Futures may be dropped at any time. That aborts the operation for all members, unless this
//! member has voted for its result already. Then the result is kept, also when the View changes,
//! and the lane refuses its next call until the result has been taken or discarded: see
//! [`Context::take_result`].
//!
//! # State
//!
//! Members that joined later, or were cut off, do not hold the state of the others. Calls in such a
//! View return [`Error::NeedsSync`] until [`Context::sync`] or [`Context::sync_with`] has brought
//! all members to one state; `sync_with` makes the bytes of a state only on the member that sends
//! it. [`Cluster::elastic`] is a loop that does so by itself. Nodes that keep no state join with
//! [`Builder::stateless`]. Histories are compared, not contents: nodes that have done nothing
//! together yet count as in sync, so programs that start from files must start from equal ones.
//!
//! # Training
//!
//! [`GradientSync`] computes the mean of a model's gradients while the backward pass continues, and
//! carries over from View to View. A [`Codec`] compresses data on the wire; with
//! [feedback](Codec::with_feedback), its rounding error is added to the next step.
//!
//! # A cut network
//!
//! By default, each part that has enough members continues, and when parts meet, one history wins.
//! If a program must rather wait than have two histories, [`Partition`] lets only a majority of
//! named machines continue, or only all of them: set it by [`Builder::partition`], the same
//! everywhere. [`Cluster::events`] reports which members came and went, and why.
//!
//! # Engines
//!
//! A View runs on potluck's native engine or, when every member was built with the feature `gloo`
//! and all of them reach each other directly, on Gloo. [`Builder::engine`] sets the offer of a
//! node; [`Context::engine`] and [`Context::engine_reason`] give the engine of new calls, and why.
//! A group that runs on Gloo only because all members have it changes to the native engine when its
//! links prove heterogeneous; no call fails because of that. The promises above hold on both
//! engines.
//!
//! # Threads
//!
//! One for the control plane, one for the disk, two for each other member of a View, and on Gloo
//! one for each operation in flight and up to six that help large ones with a codec; one more for
//! each other member in a View that keeps both engines ready. One belongs to multicast DNS, and one
//! writes for each link that one core cannot seal and write fast enough. Others live for a moment:
//! to measure or move a link, to hold calls while the plan changes, to look up a peer's name, to
//! try a disk. [`Cluster::context_within`], an invitation, a join by code, [`scan`] and
//! [`local_nodes`] have one each while they run. Any executor may poll the futures. Only
//! [`machine_faults`] needs a tokio runtime, and [`blocking`] needs no executor. The library
//! installs nothing and reports by `tracing`. If the program has installed no subscriber, it writes
//! one line to stderr when a Context takes more than 3 s or a call waits 10 s for others: see
//! [`Builder::notices`].
//!
//! # Metrics and traces
//!
//! [`Cluster::metrics`] counts operations by kind and outcome, their bytes and times, and the bytes
//! sent to and received from each other node. With the feature `metrics` the same numbers go to the
//! recorder that the program has installed behind the crate `metrics`, under names that begin with
//! `potluck_`; install it before joining, or it misses their descriptions. The numbers of edges
//! arrive there a few times per second, all others immediately.
//!
//! In the trace each operation is a span `op` at level debug, from its first poll to its decision,
//! with `kind`, `view`, `op` (lane and number), `bytes` and `engine`, and at the end `outcome` and
//! `duration_us`.
//!
//! # Limits
//!
//! At most 32 members; no mean of integers; Linux, with macOS untested. docs/limits.md in the
//! repository lists missing and untested features, SECURITY.md the threats that are not defended.

// The layers, by name. ARCHITECTURE.md has their order, and a chunk's way through them.
mod api; // the public types
mod collective; // operations, votes, folds and the native engine
mod compression; // codecs
mod discovery; // finding other nodes
mod election; // the membership: agreement on Views
#[cfg(any(feature = "gloo", test, fuzzing))]
mod gloo_ffi; // the Gloo engine
mod identity; // keys, names and the files that hold them
mod link; // handshakes, control links and data links
mod memory; // buffers: pooled blocks, staging, results
mod node; // the control loop, which drives all of these
mod os; // interfaces, disks, sleep, locks and threads
mod pairing; // a cluster key by a short code
mod protocol; // the words of Views, messages, plans and calls
mod relay; // control links over other members
pub mod report; // errors, status, events and metrics
mod session; // the operations of one View
#[cfg(any(fuzzing, test))]
mod sim; // models and simulations
mod topology; // from measured links to a plan
mod trace; // events and spans
mod wire; // the layout of bytes in messages and files

/// The programs of the simulation are those of `tests/soak`, which name this crate.
#[cfg(test)]
extern crate self as potluck;

// The public interface: at the root the names that most programs need, all others in modules.
pub use api::blocking;
pub use api::{
    Admission, Builder, Cluster, Codec, Config, Context, EngineOffer, EventStream, GradientSync,
    Network, Observer, SharedState, StatusStream, Step, gloo_version, local_nodes, machine_faults,
    scan,
};
/// The 16-bit floats of the crate `half`, which are elements.
pub use half::{bf16, f16};
pub use identity::NodeId;
pub use memory::{DType, Element, Float};
pub use protocol::{Partition, Rank, ReduceOp};
pub use report::error::{Cause, Error, Peer, Result};
pub use report::events::Event;
pub use report::status::Status;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub use sim::fuzzing;

/// The calls of a [`Context`]: their futures, the call of each rank, and why a call is refused.
pub mod calls {
    pub use crate::api::{
        AllGather, AllGatherUneven, AllReduce, AllReduceOwned, AllToAll, AllToAllUneven, Barrier,
        Broadcast, Commit, Gather, GradientStep, OwnedError, RankParts, Receiving, ReceivingAny,
        Reduce, ReduceScatter, Scatter, Sending, StateSync, StateSyncWith, StepReduction,
        Undecodable, WeightedMean,
    };
    pub use crate::protocol::{
        Call, CallKind, CallMode, Coarsest, CodecId, EngineFault, FeedbackProblem, GradientProblem,
        GroupProblem, Lane, OpId, Rejection,
    };
    pub use crate::report::error::Mismatched;
}

/// Cluster keys, this machine's identity, which nodes are trusted, and invitations by a short code.
pub mod keys {
    pub use crate::api::{
        Invitation, InvitationEvent, KeyBefore, Keys, MachineIdentity, OtherKey, Paired, StoredKey,
        join_by_code,
    };
    pub use crate::identity::{
        ClusterKey, CodeTextError, FileAction, FileContent, IdentityProblem, KeyTextError,
        Newcomer, NewcomerPolicy, NodeIdTextError, PairingCode, Trust,
    };
    pub use crate::pairing::{InvitationEnd, PairingProblem};
}

/// How the members of a View move a buffer, and the order in which they add it.
pub mod plan {
    #[doc(hidden)]
    pub use crate::collective::Arithmetic;
    pub use crate::collective::reference as reference_sum;
    pub use crate::protocol::{EngineKind, FoldOrder, FoldSegment, FoldTree};
    pub use crate::report::plan::{Algorithm, SizeClass, ViewPlan, WeightedTree};
}

/// Compiles the README's programs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the guide's programs.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// Checks that programs that must not compile are rejected.
#[cfg(doctest)]
#[doc = include_str!("../tests/sharing.md")]
struct Sharing;
