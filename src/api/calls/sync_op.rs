//! The operation behind every sync, whatever form the state has.

use super::pending_op::{PendingOp, Stage};
use crate::collective::{Input, digest_of};
use crate::memory::{DType, OutOfMemory, Pool, Staging};
use crate::protocol::{Call, CallKind, Lane, Mutant, Outcome, Rejection};
use crate::report::{Error, Result};
use crate::session::{Decided, Refused, SyncDue, SyncStep, ViewSession};
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

/// The state of this member, as a sync needs it.
pub(crate) trait SyncState {
    /// The length of the state in bytes, for the descriptor; 0 if it is not known yet.
    fn len(&self) -> usize;

    /// The bytes of the state. Asked only of the source, and where an earlier sync of this View has
    /// brought a state.
    fn bytes(&mut self) -> &[u8];

    /// Whether this member takes the delivered state; `lacks` if it may hold another one.
    fn takes(&self, lacks: bool) -> bool;

    /// Makes room for a state of `len` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the state is unchanged.
    fn room_for(&mut self, pool: &Pool, len: usize) -> std::result::Result<(), OutOfMemory>;

    /// Replaces the state. There is room for it.
    fn put(&mut self, output: &Staging);
}

/// A sync in flight, without the state.
pub(crate) struct SyncOp {
    /// `None` if there is nothing to do.
    pub(super) op: Option<PendingOp>,
    lane: Lane,
    progress: Progress,
    /// This member may hold another state than the source. Also true of a dropped sync that is
    /// continued, because its future is gone.
    lacks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// A dropped sync of this lane, which this member had voted for, is undecided.
    Dropped,
    /// Not all members have called it, or the source has not named the length of the state.
    Called,
    /// The state is being transferred.
    Moving,
}

impl SyncOp {
    pub(crate) fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        version: u64,
        state: &mut dyn SyncState,
    ) -> SyncOp {
        let of_part = lane.is_of_group().then_some(Refused::Senseless(Rejection::SyncOfGroup));
        let refused = of_part.or_else(|| take_kept(session, lane, state).map(Refused::NoMemory));
        let call = Call::new(CallKind::Sync { version }, DType::U8, state.len() as u64);
        let numbered = || (Some(PendingOp::numbered(session, lane, call)), Progress::Called);
        let (op, progress) = if let Some(refused) = refused {
            (Some(PendingOp::refused(session, lane, call, refused)), Progress::Called)
        } else {
            match session.sync_due(lane) {
                SyncDue::Dropped(op) => {
                    (Some(PendingOp::resumed(session, call, op)), Progress::Dropped)
                }
                SyncDue::Call => numbered(),
                SyncDue::Unless(brought) if digest_of(state.bytes()) != brought => numbered(),
                SyncDue::Nothing | SyncDue::Unless(_) => (None, Progress::Called),
            }
        };
        SyncOp { op, lane, progress, lacks: true }
    }

    pub(super) fn give_up_after(&mut self, after: Duration) {
        self.op.iter_mut().for_each(|op| op.deadline = Some(after));
    }

    pub(super) fn poll(
        &mut self,
        task: &mut Task<'_>,
        state: &mut dyn SyncState,
    ) -> Poll<Result<()>> {
        match self.progress {
            Progress::Dropped => self.poll_dropped(task, state),
            Progress::Called => self.poll_called(task, state),
            Progress::Moving => self.poll_moving(task, state),
        }
    }

    /// Waits for the dropped sync. If that one commits, it is the result of this call; if it was
    /// aborted, this call takes a number of its own.
    fn poll_dropped(&mut self, task: &mut Task<'_>, state: &mut dyn SyncState) -> Poll<Result<()>> {
        let Some(pending) = &mut self.op else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        pending.arm(op);
        if let Some(bytes) = pending.session.result_bytes(op) {
            // Without room for it the result stays where it is: when this call is dropped, it
            // leaves the result to the next sync.
            let room = state.room_for(pending.session.pool(), bytes);
            room.map_err(|lack| Error::Engine(lack.into()))?;
        }
        let decided = ready!(pending.session.poll_decided(op, task));
        let Outcome::Aborted(_) = decided.outcome else {
            return Poll::Ready(self.take(decided, state));
        };
        let (session, call, deadline) =
            (Arc::clone(&pending.session), pending.call, pending.time_left());
        pending.stage = Stage::Over;
        *pending = PendingOp::numbered(&session, self.lane, call);
        pending.deadline = deadline;
        self.progress = Progress::Called;
        self.poll_called(task, state)
    }

    fn poll_called(&mut self, task: &mut Task<'_>, state: &mut dyn SyncState) -> Poll<Result<()>> {
        let Some(pending) = &mut self.op else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        if pending.stage == Stage::Numbered {
            pending.begin(op, &Input::Nothing);
        }
        let source = match ready!(pending.session.poll_sync(op, task)) {
            SyncStep::Decided(decided) => return Poll::Ready(self.take(decided, state)),
            SyncStep::Agreed(source) => source,
        };
        let (session, is_mine) =
            (Arc::clone(&pending.session), source.rank == pending.session.me());
        self.lacks = source.lacks;
        // The length is another member's word. Room is made now, because after the commit a lack of
        // memory would be too late.
        let bytes = source.bytes.filter(|_| !is_mine && state.takes(source.lacks)).unwrap_or(0);
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Err(lack) = state.room_for(session.pool(), len) {
            session.give_up(op, lack.into());
        } else {
            let input = if is_mine { Input::Borrowed(state.bytes()) } else { Input::Nothing };
            let own = is_mine.then(|| input.len() as u64);
            let bytes = own.or(source.bytes).unwrap_or_default();
            let call = Call { count: bytes, ..pending.call };
            session.begin_sync(op, call, (source.rank, bytes), &input);
        }
        self.progress = Progress::Moving;
        self.poll_moving(task, state)
    }

    fn poll_moving(&mut self, task: &mut Task<'_>, state: &mut dyn SyncState) -> Poll<Result<()>> {
        let Some(pending) = &mut self.op else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        let decided = ready!(pending.session.poll_decided(op, task));
        Poll::Ready(self.take(decided, state))
    }

    fn take(&mut self, decided: Decided, state: &mut dyn SyncState) -> Result<()> {
        let Some(pending) = &mut self.op else { return Ok(()) };
        let output = pending.finish(decided)?;
        if state.takes(self.lacks) && !pending.session.mutation().has(Mutant::SyncKeepsState) {
            state.put(&output);
        }
        pending.session.brought(self.lane, &output);
        Ok(())
    }
}

/// Takes the results of dropped syncs of earlier Views: they have committed, so they count for this
/// node too. Returns the lack of memory for one of them, which then stays.
fn take_kept(session: &ViewSession, lane: Lane, state: &mut dyn SyncState) -> Option<OutOfMemory> {
    loop {
        let mut lack = None;
        let has_room = |bytes| {
            let room = state.room_for(session.pool(), bytes);
            room.map_err(|short| lack = Some(short)).is_ok()
        };
        match session.kept_sync(lane, has_room) {
            Some(decided) => decided.output.iter().for_each(|output| state.put(output)),
            None => return lack,
        }
    }
}
