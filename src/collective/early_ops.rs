//! Operations for which a peer has sent data before they have begun here.

use crate::protocol::{OPS_IN_FLIGHT_MAX, OpId};
use std::collections::BTreeMap;

/// Most such operations per peer; equal to the limit of undecided operations. They are counted at
/// the receiver, where an operation that the sender has decided may still be undecided.
pub const EARLY_OPS_MAX: usize = OPS_IN_FLIGHT_MAX;

/// The early operations of one peer. A step counts as one operation, however many of its calls are
/// among them.
#[derive(Debug, Default)]
pub struct EarlyOps {
    /// By operation: the number of its calls with early data.
    calls: BTreeMap<OpId, usize>,
}

impl EarlyOps {
    /// Whether an honest peer may send data for this operation, or call of a step, too.
    pub fn has_room(&self, op: OpId) -> bool {
        self.calls.len() < EARLY_OPS_MAX || self.calls.contains_key(&op.whole())
    }

    /// The first data for it has arrived.
    pub fn add(&mut self, op: OpId) {
        *self.calls.entry(op.whole()).or_default() += 1;
    }

    /// An added operation has begun here, or is over.
    pub fn remove(&mut self, op: OpId) {
        let Some(calls) = self.calls.get_mut(&op.whole()) else { return };
        *calls -= 1;
        if *calls == 0 {
            self.calls.remove(&op.whole());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Lane, PARTS_MAX};

    fn op(number: u64) -> OpId {
        OpId { lane: Lane(7), number }
    }

    #[test]
    fn a_step_is_one_until_its_last_call_is_out() {
        let mut early = EarlyOps::default();
        for number in 0..EARLY_OPS_MAX as u64 {
            assert!(early.has_room(op(number)));
            (0..PARTS_MAX as u8).for_each(|call| early.add(op(number).part(call)));
        }
        assert!(
            !early.has_room(op(1000)) && early.has_room(op(3)) && early.has_room(op(3).part(0))
        );
        for call in 0..PARTS_MAX as u8 {
            assert!(!early.has_room(op(1000)));
            early.remove(op(3).part(call));
        }
        assert!(early.has_room(op(1000)));
        early.remove(op(1000));
    }
}
