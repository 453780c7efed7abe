//! Uneven calls: operations of two parts, one that exchanges the lengths and one for the data.

use super::ViewSession;
use super::decided::Decided;
use super::state::{LENGTHS, OpSlot};
use crate::collective::Input;
use crate::memory::{DType, bytes_of, bytes_of_mut};
use crate::os::lock;
use crate::protocol::{Call, CallKind, CallMode, Lengths, OpId, UNEVEN_PARTS};
use std::sync::Arc;
use std::task::{Context as Task, Poll};

/// How an uneven call proceeds.
#[derive(Debug)]
pub enum UnevenStep {
    /// It was decided before all lengths were here.
    Decided(Decided),
    /// All members have called it. `None` if no machine could have as many elements as they say.
    Known(Option<Lengths>),
}

impl ViewSession {
    /// Announces an uneven call, and begins to exchange the lengths. `row` has the lengths of this
    /// member's parts, one for each rank.
    pub fn begin_uneven(self: &Arc<ViewSession>, op: OpId, call: Call, row: &[u64]) {
        // Before its parts, see `Entry::uneven_mismatch`.
        self.measured(op, &call, |state| {
            state.ledger.amend(op, call);
            if let Some(slot) = state.slots.get_mut(&op) {
                (slot.is_uneven, slot.parts_all) = (true, Some(UNEVEN_PARTS));
            }
            state.ledger.describe(op);
        });
        let gather = Call::new(CallKind::AllGather, DType::U64, row.len() as u64);
        let gather = Call { mode: CallMode::PerStep, ..gather };
        self.begin_part(op, LENGTHS, gather, &Input::Borrowed(bytes_of(row)));
    }

    /// Resolves when the lengths of all parts are known, or when the call is decided before that.
    pub fn poll_lengths(&self, op: OpId, task: &mut Task<'_>) -> Poll<UnevenStep> {
        let size = op.lane.group(self.view.size()).len();
        let mut state = lock(&self.state);
        let Some(slot) = state.undecided(op) else {
            return Poll::Ready(UnevenStep::Decided(state.take(op)));
        };
        let Some(rows) = rows(slot, size) else {
            slot.waker = Some(task.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(UnevenStep::Known(Lengths::new(size, &rows)))
    }

    /// Begins to move the data of an uneven call, with this member's whole contribution.
    pub fn begin_data(
        self: &Arc<ViewSession>,
        op: OpId,
        call: &Call,
        lengths: Lengths,
        input: &Input<'_>,
    ) {
        let count = lengths.elements_of(call.kind) as u64;
        if let Some(slot) = lock(&self.state).slots.get_mut(&op) {
            slot.lengths = Some(Arc::new(lengths));
        }
        let data = Call { count, mode: CallMode::PerStep, ..*call };
        self.begin_part(op, LENGTHS + 1, data, input);
    }
}

/// The lengths of all ranks, once they are here.
fn rows(slot: &OpSlot, size: usize) -> Option<Vec<u64>> {
    let (result, _) = slot.parts.get(&LENGTHS)?;
    let mut rows = vec![0; size * size];
    let is_whole = result.len() == size_of_val(rows.as_slice());
    is_whole.then(|| result.copy_to(bytes_of_mut(&mut rows)))?;
    Some(rows)
}
