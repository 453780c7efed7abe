//! The futures of calls that copy without reduction: broadcast, all_gather, barrier.

use super::pending_op::PendingOp;
use crate::memory::Element;

/// A [`broadcast`](super::super::context::Context::broadcast) in flight.
#[must_use = "a broadcast does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct Broadcast<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf mut [T],
    pub(crate) is_root: bool,
}

/// An [`all_gather`](super::super::context::Context::all_gather) in flight.
#[must_use = "an all_gather does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllGather<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf [T],
    /// The memory of the result.
    pub(crate) out: Vec<T>,
}

/// An all_gather that owns its buffer, so that it may outlive the future that began it.
pub(crate) struct AllGatherOwned<T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: Vec<T>,
    pub(crate) out: Vec<T>,
}

/// A [`barrier`](super::super::context::Context::barrier) in flight.
#[must_use = "a barrier does nothing until it is awaited, and is aborted for all members when it \
    is dropped"]
pub struct Barrier {
    pub(crate) pending: PendingOp,
}
