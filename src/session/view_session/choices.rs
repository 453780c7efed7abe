//! Receives that choose their sender.
//!
//! The messages of one rank to another are numbered in a lane of their own, and matched by number.
//! A receive that may come from several ranks has no number before it has chosen one: the choice is
//! made here, by this member alone, among the messages whose turn it is. From then on it is an
//! ordinary receive of that rank's message, which took its number at that moment.

use super::ViewSession;
use super::decided::Refused;
use crate::collective::{CallRefusal, Outgoing};
use crate::os::lock;
use crate::protocol::{Call, CallKind, Lane, OPS_IN_FLIGHT_MAX, OpBody, OpId, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

/// The receives that have not chosen yet.
#[derive(Default)]
pub(super) struct Choices {
    waiting: BTreeMap<OpId, Waiting>,
    /// The number of the next one.
    next: u64,
    /// The rank that was chosen last; the next search begins behind it.
    last: Option<Rank>,
}

struct Waiting {
    from: Vec<Rank>,
    waker: Waker,
    is_late: bool,
}

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
        let is_late = |name: OpId| state.choices.waiting.get(&name).is_some_and(|own| own.is_late);
        if self.name.is_some_and(is_late) {
            return Poll::Ready(Err(Unchosen::Late));
        }
        if let Err(refused) = session.may_call(&state, self.lane, &call) {
            return Poll::Ready(Err(Unchosen::Refused(refused)));
        }
        let (me, group) = (session.me, self.lane.group(session.view.size()));
        let CallKind::Message { tag, .. } = call.kind else { return Poll::Pending };
        let is_next = |from: &Rank| state.ledger.next_has_tag(self.lane.messages(*from, me), tag);
        if let Some(from) = state.choices.in_turn(&self.from).into_iter().find(is_next) {
            let in_group = |rank| group.in_group(rank).unwrap_or(rank);
            let kind = CallKind::Message { from: in_group(from), to: in_group(me), tag };
            let chosen = Call { kind, ..call };
            let taken = session.take_number(&mut state, self.lane.messages(from, me), chosen);
            state.choices.last = Some(from);
            self.name.take().iter().for_each(|name| drop(state.choices.waiting.remove(name)));
            session.settle(state);
            return Poll::Ready(taken.map(|op| (chosen, op)).map_err(Unchosen::Refused));
        }
        let name = match self.name {
            Some(name) => name,
            None if state.choices.waiting.len() >= OPS_IN_FLIGHT_MAX => {
                let refused = Refused::By(CallRefusal::TooManyInFlight);
                return Poll::Ready(Err(Unchosen::Refused(refused)));
            }
            None => {
                let name = OpId { lane: self.lane.choices(), number: state.choices.next };
                state.choices.next += 1;
                self.name = Some(name);
                // The control loop outlives every session in use.
                let late = self.deadline.map(|after| Outgoing::Deadline(name, after));
                late.into_iter().for_each(|late| drop(session.out.send(late)));
                name
            }
        };
        let (from, waker) = (self.from.clone(), task.waker().clone());
        state.choices.waiting.insert(name, Waiting { from, waker, is_late: false });
        Poll::Pending
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            lock(&self.session.state).choices.waiting.remove(&name);
        }
    }
}

impl Choices {
    /// These ranks, beginning behind the one that was chosen last, so that each has its turn.
    fn in_turn(&self, from: &[Rank]) -> Vec<Rank> {
        let behind = from.partition_point(|rank| self.last.is_some_and(|last| *rank <= last));
        from[behind..].iter().chain(&from[..behind]).copied().collect()
    }

    /// Whether this one waits and is not late.
    pub(super) fn is_open(&self, name: OpId) -> bool {
        self.waiting.get(&name).is_some_and(|own| !own.is_late)
    }

    /// Its deadline has passed; returns what wakes it.
    pub(super) fn expire(&mut self, name: OpId) -> Option<Waker> {
        let own = self.waiting.get_mut(&name)?;
        own.is_late = true;
        Some(own.waker.clone())
    }

    /// The first one that waits, and the ranks that it waits for.
    pub(super) fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        self.waiting.first_key_value().map(|(name, own)| (*name, own.from.clone()))
    }

    /// What wakes those to which this news of another member may be of use: that a message to `me`
    /// was sent, or given up.
    pub(super) fn woken_by(&self, body: &OpBody, me: Rank) -> Vec<Waker> {
        let op = match body {
            OpBody::Describe(descriptor) => descriptor.op,
            OpBody::Vote(op, _) => *op,
            _ => return Vec::new(),
        };
        if op.lane.ends().is_some_and(|(_, to)| to == me) { self.wakers() } else { Vec::new() }
    }

    /// What wakes all of them.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.waiting.values().map(|own| own.waker.clone()).collect()
    }
}
