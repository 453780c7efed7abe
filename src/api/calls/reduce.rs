//! The futures of reductions whose result is not the same on all ranks: reduce, reduce_scatter.

use super::pending_op::PendingOp;
use crate::memory::{Element, bytes_of, bytes_of_mut};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// A [`reduce`](super::super::context::Context::reduce) in flight.
///
/// If dropped before this member's vote, it is aborted for all members. If leaked, it continues
/// without writing the buffer.
#[must_use = "a reduce does nothing until it is awaited, and is aborted for all members when it \
    is dropped"]
pub struct Reduce<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf mut [T],
    pub(crate) is_root: bool,
}

/// A [`reduce_scatter`](super::super::context::Context::reduce_scatter) in flight.
///
/// If dropped before this member's vote, it is aborted for all members.
#[must_use = "a reduce_scatter does nothing until it is awaited, and is aborted for all members \
    when it is dropped"]
pub struct ReduceScatter<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf [T],
    /// The memory of the result.
    pub(crate) out: Vec<T>,
}

impl<T: Element> Future for Reduce<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let output = ready!(this.pending.poll(task, Some(bytes_of(this.buffer))))?;
        if this.is_root {
            output.copy_to(bytes_of_mut(this.buffer));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Element> Future for ReduceScatter<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
}
