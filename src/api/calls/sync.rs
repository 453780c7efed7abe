//! The call that brings all members to one state.

use super::pending_op::{PendingOp, Stage};
use crate::collective::Input;
use crate::memory::{DType, Staging};
use crate::protocol::{Call, CallKind, Defect, Lane, Outcome};
use crate::report::{Error, Result};
use crate::session::{Decided, Refused, SyncDue, SyncStep, ViewSession};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

/// A [`sync`](super::super::context::Context::sync) in flight.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is \
    dropped"]
pub struct StateSync<'buf> {
    /// `None` if there is nothing to do.
    pub(crate) pending: Option<PendingOp>,
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

impl<'buf> StateSync<'buf> {
    pub(crate) fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        version: u64,
        state: &'buf mut Vec<u8>,
    ) -> StateSync<'buf> {
        let due = loop {
            match session.sync_due(lane, state) {
                // It has committed, so it counts for this node too.
                SyncDue::Kept(decided) => {
                    decided.whole().iter().for_each(|output| put(output, state));
                }
                due => break due,
            }
        };
        let call = Call::new(CallKind::Sync { version }, DType::U8, state.len() as u64);
        let (pending, progress) = match due {
            SyncDue::Dropped(op) => {
                (Some(PendingOp::resumed(session, call, op)), Progress::Dropped)
            }
            SyncDue::Call => (Some(PendingOp::numbered(session, lane, call)), Progress::Called),
            SyncDue::Lacks(lack) => {
                (Some(PendingOp::refused(session, call, Refused::NoMemory(lack))), Progress::Called)
            }
            SyncDue::Nothing | SyncDue::Kept(_) => (None, Progress::Called),
        };
        StateSync { pending, state, lane, progress }
    }

    /// Waits for the dropped sync. If that one commits, it is the result of this call; if it was
    /// aborted, this call takes a number of its own.
    fn poll_dropped(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        pending.arm(op);
        if let Some(bytes) = pending.session.result_bytes(op) {
            // Without room for it the result stays where it is: the flight, when it is dropped,
            // leaves it to the next sync.
            let room = pending.session.pool().room_for(self.state, bytes);
            room.map_err(|lack| Error::Engine(lack.into()))?;
        }
        let decided = ready!(pending.session.poll_decided(op, task));
        let Outcome::Aborted(_) = decided.outcome else { return Poll::Ready(self.take(decided)) };
        let (session, call, deadline) =
            (Arc::clone(&pending.session), pending.call, pending.time_left());
        pending.stage = Stage::Over;
        *pending = PendingOp::numbered(&session, self.lane, call);
        pending.deadline = deadline;
        self.progress = Progress::Called;
        self.poll_called(task)
    }

    fn poll_called(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        if pending.stage == Stage::Numbered {
            pending.begin(op, &Input::Nothing);
        }
        match ready!(pending.session.poll_sync(op, task)) {
            SyncStep::Decided(decided) => Poll::Ready(self.take(decided)),
            SyncStep::Agreed(root, bytes) => {
                let session = Arc::clone(&pending.session);
                // The length is another member's word. Room is made now, because after the commit a
                // lack of memory would be too late.
                let len = usize::try_from(bytes).unwrap_or(usize::MAX);
                if let Err(lack) = session.pool().room_for(self.state, len) {
                    session.give_up(op, lack.into());
                } else {
                    let input = match self.state.as_slice() {
                        own if root == session.me() => Input::Borrowed(own),
                        _ => Input::Nothing,
                    };
                    session.begin_sync(op, pending.call, (root, bytes), &input);
                }
                self.progress = Progress::Moving;
                self.poll_moving(task)
            }
        }
    }

    fn poll_moving(&mut self, task: &mut Task<'_>) -> Poll<Result<()>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let op = pending.op()?;
        let decided = ready!(pending.session.poll_decided(op, task));
        Poll::Ready(self.take(decided))
    }

    fn take(&mut self, decided: Decided) -> Result<()> {
        let Some(pending) = &mut self.pending else { return Ok(()) };
        let output = pending.over(decided)?;
        if !pending.session.seeded().has(Defect::SyncKeepsState) {
            put(&output, self.state);
        }
        pending.session.brought(self.lane, self.state);
        Ok(())
    }
}

impl Future for StateSync<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Outgoing;
    use crate::protocol::{OpBody, view_of};
    use crate::session::Group;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    fn is_pending(sync: Pin<&mut StateSync<'_>>) -> bool {
        sync.poll(&mut Task::from_waker(Waker::noop())).is_pending()
    }

    fn carry_all_but_votes(group: &mut Group) {
        for from in [0, 1] {
            for message in group.take_said(from) {
                if !matches!(message.body, OpBody::Vote(..)) {
                    let (from, to) = (group.members[from].me(), &group.members[1 - from]);
                    to.on_message(from, &message).expect("an honest member");
                }
            }
        }
    }

    /// Rank 1 has voted for a sync and dropped it, and the vote of rank 0 is missing.
    #[test]
    fn a_sync_that_is_continued_has_its_deadline() {
        let mut view = view_of(2);
        view.members[1].in_sync = false;
        let mut group = Group::of(view);
        let members = group.members.clone();
        let (mut of_root, mut state) = (vec![7; 100], Vec::new());
        let mut root = pin!(StateSync::new(&members[0], Lane::MAIN, 1, &mut of_root));
        let op = {
            let mut first = pin!(StateSync::new(&members[1], Lane::MAIN, 0, &mut state));
            let op = first.pending.as_ref().and_then(|pending| pending.number().ok());
            for _ in 0..2 {
                assert!(is_pending(root.as_mut()) && is_pending(first.as_mut()));
                carry_all_but_votes(&mut group);
            }
            let op = op.expect("a number");
            group.await_vote(1, op);
            op
        };
        group.take_outgoing(1);
        let after = Duration::from_secs(5);
        let mut again =
            pin!(StateSync::new(&members[1], Lane::MAIN, 0, &mut state).deadline(after));
        assert!(is_pending(again.as_mut()) && is_pending(again.as_mut()));
        let armed = |out: &Outgoing| matches!(out, Outgoing::Deadline(of, time) if (*of, *time) == (op, after));
        let asked = group.take_outgoing(1);
        assert_eq!(asked.iter().filter(|out| armed(out)).count(), 1, "{asked:?}");
    }
}
