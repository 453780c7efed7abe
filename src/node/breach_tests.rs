//! A member that breaks the protocol, and is back as soon as its link is closed.

use super::testing::{PATIENCE, decided, try_begin, view_of, with_mutation};
use crate::protocol::{Mutant, Mutation, Outcome};
use crate::report::{QuarantineReason, Status};
use tokio::time::timeout;

#[tokio::test]
async fn a_member_that_breaks_the_protocol_again_and_again_loses_its_place() {
    const GROUP: &str = "breaks-the-protocol";
    let mut a = with_mutation(GROUP, "a", Mutation::NONE).await;
    let mut b = with_mutation(GROUP, "b", Mutation::NONE).await;
    let mut twice = with_mutation(GROUP, "c", Some(Mutant::VotesTwice).into()).await;
    let of_all = [view_of(3, &mut a).await, view_of(3, &mut b).await, view_of(3, &mut twice).await];
    // Its link is closed after each call and made anew, until the View is replaced.
    let mut calls = 0;
    while let [Some(op), ..] = of_all.each_ref().map(try_begin) {
        calls += 1;
        assert!(calls < 1000, "it keeps its place");
        let outcome = decided(&of_all[0], op).await.outcome;
        assert!(matches!(outcome, Outcome::Committed | Outcome::Aborted(_)), "{outcome:?}");
    }
    // One of the others has seen the third breach first; its View need not wait for the other one.
    let is_out = |status: &Status| {
        let mut out = status.quarantined.iter();
        status.counters.misbehaviours >= 3
            && out.any(|out| out.why == QuarantineReason::BrokeProtocol)
    };
    let seen = async {
        tokio::select! {
            status = a.status.wait_for(is_out) => drop(status.expect("it runs")),
            status = b.status.wait_for(is_out) => drop(status.expect("it runs")),
        }
    };
    timeout(PATIENCE, seen).await.expect("it keeps its place");
}
