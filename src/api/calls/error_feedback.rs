//! Error feedback: the residual that a codec carries from one call to the next.

use crate::collective::Input;
use crate::compression::{Feedback, codec};
use crate::memory::{OutOfMemory, Pool};
use crate::os::{Mutex, lock};
use crate::protocol::{CallKind, CodecId, FeedbackProblem, ReduceOp, Rejection};
use crate::session::Fate;
use std::sync::Arc;

/// The residual of one codec, shared with the call that uses it.
#[derive(Debug, Default)]
pub(crate) struct ErrorFeedback(Arc<Mutex<Residual>>);

#[derive(Debug, Default)]
struct Residual {
    feedback: Feedback,
    /// Buffers reused by the next call. The first one may still be shared with the engine.
    spare_contribution: Arc<Vec<f32>>,
    spare_next: Feedback,
    /// A call has added the residual to its contribution and is undecided.
    in_use: bool,
}

/// An in-flight call whose contribution includes the residual. If it is dropped without
/// [`settle`](ResidualTicket::settle), the outcome counts as unknown.
#[derive(Debug)]
pub(crate) struct ResidualTicket {
    feedback: ErrorFeedback,
    /// Shared with the engine, which may read it.
    contribution: Arc<Vec<f32>>,
    /// The memory of `next`.
    room: Feedback,
    /// The residual after this call; known once the codec of the contribution is known.
    next: Option<Feedback>,
    fate: Fate,
}

/// Why a call cannot use the feedback.
#[derive(Debug)]
pub(crate) enum FeedbackRefusal {
    /// The call is invalid.
    Rejected(Rejection),
    /// There is no memory for its contribution, or for the residual after it.
    Lacks(OutOfMemory),
}

impl From<FeedbackProblem> for FeedbackRefusal {
    fn from(problem: FeedbackProblem) -> FeedbackRefusal {
        FeedbackRefusal::Rejected(Rejection::Feedback(problem))
    }
}

impl From<OutOfMemory> for FeedbackRefusal {
    fn from(lack: OutOfMemory) -> FeedbackRefusal {
        FeedbackRefusal::Lacks(lack)
    }
}

impl ErrorFeedback {
    /// Begins a call on `elements`: its contribution is the elements plus the residual.
    ///
    /// # Errors
    /// The reduction is no sum or mean, another call uses the feedback, or the residual has another
    /// length. Or there is no memory.
    pub(crate) fn open(
        &self,
        kind: CallKind,
        elements: &[f32],
        pool: &Pool,
    ) -> Result<ResidualTicket, FeedbackRefusal> {
        if let Some(op) =
            kind.reduce_op().filter(|op| !matches!(op, ReduceOp::Sum | ReduceOp::Mean))
        {
            return Err(FeedbackProblem::NoSum(op).into());
        }
        let mut state = lock(&self.0);
        let residual = state.feedback.residual().len();
        if state.in_use {
            return Err(FeedbackProblem::InUse.into());
        }
        if residual != 0 && residual != elements.len() {
            return Err(FeedbackProblem::Length { given: elements.len(), residual }.into());
        }
        let spare = std::mem::take(&mut state.spare_contribution);
        // Where the engine still reads it, there is new memory.
        let mut spare = Arc::into_inner(spare).unwrap_or_default();
        pool.room_for(&mut spare, elements.len())?;
        let spare_next = std::mem::take(&mut state.spare_next);
        let room = spare_next.with_room_for(elements.len(), pool)?;
        let contribution = Arc::new(state.feedback.contribution(elements, spare));
        state.in_use = true;
        Ok(ResidualTicket {
            feedback: self.share(),
            contribution,
            room,
            next: None,
            fate: Fate::Unknown,
        })
    }

    /// A handle to the same residual.
    pub(crate) fn share(&self) -> ErrorFeedback {
        ErrorFeedback(Arc::clone(&self.0))
    }

    /// The residual of each element; empty if there is none.
    pub(crate) fn residual(&self) -> Vec<f32> {
        lock(&self.0).feedback.residual().to_vec()
    }

    /// Drops the residual. A call in flight continues and sets the residual when it ends.
    pub(crate) fn forget(&self) {
        lock(&self.0).feedback = Feedback::default();
    }
}

/// A separate feedback with a copy of the residual.
impl Clone for ErrorFeedback {
    fn clone(&self) -> ErrorFeedback {
        let feedback = lock(&self.0).feedback.clone();
        ErrorFeedback(Arc::new(Mutex::new(Residual { feedback, ..Residual::default() })))
    }
}

impl ResidualTicket {
    /// The elements plus the residual.
    pub(crate) fn contribution(&self) -> Input<'_> {
        Input::shared(&self.contribution)
    }

    /// Computes the next residual for this codec, the first time it is called. Takes as long as
    /// encoding.
    pub(crate) fn encoded_by(&mut self, id: CodecId) {
        if self.next.is_some() {
            return;
        }
        // Without a codec nothing is rounded, so there is no residual.
        let Some(codec) = codec(id) else {
            self.next = Some(Feedback::default());
            return;
        };
        let room = std::mem::take(&mut self.room);
        self.next = Some(Feedback::after(codec, &self.contribution, room));
    }

    /// Ends the call with this fate of its contribution.
    pub(crate) fn settle(mut self, fate: Fate) {
        self.fate = fate;
    }
}

impl Drop for ResidualTicket {
    fn drop(&mut self) {
        let mut state = lock(&self.feedback.0);
        state.in_use = false;
        state.spare_contribution = std::mem::take(&mut self.contribution);
        let room = std::mem::take(&mut self.room);
        state.spare_next = match (self.fate, self.next.take()) {
            (Fate::Counts, Some(next)) => std::mem::replace(&mut state.feedback, next),
            (Fate::Void, next) => next.unwrap_or(room),
            (Fate::Unknown | Fate::Counts, next) => {
                // The residual may have counted; adding it again could count it twice.
                state.feedback = Feedback::default();
                next.unwrap_or(room)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call whose contribution is encoded with four bits per element.
    fn begun(feedback: &ErrorFeedback, elements: &[f32]) -> (Vec<f32>, ResidualTicket) {
        let mut ticket = feedback.open(MEAN, elements, &Pool::new()).expect("a call");
        ticket.encoded_by(CodecId::Int4);
        (ticket.contribution.to_vec(), ticket)
    }

    const MEAN: CallKind = CallKind::AllReduce(ReduceOp::Mean);

    fn with_residual() -> (ErrorFeedback, Vec<f32>) {
        let feedback = ErrorFeedback::default();
        let (_, ticket) = begun(&feedback, &[7.0, 0.3]);
        ticket.settle(Fate::Counts);
        let residual = feedback.residual();
        assert!(residual.len() == 2 && residual[1] != 0.0, "{residual:?}");
        (feedback, residual)
    }

    #[test]
    fn a_call_that_counts_uses_the_residual_and_one_that_does_not_changes_nothing() {
        let (feedback, residual) = with_residual();
        for _ in 0..2 {
            let (contribution, ticket) = begun(&feedback, &[7.0, 0.3]);
            assert_eq!(contribution, [7.0 + residual[0], 0.3 + residual[1]]);
            assert_eq!(feedback.residual(), residual, "nothing is decided");
            ticket.settle(Fate::Void);
            assert_eq!(feedback.residual(), residual);
        }
        let (_, ticket) = begun(&feedback, &[7.0, 0.3]);
        ticket.settle(Fate::Counts);
        assert_ne!(feedback.residual(), residual);
    }

    #[test]
    fn what_may_have_counted_leaves_no_residual() {
        let (feedback, _) = with_residual();
        let (_, ticket) = begun(&feedback, &[1.0, 1.0]);
        drop(ticket);
        assert!(feedback.residual().is_empty());
        assert!(
            feedback.open(MEAN, &[1.0], &Pool::new()).is_ok(),
            "another length, as there is no residual"
        );
    }

    #[test]
    fn it_is_for_one_call_at_a_time_of_one_length_that_adds() {
        let (feedback, _) = with_residual();
        let refused = |kind, elements: &[f32]| match feedback.open(kind, elements, &Pool::new()) {
            Err(FeedbackRefusal::Rejected(Rejection::Feedback(problem))) => Some(problem),
            _ => None,
        };
        assert_eq!(refused(MEAN, &[1.0]), Some(FeedbackProblem::Length { given: 1, residual: 2 }));
        assert_eq!(
            refused(CallKind::AllReduce(ReduceOp::Max), &[1.0, 2.0]),
            Some(FeedbackProblem::NoSum(ReduceOp::Max))
        );
        let under_way = feedback.open(MEAN, &[1.0, 2.0], &Pool::new());
        assert_eq!(refused(MEAN, &[1.0, 2.0]), Some(FeedbackProblem::InUse));
        let copy = feedback.clone();
        assert!(copy.open(MEAN, &[1.0, 2.0], &Pool::new()).is_ok(), "a clone is another one");
        drop(under_way);
        assert!(refused(MEAN, &[1.0, 2.0]).is_none());
    }

    #[test]
    fn without_a_known_codec_there_is_no_residual() {
        let (feedback, residual) = with_residual();
        feedback.open(MEAN, &[1.0, 1.0], &Pool::new()).expect("a call").settle(Fate::Void);
        assert_eq!(feedback.residual(), residual);
        feedback.open(MEAN, &[1.0, 1.0], &Pool::new()).expect("a call").settle(Fate::Counts);
        assert!(feedback.residual().is_empty());
        let mut plain = feedback.open(MEAN, &[0.1, 0.7], &Pool::new()).expect("a call");
        plain.encoded_by(CodecId::None);
        plain.settle(Fate::Counts);
        assert!(feedback.residual().is_empty(), "nothing is rounded");
    }

    #[test]
    fn what_there_is_no_memory_for_leaves_the_residual_as_it_was() {
        let (feedback, residual) = with_residual();
        // The memory of the call before would be used again.
        let (copy, pool) = (feedback.clone(), Pool::new());
        for blocks in 0..2 {
            pool.refuse_after(blocks);
            let opened = copy.open(MEAN, &[7.0, 0.3], &pool);
            assert!(
                matches!(opened, Err(FeedbackRefusal::Lacks(OutOfMemory { bytes: 8 }))),
                "{opened:?}"
            );
            assert_eq!(copy.residual(), residual);
        }
        assert!(copy.open(MEAN, &[7.0, 0.3], &Pool::new()).is_ok(), "it is not in use");
    }
}
