//! The futures of point-to-point messages: send and recv.

use super::pending_op::PendingOp;
use crate::memory::{Element, bytes_of, bytes_of_mut};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// A [`send`](super::super::context::Context::send) in flight.
///
/// If dropped before this end's vote, it is aborted at both ends.
#[must_use = "a send does nothing until it is awaited, and is aborted for both when it is dropped"]
pub struct Sending<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf [T],
}

/// A [`recv`](super::super::context::Context::recv) in flight.
///
/// If dropped before this end's vote, it is aborted at both ends. If leaked, it continues without
/// writing the buffer.
#[must_use = "a recv does nothing until it is awaited, and is aborted for both when it is dropped"]
pub struct Receiving<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf mut [T],
}

impl<T: Element> Future for Sending<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        ready!(this.pending.poll(task, Some(bytes_of(this.buffer))))?;
        Poll::Ready(Ok(()))
    }
}

impl<T: Element> Future for Receiving<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let output = ready!(this.pending.poll(task, None))?;
        output.copy_to(bytes_of_mut(this.buffer));
        Poll::Ready(Ok(()))
    }
}
