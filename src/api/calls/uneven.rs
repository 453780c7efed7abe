//! The futures of calls with a length per rank: all_gather_uneven, all_to_all_uneven.

use super::pending_op::{PendingOp, Stage};
use super::rank_parts::RankParts;
use crate::collective::Input;
use crate::memory::{Element, OutOfMemory, bytes_of, target_of};
use crate::protocol::{Lengths, OpId, Rejection};
use crate::report::{Error, Result};
use crate::session::{Decided, UnevenStep};
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

/// An [`all_gather_uneven`](super::super::context::Context::all_gather_uneven) in flight.
///
/// If dropped before this member's vote, it is aborted for all members. If leaked, it never ends
/// for the others, unless they set a deadline.
#[must_use = "an all_gather does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllGatherUneven<'buf, T: Element> {
    pub(crate) pending: UnevenOp<'buf, T>,
}

/// An [`all_to_all_uneven`](super::super::context::Context::all_to_all_uneven) in flight.
///
/// If dropped before this member's vote, it is aborted for all members. If leaked, it never ends
/// for the others, unless they set a deadline.
#[must_use = "an all_to_all does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllToAllUneven<'buf, T: Element> {
    pub(crate) pending: UnevenOp<'buf, T>,
}

/// An uneven call. The buffer is read when all ranks have called it, because its data moves only
/// then.
pub(crate) struct UnevenOp<'buf, T: Element> {
    pub(super) pending: PendingOp,
    buffer: &'buf [T],
    /// The lengths of the parts for each rank.
    row: Vec<u64>,
    /// The lengths of all ranks have come.
    is_known: bool,
    /// The lengths of the parts of the result, and its memory.
    lengths: Vec<usize>,
    out: Vec<T>,
}

impl<'buf, T: Element> UnevenOp<'buf, T> {
    /// `row` has one length for each rank.
    pub(crate) fn new(pending: PendingOp, buffer: &'buf [T], row: Vec<u64>) -> UnevenOp<'buf, T> {
        UnevenOp { pending, buffer, row, is_known: false, lengths: Vec::new(), out: Vec::new() }
    }

    fn poll(&mut self, task: &mut Task<'_>) -> Poll<Result<RankParts<T>>> {
        let op = self.pending.op()?;
        if self.pending.stage == Stage::Numbered {
            self.pending.check(op)?;
            self.pending.begin_uneven(op, &self.row);
        }
        if !self.is_known {
            match ready!(self.pending.session.poll_lengths(op, task)) {
                UnevenStep::Decided(decided) => return Poll::Ready(self.finish(decided)),
                UnevenStep::Known(lengths) => self.begin_data(op, lengths),
            }
        }
        let decided = ready!(self.pending.session.poll_decided(op, task));
        Poll::Ready(self.finish(decided))
    }

    /// Allocates the result and begins to move the data. The lengths are the words of others: if
    /// there is no memory for so much, the call ends on all of them.
    fn begin_data(&mut self, op: OpId, lengths: Option<Lengths>) {
        self.is_known = true;
        let session = &self.pending.session;
        let allocated = lengths.ok_or(OutOfMemory { bytes: usize::MAX }).and_then(|lengths| {
            self.lengths = lengths.result(self.pending.call.kind, self.pending.me());
            self.out = session.pool().elements(self.lengths.iter().sum())?;
            Ok(lengths)
        });
        match allocated {
            Ok(lengths) => {
                let input = Input::Borrowed(bytes_of(self.buffer));
                session.begin_data(op, &self.pending.call, lengths, &input);
            }
            Err(lack) => session.give_up(op, lack.into()),
        }
    }

    fn finish(&mut self, mut decided: Decided) -> Result<RankParts<T>> {
        let mut results = std::mem::take(&mut decided.parts);
        self.pending.finish(decided)?;
        let mut out = std::mem::take(&mut self.out);
        // The engine's result has this length. If that were violated, half of a result must not
        // pass as one.
        let result = results.pop().filter(|part| part.len() == size_of_val(out.as_slice()));
        result.ok_or(Error::Indeterminate)?.copy_to(target_of(&mut out));
        Ok(RankParts::new(out, std::mem::take(&mut self.lengths)))
    }
}

/// Why these lengths do not cut a buffer of `given` elements into one part for each of `size`
/// ranks.
pub(crate) fn wrong_lengths(lengths: &[usize], given: usize, size: usize) -> Option<Rejection> {
    let sum = lengths.iter().fold(0usize, |sum, length| sum.saturating_add(*length));
    let fits = lengths.len() == size && sum == given;
    (!fits).then_some(Rejection::PartLengths { parts: lengths.len(), sum, given, size })
}

impl<T: Element> Future for AllGatherUneven<'_, T> {
    type Output = Result<RankParts<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        self.pending.poll(task)
    }
}

impl<T: Element> Future for AllToAllUneven<'_, T> {
    type Output = Result<RankParts<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        self.pending.poll(task)
    }
}
