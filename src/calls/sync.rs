//! Layer: Face.
//!
//! The call that brings all members to one state.

use super::flight::{Flight, Stage};
use crate::collective::{
    Call, CodecId, DType, Decided, Envelope, Input, Kind, Mode, Outcome, Refused, Staging, SyncDue,
    SyncStep,
};
use crate::defect::Defect;
use crate::error::{Error, Result};
use crate::view::Lane;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

/// A [`sync`](crate::Context::sync) in flight.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Sync<'buf> {
    /// `None` if there is nothing to do.
    pub(crate) flight: Option<Flight>,
    state: &'buf mut Vec<u8>,
    lane: Lane,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// A dropped sync of this lane, which this member had voted for, is undecided.
    Dropped,
    /// Not all members have called it.
    Called,
    /// The state is being transferred.
    Moving,
}

impl<'buf> Sync<'buf> {
    pub(crate) fn new(
        envelope: &Arc<Envelope>,
        lane: Lane,
        version: u64,
        state: &'buf mut Vec<u8>,
    ) -> Sync<'buf> {
        let due = loop {
            match envelope.sync_due(lane, state) {
                // It has committed, so it counts for this node too.
                SyncDue::Kept(decided) => {
                    decided.whole().iter().for_each(|output| put(output, state));
                }
                due => break due,
            }
        };
        let (kind, count) = (Kind::Sync { version }, state.len() as u64);
        let call = Call { kind, dtype: DType::U8, count, codec: CodecId::None, mode: Mode::PerOp };
        let (flight, progress) = match due {
            SyncDue::Dropped(op) => (Some(Flight::resumed(envelope, call, op)), Progress::Dropped),
            SyncDue::Call => (Some(Flight::numbered(envelope, lane, call)), Progress::Called),
            SyncDue::Lacks(lack) => {
                (Some(Flight::refused(envelope, call, Refused::NoMemory(lack))), Progress::Called)
            }
            SyncDue::Nothing | SyncDue::Kept(_) => (None, Progress::Called),
        };
        Sync { flight, state, lane, progress }
    }

    /// Waits for the dropped sync. If that one commits, it is the result of this call; if it was
    /// aborted, this call takes a number of its own.
    fn poll_dropped(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(flight) = &mut self.flight else { return Poll::Ready(Ok(())) };
        let op = flight.op()?;
        if let Some(bytes) = flight.envelope.result_bytes(op) {
            // Without room for it the result stays where it is: the flight, when it is dropped,
            // leaves it to the next sync.
            let room = flight.envelope.pool().room_for(self.state, bytes);
            room.map_err(|lack| Error::Engine(lack.into()))?;
        }
        let decided = ready!(flight.envelope.poll_decided(op, task));
        let Outcome::Aborted(_) = decided.outcome else { return Poll::Ready(self.take(decided)) };
        let (envelope, call, deadline) =
            (Arc::clone(&flight.envelope), flight.call, flight.deadline);
        flight.stage = Stage::Over;
        *flight = Flight::numbered(&envelope, self.lane, call);
        flight.deadline = deadline;
        self.progress = Progress::Called;
        self.poll_called(task)
    }

    fn poll_called(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(flight) = &mut self.flight else { return Poll::Ready(Ok(())) };
        let op = flight.op()?;
        if flight.stage == Stage::Numbered {
            flight.begin(op, &Input::Nothing);
        }
        match ready!(flight.envelope.poll_sync(op, task)) {
            SyncStep::Decided(decided) => Poll::Ready(self.take(decided)),
            SyncStep::Agreed(root, bytes) => {
                let envelope = Arc::clone(&flight.envelope);
                // The length is another member's word. Room is made now, because after the commit a
                // lack of memory would be too late.
                let len = usize::try_from(bytes).unwrap_or(usize::MAX);
                if let Err(lack) = envelope.pool().room_for(self.state, len) {
                    envelope.give_up(op, lack.into());
                } else {
                    let input = match self.state.as_slice() {
                        own if root == envelope.me() => Input::Borrowed(own),
                        _ => Input::Nothing,
                    };
                    envelope.begin_sync(op, flight.call, (root, bytes), &input);
                }
                self.progress = Progress::Moving;
                self.poll_moving(task)
            }
        }
    }

    fn poll_moving(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(flight) = &mut self.flight else { return Poll::Ready(Ok(())) };
        let op = flight.op()?;
        let decided = ready!(flight.envelope.poll_decided(op, task));
        Poll::Ready(self.take(decided))
    }

    fn take(&mut self, decided: Decided) -> Result<()> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        let output = flight.over(decided)?;
        if !flight.envelope.seeded().has(Defect::SyncKeepsState) {
            put(&output, self.state);
        }
        flight.envelope.brought(self.lane, self.state);
        Ok(())
    }
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        match self.progress {
            Progress::Dropped => self.poll_dropped(task),
            Progress::Called => self.poll_called(task),
            Progress::Moving => self.poll_moving(task),
        }
    }
}

/// Replaces the state, which has room for the output.
fn put(output: &Staging, state: &mut Vec<u8>) {
    state.resize(output.len(), 0);
    output.copy_to(state);
}
