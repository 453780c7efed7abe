//! The futures of calls that copy without reduction: broadcast, all_gather, barrier.

use super::pending_op::PendingOp;
use crate::memory::{Element, bytes_of, bytes_of_mut};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// A [`broadcast`](super::super::context::Context::broadcast) in flight.
#[must_use = "a broadcast does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct Broadcast<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf mut [T],
    pub(crate) is_root: bool,
}

impl<T: Element> Future for Broadcast<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let input = this.is_root.then(|| bytes_of(this.buffer));
        let output = ready!(this.pending.poll(task, input))?;
        output.copy_to(bytes_of_mut(this.buffer));
        Poll::Ready(Ok(()))
    }
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

impl<T: Element> Future for AllGather<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
}

/// An all_gather that owns its buffer, so that it may outlive the future that began it.
pub(crate) struct AllGatherOwned<T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: Vec<T>,
    pub(crate) out: Vec<T>,
}

impl<T: Element + Unpin> Future for AllGatherOwned<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        this.pending.poll_into(task, Some(bytes_of(&this.buffer)), &mut this.out)
    }
}

/// A [`barrier`](super::super::context::Context::barrier) in flight.
#[must_use = "a barrier does nothing until it is awaited, and is aborted for all members when it \
    is dropped"]
pub struct Barrier {
    pub(crate) pending: PendingOp,
}

impl Future for Barrier {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        self.pending.poll(task, None).map_ok(drop)
    }
}
