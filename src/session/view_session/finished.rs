//! The result of the engine for an operation that it has finished.

use super::part_result::PartResult;
use super::{ViewSession, wake};
use crate::collective::{Finished, Outgoing, all_finite};
use crate::os::lock;
use crate::protocol::{AbortReason, Call, EngineFault, OpId};
use crate::trace;

impl ViewSession {
    pub(super) fn finished(&self, op: OpId, call: Call, result: Result<Finished, EngineFault>) {
        match result {
            Ok(Finished { output, digest }) => {
                if !output.blocks.iter().all(|block| call.dtype.is_valid(block.bytes())) {
                    return self.spoil(op, EngineFault::Bits(call.dtype));
                }
                // If the ranks hold different results, there is no common digest to compare.
                let digest = if call.kind.has_common_result() { digest } else { 0 };
                let mut state = lock(&self.state);
                let whole = op.step().map_or(op, |(step, _)| step);
                if let Some((_, index)) = op.step()
                    && state.slots.get(&whole).is_some_and(|slot| slot.sums_weights(index))
                    && PartResult::weight_sum(&output).is_none()
                {
                    drop(state);
                    return self.give_up(whole, AbortReason::Weights);
                }
                let reduced = call.kind.reduce_op().is_some();
                if reduced && state.slots.get(&whole).is_some_and(|slot| slot.finite_only) {
                    drop(state);
                    if !output.blocks.iter().all(|block| all_finite(call.dtype, block.bytes())) {
                        return self.give_up(whole, AbortReason::NonFinite);
                    }
                    state = lock(&self.state);
                }
                if let Some((step, index)) = op.step() {
                    if let Some(slot) = state.slots.get_mut(&step) {
                        let part = PartResult { output, dtype: call.dtype, weights: None };
                        slot.parts.insert(index, (part, digest));
                    }
                    // Only the lengths of an uneven call are waited for.
                    let waker = state.undecided(step).filter(|slot| slot.is_uneven);
                    let waker = waker.and_then(|slot| slot.waker.take());
                    state.note_step(step);
                    self.execute_effects(state);
                    return wake(waker);
                }
                if let Some(slot) = state.slots.get_mut(&op) {
                    slot.output = Some(output);
                }
                state.ledger.done(op, digest);
                self.execute_effects(state);
            }
            // The operation was given up or the View has ended; the vote or the next View decides
            // it.
            Err(EngineFault::Closed | EngineFault::Cancelled) => {}
            Err(fault) => self.fail(op, fault),
        }
    }

    /// The result cannot count. That need not be the fault of a peer, if that calls something else.
    fn spoil(&self, op: OpId, fault: EngineFault) {
        let whole = op.whole();
        let mut state = lock(&self.state);
        if let Some(slot) = state.slots.get_mut(&whole) {
            slot.fault = Some(fault);
        }
        state.ledger.spoiled(whole, AbortReason::of(fault));
        self.execute_effects(state);
    }

    pub(super) fn fail(&self, op: OpId, fault: EngineFault) {
        trace::warn!(%op, %fault, "the engine could not finish an operation");
        if fault.is_the_engines() {
            let _ = self.out.send(Outgoing::EngineFailed);
        }
        let whole = op.step().map_or(op, |(step, _)| step);
        let mut state = lock(&self.state);
        if let Some(slot) = state.slots.get_mut(&whole) {
            slot.fault = Some(fault);
        }
        state.ledger.abort(whole, AbortReason::of(fault));
        self.execute_effects(state);
    }
}
