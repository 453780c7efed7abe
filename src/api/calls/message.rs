//! The futures of point-to-point messages: send and recv.

use super::pending_op::PendingOp;
use crate::memory::Element;

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
