//! The futures of calls that exchange parts of buffers: gather, scatter, all_to_all.

use super::pending_op::PendingOp;
use crate::memory::Element;
use crate::protocol::Rejection;

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

/// Why these parts of a scatter's root are not one of `part` elements for each of `size` ranks.
pub(crate) fn wrong_parts<T>(parts: Option<&[T]>, part: usize, size: usize) -> Option<Rejection> {
    let given = parts?.len();
    let fits = Some(given) == part.checked_mul(size);
    (!fits).then_some(Rejection::ScatterInput { given, part, size })
}
