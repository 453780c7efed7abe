//! Layer: Host.
//!
//! A member that breaks the protocol, and is back as soon as its link is closed.

use super::testing::{begin, decided, lost, seeded, try_begin, view_of};
use crate::collective::Outcome;
use crate::defect::{Defect, Seeded};
use crate::events::Loss;
use crate::status::{KeptOut, Status};

#[tokio::test]
async fn a_member_that_breaks_the_protocol_again_and_again_loses_its_place() {
    const GROUP: &str = "breaks-the-protocol";
    let mut a = seeded(GROUP, "a", Seeded::NONE).await;
    let mut b = seeded(GROUP, "b", Seeded::NONE).await;
    let mut twice = seeded(GROUP, "c", Some(Defect::VotesTwice).into()).await;
    let mut events = [&a, &b].map(|node| node.happened.resubscribe());
    let of_all = [view_of(3, &mut a).await, view_of(3, &mut b).await, view_of(3, &mut twice).await];
    // Its link is closed after each call and made anew. Only so many are in this View.
    while let [Some(op), ..] = of_all.each_ref().map(try_begin) {
        let outcome = decided(&of_all[0], op).await.outcome;
        assert!(matches!(outcome, Outcome::Committed | Outcome::Aborted(_)), "{outcome:?}");
    }
    // Who has seen the third breach first excludes it, and the other one goes along.
    let mut losses = Vec::new();
    for (node, events) in [&mut a, &mut b].into_iter().zip(&mut events) {
        let (who, why) = lost(events).await;
        assert_eq!(who, "c");
        losses.push(why);
        if why == Loss::BrokeProtocol {
            let is_out = |status: &Status| !status.quarantined.is_empty();
            let status = node.status.wait_for(is_out).await.expect("it runs");
            assert_eq!(status.quarantined[0].why, KeptOut::BrokeProtocol);
            assert!(status.counters.misbehaviours >= 3, "{:?}", status.counters);
        }
    }
    assert!(losses.contains(&Loss::BrokeProtocol), "{losses:?}");
    let (of_a, of_b) = (view_of(2, &mut a).await, view_of(2, &mut b).await);
    for (envelope, op) in [(&of_a, begin(&of_a)), (&of_b, begin(&of_b))] {
        assert_eq!(decided(envelope, op).await.outcome, Outcome::Committed);
    }
}
