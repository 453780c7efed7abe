//! The future of an all_reduce in place.

use super::codec::Codec;
use super::pending_op::PendingOp;
use crate::memory::Element;

/// An [`all_reduce`](super::super::context::Context::all_reduce) in flight.
///
/// If dropped before it completes, it is aborted for all members unless this member has voted (see
/// [`Context::take_result`](super::super::context::Context::take_result)). If leaked, it continues
/// without writing the buffer.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllReduce<'buf, T: Element> {
    pub(crate) pending: PendingOp,
    pub(crate) buffer: &'buf mut [T],
}

impl AllReduce<'_, f32> {
    /// Encodes the data on the wire. Every rank must use the same codec; error feedback may differ
    /// between ranks.
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.pending.encoded_by(codec);
        self
    }
}
