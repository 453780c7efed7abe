//! Calls whose futures were dropped, and their results.

use super::ViewSession;
use super::decided::{Decided, Fate};
use super::state::{OpSlot, SessionState};
use crate::os::lock;
use crate::protocol::{AbortReason, Lane, OpId, Outcome};

impl ViewSession {
    /// Handles a call whose future was dropped. Before this member's vote it votes `Abort`. After
    /// `Done`, or if the call is committed, it keeps the result for
    /// [`take_lost`](ViewSession::take_lost). Returns the fate of the contribution, as far as it is
    /// known now.
    pub fn abandon(&self, op: OpId) -> Fate {
        let mut state = lock(&self.state);
        let Some(slot) = state.slots.get_mut(&op) else { return Fate::Unknown };
        slot.waker = None;
        let outcome = slot.outcome;
        if outcome.is_none() {
            state.ledger.abort(op, AbortReason::Dropped);
        }
        // Where the View is being replaced the others decide, and may have all of it without a vote
        // of this member.
        let is_frozen = state.ledger.is_frozen();
        let voted_done = state.ledger.has_voted_done(op);
        let committed = outcome == Some(Outcome::Committed);
        if voted_done || committed {
            state.lost.insert(op);
        } else {
            // No later call asks for it.
            state.slots.remove(&op);
        }
        self.hand_on(&mut state);
        self.execute_effects(state);
        match outcome {
            Some(outcome) => Fate::of(outcome),
            None if voted_done || is_frozen => Fate::Unknown,
            None => Fate::Void,
        }
    }

    /// Moves the committed results of abandoned calls to the list of the node, whose memory is
    /// bounded and which the next View reads. A sync stays until the View has ended, because it may
    /// be continued; so does a result behind an undecided one in its lane.
    pub(super) fn hand_on(&self, state: &mut SessionState) {
        let has_ended = state.ledger.is_frozen();
        let is_over = |op: &OpId| {
            let committed = |slot: &&OpSlot| slot.outcome == Some(Outcome::Committed);
            let slot = state.slots.get(op).filter(committed);
            slot.is_some_and(|slot| {
                has_ended || !slot.is_sync && state.lost_in(op.lane) == Some(*op)
            })
        };
        let over: Vec<OpId> = state.lost.iter().filter(|op| is_over(op)).copied().collect();
        for op in over {
            state.lost.remove(&op);
            let decided = state.take(op);
            self.before.keep(op, decided);
        }
    }

    /// Takes the outcome of the first abandoned call of the lane. `None`, and the outcome stays, if
    /// it is undecided or if `fits` refuses the number of bytes of its result.
    pub fn take_lost(
        &self,
        lane: Lane,
        mut fits: impl FnMut(Option<usize>) -> bool,
    ) -> Option<Decided> {
        if self.before.first_in(lane).is_some() {
            return self.before.take_if(lane, |decided| fits(decided.bytes()));
        }
        let mut state = lock(&self.state);
        let op = state.lost_in(lane)?;
        let slot = state.slots.get(&op).filter(|slot| slot.outcome.is_some())?;
        if !fits(slot.bytes()) {
            return None;
        }
        state.lost.remove(&op);
        Some(state.take(op))
    }
}
