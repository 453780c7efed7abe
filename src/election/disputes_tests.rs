//! Votes that differ, from the ledgers through the promises to the end of the operation: honest
//! members that go on together never contradict each other, whatever a third member says to whom or
//! proposes.

use super::recovery::{self, tests::fresh};
use crate::collective::{Ledger, LedgerEffect};
use crate::identity::MemberId;
use crate::memory::DType;
use crate::protocol::{
    AbortCause, AbortReason, Accepted, Ballot, Call, CallKind, Closing, CommittedOp, FailedOp,
    Failure, Lane, Listed, Mutation, OpBody, OpId, Outcome, Promise, Rank, ReduceOp, Status, View,
    ViewId, Vote, member_id, view_of,
};
use std::collections::BTreeMap;

const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 10);
const OP: OpId = OpId { lane: Lane::MAIN, number: 0 };
/// The digest that most members hold, and two others.
const RIGHT: u128 = 7;
const WRONG: u128 = 8;
const OTHER: u128 = 9;

/// The rank of the third member; ranks 0 and 1 are honest.
const THIRD: Rank = Rank(2);

fn done(digest: u128) -> Vote {
    Vote::Done { digest }
}

/// Two honest members that hold these results and have heard these votes of the third one. Whether
/// their own votes have reached each other is `heard`: rank 1's reached rank 0, and rank 0's rank
/// 1.
fn honest(own: [u128; 2], third: [Option<Vote>; 2], heard: [bool; 2]) -> [Ledger; 2] {
    let view = view_of(3);
    let mut ledgers = [0, 1].map(|rank| Ledger::new(&view, Rank(rank)));
    let mut said = [Vec::new(), Vec::new()];
    for ledger in &mut ledgers {
        assert_eq!(ledger.call(Lane::MAIN, SUM), Ok(OP));
        ledger.describe(OP);
    }
    let described = ledgers[0].take_effects();
    let Some(LedgerEffect::Tell(OpBody::Describe(descriptor))) = described.first() else {
        panic!("{described:?}")
    };
    for (rank, ledger) in ledgers.iter_mut().enumerate() {
        for from in [Rank(1 - rank as u8), THIRD] {
            ledger.on_descriptor(from, *descriptor).expect("they call the same");
        }
        ledger.done(OP, own[rank]);
        if let Some(vote) = third[rank] {
            ledger.on_vote(THIRD, OP, vote).expect("a vote");
        }
        said[rank] = ledger.take_effects();
    }
    for (rank, ledger) in ledgers.iter_mut().enumerate().filter(|(rank, _)| heard[*rank]) {
        for effect in &said[1 - rank] {
            if let LedgerEffect::Tell(OpBody::Vote(op, vote)) = effect {
                ledger.on_vote(Rank(1 - rank as u8), *op, *vote).expect("an honest member");
            }
        }
    }
    ledgers
}

fn promise(view: &View, rank: Rank, closing: Closing) -> Promise {
    Promise { prev: Some(view.id()), rank: Some(rank), closing, ..fresh() }
}

/// The promise of the third member with this report.
fn third(closing: Closing) -> Promise {
    promise(&view_of(3), THIRD, closing)
}

/// How the operation ends on the honest members, which make the next View with the third one if
/// that promises something.
fn ends(ledgers: &mut [Ledger; 2], third: Option<Promise>) -> [Outcome; 2] {
    let view = view_of(3);
    let honest = (0u8..).zip(ledgers.iter_mut());
    let mut promises: BTreeMap<MemberId, Promise> = honest
        .map(|(rank, ledger)| (member_id(rank + 1), promise(&view, Rank(rank), ledger.freeze())))
        .collect();
    promises.extend(third.map(|promise| (member_id(3), promise)));
    let recovery = recovery::read(&promises, Mutation::NONE);
    ends_by(ledgers, &recovery.committed, &recovery.failed).expect("an honest View is accepted")
}

/// How the operation ends on the honest members in a View that decides this. `None` if one of them
/// does not accept it.
fn ends_by(
    ledgers: &mut [Ledger; 2],
    committed: &[CommittedOp],
    failed: &[FailedOp],
) -> Option<[Outcome; 2]> {
    let refuses = |ledger: &mut Ledger| recovery::omits_committed(committed, &ledger.freeze());
    if ledgers.iter_mut().any(refuses) {
        return None;
    }
    Some(ledgers.each_mut().map(|ledger| {
        let by_votes = resolved(ledger);
        ledger.decide(committed, failed);
        let by_view = resolved(ledger);
        assert!(by_votes.is_none() || by_view.is_none(), "it ends twice");
        by_votes.or(by_view).expect("it ends")
    }))
}

/// All decisions of a View about the operation.
fn decisions() -> Vec<(Vec<CommittedOp>, Vec<FailedOp>)> {
    let committed = |digest| (vec![CommittedOp { op: OP, digest }], vec![]);
    let failed = |failure| (vec![], vec![FailedOp { op: OP, failure }]);
    let mut all = vec![(vec![], vec![])];
    all.extend([None, Some(THIRD)].map(Failure::Disputed).map(failed));
    all.extend([RIGHT, WRONG, OTHER].map(committed));
    all
}

fn resolved(ledger: &mut Ledger) -> Option<Outcome> {
    let of = |effect| if let LedgerEffect::Resolved(_, end) = effect { Some(end) } else { None };
    ledger.take_effects().into_iter().find_map(of)
}

fn listed(status: Status) -> Closing {
    Closing { ops: vec![Listed { op: OP, status, is_sync: false }], ..Closing::default() }
}

/// Whether two members that go on may end an operation so.
fn agree(own: [u128; 2], ends: [Outcome; 2]) -> bool {
    match ends {
        [Outcome::Committed, Outcome::Committed] => own[0] == own[1],
        [Outcome::Aborted(_), Outcome::Aborted(_)]
        | [Outcome::Indeterminate, _]
        | [_, Outcome::Indeterminate] => true,
        [a, b] => a == b,
    }
}

/// Whether the operation failed on both. If the third member lies that the results differ, one may
/// name that as the cause, and the other one the cause that it knew before.
fn fail(ends: [Outcome; 2]) -> bool {
    ends.iter().all(|end| matches!(end, Outcome::Aborted(_) | Outcome::DigestMismatch { .. }))
}

#[test]
fn honest_members_agree_whatever_a_third_one_votes_and_promises_to_whom() {
    let abort = Vote::Abort(AbortCause { reason: AbortReason::Dropped, by: THIRD });
    let votes = [None, Some(done(RIGHT)), Some(done(WRONG)), Some(done(OTHER)), Some(abort)];
    let statuses = [
        Status::NotDone,
        Status::Aborted,
        Status::Done(RIGHT),
        Status::Done(WRONG),
        Status::Done(OTHER),
        Status::Committed(RIGHT),
        Status::Committed(WRONG),
        Status::Committed(OTHER),
    ];
    let mut closings: Vec<Closing> = statuses.map(listed).to_vec();
    closings.push(Closing::default());
    let mut promises: Vec<Option<Promise>> =
        closings.iter().cloned().map(third).map(Some).collect();
    // It says that it has accepted a next View already.
    let view = view_of(3);
    let id = ViewId { ballot: Ballot { round: 5, ..view.ballot }, digest: view.digest() };
    for (committed, failed) in decisions() {
        let decided_by = view.ranks().collect();
        let accepted = Accepted { id, parent: Some(view.id()), committed, failed, decided_by };
        let accepted = Some(accepted);
        let of =
            |closing: &Closing| Promise { accepted: accepted.clone(), ..third(closing.clone()) };
        promises.extend(closings.iter().map(of).map(Some));
    }
    // It is not in the next View.
    promises.push(None);
    let (mut cases, mut committed_on_one) = (0, 0);
    for own in [[RIGHT, RIGHT], [RIGHT, WRONG]] {
        for (first, second) in votes.iter().flat_map(|a| votes.map(|b| (*a, b))) {
            for heard in [[true, true], [true, false], [false, true], [false, false]] {
                for promise in &promises {
                    let mut ledgers = honest(own, [first, second], heard);
                    let ends = ends(&mut ledgers, promise.clone());
                    let case = format!("{own:?} {first:?} {second:?} {heard:?} {promise:?}");
                    let accepted = promise.as_ref().and_then(|promise| promise.accepted.as_ref());
                    let disputes = accepted.is_some_and(|accepted| !accepted.failed.is_empty());
                    assert!(agree(own, ends) || disputes && fail(ends), "{case}: {ends:?}");
                    cases += 1;
                    let ok = ends.iter().filter(|end| **end == Outcome::Committed).count();
                    committed_on_one += usize::from(ok == 1);
                }
            }
        }
    }
    println!(
        "{cases} cases, in {committed_on_one} of them one member has a result and the other one \
         cannot know"
    );
    assert_eq!(cases, 2 * 25 * 4 * (7 * 9 + 1));
}

#[test]
fn honest_members_agree_whatever_view_a_third_one_proposes() {
    let votes = [None, Some(done(RIGHT)), Some(done(WRONG))];
    let (mut accepted, mut refused) = (0, 0);
    for own in [[RIGHT, RIGHT], [RIGHT, WRONG]] {
        for (first, second) in votes.iter().flat_map(|a| votes.map(|b| (*a, b))) {
            for heard in [[true, true], [true, false], [false, true], [false, false]] {
                for (committed, failed) in decisions() {
                    let mut ledgers = honest(own, [first, second], heard);
                    let case = format!("{own:?} {first:?} {second:?} {heard:?} {committed:?}");
                    match ends_by(&mut ledgers, &committed, &failed) {
                        Some(ends) => {
                            let is_well = agree(own, ends) || !failed.is_empty() && fail(ends);
                            assert!(is_well, "{case} {failed:?}: {ends:?}");
                            accepted += 1;
                        }
                        None => refused += 1,
                    }
                }
            }
        }
    }
    println!("{accepted} Views are accepted, {refused} refused");
    assert!(accepted > 0 && refused > 0);
}

/// The third member is honest, and its memory is not.
#[test]
fn a_member_with_a_wrong_result_is_named_to_all() {
    for heard in [[true, true], [true, false], [false, false]] {
        let mut ledgers = honest([RIGHT, RIGHT], [Some(done(WRONG)); 2], heard);
        let ends = ends(&mut ledgers, Some(third(listed(Status::Done(WRONG)))));
        assert_eq!(ends, [Outcome::DigestMismatch { odd: Some(THIRD) }; 2], "{heard:?}");
    }
    // Without it the others go on with their results.
    let mut ledgers = honest([RIGHT, RIGHT], [Some(done(WRONG)); 2], [true, true]);
    assert_eq!(ends(&mut ledgers, None), [Outcome::Committed; 2]);
    // Of two different results, no member can tell which is wrong.
    let mut ledgers = honest([RIGHT, WRONG], [None; 2], [true, true]);
    assert_eq!(ends(&mut ledgers, None), [Outcome::DigestMismatch { odd: None }; 2]);
}

/// It votes for the result of one member, and against it towards the other.
#[test]
fn a_member_that_votes_differently_to_different_members_splits_no_outcome() {
    let votes = [Some(done(RIGHT)), Some(done(WRONG))];
    let mut ledgers = honest([RIGHT, RIGHT], votes, [true, true]);
    assert!(!ledgers[0].must_end() && ledgers[1].must_end());
    let ends = ends(&mut ledgers, Some(third(listed(Status::Done(WRONG)))));
    assert_eq!(ends, [Outcome::Committed; 2]);
}
