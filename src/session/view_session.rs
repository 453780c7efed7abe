//! The session of one View on this member: the ledger behind its lock, the engine's backend, and
//! the pending calls.
//!
//! *Semantics.* A call takes a number. Its descriptor goes to all members, the backend works on
//! owned staging memory, and the members vote on the result. The caller only sees the decided
//! outcome. *Failure.* [`ViewSession::freeze`] ends the View: voting stops and the links close; the
//! next View states which operations were committed. Nothing here ever writes to a caller's buffer.

mod begin;
mod choice;
mod choices;
mod decided;
#[cfg(test)]
mod elements_tests;
#[cfg(test)]
mod enclosed_tests;
mod lost;
mod op_sender;
mod part_result;
mod plans;
#[cfg(test)]
mod plans_tests;
mod state;
#[cfg(test)]
mod testing;
mod uneven;
#[cfg(test)]
mod uneven_tests;

use super::meter::Meter;
use crate::collective::{
    Backend, Board, Engine, Finished, Lanes, Ledger, LedgerEffect, Misbehaviour, Outgoing,
    SyncSource, ViewBoard, all_finite, digest_of_parts,
};
use crate::memory::{Block, Pool, Staging};
use crate::os::{Mutex, MutexGuard, Race, lock};
use crate::protocol::{
    AbortReason, Call, CallKind, Closing, EngineFault, Lane, OpBody, OpId, OpMessage, Outcome,
    Rank, Seeded, View, ViewDigest, Vote,
};
use crate::trace::{self, unharmed};
pub use choice::{Choice, Unchosen};
use choices::Choices;
pub use decided::{Decided, Fate, Refused, SyncDue, SyncStep};
pub use lost::LostResults;
pub use op_sender::OpSender;
pub use part_result::PartResult;
use plans::Plans;
use state::{Served, SessionState, Slot};
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
    pub(crate) fn with(self, seeded: Seeded) -> ViewSession {
        lock(&self.state).ledger.break_rule(seeded);
        self
    }

    /// The rule that a test has broken.
    pub(crate) fn seeded(&self) -> Seeded {
        lock(&self.state).ledger.seeded()
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

    /// Takes the next number of a lane.
    ///
    /// # Errors
    /// This node has left, a result of the lane was abandoned and not fetched, or the
    /// ledger refuses the call.
    pub fn call(&self, lane: Lane, call: Call) -> Result<OpId, Refused> {
        let mut state = lock(&self.state);
        let op = self.take_number(&mut state, lane, call)?;
        self.settle(state);
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
            Slot { is_sync: matches!(call.kind, CallKind::Sync { .. }), ..Slot::default() },
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

    /// Takes the result of a sync of this lane that was dropped in an earlier View and has
    /// committed. This View may still need a sync of its own. `None` if there is no such result, or
    /// if `has_room` says that there is no room for its bytes; the result then stays.
    pub fn kept_sync(&self, lane: Lane, has_room: impl FnOnce(usize) -> bool) -> Option<Decided> {
        lock(&self.state).ledger.note_state(lane);
        self.before.take_sync(lane, has_room)
    }

    /// Decides how a sync in this lane proceeds, after [`kept_sync`](ViewSession::kept_sync).
    pub fn sync_due(&self, lane: Lane) -> SyncDue {
        let mut own = lock(&self.state);
        let lost_sync =
            own.lost_in(lane).filter(|op| own.slots.get(op).is_some_and(|slot| slot.is_sync));
        if let Some(op) = lost_sync.filter(|_| self.before.first_in(lane).is_none()) {
            own.lost.remove(&op);
            return SyncDue::Dropped(op);
        }
        // The program must fetch other abandoned results first: `Call` makes it run into the
        // refusal of `call`, which names the result.
        let is_lost = self.before.first_in(lane).or_else(|| own.lost_in(lane)).is_some();
        if is_lost || own.ledger.is_frozen() {
            return SyncDue::Call;
        }
        match own.brought.get(lane).filter(|_| own.ledger.sync_brings(lane)) {
            Some(brought) => SyncDue::Unless(*brought),
            None if own.ledger.sync_brings(lane) => SyncDue::Call,
            None => SyncDue::Nothing,
        }
    }

    /// Notes that a sync has delivered this state to the program.
    pub fn brought(&self, lane: Lane, state: &Staging) {
        let mut own = lock(&self.state);
        if own.ledger.sync_brings(lane) {
            own.brought.set(lane, digest_of_parts(state.blocks.iter().map(Block::bytes)));
        }
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

    /// Resolves when all members have called the sync and the length of the state is known, on its
    /// source without the length; or when the sync is decided before that.
    pub fn poll_sync(&self, op: OpId, task: &mut Task<'_>) -> Poll<SyncStep> {
        let mut state = lock(&self.state);
        let Some(slot) = state.undecided(op) else {
            return Poll::Ready(SyncStep::Decided(state.take(op)));
        };
        let begins = |source: &SyncSource| source.rank == self.me || source.bytes.is_some();
        if let Some(source) = slot.source.flatten().filter(begins) {
            return Poll::Ready(SyncStep::Agreed(source));
        }
        slot.waker = Some(task.waker().clone());
        Poll::Pending
    }

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
        self.settle(state);
        match outcome {
            Some(outcome) => Fate::of(outcome),
            None if voted_done || is_frozen => Fate::Unknown,
            None => Fate::Void,
        }
    }

    /// Moves the committed results of abandoned calls to the list of the node, whose memory is
    /// bounded and which the next View reads. A sync stays until the View has ended, because it may
    /// be continued; so does what comes after an undecided one in its lane.
    fn hand_on(&self, state: &mut SessionState) {
        let has_ended = state.ledger.is_frozen();
        let is_over = |op: &OpId| {
            let committed = |slot: &&Slot| slot.outcome == Some(Outcome::Committed);
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
        self.settle(state);
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
        self.settle(state);
    }

    /// Votes `Abort`, unless this member has already voted.
    pub fn give_up(&self, op: OpId, reason: AbortReason) {
        let mut state = lock(&self.state);
        state.ledger.abort(op, reason);
        self.settle(state);
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
            OpBody::Settled(below) => {
                state.ledger.on_settled(from, below);
                Ok(())
            }
            OpBody::Overdue(op) => state.ledger.on_overdue(from, op),
            OpBody::Resolved => Ok(()),
        };
        state.ledger.on_resolved(from, &message.resolved);
        let known = state.no_longer_held();
        let woken = state.choices.woken_by(&message.body, self.me);
        self.settle(state);
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
        self.settle(state);
        wake(woken);
        // `settle` has written the outcomes into the slots.
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
        let message = |body| state.message(body, state.ledger.resolved());
        let messages = bodies.into_iter().map(message).collect();
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

    fn finished(&self, op: OpId, call: Call, result: Result<Finished, EngineFault>) {
        match result {
            Ok(Finished { output, digest }) => {
                if !output.blocks.iter().all(|block| call.dtype.is_valid(block.bytes())) {
                    return self.spoil(op, EngineFault::Bits(call.dtype));
                }
                // If the ranks hold different results, there is no common digest to compare.
                let digest = if call.kind.has_common_result() { digest } else { 0 };
                let mut state = lock(&self.state);
                let whole = op.step().map_or(op, |(step, _)| step);
                if let Some((_, index)) = op.step()
                    && state.slots.get(&whole).is_some_and(|slot| slot.sums_weights(index))
                    && PartResult::weight_sum(&output).is_none()
                {
                    drop(state);
                    return self.give_up(whole, AbortReason::Weights);
                }
                let reduced = call.kind.reduce_op().is_some();
                if reduced && state.slots.get(&whole).is_some_and(|slot| slot.finite_only) {
                    drop(state);
                    if !output.blocks.iter().all(|block| all_finite(call.dtype, block.bytes())) {
                        return self.give_up(whole, AbortReason::NonFinite);
                    }
                    state = lock(&self.state);
                }
                if let Some((step, index)) = op.step() {
                    if let Some(slot) = state.slots.get_mut(&step) {
                        let part = PartResult { output, dtype: call.dtype, weights: None };
                        slot.parts.insert(index, (part, digest));
                    }
                    // Only the lengths of an uneven call are waited for.
                    let waker = state.undecided(step).filter(|slot| slot.is_uneven);
                    let waker = waker.and_then(|slot| slot.waker.take());
                    state.note_step(step);
                    self.settle(state);
                    return wake(waker);
                }
                if let Some(slot) = state.slots.get_mut(&op) {
                    slot.output = Some(output);
                }
                state.ledger.done(op, digest);
                self.settle(state);
            }
            // The operation was given up or the View has ended; the vote or the next View decides
            // it.
            Err(EngineFault::Closed | EngineFault::Cancelled) => {}
            Err(fault) => self.fail(op, fault),
        }
    }

    /// The result cannot count. That need not be the fault of a peer, if that calls something else.
    fn spoil(&self, op: OpId, fault: EngineFault) {
        let whole = op.whole();
        let mut state = lock(&self.state);
        if let Some(slot) = state.slots.get_mut(&whole) {
            slot.fault = Some(fault);
        }
        state.ledger.spoiled(whole, AbortReason::of(fault));
        self.settle(state);
    }

    fn fail(&self, op: OpId, fault: EngineFault) {
        trace::warn!(%op, %fault, "the engine could not finish an operation");
        if fault.is_the_engines() {
            let _ = self.out.send(Outgoing::EngineFailed);
        }
        let whole = op.step().map_or(op, |(step, _)| step);
        let mut state = lock(&self.state);
        if let Some(slot) = state.slots.get_mut(&whole) {
            slot.fault = Some(fault);
        }
        state.ledger.abort(whole, AbortReason::of(fault));
        self.settle(state);
    }

    /// Executes the ledger's effects: messages in order under the lock, everything else after it is
    /// released.
    ///
    /// | Effect | Under the lock | After it |
    /// | --- | --- | --- |
    /// | `Tell` | queue the message | flush once |
    /// | `Agreed`, `Resolved` | update the slot | free a held input, wake the caller |
    /// | `Credit`, `Cancel`, `Retire` | forget enclosed bytes | call the backend |
    fn settle(&self, mut state: MutexGuard<'_, SessionState>) {
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
