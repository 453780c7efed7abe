//! The futures of calls that exchange parts of buffers: gather, scatter, all_to_all.

use super::pending_op::PendingOp;
use crate::memory::{Element, bytes_of, bytes_of_mut};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// A [`gather`](super::super::context::Context::gather) in flight.
///
/// If dropped before this member's vote, it is aborted for all members.
#[must_use = "a gather does nothing until it is awaited, and is aborted for all members when it \
    is dropped"]
pub struct Gather<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf [T],
    /// The memory of the result.
    pub(crate) out: Vec<T>,
    pub(crate) is_root: bool,
}

impl<T: Element> Future for Gather<'_, T> {
    type Output = Result<Option<Vec<T>>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Option<Vec<T>>>> {
        let this = &mut *self;
        let own = this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out);
        own.map_ok(|own| this.is_root.then_some(own))
    }
}

/// A [`scatter`](super::super::context::Context::scatter) in flight.
///
/// If dropped before this member's vote, it is aborted for all members. If leaked, it continues
/// without writing `out`.
#[must_use = "a scatter does nothing until it is awaited, and is aborted for all members when it \
    is dropped"]
pub struct Scatter<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    /// The parts for all ranks; only at the root.
    pub(crate) parts: Option<&'buf [T]>,
    pub(crate) out: &'buf mut [T],
}

impl<T: Element> Future for Scatter<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let output = ready!(this.pending.poll(task, this.parts.map(bytes_of)))?;
        output.copy_to(bytes_of_mut(this.out));
        Poll::Ready(Ok(()))
    }
}

/// An [`all_to_all`](super::super::context::Context::all_to_all) in flight.
///
/// If dropped before this member's vote, it is aborted for all members.
#[must_use = "an all_to_all does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllToAll<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf [T],
    /// The memory of the result.
    pub(crate) out: Vec<T>,
}

impl<T: Element> Future for AllToAll<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
}
