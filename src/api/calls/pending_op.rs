//! The state machine of one operation of this member, shared by all futures of calls.

use super::codec::Codec;
use super::error_feedback::{ErrorFeedback, FeedbackRefusal, ResidualTicket};
use crate::collective::{CallRefusal, Input};
use crate::identity::{Name, NodeId};
use crate::memory::{DType, Element, OutOfMemory, Staging, elements_of, target_of};
use crate::node::peer_at;
use crate::protocol::{
    AbortCause, AbortReason, Call, CallKind, CallMode, CodecId, EngineFault, GroupRanks, Lane,
    OpId, Outcome, Rank, Rejection, ring_segment,
};
use crate::report::{Cause, Error, Mismatched, Peer, Result};
use crate::session::{Decided, Fate, Refused, ViewSession};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::{Duration, Instant};

/// One operation of this member, from its number to its outcome. Dropping it abandons the
/// operation.
pub(crate) struct PendingOp {
    pub(super) session: Arc<ViewSession>,
    /// The ranks among which it is called; the ranks of the call are those of this group.
    group: GroupRanks,
    pub(super) call: Call,
    op: std::result::Result<OpId, Refused>,
    pub(super) deadline: Option<Duration>,
    /// When the deadline was armed.
    began: Option<Instant>,
    /// A defect of the arguments that the [`Call`] does not contain.
    pub(super) rejected: Option<Rejection>,
    /// A NaN or an infinity aborts the operation.
    pub(super) finite_only: bool,
    pub(super) stage: Stage,
    /// The residual of its codec, until the call begins. Not used by steps.
    feedback: Option<ErrorFeedback>,
    /// The residuals added to the contributions of its calls.
    tickets: Vec<(OpId, ResidualTicket)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Numbered,
    Begun,
    Over,
}

impl PendingOp {
    pub(crate) fn numbered(session: &Arc<ViewSession>, lane: Lane, call: Call) -> PendingOp {
        PendingOp::with((session, lane), call, session.call(lane, call))
    }

    /// A call that has taken its number.
    pub(super) fn taken(session: &Arc<ViewSession>, call: Call, op: OpId) -> PendingOp {
        PendingOp::with((session, op.lane), call, Ok(op))
    }

    /// Continues an operation whose first future was dropped.
    pub(super) fn resumed(session: &Arc<ViewSession>, call: Call, op: OpId) -> PendingOp {
        let mut pending = PendingOp::with((session, op.lane), call, Ok(op));
        pending.stage = Stage::Begun;
        pending
    }

    /// A call in this lane that is refused before it takes a number.
    pub(crate) fn refused(
        session: &Arc<ViewSession>,
        lane: Lane,
        call: Call,
        refused: Refused,
    ) -> PendingOp {
        PendingOp::with((session, lane), call, Err(refused))
    }

    fn with(
        (session, lane): (&Arc<ViewSession>, Lane),
        call: Call,
        op: std::result::Result<OpId, Refused>,
    ) -> PendingOp {
        PendingOp {
            session: Arc::clone(session),
            group: lane.group(session.view().size()),
            call,
            op,
            deadline: None,
            began: None,
            rejected: None,
            finite_only: false,
            stage: Stage::Numbered,
            feedback: None,
            tickets: Vec::new(),
        }
    }

    /// Encodes the data on the wire with this codec.
    pub(super) fn encoded_by(&mut self, codec: &Codec) {
        self.call.codec = codec.id();
        self.feedback = codec.feedback().map(ErrorFeedback::share);
    }

    /// Makes a step of a call that has not begun. Returns the codec that was set for it, with its
    /// residual.
    pub(super) fn into_step(mut self) -> (PendingOp, CodecId, Option<ErrorFeedback>) {
        let step = Call::new(CallKind::Step { parts: 0 }, DType::U8, 0);
        let codec = std::mem::replace(&mut self.call, step).codec;
        if let Ok(op) = self.op {
            self.session.becomes_step(op, step);
        }
        let feedback = self.feedback.take();
        (self, codec, feedback)
    }

    pub(crate) fn rejected(mut self, rejection: Option<Rejection>) -> PendingOp {
        self.rejected = rejection;
        self
    }

    /// This member's rank in the group of the call.
    pub(super) fn me(&self) -> Rank {
        // A Context has no group without its own rank.
        self.group.in_group(self.session.me()).unwrap_or(Rank(0))
    }

    /// The number of ranks in the group of the call.
    pub(super) fn size(&self) -> usize {
        self.group.len()
    }

    /// The operation's number, if it has one.
    pub(super) fn number(&self) -> std::result::Result<OpId, Refused> {
        self.op
    }

    /// The operation's number. Without one, the operation is over with this error.
    pub(super) fn op(&mut self) -> Result<OpId> {
        self.op.map_err(|refused| {
            self.stage = Stage::Over;
            error_of(refused)
        })
    }

    pub(super) fn poll(
        &mut self,
        task: &mut Task<'_>,
        bytes: Option<&[u8]>,
    ) -> Poll<Result<Staging>> {
        self.poll_with(task, &bytes.into())
    }

    pub(super) fn poll_with(
        &mut self,
        task: &mut Task<'_>,
        input: &Input<'_>,
    ) -> Poll<Result<Staging>> {
        let op = self.op()?;
        if self.stage == Stage::Numbered {
            self.check(op)?;
            self.begin_with_residual(op, input)?;
        }
        let decided = ready!(self.session.poll_decided(op, task));
        Poll::Ready(self.finish(decided))
    }

    /// Like [`poll`](PendingOp::poll), for a call that hands out its result as a vector. The memory
    /// of `out` is allocated before the call begins, so that its lack is an error of the call.
    pub(super) fn poll_into<T: Element>(
        &mut self,
        task: &mut Task<'_>,
        bytes: Option<&[u8]>,
        out: &mut Vec<T>,
    ) -> Poll<Result<Vec<T>>> {
        let op = self.op()?;
        if self.stage == Stage::Numbered {
            self.check(op)?;
            match self.session.pool().elements(self.result_len()) {
                Ok(memory) => *out = memory,
                Err(lack) => self.lacks(op, lack),
            }
        }
        let output = ready!(self.poll(task, bytes))?;
        // The engine's result has this length. If that were violated, half of a result must not
        // pass as one.
        if output.len() != size_of_val(out.as_slice()) {
            return Poll::Ready(Err(Error::Indeterminate));
        }
        output.copy_to(target_of(out));
        Poll::Ready(Ok(std::mem::take(out)))
    }

    /// The number of elements of this rank's result; of a length that no machine has, some other
    /// one of that kind.
    fn result_len(&self) -> usize {
        let (me, size) = (self.me(), self.size());
        let count = usize::try_from(self.call.count).unwrap_or(usize::MAX);
        match self.call.kind {
            CallKind::AllGather => count.saturating_mul(size),
            CallKind::Gather { root } if root == me => count.saturating_mul(size),
            CallKind::Gather { .. } => 0,
            CallKind::ReduceScatter(_) => ring_segment(me.index(), size, count).len(),
            _ => count,
        }
    }

    /// Begins the call, with the residual of its codec if it has one.
    fn begin_with_residual(&mut self, op: OpId, input: &Input<'_>) -> Result<()> {
        let Some(feedback) = self.feedback.take() else {
            self.begin_finite(op, input);
            return Ok(());
        };
        let elements = elements_of(input.bytes()).unwrap_or_default();
        match feedback.open(self.call.kind, elements, self.session.pool()) {
            Ok(ticket) => {
                let codec = self.begin_finite(op, &ticket.contribution());
                self.keep_ticket(op, codec, ticket);
                Ok(())
            }
            Err(FeedbackRefusal::Rejected(rejection)) => Err(self.reject(op, rejection)),
            Err(FeedbackRefusal::Lacks(lack)) => {
                self.lacks(op, lack);
                Ok(())
            }
        }
    }

    /// Gives the call up for all members, because there is no memory for it here. The votes decide
    /// the outcome, as always.
    fn lacks(&mut self, op: OpId, lack: OutOfMemory) {
        self.stage = Stage::Begun;
        self.session.refuse(op, &self.call, lack.into());
    }

    /// Aborts an invalid call for all members.
    pub(super) fn check(&mut self, op: OpId) -> Result<()> {
        let rejection = self.rejected.or_else(|| self.call.rejection(self.size()));
        rejection.map_or(Ok(()), |rejection| Err(self.reject(op, rejection)))
    }

    fn reject(&mut self, op: OpId, rejection: Rejection) -> Error {
        self.stage = Stage::Over;
        self.abandon(op);
        Error::Rejected(rejection)
    }

    /// Aborts the operation for all members, or leaves the outcome to them if this one has voted.
    pub(super) fn abandon(&mut self, op: OpId) {
        let fate = self.session.abandon(op);
        self.settle(fate, &BTreeMap::new());
    }

    /// Records the residual that was added to the contribution of `op`: this call, or a call of
    /// this step. Computes the next residual now, while the data is in transit, if the codec is
    /// known; otherwise at the end.
    pub(super) fn keep_ticket(
        &mut self,
        op: OpId,
        codec: Option<CodecId>,
        mut ticket: ResidualTicket,
    ) {
        codec.iter().for_each(|codec| ticket.encoded_by(*codec));
        self.tickets.push((op, ticket));
    }

    fn settle(&mut self, fate: Fate, codecs: &BTreeMap<OpId, CodecId>) {
        // Others may have the result of a best-effort call that is aborted here.
        let fate = match fate {
            Fate::Void if self.call.mode == CallMode::BestEffort => Fate::Unknown,
            fate => fate,
        };
        for (op, mut ticket) in self.tickets.drain(..) {
            codecs.get(&op).iter().for_each(|codec| ticket.encoded_by(**codec));
            ticket.settle(fate);
        }
    }

    fn begin_finite(&mut self, op: OpId, input: &Input<'_>) -> Option<CodecId> {
        if self.finite_only && !input.is_finite(self.call.dtype) {
            // Aborted for all, before anything is sent. The votes decide the outcome, as always.
            self.stage = Stage::Begun;
            self.session.refuse(op, &self.call, AbortReason::NonFinite);
            None
        } else {
            self.begin(op, input)
        }
    }

    /// Begins the call; returns the result of [`ViewSession::begin`].
    pub(super) fn begin(&mut self, op: OpId, input: &Input<'_>) -> Option<CodecId> {
        self.stage = Stage::Begun;
        self.arm(op);
        if self.finite_only && self.call.dtype.is_float() {
            self.session.finite_only(op);
        }
        self.session.begin(op, self.call, input)
    }

    /// Arms the deadline, if there is one and it is not armed.
    pub(super) fn arm(&mut self, op: OpId) {
        if let (Some(after), None) = (self.deadline, self.began) {
            self.began = Some(Instant::now());
            self.session.give_up_after(op, after);
        }
    }

    /// The rest of the deadline.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let elapsed = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        self.deadline.map(|deadline| deadline.saturating_sub(elapsed))
    }

    /// Ends a step of `parts` calls with buffers of `bytes` in total.
    pub(super) fn end_step(&mut self, op: OpId, parts: u8, bytes: u64) {
        self.stage = Stage::Begun;
        self.arm(op);
        self.call = Call { kind: CallKind::Step { parts }, count: bytes, ..self.call };
        self.session.end_step(op, self.call, parts);
    }

    /// Begins an uneven call, with the lengths of this member's parts.
    pub(super) fn begin_uneven(&mut self, op: OpId, row: &[u64]) {
        self.stage = Stage::Begun;
        self.arm(op);
        self.session.begin_uneven(op, self.call, row);
    }

    pub(super) fn finish(&mut self, decided: Decided) -> Result<Staging> {
        self.stage = Stage::Over;
        self.settle(Fate::of(decided.outcome), &decided.codecs);
        match decided.outcome {
            // The results of a step or an uneven call are in `Decided::parts`.
            Outcome::Committed if self.call.parts().is_some() => Ok(Staging::default()),
            // A member commits only a result that it holds. If that were violated, an unchanged
            // buffer must not pass as a result.
            Outcome::Committed => decided.output.ok_or(Error::Indeterminate),
            Outcome::Aborted(cause) => Err(self.aborted(cause, &decided)),
            Outcome::Indeterminate => Err(Error::Indeterminate),
            Outcome::DigestMismatch { odd } => {
                let odd = odd.and_then(|odd| self.group.in_group(odd));
                Err(Error::Engine(EngineFault::DigestMismatch { odd }))
            }
        }
    }

    fn aborted(&self, cause: AbortCause, decided: &Decided) -> Error {
        let here = cause.by == self.session.me();
        let elsewhere = || if here { None } else { Some(self.peer(cause.by)) };
        let cause = match cause.reason {
            AbortReason::Mismatch(m) => {
                let (one, other) =
                    ((self.peer(m.lower.0), m.lower.1), (self.peer(m.higher.0), m.higher.1));
                return Error::Mismatch(Box::new(Mismatched { one, other }));
            }
            AbortReason::NonFinite => Cause::NonFinite { on: elsewhere() },
            AbortReason::Weights => Cause::Weights,
            AbortReason::Deadline => {
                Cause::Deadline { of: elsewhere().filter(|_| !self.is_late()) }
            }
            AbortReason::Dropped => Cause::Dropped { by: elsewhere() },
            AbortReason::Memory { bytes } => {
                let fault = Some(EngineFault::Memory { bytes });
                Cause::Engine { on: self.peer(cause.by), fault }
            }
            AbortReason::Engine => {
                let fault = decided.fault.filter(|_| here);
                let fault = fault.map(|fault| fault.in_group(self.group));
                Cause::Engine { on: self.peer(cause.by), fault }
            }
            AbortReason::ViewChange => Cause::MemberLost {
                // They may be none of the group.
                lost: self.session.lost_members().into_iter().map(|r| self.member(r)).collect(),
            },
        };
        Error::Aborted { cause }
    }

    /// Whether at least half of this call's own deadline has elapsed.
    fn is_late(&self) -> bool {
        self.began
            .zip(self.deadline)
            .is_some_and(|(began, deadline)| 2 * began.elapsed() >= deadline)
    }

    /// A member of the group, by its rank in the View, with its rank in the group.
    fn peer(&self, rank: Rank) -> Peer {
        let member = self.member(rank);
        Peer { rank: self.group.in_group(rank).unwrap_or(rank), ..member }
    }

    /// A member of the View, with its rank there.
    fn member(&self, rank: Rank) -> Peer {
        let unknown = || Peer { rank, name: Name::from_lossy("?"), node: NodeId([0; 32]) };
        peer_at(self.session.view(), rank).unwrap_or_else(unknown)
    }
}

/// The error of a call that took no number.
pub(super) fn error_of(refused: Refused) -> Error {
    match refused {
        Refused::By(CallRefusal::Frozen) => Error::ViewChanged,
        Refused::Left => Error::Closed,
        Refused::By(CallRefusal::NeedsSync) => Error::NeedsSync,
        Refused::By(CallRefusal::TooManyInFlight) => Error::TooManyInFlight,
        Refused::Lost(op) => Error::LostResult { op },
        Refused::Senseless(rejection) => Error::Rejected(rejection),
        Refused::NoMemory(lack) => Error::Engine(lack.into()),
    }
}

impl Drop for PendingOp {
    /// Before this member's vote the operation is aborted for all members; after it the result is
    /// kept, see [`super::super::context::Context::take_result`].
    fn drop(&mut self) {
        if let (Ok(op), true) = (self.op, self.stage != Stage::Over) {
            self.abandon(op);
        }
    }
}
