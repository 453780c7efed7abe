//! The session of one View on this member: the ledger behind its lock, the engine's backend, and
//! the pending calls.
//!
//! *Semantics.* A call takes a number. Its descriptor goes to all members, the backend works on
//! owned staging memory, and the members vote on the result. The caller only sees the decided
//! outcome. *Failure.* [`ViewSession::freeze`] ends the View: voting stops and the links close; the
//! next View states which operations were committed. The session keeps no reference to a caller's
//! buffer: the last poll of a future copies the result out of [`Decided`].

mod abandoned;
mod begin;
mod choice;
mod choices;
mod decided;
#[cfg(test)]
mod elements_tests;
#[cfg(test)]
mod enclosed_tests;
mod finished;
mod lost;
mod op_sender;
mod part_result;
mod plans;
#[cfg(test)]
mod plans_tests;
mod served;
mod state;
mod syncs;
#[cfg(test)]
mod testing;
mod uneven;
#[cfg(test)]
mod uneven_tests;

use super::meter::Meter;
use crate::collective::{
    Backend, Board, Engine, Lanes, Ledger, LedgerEffect, Misbehaviour, Outgoing, ViewBoard,
};
use crate::memory::Pool;
use crate::os::{Mutex, MutexGuard, Race, lock};
use crate::protocol::{
    AbortReason, Call, CallKind, Closing, Lane, Mutation, OpBody, OpId, OpMessage, Rank, RankSet,
    View, ViewDigest, Vote,
};
use crate::trace::unharmed;
pub use choice::{Choice, Unchosen};
use choices::Choices;
pub use decided::{Decided, Fate, Refused, SyncDue, SyncStep};
pub use lost::LostResults;
pub use op_sender::OpSender;
pub use part_result::PartResult;
use plans::Plans;
use served::Served;
pub use served::ServedOp;
use state::{OpSlot, SessionState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;
#[cfg(test)]
pub(crate) use testing::Group;
use tokio::sync::mpsc::UnboundedSender;
pub use uneven::UnevenStep;

/// The session of one View on this member; see the module.
pub struct ViewSession {
    view: Arc<View>,
    digest: ViewDigest,
    me: Rank,
    backend: Arc<dyn Backend>,
    pool: Pool,
    board: ViewBoard,
    out: UnboundedSender<Outgoing>,
    op_sender: Arc<dyn OpSender>,
    meter: Arc<Meter>,
    /// Results of abandoned calls of earlier Views.
    before: LostResults,
    state: Mutex<SessionState>,
}

impl ViewSession {
    /// Opens the session of a View in which this node has rank `me`, on the engine's backend.
    pub fn open(
        view: Arc<View>,
        me: Rank,
        engine: &dyn Engine,
        out: UnboundedSender<Outgoing>,
        op_sender: Arc<dyn OpSender>,
    ) -> ViewSession {
        let board = ViewBoard::new(me, out.clone());
        let backend = engine.open(&view, me, Arc::new(board.clone()));
        let ledger = Ledger::new(&view, me);
        let digest = ledger.view();
        let plans = Plans::new(&view.plan);
        let state = Mutex::new(SessionState {
            ledger,
            plans,
            slots: BTreeMap::new(),
            ended: Vec::new(),
            lost: BTreeSet::new(),
            brought: Lanes::default(),
            enclosed: BTreeMap::new(),
            served: Served::default(),
            gone: Vec::new(),
            left: false,
            must_end: false,
            asks_for_codecs: false,
            choices: Choices::default(),
        });
        ViewSession {
            view,
            digest,
            me,
            backend,
            pool: engine.pool(),
            board,
            out,
            op_sender,
            meter: Arc::default(),
            before: LostResults::default(),
            state,
        }
    }

    /// Measures this session's operations with `meter`.
    pub fn measured_by(self, meter: &Arc<Meter>) -> ViewSession {
        meter.enter(&self.view, self.me, &self.backend);
        ViewSession { meter: Arc::clone(meter), ..self }
    }

    /// Sets the committed results of abandoned calls that earlier Views have left.
    pub fn after(self, before: &LostResults) -> ViewSession {
        ViewSession { before: before.clone(), ..self }
    }

    /// The same with one of its rules broken, as a test wants it.
    pub(crate) fn with(self, mutation: Mutation) -> ViewSession {
        lock(&self.state).ledger.break_rule(mutation);
        self
    }

    /// The rule that a test has broken.
    pub(crate) fn mutation(&self) -> Mutation {
        lock(&self.state).ledger.mutation()
    }

    /// The View.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The View's digest, hashed once because every message is compared with it.
    pub fn digest(&self) -> ViewDigest {
        self.digest
    }

    /// This node's rank in the View.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// The engine's backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The pool of its engine.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The View's key-value board.
    pub fn board(&self) -> &ViewBoard {
        &self.board
    }

    /// Takes the next number of a lane. Receives that may come from several ranks look again if
    /// that was a message to this member: the next one may be theirs.
    ///
    /// # Errors
    /// This node has left, a result of the lane was abandoned and not fetched, or the ledger
    /// refuses the call.
    pub fn call(&self, lane: Lane, call: Call) -> Result<OpId, Refused> {
        let mut state = lock(&self.state);
        let op = self.take_number(&mut state, lane, call)?;
        let receives = lane.ends().is_some_and(|(_, to)| to == self.me);
        let behind = if receives { state.choices.wakers() } else { Vec::new() };
        self.execute_effects(state);
        wake(behind);
        Ok(op)
    }

    fn take_number(
        &self,
        state: &mut SessionState,
        lane: Lane,
        call: Call,
    ) -> Result<OpId, Refused> {
        self.may_call(state, lane, &call)?;
        let op = state.ledger.call(lane, call).map_err(Refused::By)?;
        state.slots.insert(
            op,
            OpSlot { is_sync: matches!(call.kind, CallKind::Sync { .. }), ..OpSlot::default() },
        );
        Ok(op)
    }

    /// Whether a call can be made now, however many there are.
    fn may_call(&self, state: &SessionState, lane: Lane, call: &Call) -> Result<(), Refused> {
        if state.left {
            return Err(Refused::Left);
        }
        if let Some(op) = self.before.first_in(lane).or_else(|| state.lost_in(lane)) {
            return Err(Refused::Lost(op));
        }
        state.ledger.refusal(call).map_or(Ok(()), |refusal| Err(Refused::By(refusal)))
    }

    /// Resolves to the operation's outcome and frees its slot. A freed slot resolves to
    /// `Indeterminate`.
    pub fn poll_decided(&self, op: OpId, task: &mut Task<'_>) -> Poll<Decided> {
        let mut state = lock(&self.state);
        if let Some(slot) = state.undecided(op) {
            slot.waker = Some(task.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.take(op))
    }

    /// The length in bytes of a committed result that [`poll_decided`](ViewSession::poll_decided)
    /// would return.
    pub fn result_bytes(&self, op: OpId) -> Option<usize> {
        lock(&self.state).slots.get(&op)?.bytes()
    }

    /// Requests an `Abort` after this time.
    pub fn give_up_after(&self, op: OpId, after: Duration) {
        // The control loop outlives every session in use. Without it the call ends with the View.
        let _ = self.out.send(Outgoing::Deadline(op, after));
    }

    /// Whether this member has called the operation and it is undecided. Also true for an abandoned
    /// call.
    pub fn is_open(&self, op: OpId) -> bool {
        let state = lock(&self.state);
        state.slots.get(&op).is_some_and(|slot| slot.outcome.is_none()) || state.choices.is_open(op)
    }

    /// The operation's deadline has passed.
    pub fn expire(&self, op: OpId) {
        let mut state = lock(&self.state);
        if op.lane.is_of_choices() {
            let woken = state.choices.expire(op);
            drop(state);
            return wake(woken);
        }
        state.ledger.expire(op);
        self.execute_effects(state);
    }

    /// Members that have not answered for an open operation, see [`Ledger::unanswered`].
    pub fn unanswered(&self, op: OpId) -> Vec<Rank> {
        lock(&self.state).ledger.unanswered(op)
    }

    /// Votes `Abort` if this member's result holds a NaN or an infinity.
    pub fn finite_only(&self, op: OpId) {
        if let Some(slot) = lock(&self.state).slots.get_mut(&op) {
            slot.finite_only = true;
        }
    }

    /// Divides the result of the call with this `index` of a step by the result of the call
    /// `weights`, which sums the weights; to be called before either begins.
    pub fn weighted(&self, step: OpId, index: u8, weights: u8) {
        if let Some(slot) = lock(&self.state).slots.get_mut(&step) {
            slot.weighted_by.insert(index, weights);
        }
    }

    /// Makes a step of a call that has not begun.
    pub fn becomes_step(&self, op: OpId, step: Call) {
        let mut state = lock(&self.state);
        state.ledger.becomes_step(op, step);
        self.execute_effects(state);
    }

    /// Votes `Abort`, unless this member has already voted.
    pub fn give_up(&self, op: OpId, reason: AbortReason) {
        let mut state = lock(&self.state);
        state.ledger.abort(op, reason);
        self.execute_effects(state);
    }

    /// Whether the View's members share one history now.
    pub fn is_synced(&self) -> bool {
        lock(&self.state).ledger.is_synced()
    }

    /// Whether the View is being replaced or has been replaced.
    pub fn is_frozen(&self) -> bool {
        lock(&self.state).ledger.is_frozen()
    }

    /// Handles a message about this View's operations. Its list of resolved operations is applied
    /// even if its body is in error.
    ///
    /// # Errors
    /// No honest member sends this message.
    pub fn on_message(
        self: &Arc<ViewSession>,
        from: Rank,
        message: &OpMessage,
    ) -> Result<(), Misbehaviour> {
        let (mut state, mut enclosed) = (lock(&self.state), None);
        let heard = match message.body {
            OpBody::Describe(descriptor) => {
                state.ledger.on_descriptor(from, descriptor).map(|is_first| {
                    enclosed = message
                        .enclosed
                        .as_ref()
                        .filter(|_| is_first)
                        .map(|enclosed| (descriptor.op, enclosed));
                })
            }
            OpBody::Vote(op, vote) => state.ledger.on_vote(from, op, vote),
            OpBody::Ready(op, bytes) => {
                state.ledger.on_ready(from, op, bytes);
                Ok(())
            }
            OpBody::Overdue(op) => state.ledger.on_overdue(from, op),
            OpBody::Resolved => Ok(()),
        };
        state.ledger.on_resolved(from, &message.resolved);
        let known = state.no_longer_held();
        let woken = state.choices.woken_by(&message.body, self.me);
        self.execute_effects(state);
        wake(woken);
        if let Some((op, enclosed)) = enclosed {
            self.backend.receive_enclosed(op, from, enclosed);
        }
        self.carry_out_held(known);
        heard
    }

    /// Ends the View on this member and returns its report for the promise: votes no longer change,
    /// and the data links close.
    pub fn freeze(&self) -> Closing {
        let mut state = lock(&self.state);
        let (closing, woken) = (state.ledger.freeze(), state.choices.wakers());
        drop(state);
        wake(woken);
        self.close();
        closing
    }

    /// Decides the open operations by the next View, which lists the committed and failed ones.
    pub fn decide(&self, next: &View) {
        let is_gone =
            |rank: &Rank| self.view.member(*rank).is_some_and(|member| !next.contains(member.id));
        lock(&self.state).gone = self.view.ranks().filter(is_gone).collect();
        self.end(|ledger| ledger.decide(&next.committed, &next.failed));
    }

    /// Ranks of this View that are not in the View that followed it.
    pub fn lost_members(&self) -> Vec<Rank> {
        lock(&self.state).gone.clone()
    }

    /// This node leaves: later calls are refused and open operations end as `Indeterminate`.
    pub fn leave(&self) {
        lock(&self.state).left = true;
        self.cut_off();
    }

    /// This member was left out of the next View, or leaves: open operations end as
    /// `Indeterminate`.
    pub fn cut_off(&self) {
        self.end(Ledger::cut_off);
        self.close();
    }

    fn end(&self, end: impl FnOnce(&mut Ledger)) {
        let mut state = lock(&self.state);
        end(&mut state.ledger);
        state.plans.forget_held();
        let woken = state.choices.wakers();
        self.execute_effects(state);
        wake(woken);
        // `execute_effects` has written the outcomes into the slots.
        self.hand_on(&mut lock(&self.state));
    }

    /// Closes the View's links and board, and ends the backend's threads.
    pub fn close(&self) {
        self.board.close();
        self.backend.close();
    }

    /// The messages that a member must hear again after its link was down. `heard` runs under the
    /// lock: no other message is queued before it returns, and it must not call this session
    /// (deadlock).
    pub fn replay<T>(&self, to: Rank, heard: impl FnOnce(Vec<OpMessage>) -> T) -> T {
        let mut state = lock(&self.state);
        let bodies = state.ledger.replay(to);
        let mut messages = Vec::with_capacity(bodies.len());
        for body in bodies {
            let resolved = state.ledger.report_resolved(RankSet::EMPTY.with(to));
            messages.push(state.message(body, resolved));
        }
        if Race::LateReplay.is_seeded() {
            drop(state);
        }
        heard(messages)
    }

    /// Sends the list of decided operations that the others may still list, if there are any.
    pub fn tell_resolved(&self) {
        let mut state = lock(&self.state);
        let message = self.message_to_others(&mut state, OpBody::Resolved);
        if !message.resolved.is_empty() {
            self.op_sender.tell(message);
        }
        drop(state);
        self.op_sender.flush();
    }

    /// The first operation, in order of lane and number, that waits for members that have not
    /// called it; else the first receive that has not chosen its sender.
    pub fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        let state = lock(&self.state);
        state.ledger.waiting_for().or_else(|| state.choices.waiting_for())
    }

    /// The number of operations that are begun and undecided.
    pub fn in_flight(&self) -> usize {
        lock(&self.state).ledger.in_flight()
    }

    /// The number of operations committed in this View so far.
    pub fn committed(&self) -> u64 {
        lock(&self.state).ledger.committed()
    }

    /// Executes the ledger's effects: messages in order under the lock, everything else after it is
    /// released.
    ///
    /// | Effect | Under the lock | After it |
    /// | --- | --- | --- |
    /// | `Tell` | queue the message | flush once |
    /// | `Agreed`, `Resolved` | update the slot | free a held input, wake the caller |
    /// | `Credit`, `Cancel`, `Retire` | forget enclosed bytes | call the backend |
    fn execute_effects(&self, mut state: MutexGuard<'_, SessionState>) {
        let (mut wakers, mut later, mut released) = (Vec::new(), Vec::new(), Vec::new());
        let mut tells = false;
        for effect in state.ledger.take_effects() {
            match effect {
                LedgerEffect::Tell(body) => {
                    self.op_sender.tell(self.message_to_others(&mut state, body));
                    tells = true;
                    if let OpBody::Vote(op, Vote::Abort(_)) | OpBody::Overdue(op) = body {
                        // A node that has ended waits for no votes.
                        let _ = self.out.send(Outgoing::VotesWanted(op));
                    }
                }
                LedgerEffect::Agreed(op, source) => {
                    wakers.extend(state.slots.get_mut(&op).and_then(|s| s.agreed(source)));
                }
                LedgerEffect::Resolved(op, outcome) => {
                    released.extend(state.plans.no_longer_wanted(op));
                    state.note_served(op, outcome);
                    wakers.extend(state.decided(op, outcome));
                }
                LedgerEffect::Credit(..) => later.push(effect),
                LedgerEffect::Cancel(op) | LedgerEffect::Retire(op) => {
                    state.enclosed.remove(&op);
                    later.push(effect);
                }
            }
        }
        if !state.lost.is_empty() {
            self.hand_on(&mut state);
        }
        if state.ledger.must_end() && !std::mem::replace(&mut state.must_end, true) {
            // A node that has ended replaces no View.
            let _ = self.out.send(Outgoing::MustEnd);
        }
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        drop(released);
        if tells {
            self.op_sender.flush();
        }
        ended.into_iter().for_each(|(measured, outcome)| unharmed(|| measured.end(outcome)));
        wake(wakers);
        for effect in later {
            match effect {
                LedgerEffect::Credit(op, rank) => self.backend.credit(op, rank),
                LedgerEffect::Cancel(op) => self.backend.cancel(op),
                LedgerEffect::Retire(op) => self.backend.retire(op),
                LedgerEffect::Tell(_) | LedgerEffect::Agreed(..) | LedgerEffect::Resolved(..) => {}
            }
        }
    }

    fn message_to_others(&self, state: &mut SessionState, body: OpBody) -> OpMessage {
        let audience = body.audience(self.view.size());
        let resolved = state.ledger.report_resolved(audience);
        state.message(body, resolved)
    }
}

/// Wakes tasks of the program, whose wakers may panic. To be called without the lock.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(|waker| unharmed(|| waker.wake()));
}
