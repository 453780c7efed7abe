//! Layer: Face.
//!
//! What a codec owes to one buffer, from call to call.

use crate::collective::{CodecId, Fate, FeedbackProblem, Kind, ReduceOp, Rejection};
use crate::compression::{Due, Feedback, codec};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by a codec and the call that it is used in.
#[derive(Debug, Default)]
pub(crate) struct Account(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    feedback: Feedback,
    /// Memory for the next call.
    spare: Due,
    /// A call has added it to its contribution, and is not decided.
    in_use: bool,
}

/// A call under way that hands in what was owed. Dropped without a word it counts as one of which nobody knows the end.
#[derive(Debug)]
pub(crate) struct Payment {
    account: Account,
    next: Feedback,
    fate: Fate,
}

impl Account {
    /// What to hand in for `elements`, and the account's part in the call.
    ///
    /// # Errors
    /// The call is no sum or mean, another call has the account, or there were more or fewer elements before.
    pub(crate) fn open(&self, id: CodecId, kind: Kind, elements: &[f32]) -> Result<(Vec<f32>, Payment), Rejection> {
        if let Some(op) = kind.reduce_op().filter(|op| !matches!(op, ReduceOp::Sum | ReduceOp::Mean)) {
            return Err(Rejection::Feedback(FeedbackProblem::NoSum(op)));
        }
        let mut books = self.books();
        let owed = books.feedback.residual().len();
        if books.in_use {
            return Err(Rejection::Feedback(FeedbackProblem::InUse));
        }
        if owed != 0 && owed != elements.len() {
            return Err(Rejection::Feedback(FeedbackProblem::Length { given: elements.len(), owed }));
        }
        books.in_use = true;
        let spare = std::mem::take(&mut books.spare);
        let due = match codec(id) {
            Some(codec) => books.feedback.due(codec, elements, spare),
            // Nothing is rounded.
            None => Due { contribution: elements.to_vec(), next: Feedback::default() },
        };
        Ok((due.contribution, Payment { account: self.share(), next: due.next, fate: Fate::Unknown }))
    }

    /// Takes back the memory of a contribution that has been handed in.
    pub(crate) fn keep(&self, contribution: Vec<f32>) {
        self.books().spare.contribution = contribution;
    }

    /// The same account in another hand.
    pub(crate) fn share(&self) -> Account {
        Account(Arc::clone(&self.0))
    }

    /// What is owed to each element; empty when nothing is.
    pub(crate) fn residual(&self) -> Vec<f32> {
        self.books().feedback.residual().to_vec()
    }

    /// Forgets what is owed. A call under way goes on, and settles the account when it ends.
    pub(crate) fn forget(&self) {
        self.books().feedback = Feedback::default();
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Each section leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another account that owes the same.
impl Clone for Account {
    fn clone(&self) -> Account {
        let feedback = self.books().feedback.clone();
        Account(Arc::new(Mutex::new(Books { feedback, ..Books::default() })))
    }
}

impl Payment {
    /// Ends it, as the call has ended.
    pub(crate) fn settle(mut self, fate: Fate) {
        self.fate = fate;
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        let mut books = self.account.books();
        books.in_use = false;
        let next = std::mem::take(&mut self.next);
        books.spare.next = match self.fate {
            Fate::Counts => std::mem::replace(&mut books.feedback, next),
            Fate::Void => next,
            Fate::Unknown => {
                // What was owed may have counted: to hand it in again would be to count it twice.
                books.feedback = Feedback::default();
                next
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Kind = Kind::AllReduce(ReduceOp::Mean);

    fn owing() -> (Account, Vec<f32>) {
        let account = Account::default();
        let (_, payment) = account.open(CodecId::Int4, MEAN, &[7.0, 0.3]).expect("a call");
        payment.settle(Fate::Counts);
        let owed = account.residual();
        assert!(owed.len() == 2 && owed[1] != 0.0, "{owed:?}");
        (account, owed)
    }

    #[test]
    fn a_call_that_counts_pays_and_one_that_does_not_changes_nothing() {
        let (account, owed) = owing();
        for _ in 0..2 {
            let (contribution, payment) = account.open(CodecId::Int4, MEAN, &[7.0, 0.3]).expect("a call");
            assert_eq!(contribution, [7.0 + owed[0], 0.3 + owed[1]]);
            assert_eq!(account.residual(), owed, "nothing is decided");
            payment.settle(Fate::Void);
            assert_eq!(account.residual(), owed);
        }
        let (_, payment) = account.open(CodecId::Int4, MEAN, &[7.0, 0.3]).expect("a call");
        payment.settle(Fate::Counts);
        assert_ne!(account.residual(), owed);
    }

    #[test]
    fn what_may_have_counted_is_not_owed_any_more() {
        let (account, _) = owing();
        let (_, payment) = account.open(CodecId::Int4, MEAN, &[1.0, 1.0]).expect("a call");
        drop(payment);
        assert!(account.residual().is_empty());
        assert!(account.open(CodecId::Int4, MEAN, &[1.0]).is_ok(), "another length, as nothing is owed");
    }

    #[test]
    fn it_is_for_one_call_at_a_time_of_one_length_that_adds() {
        let (account, _) = owing();
        let refused = |kind, elements: &[f32]| match account.open(CodecId::Int4, kind, elements) {
            Err(Rejection::Feedback(problem)) => Some(problem),
            _ => None,
        };
        assert_eq!(refused(MEAN, &[1.0]), Some(FeedbackProblem::Length { given: 1, owed: 2 }));
        assert_eq!(refused(Kind::AllReduce(ReduceOp::Max), &[1.0, 2.0]), Some(FeedbackProblem::NoSum(ReduceOp::Max)));
        let under_way = account.open(CodecId::Int4, MEAN, &[1.0, 2.0]);
        assert_eq!(refused(MEAN, &[1.0, 2.0]), Some(FeedbackProblem::InUse));
        let copy = account.clone();
        assert!(copy.open(CodecId::Int4, MEAN, &[1.0, 2.0]).is_ok(), "a clone is another one");
        drop(under_way);
        assert!(refused(MEAN, &[1.0, 2.0]).is_none());
    }
}
