//! Layer: Face.
//!
//! What a codec owes to one buffer, from call to call.

use crate::collective::{CodecId, Fate, FeedbackProblem, Kind, ReduceOp, Rejection};
use crate::compression::{Feedback, codec};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by a codec and the call that it is used in.
#[derive(Debug, Default)]
pub(crate) struct Account(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    feedback: Feedback,
    /// Memory for the next call.
    spare_contribution: Vec<f32>,
    spare_next: Feedback,
    /// A call has added it to its contribution, and is not decided.
    in_use: bool,
}

/// A call under way that hands in what was owed. Dropped without a word it counts as one of which
/// nobody knows the end.
#[derive(Debug)]
pub(crate) struct Payment {
    account: Account,
    contribution: Vec<f32>,
    /// Known once it is known by which codec the contribution is encoded.
    next: Option<Feedback>,
    fate: Fate,
}

impl Account {
    /// The account's part in a call on `elements`, with what to hand in for them.
    ///
    /// # Errors
    /// The call is no sum or mean, another call has the account, or there were more or fewer
    /// elements before.
    pub(crate) fn open(&self, kind: Kind, elements: &[f32]) -> Result<Payment, Rejection> {
        if let Some(op) =
            kind.reduce_op().filter(|op| !matches!(op, ReduceOp::Sum | ReduceOp::Mean))
        {
            return Err(Rejection::Feedback(FeedbackProblem::NoSum(op)));
        }
        let mut books = self.books();
        let owed = books.feedback.residual().len();
        if books.in_use {
            return Err(Rejection::Feedback(FeedbackProblem::InUse));
        }
        if owed != 0 && owed != elements.len() {
            return Err(Rejection::Feedback(FeedbackProblem::Length {
                given: elements.len(),
                owed,
            }));
        }
        books.in_use = true;
        let spare = std::mem::take(&mut books.spare_contribution);
        let contribution = books.feedback.contribution(elements, spare);
        Ok(Payment { account: self.share(), contribution, next: None, fate: Fate::Unknown })
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
    /// What to hand in: the elements, and what was owed to them.
    pub(crate) fn contribution(&self) -> &[f32] {
        &self.contribution
    }

    /// Works out what is owed next, as it is known how the contribution is encoded. Once; that
    /// takes as long as encoding it.
    pub(crate) fn encoded_by(&mut self, id: CodecId) {
        if self.next.is_some() {
            return;
        }
        let spare = std::mem::take(&mut self.account.books().spare_next);
        let after = |codec| Feedback::after(codec, &self.contribution, spare);
        // Without a codec nothing is rounded.
        self.next = Some(codec(id).map(after).unwrap_or_default());
    }

    /// Ends it, as the call has ended.
    pub(crate) fn settle(mut self, fate: Fate) {
        self.fate = fate;
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        let mut books = self.account.books();
        books.in_use = false;
        books.spare_contribution = std::mem::take(&mut self.contribution);
        books.spare_next = match (self.fate, self.next.take()) {
            (Fate::Counts, Some(next)) => std::mem::replace(&mut books.feedback, next),
            (Fate::Void, next) => next.unwrap_or_default(),
            (Fate::Unknown | Fate::Counts, next) => {
                // What was owed may have counted: to hand it in again would be to count it twice.
                books.feedback = Feedback::default();
                next.unwrap_or_default()
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call whose contribution is encoded in four bits.
    fn begun(account: &Account, elements: &[f32]) -> (Vec<f32>, Payment) {
        let mut payment = account.open(MEAN, elements).expect("a call");
        payment.encoded_by(CodecId::Int4);
        (payment.contribution().to_vec(), payment)
    }

    const MEAN: Kind = Kind::AllReduce(ReduceOp::Mean);

    fn owing() -> (Account, Vec<f32>) {
        let account = Account::default();
        let (_, payment) = begun(&account, &[7.0, 0.3]);
        payment.settle(Fate::Counts);
        let owed = account.residual();
        assert!(owed.len() == 2 && owed[1] != 0.0, "{owed:?}");
        (account, owed)
    }

    #[test]
    fn a_call_that_counts_pays_and_one_that_does_not_changes_nothing() {
        let (account, owed) = owing();
        for _ in 0..2 {
            let (contribution, payment) = begun(&account, &[7.0, 0.3]);
            assert_eq!(contribution, [7.0 + owed[0], 0.3 + owed[1]]);
            assert_eq!(account.residual(), owed, "nothing is decided");
            payment.settle(Fate::Void);
            assert_eq!(account.residual(), owed);
        }
        let (_, payment) = begun(&account, &[7.0, 0.3]);
        payment.settle(Fate::Counts);
        assert_ne!(account.residual(), owed);
    }

    #[test]
    fn what_may_have_counted_is_not_owed_any_more() {
        let (account, _) = owing();
        let (_, payment) = begun(&account, &[1.0, 1.0]);
        drop(payment);
        assert!(account.residual().is_empty());
        assert!(account.open(MEAN, &[1.0]).is_ok(), "another length, as nothing is owed");
    }

    #[test]
    fn it_is_for_one_call_at_a_time_of_one_length_that_adds() {
        let (account, _) = owing();
        let refused = |kind, elements: &[f32]| match account.open(kind, elements) {
            Err(Rejection::Feedback(problem)) => Some(problem),
            _ => None,
        };
        assert_eq!(refused(MEAN, &[1.0]), Some(FeedbackProblem::Length { given: 1, owed: 2 }));
        assert_eq!(
            refused(Kind::AllReduce(ReduceOp::Max), &[1.0, 2.0]),
            Some(FeedbackProblem::NoSum(ReduceOp::Max))
        );
        let under_way = account.open(MEAN, &[1.0, 2.0]);
        assert_eq!(refused(MEAN, &[1.0, 2.0]), Some(FeedbackProblem::InUse));
        let copy = account.clone();
        assert!(copy.open(MEAN, &[1.0, 2.0]).is_ok(), "a clone is another one");
        drop(under_way);
        assert!(refused(MEAN, &[1.0, 2.0]).is_none());
    }

    #[test]
    fn who_does_not_know_how_it_was_encoded_owes_nothing() {
        let (account, owed) = owing();
        account.open(MEAN, &[1.0, 1.0]).expect("a call").settle(Fate::Void);
        assert_eq!(account.residual(), owed);
        account.open(MEAN, &[1.0, 1.0]).expect("a call").settle(Fate::Counts);
        assert!(account.residual().is_empty());
        let mut plain = account.open(MEAN, &[0.1, 0.7]).expect("a call");
        plain.encoded_by(CodecId::None);
        plain.settle(Fate::Counts);
        assert!(account.residual().is_empty(), "nothing is rounded");
    }
}
