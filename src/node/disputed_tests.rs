//! A member whose memory is at fault: its results differ from those of the others.

use super::control_loop::Handles;
use super::testing::{PATIENCE, begin, decided, view_of, with_mutation};
use crate::protocol::{Mutant, Mutation, Outcome};
use crate::session::ViewSession;
use std::sync::Arc;
use tokio::time::timeout;

/// The next View of as many members.
async fn view_after(before: &Arc<ViewSession>, handles: &mut Handles) -> Arc<ViewSession> {
    let digest = before.digest();
    let is_next = |e: &Option<Arc<ViewSession>>| e.as_ref().is_some_and(|e| e.digest() != digest);
    let waits = timeout(PATIENCE, handles.views.wait_for(is_next)).await.expect("in time");
    let next = waits.expect("it runs").clone().expect("a View");
    assert_eq!(next.view().size(), before.view().size());
    next
}

#[tokio::test]
async fn a_wrong_result_fails_the_call_alike_on_all_and_its_holder_is_named() {
    let mut a = with_mutation("disputed", "a", Mutation::NONE).await;
    let mut b = with_mutation("disputed", "b", Mutation::NONE).await;
    let mut wrong = with_mutation("disputed", "c", Some(Mutant::HoldsOtherBits).into()).await;
    let (of_a, of_b) = (view_of(3, &mut a).await, view_of(3, &mut b).await);
    let of_wrong = view_of(3, &mut wrong).await;
    let all = [of_a, of_b, of_wrong];
    let ops = all.each_ref().map(begin);
    let expected = Outcome::DigestMismatch { odd: Some(all[2].me()) };
    for (session, op) in all.iter().zip(ops) {
        let decided = decided(session, op).await;
        assert_eq!(decided.outcome, expected);
        assert!(decided.output.is_none(), "nobody gets a result");
    }
    // The members go on together, and no member is out of sync.
    for (session, handles) in all.iter().zip([&mut a, &mut b, &mut wrong]) {
        let next = view_after(session, handles).await;
        assert!(next.is_synced());
        assert_eq!((session.lost_members(), session.committed()), (Vec::new(), 0));
    }
}
