//! The futures of reductions whose result is not the same on all ranks: reduce, reduce_scatter.

use super::pending_op::PendingOp;
use crate::memory::Element;

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
