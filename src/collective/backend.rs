//! The interface of an engine: one [`Backend`] per View, which runs calls until it is closed.

use super::board::Board;
use super::input::Input;
use crate::link::DataLink;
use crate::memory::{Block, Pool, Staging};
use crate::protocol::{Call, Enclosed, EngineFault, EngineKind, Lengths, OpId, Plan, Rank, View};
use crate::report::Traffic;
use std::sync::Arc;

/// Opens backends of one kind.
pub trait Engine: Send + Sync {
    /// Which engine this is.
    fn kind(&self) -> EngineKind;

    /// The pool of its working memory; all other memory of a call comes from there too.
    fn pool(&self) -> Pool {
        Pool::new()
    }

    /// Opens the backend of one View, in which this node has rank `me`. Links are attached as they
    /// come up. `board` is the View's key-value board.
    fn open(&self, view: &Arc<View>, me: Rank, board: Arc<dyn Board>) -> Arc<dyn Backend>;
}

/// Runs the collectives of one View.
///
/// No method blocks. A backend that is closed or dropped ends its threads and fails its calls with
/// [`EngineFault::Closed`].
pub trait Backend: Send + Sync {
    /// Takes over the data link to `peer`. A later link to the same peer replaces the earlier one.
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>);

    /// Starts a call and allocates memory for its data.
    ///
    /// The backend calls `done` exactly once, from any thread and without holding a lock, also when
    /// the call is cancelled or the backend closes. That may be before `start` returns, for
    /// example when the call cannot run under its plan. `done` must be short: it may delay a link's
    /// receiver or the control plane.
    fn start(&self, engine_call: EngineCall);

    /// Hands in this member's contribution to a started call; at most once per call, and
    /// [`Input::Nothing`] if this member contributes nothing. A backend may send the first chunk
    /// before it has copied the last one. A borrowed `input` is not read after `feed` returns; lent
    /// memory may be read until the call is done and retired. A call that has ended ignores it.
    /// A contribution whose length differs from the expected one fails the call.
    fn feed(&self, op: OpId, input: &Input<'_>);

    /// Like [`feed`](Backend::feed), but returns a small contribution for the caller to send inside
    /// this member's descriptor, as [`Enclosed`]. These bytes do not go over the data links and
    /// count as sent. The default implementation only feeds.
    fn feed_enclosing(&self, op: OpId, input: &Input<'_>) -> Option<Enclosed> {
        self.feed(op, input);
        None
    }

    /// Delivers the contribution that `from` enclosed with its descriptor of `op`, as if a data
    /// link had brought it. Called once per peer and operation. The default implementation ignores
    /// it.
    fn receive_enclosed(&self, op: OpId, from: Rank, enclosed: &Enclosed) {
        let _ = (op, from, enclosed);
    }

    /// Grants credit: `peer` has called [`start`](Backend::start) for the same `op` and has room
    /// for all its data.
    ///
    /// A peer's descriptor is this grant if it was sent after `start`. An operation that can only
    /// start once all descriptors are in, such as a sync, needs a later message for it. The credit
    /// may arrive before `start` is called here.
    fn credit(&self, op: OpId, peer: Rank);

    /// Forgets `op`: a running call fails with [`EngineFault::Cancelled`], and later data for it is
    /// dropped.
    fn cancel(&self, op: OpId);

    /// `op` is decided on this member; later data for it is dropped.
    fn retire(&self, op: OpId);

    /// The traffic of the View's data links so far, plus the bytes enclosed with descriptors.
    fn traffic(&self) -> Traffic;

    /// The part of [`traffic`](Backend::traffic) between this member and `peer`.
    fn traffic_with(&self, peer: Rank) -> Traffic;

    /// Shuts the links down and ends every call and thread.
    fn close(&self);
}

/// One operation for a backend.
pub struct EngineCall {
    /// The operation's number in the View.
    pub op: OpId,
    /// The call. If the members' calls differ, the vote discards the result.
    pub call: Call,
    /// The plan of the revision under which the operation runs.
    pub plan: Arc<Plan>,
    /// For a sync, the rank that sends its state and the state's length in bytes; `None` for every
    /// other call.
    pub sync_root: Option<(Rank, u64)>,
    /// For the data of an uneven call, the lengths of all its parts; `None` for every other call.
    pub lengths: Option<Arc<Lengths>>,
    /// Allocate the result [like](Pool::like) this block, so that the caller can take it over
    /// without a copy.
    pub model: Option<Block>,
    /// Receives the result.
    pub done: Done,
}

/// The callback that receives a call's result.
pub type Done = Box<dyn FnOnce(Result<Finished, EngineFault>) + Send>;

/// A result that waits for the vote.
#[derive(Debug)]
pub struct Finished {
    /// The result's elements, in native little-endian form.
    pub output: Staging,
    /// XXH3-128 over the XXH3-64 hashes of the result's 256 KiB blocks; equal on every rank if the
    /// collective has a common result, otherwise unspecified.
    pub digest: u128,
}
