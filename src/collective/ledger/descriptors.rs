//! Descriptors of operations: those that this member sends, those that it receives, and their
//! comparison.

use super::calls::Calls;
use super::{Ledger, LedgerEffect, Misbehaviour};
use crate::protocol::{
    AbortCause, AbortReason, Call, CallKind, CallMode, Descriptor, OpBody, OpId, REVISION_UNKNOWN,
    Rank, Vote,
};

impl Ledger {
    /// Announces to all participants that this member has begun `op` and has its staging memory
    /// ready. Sends nothing if the operation is already decided; returns whether the descriptor was
    /// sent.
    pub fn describe(&mut self, op: OpId) -> bool {
        let call = self.entries.get(&op).and_then(|e| e.call);
        call.is_some_and(|call| self.tell_begun(op, None, call))
    }

    /// Like [`describe`](Ledger::describe), for one call of a step.
    pub fn describe_part(&mut self, part: OpId, call: Call) -> bool {
        part.step().is_some_and(|(op, index)| self.tell_begun(op, Some(index), call))
    }

    fn tell_begun(&mut self, op: OpId, part: Option<u8>, call: Call) -> bool {
        let (me, frozen) = (self.me, self.frozen);
        let Some(entry) = self
            .entries
            .get_mut(&op)
            .filter(|e| !frozen && e.call.is_some() && e.outcome.is_none())
        else {
            return false;
        };
        let name = part.map_or(op, |index| op.part(index));
        // Only a sync or the end of a step is described while its plan is unknown. Their
        // descriptors grant no credit.
        let descriptor = Descriptor {
            op: name,
            call,
            plan_revision: entry.revision.unwrap_or(REVISION_UNKNOWN),
        };
        if entry.calls_of_mut(part).note(me, descriptor) != Some(true) {
            return false;
        }
        self.effects.push(LedgerEffect::Tell(OpBody::Describe(descriptor)));
        let others = entry.calls_of(part).into_iter().flat_map(Calls::said).map(|(rank, _)| rank);
        for rank in others.filter(|rank| *rank != me && entry.credits(part, *rank, &call)) {
            self.effects.push(LedgerEffect::Credit(name, rank));
        }
        self.compare(op);
        true
    }

    /// Another member has begun an operation. Returns whether this is its first such message for an
    /// operation that is still tracked.
    pub fn on_descriptor(
        &mut self,
        from: Rank,
        descriptor: Descriptor,
    ) -> Result<bool, Misbehaviour> {
        if self.frozen {
            return Ok(false);
        }
        let (op, part) =
            descriptor.op.step().map_or((descriptor.op, None), |(op, index)| (op, Some(index)));
        if !is_honest(&descriptor, part, self.size) {
            return Err(Misbehaviour);
        }
        self.admit_caller(from, op)?;
        if matches!(descriptor.call.kind, CallKind::Sync { .. }) {
            self.note_state(op.lane);
        }
        let me = self.me;
        let Some(entry) = self.entries.get_mut(&op) else {
            // Of a step only the first call and the end are answered: after a replay, answers to
            // all of its calls could fill the queue of the link.
            if matches!(part, None | Some(0)) {
                let cause = AbortCause { reason: AbortReason::Dropped, by: from };
                self.refuse_finished(from, op, cause);
            }
            return Ok(false);
        };
        let is_first = entry.calls_of_mut(part).note(from, descriptor).ok_or(Misbehaviour)?;
        // If this member does not have that plan yet, the message with the plan will also release
        // the held call.
        if entry.call.is_some()
            && entry.revision.is_none()
            && self.revisions.has(descriptor.plan_revision)
        {
            entry.revision = Some(descriptor.plan_revision);
        }
        let mine = entry.calls_of(part).and_then(|calls| calls.of(me));
        if is_first && mine.is_some_and(|call| entry.credits(part, from, &call)) {
            self.effects.push(LedgerEffect::Credit(descriptor.op, from));
        }
        self.answer(op);
        self.compare(op);
        Ok(is_first)
    }

    /// Compares the descriptors. A difference leads to an `Abort` that names the lowest pair of
    /// ranks.
    pub(super) fn compare(&mut self, op: OpId) {
        let Some(entry) = self.entries.get_mut(&op) else { return };
        if entry.outcome.is_some() || entry.agreed {
            return;
        }
        if let Some(mismatch) = entry.mismatch() {
            self.vote(
                op,
                Vote::Abort(AbortCause { reason: AbortReason::Mismatch(mismatch), by: self.me }),
            );
        } else if entry.is_unanimous() {
            entry.agreed = true;
            let (source, spoiled) = (entry.sync_source(self.me, &self.sources), entry.spoiled);
            self.effects.push(LedgerEffect::Agreed(op, source));
            if let Some(reason) = spoiled {
                self.abort(op, reason);
            }
            self.count_result(op);
            self.resolve_by_votes(op);
        }
    }
}

/// Whether an honest member of a View of `size` can send this descriptor, for an operation or for
/// one call of a step.
fn is_honest(descriptor: &Descriptor, part: Option<u8>, size: usize) -> bool {
    let (call, lane) = (&descriptor.call, descriptor.op.lane);
    if lane.is_of_group() && matches!(call.kind, CallKind::Sync { .. }) {
        return false;
    }
    // A call names ranks of the group, a lane those of the View.
    let (group, ends) = (lane.group(size), lane.ends());
    let ends = ends.map(|(from, to)| (group.in_group(from), group.in_group(to)));
    let called = match call.kind {
        CallKind::Message { from, to, .. } => Some((Some(from), Some(to))),
        _ => None,
    };
    let in_step = call.mode == CallMode::PerStep
        && !matches!(
            call.kind,
            CallKind::Message { .. } | CallKind::Step { .. } | CallKind::Sync { .. }
        );
    let voted = !call.is_uneven() || call.mode == CallMode::PerOp;
    let alone = call.mode != CallMode::PerStep && voted && called == ends;
    if part.is_some() { in_step && ends.is_none() } else { alone }
}
