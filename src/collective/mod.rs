//! Layer: Doors.
//!
//! Collectives: what is called, how it is scheduled, folded and carried out.
//!
//! An [`Engine`] opens one [`Backend`] per View; a Backend runs jobs until it is closed. It reads a
//! borrowed buffer only while it is fed by the caller's own thread, see [`Input`]. Whether a result
//! counts is decided by votes, outside of the engine.

mod arithmetic;
mod board;
mod call;
mod canvas;
mod codec_id;
mod digest;
mod dtype;
pub(crate) mod early_ops;
mod element;
mod enclosed;
mod envelope;
mod fault;
mod finite;
mod float_environment;
mod fold;
mod half;
mod input;
mod ledger;
mod meter;
mod native;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub(crate) mod p2p;
mod reference;
mod rejection;
pub(crate) mod retired;
mod revising;
mod revision;
mod schedule;
pub(crate) mod staging;
pub(crate) mod threads;
mod vote;

pub use arithmetic::Arithmetic;
#[cfg(feature = "gloo")]
pub use board::BoardFault;
pub use board::{Board, Post, ViewBoard};
pub use call::{Call, Descriptor, Kind, Mode, ReduceOp};
pub use codec_id::{Coarsest, CodecId};
#[cfg(feature = "gloo")]
pub use digest::DIGEST_BLOCK_BYTES;
pub use digest::{Digest, digest_of};
pub use dtype::DType;
pub use element::{Element, bytes_of, bytes_of_mut, elements_of, elements_of_mut};
pub use enclosed::{ENCLOSED_BYTES_MAX, Enclosed};
#[cfg(test)]
pub(crate) use envelope::testing;
pub use envelope::{
    Decided, Envelope, Fate, LostResults, Mouth, Outgoing, Refused, SyncDue, SyncStep,
};
pub use fault::EngineFault;
pub use finite::all_finite;
pub use float_environment::in_default_environment;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use float_environment::testing as float_testing;
#[cfg(feature = "gloo")]
pub use fold::fold_pair;
pub use fold::{Misfit, finish, fold};
pub use half::{Bf16, F16};
pub use input::Input;
pub use ledger::{CallRefusal, Ledger, LedgerEffect, Misbehaviour};
pub use meter::{Measured, Meter};
pub use native::NativeEngine;
pub use reference::reference;
pub use rejection::{FeedbackProblem, GradientProblem, Rejection};
pub use revising::Revising;
#[cfg(test)]
pub use revision::LANES_TOLD_MAX;
pub use revision::{PlanMessage, PlanStep, Switch};
#[cfg(any(test, fuzzing))]
pub use schedule::Itinerary;
#[cfg(test)]
pub use schedule::Then;
#[cfg(any(feature = "gloo", test))]
pub use schedule::Unfit;
pub use staging::{Block, Pool, Staging};
pub use vote::{
    AbortCause, AbortReason, Closing, Listed, Mismatch, OpBody, OpMessage, Outcome, Status, Vote,
};

use crate::engine::EngineKind;
use crate::link::DataLink;
use crate::topology::Plan;
use crate::view::{OpId, Rank, View};
use std::sync::Arc;

/// Opens backends of one kind.
pub trait Engine: Send + Sync {
    /// Which engine this is.
    fn kind(&self) -> EngineKind;

    /// A backend for one View, of which this node is `me`. Links are attached as they come up.
    /// `board` is the View's.
    fn open(&self, view: &Arc<View>, me: Rank, board: Arc<dyn Board>) -> Arc<dyn Backend>;
}

/// Runs the collectives of one View.
///
/// No method blocks. A backend that is closed or dropped ends its threads and fails its jobs with
/// [`EngineFault::Closed`].
pub trait Backend: Send + Sync {
    /// Takes over the data link to `peer`. A later link to the same peer replaces the earlier one.
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>);

    /// Begins a job: makes room for its data. Its `done` is called exactly once, from any thread
    /// and under no lock, also when the job is cancelled or the backend closes; perhaps before this
    /// returns, as when the call cannot be carried out under the plan. It should be short: it may
    /// hold up a link's receiver, or the control plane.
    fn start(&self, job: Job);

    /// Hands in this member's contribution to a job that was started, once; [`Input::Nothing`]
    /// where it has none. What was copied of it first is on its way before the last is. `input` is
    /// not looked at any more when this returns; what it lends may be, until the job is done and
    /// retired. Nothing happens when the job has ended; a contribution of another length than the
    /// call's fails it.
    fn feed(&self, op: OpId, input: &Input<'_>);

    /// The same, but for what is to be [`Enclosed`] with this member's descriptor: that does not go
    /// over the data links, and counts as sent. A backend that knows of nothing like it feeds.
    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        self.feed(op, input);
        None
    }

    /// `from` has enclosed this with its descriptor of `op`; said once of each. It is treated as if
    /// a data link had brought it.
    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        let _ = (op, from, enclosed);
    }

    /// `peer` calls the same `op` and has room for all its data: [`start`](Backend::start) was
    /// called for it there, and word of that has come here.
    ///
    /// Its descriptor is that word when it leaves after the call of `start`. Where an operation can
    /// only start when other descriptors are in, a sync for one, the word must be a later message.
    /// May come before `start` is called here.
    fn credit(&self, op: OpId, peer: Rank);

    /// Forgets `op`: a running job is failed with [`EngineFault::Cancelled`], data that still
    /// arrives for it is dropped.
    fn cancel(&self, op: OpId);

    /// `op` is decided on this member; data that still arrives for it is dropped.
    fn retire(&self, op: OpId);

    /// What the View's data links have carried so far, and what went with descriptors.
    fn traffic(&self) -> Traffic;

    /// The same of what went between this member and `peer` alone.
    fn traffic_with(&self, peer: Rank) -> Traffic;

    /// Shuts the links down and ends every job and thread.
    fn close(&self);
}

/// Bytes of bulk data, without headers and encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Handed to the links, or enclosed with a descriptor for a peer.
    pub sent_bytes: u64,
    /// Taken from the links, or from descriptors.
    pub received_bytes: u64,
}

impl Traffic {
    pub(crate) fn and(self, other: Traffic) -> Traffic {
        Traffic {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}

/// One operation for a backend.
pub struct Job {
    /// Which operation.
    pub op: OpId,
    /// What is to be done; agreed by all members or the result will be thrown away.
    pub call: Call,
    /// The plan whose revision the operation runs under.
    pub plan: Arc<Plan>,
    /// For a sync, which member's state of how many bytes is handed on; `None` for every other
    /// call.
    pub sync_root: Option<(Rank, u64)>,
    /// What the memory of the result should be [like](Pool::like), so that it can become the
    /// caller's.
    pub model: Option<Block>,
    /// Receives the result.
    pub done: Done,
}

/// Where a job's result goes.
pub type Done = Box<dyn FnOnce(Result<Finished, EngineFault>) + Send>;

/// A result that waits for the votes.
#[derive(Debug)]
pub struct Finished {
    /// The result's elements in wire-independent, native form.
    pub output: Staging,
    /// XXH3-128 over the XXH3-64 of each 256 KiB of the result, equal on every rank; anything where
    /// their results differ.
    pub digest: u128,
}
