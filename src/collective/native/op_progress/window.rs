//! The window of a flow: how far a rank's contributions run ahead of the results.
//!
//! In a tree of unequal links a rank with a fast link could send its whole contribution at once.
//! The chunks would wait in the queue of a switch in front of the parent, and those of the slowest
//! rank behind them, which set the pace. So a rank sends a chunk towards the root only if fewer
//! than a window of chunks are between it and the results that have come back. This is the sliding
//! window of TCP (RFC 9293, section 3.8), with results as acknowledgements.
//!
//! ```text
//! window of 8    results here: 0 1 2     sent: 0 .. 10     held: 11 ..
//! ```
//!
//! It cannot end in a deadlock: of the chunks without a result the first one is within the window
//! of every rank.

use super::super::super::schedule::{FlowRole, Schedule, Then};
use super::OutgoingFrame;
use crate::memory::OutOfMemory;
use crate::os::{Mutex, lock};
use crate::protocol::Rank;
use std::collections::VecDeque;

/// The window of a flow on one rank.
pub(super) struct Window {
    /// The number of chunks; `None` without a bound.
    chunks: Option<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of results that have come.
    landed: usize,
    /// The sums that wait, by chunk. They may come in another order.
    held: VecDeque<OutgoingFrame>,
}

impl Window {
    /// The window of a flow in which rank `me` has this role.
    pub(super) fn of(schedule: &Schedule, flow: usize, role: &FlowRole, me: Rank) -> Window {
        let is_sent_up = matches!(role.then, Then::Send(_)) && role.keeps;
        let plain = schedule.wire_bytes(None, schedule.chunk_elements);
        let coded = schedule.wire_bytes(schedule.codec_up(flow, me), schedule.chunk_elements);
        // Encoded chunks are shorter on the wire, and more of them are under way.
        let chunks = schedule.window_chunks * plain.div_ceil(coded.max(1)).max(1);
        let is_bounded = chunks > 0 && is_sent_up && chunks < schedule.chunks(flow);
        Window { chunks: is_bounded.then_some(chunks), state: Mutex::default() }
    }

    /// Whether sums may have to wait.
    pub(super) fn is_bounded(&self) -> bool {
        self.chunks.is_some()
    }

    /// Adds the sums that may be sent now to `out`, and holds the others.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the list of those that wait.
    pub(super) fn pass(
        &self,
        sums: Vec<OutgoingFrame>,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<(), OutOfMemory> {
        let mut state = lock(&self.state);
        let held = &mut state.held;
        held.try_reserve(sums.len())
            .map_err(|_| OutOfMemory::of::<OutgoingFrame>(held.len() + sums.len()))?;
        for sum in sums {
            let before = held.iter().rposition(|other| other.header.chunk < sum.header.chunk);
            held.insert(before.map_or(0, |place| place + 1), sum);
        }
        self.release(&mut state, out);
        Ok(())
    }

    /// A result has landed. Adds the sums that may be sent now to `out`.
    pub(super) fn land(&self, out: &mut Vec<OutgoingFrame>) {
        if self.is_bounded() {
            let mut state = lock(&self.state);
            state.landed += 1;
            self.release(&mut state, out);
        }
    }

    fn release(&self, state: &mut State, out: &mut Vec<OutgoingFrame>) {
        let end = self.chunks.map_or(usize::MAX, |chunks| state.landed + chunks);
        let may_go = |sum: &OutgoingFrame| (sum.header.chunk as usize) < end;
        while state.held.front().is_some_and(may_go) {
            out.extend(state.held.pop_front());
        }
    }

    /// Drops the sums that wait.
    pub(super) fn clear(&self) {
        lock(&self.state).held.clear();
    }
}

#[cfg(test)]
mod tests;
