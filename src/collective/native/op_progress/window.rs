//! The window of a flow: how far a rank's contributions run ahead of the results.
//!
//! In a tree of unequal links a rank with a fast link could send its whole contribution at once.
//! The chunks would wait in the queue of a switch in front of the parent, and those of the slowest
//! rank behind them, which set the pace. So a rank sends a chunk towards the root only if fewer
//! than a window of chunks are between it and the results that have come back. This is the sliding
//! window of TCP (RFC 9293, section 3.8), with results as acknowledgements.
//!
//! ```text
//! window of 8    results here: 0 1 2     sent: 0 to 10     held: from 11
//! ```
//!
//! It cannot end in a deadlock: of the chunks without a result the first one is within the window
//! of every rank.

use super::super::super::schedule::{FlowRole, Schedule, Then};
use crate::memory::OutOfMemory;
use crate::os::{Mutex, lock};
use crate::protocol::Rank;
use std::collections::VecDeque;

/// The window of a flow on one rank, for frames of sums, of the type `T`.
pub(super) struct Window<T> {
    /// The number of chunks; `None` without a bound.
    chunks: Option<usize>,
    state: Mutex<WindowState<T>>,
}

struct WindowState<T> {
    /// The number of results that have come.
    landed: usize,
    /// The sums that wait, by chunk. They may come in another order.
    held: VecDeque<(usize, T)>,
}

impl<T> Window<T> {
    /// The window of a flow in which rank `me` has this role.
    pub(super) fn of(schedule: &Schedule, flow: usize, role: &FlowRole, me: Rank) -> Window<T> {
        let is_sent_up = matches!(role.then, Then::Send(_)) && role.keeps;
        let plain = schedule.wire_bytes(None, schedule.chunk_elements);
        let coded = schedule.wire_bytes(schedule.codec_up(flow, me), schedule.chunk_elements);
        // Encoded chunks are shorter on the wire, and more of them are under way.
        let chunks = schedule.window_chunks.saturating_mul(plain.div_ceil(coded.max(1)).max(1));
        let is_bounded = chunks > 0 && is_sent_up && chunks < schedule.chunks(flow);
        let state = WindowState { landed: 0, held: VecDeque::new() };
        Window { chunks: is_bounded.then_some(chunks), state: Mutex::new(state) }
    }

    /// Whether sums may have to wait.
    pub(super) fn is_bounded(&self) -> bool {
        self.chunks.is_some()
    }

    /// Adds the sum of a chunk to `out`, if it may be sent now, or else holds it.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the list of those that wait.
    pub(super) fn pass(&self, chunk: usize, sum: T, out: &mut Vec<T>) -> Result<(), OutOfMemory> {
        let mut state = lock(&self.state);
        if chunk < self.end(&state) {
            out.push(sum);
            return Ok(());
        }
        let held = &mut state.held;
        held.try_reserve(1).map_err(|_| OutOfMemory::of::<(usize, T)>(held.len() + 1))?;
        let before = held.iter().rposition(|(other, _)| *other < chunk);
        held.insert(before.map_or(0, |place| place + 1), (chunk, sum));
        Ok(())
    }

    /// A result has landed. Adds the sums that may be sent now to `out`.
    pub(super) fn land(&self, out: &mut Vec<T>) {
        if self.chunks.is_none() {
            return;
        }
        let mut state = lock(&self.state);
        state.landed += 1;
        let end = self.end(&state);
        while state.held.front().is_some_and(|(chunk, _)| *chunk < end) {
            out.extend(state.held.pop_front().map(|(_, sum)| sum));
        }
    }

    /// The first chunk that must wait.
    fn end(&self, state: &WindowState<T>) -> usize {
        self.chunks.map_or(usize::MAX, |chunks| state.landed + chunks)
    }

    /// Drops the sums that wait.
    pub(super) fn clear(&self) {
        lock(&self.state).held.clear();
    }
}

#[cfg(test)]
mod tests;
