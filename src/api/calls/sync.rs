//! The call that brings all members to one state.

use super::sync_op::{SyncOp, SyncState};
use crate::memory::{OutOfMemory, Pool, Staging};
use crate::protocol::Lane;
use crate::report::Result;
use crate::session::ViewSession;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

/// A [`sync`](super::super::context::Context::sync) in flight.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is \
    dropped"]
pub struct StateSync<'buf> {
    pub(super) pending: SyncOp,
    state: &'buf mut Vec<u8>,
}

impl<'buf> StateSync<'buf> {
    pub(crate) fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        version: u64,
        state: &'buf mut Vec<u8>,
    ) -> StateSync<'buf> {
        StateSync { pending: SyncOp::new(session, lane, version, state), state }
    }
}

impl Future for StateSync<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.pending.poll(task, this.state)
    }
}

/// Bytes that are there at all times. They are replaced on every member.
impl SyncState for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn bytes(&mut self) -> &[u8] {
        self
    }

    fn takes(&self, _lacks: bool) -> bool {
        true
    }

    fn room_for(&mut self, pool: &Pool, len: usize) -> std::result::Result<(), OutOfMemory> {
        pool.room_for(self, len)
    }

    fn put(&mut self, output: &Staging) {
        self.resize(output.len(), 0);
        output.copy_to(self.as_mut_slice());
    }
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
            let op = first.pending.op.as_ref().and_then(|pending| pending.number().ok());
            for _ in 0..3 {
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
        let armed = |out: &Outgoing| {
            matches!(
                out,
                Outgoing::Deadline(of, time) if (*of, *time) == (op, after)
            )
        };
        let asked = group.take_outgoing(1);
        assert_eq!(asked.iter().filter(|out| armed(out)).count(), 1, "{asked:?}");
    }
}
