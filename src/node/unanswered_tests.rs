//! A member that is linked, answers pings, and never votes.

use super::testing::{PATIENCE, begin, decided, lost, view_of, with_mutation};
use crate::protocol::{Mutant, Mutation, Outcome};
use crate::report::{LossReason, QuarantineReason};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const PAUSE: Duration = Duration::from_millis(5);

/// A call's deadline.
const DEADLINE: Duration = Duration::from_millis(300);

/// How much later than its deadline a call may end: less than five seconds, and as much again on a
/// busy machine.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Two correct members and one that never votes. `calls` says whether that one calls at all: then
/// the others have voted `Done` when the deadline passes, else they have not.
async fn group(name: &'static str, calls: bool) {
    let mut a = with_mutation(name, "a", Mutation::NONE).await;
    let mut b = with_mutation(name, "b", Mutation::NONE).await;
    let mut silent = with_mutation(name, "c", Some(Mutant::WithholdsVotes).into()).await;
    let mut events = a.happened.resubscribe();
    let (of_a, of_b) = (view_of(3, &mut a).await, view_of(3, &mut b).await);
    let of_silent = view_of(3, &mut silent).await;
    let rank = of_silent.me();
    if calls {
        begin(&of_silent);
    }
    let (at_a, at_b) = (begin(&of_a), begin(&of_b));
    if calls {
        let voted = async {
            while !(of_a.has_voted_done(at_a) && of_b.has_voted_done(at_b)) {
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, voted).await.expect("they vote");
    }
    // Only one of them has a deadline: both calls end.
    let began = Instant::now();
    of_a.give_up_after(at_a, DEADLINE);
    for (session, op) in [(&of_a, at_a), (&of_b, at_b)] {
        let outcome = decided(session, op).await.outcome;
        let took = began.elapsed();
        // All members that continue have the sum if the other one has contributed to it.
        let is_right = match outcome {
            Outcome::Committed => calls,
            Outcome::Aborted(_) => !calls,
            _ => false,
        };
        assert!(is_right, "{outcome:?}");
        assert!(took < DEADLINE + LATE_MAX, "{took:?}");
        assert_eq!(session.lost_members(), [rank]);
    }
    // They go on, and the other one is named and stays out.
    let (of_a, of_b) = (view_of(2, &mut a).await, view_of(2, &mut b).await);
    for (session, op) in [(&of_a, begin(&of_a)), (&of_b, begin(&of_b))] {
        assert_eq!(decided(session, op).await.outcome, Outcome::Committed);
    }
    assert_eq!(lost(&mut events).await, ("c".to_owned(), LossReason::Withheld));
    let out = a.status.wait_for(|status| !status.quarantined.is_empty()).await.expect("it runs");
    assert_eq!(out.quarantined[0].why, QuarantineReason::WithheldVote);
}

#[tokio::test]
async fn a_member_that_calls_and_never_votes_is_named_and_loses_its_place() {
    group("withholds-after-calling", true).await;
}

#[tokio::test]
async fn a_member_that_never_calls_nor_votes_is_named_and_loses_its_place() {
    group("withholds-without-calling", false).await;
}

/// No other member is left. The call ends all the same.
#[tokio::test]
async fn of_two_members_the_one_that_votes_gets_its_call_back() {
    let mut a = with_mutation("withholds-of-two", "a", Mutation::NONE).await;
    let mut silent =
        with_mutation("withholds-of-two", "b", Some(Mutant::WithholdsVotes).into()).await;
    let (of_a, of_silent) = (view_of(2, &mut a).await, view_of(2, &mut silent).await);
    assert!(!of_silent.is_frozen());
    let (op, began) = (begin(&of_a), Instant::now());
    of_a.give_up_after(op, DEADLINE);
    let outcome = decided(&of_a, op).await.outcome;
    let took = began.elapsed();
    assert!(matches!(outcome, Outcome::Aborted(_)), "{outcome:?}");
    assert!(took < DEADLINE + LATE_MAX, "{took:?}");
}
