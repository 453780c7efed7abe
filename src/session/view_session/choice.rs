//! A receive that chooses its sender.
//!
//! The messages of one rank to another are numbered in a lane of their own, and matched by number.
//! A receive that may come from several ranks has no number before it has chosen one: the choice is
//! made here, by this member alone, among the messages whose turn it is. From then on it is an
//! ordinary receive of that rank's message, which took its number at that moment.

use super::decided::Refused;
use super::state::SessionState;
use super::{ViewSession, wake};
use crate::collective::{CallRefusal, Outgoing};
use crate::os::lock;
use crate::protocol::{Call, CallKind, Lane, OpId, Rank};
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Duration;

/// A receive that has not chosen its sender. It takes no number before, so dropping it has no
/// effect.
pub struct Choice {
    session: Arc<ViewSession>,
    lane: Lane,
    /// Ranks of the View in ascending order.
    from: Vec<Rank>,
    deadline: Option<Duration>,
    /// Its name while it waits.
    name: Option<OpId>,
}

/// Why a receive chose no message.
#[derive(Clone, Copy, Debug)]
pub enum Unchosen {
    /// No call can be made.
    Refused(Refused),
    /// Its deadline has passed.
    Late,
}

impl Choice {
    /// Among the next message of each of these ranks in this lane.
    ///
    /// `from` are ranks of the View in ascending order. With a `deadline`, the wait ends that long
    /// after the first poll.
    pub fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        from: Vec<Rank>,
        deadline: Option<Duration>,
    ) -> Choice {
        Choice { session: Arc::clone(session), lane, from, deadline, name: None }
    }

    /// Takes the number of the message that is chosen for `call`, a receive whose sender is still
    /// open; returns it with its sender.
    ///
    /// # Errors
    /// No message was chosen, and no number taken.
    pub fn poll(
        &mut self,
        call: Call,
        task: &mut Task<'_>,
    ) -> Poll<Result<(Call, OpId), Unchosen>> {
        let session = Arc::clone(&self.session);
        let mut state = lock(&session.state);
        if self.name.is_some_and(|name| state.choices.is_late(name)) {
            return Poll::Ready(Err(Unchosen::Late));
        }
        if let Err(refused) = session.may_call(&state, self.lane, &call) {
            return Poll::Ready(Err(Unchosen::Refused(refused)));
        }
        let Some((from, call)) = self.chosen(&state, call) else {
            return match self.name(&mut state) {
                Ok(name) => {
                    state.choices.wait(name, self.from.clone(), task.waker().clone());
                    Poll::Pending
                }
                Err(refused) => Poll::Ready(Err(Unchosen::Refused(refused))),
            };
        };
        let taken = session.take_number(&mut state, self.lane.messages(from, session.me), call);
        state.choices.chose(from);
        self.name.take().into_iter().for_each(|name| state.choices.end(name));
        // The next message may be for another one.
        let behind = state.choices.wakers();
        session.execute_effects(state);
        wake(behind);
        Poll::Ready(taken.map(|op| (call, op)).map_err(Unchosen::Refused))
    }

    /// The first rank of the View whose next message fits, and the receive of it, which has ranks
    /// of the group.
    fn chosen(&self, state: &SessionState, call: Call) -> Option<(Rank, Call)> {
        let CallKind::Message { tag, .. } = call.kind else { return None };
        let to = self.session.me;
        let fits = |from: &Rank| state.ledger.next_has_tag(self.lane.messages(*from, to), tag);
        let from = state.choices.in_turn(&self.from).into_iter().find(fits)?;
        let group = self.lane.group(self.session.view.size());
        let (sender, to) = group.in_group(from).zip(group.in_group(to))?;
        Some((from, Call { kind: CallKind::Message { from: sender, to, tag }, ..call }))
    }

    /// Its name, and its deadline if it gets one now.
    fn name(&mut self, state: &mut SessionState) -> Result<OpId, Refused> {
        if let Some(name) = self.name {
            return Ok(name);
        }
        let full = Refused::By(CallRefusal::TooManyInFlight);
        let name = state.choices.name(self.lane).ok_or(full)?;
        self.name = Some(name);
        // The control loop outlives every session in use.
        let late = self.deadline.map(|after| Outgoing::Deadline(name, after));
        late.into_iter().for_each(|late| drop(self.session.out.send(late)));
        Ok(name)
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            lock(&self.session.state).choices.end(name);
        }
    }
}
