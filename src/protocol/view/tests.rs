//! Views: their encoding, their bounds, and their digest.

use super::testing::{member_id, view_of};
use super::*;
use crate::topology::{LinkMap, Path, arrange};
use crate::wire::assert_codec;

/// A View of three members in a row: ranks 0 and 2 have no direct link.
fn row() -> View {
    let mut links = LinkMap::new();
    for (a, b) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
        links.observe(member_id(a), member_id(b), Path::unmeasured(100));
    }
    let arranged = arrange(
        &(1..=3).map(|n| (member_id(n), super::super::engine::Engines::NATIVE)).collect(),
        None,
        None,
        &links,
    );
    View {
        plan: arranged.plan,
        engine: arranged.engine,
        no_direct_link: arranged.no_direct_link,
        ..view_of(3)
    }
}

#[test]
fn who_has_no_direct_link_is_told_in_one_form_and_the_plan_keeps_to_it() {
    let view = row();
    assert_codec(&view);
    assert!(
        view.lack_direct_link(Rank(0), Rank(2))
            && view.lack_direct_link(Rank(2), Rank(0))
            && !view.lack_direct_link(Rank(0), Rank(1))
    );
    assert_eq!(view.linked_with(Rank(0)).collect::<Vec<_>>(), [Rank(1)]);
    assert_eq!(view.linked_with(Rank(1)).collect::<Vec<_>>(), [Rank(0), Rank(2)]);
    let [last, first] = [(Rank(0), Rank(2)), (Rank(0), Rank(1))];
    for no_direct_link in [
        vec![(Rank(2), Rank(0))],
        vec![last, last],
        vec![last, first],
        vec![(Rank(0), Rank(3))],
        vec![first],
    ] {
        let bent = View { no_direct_link, ..row() };
        assert_eq!(
            View::from_bytes(&bent.to_bytes()),
            Err(Malformed::Inconsistent),
            "{:?}",
            bent.no_direct_link
        );
    }
    assert_eq!(
        View::from_bytes(&View { no_direct_link: vec![last], ..view_of(3) }.to_bytes()),
        Err(Malformed::Inconsistent)
    );
    let mut long = view_of(3).to_bytes();
    *long.last_mut().expect("it ends with their number") = 121;
    assert_eq!(View::from_bytes(&long), Err(Malformed::TooLong));
}

#[test]
fn a_view_survives_the_wire() {
    let mut view = view_of(3);
    view.ballot.round = 9;
    view.parent = Some(view_of(2).id());
    let op = |number| OpId { lane: Lane::tagged(3).messages(Rank(0), Rank(1)), number };
    view.committed = vec![CommittedOp { op: op(17), digest: u128::MAX - 5 }];
    let failures = [None, Some(Rank(2))].map(Failure::Disputed);
    let failures = failures.into_iter().chain([Failure::Indeterminate]);
    view.failed = failures.map(|failure| FailedOp { op: op(18), failure }).collect();
    view.decided_by = RankSet::of_bits(3);
    view.history = Some(History { ops: 5, lineage: [9; 32] });
    assert_codec(&view);
}

#[test]
fn a_view_that_contradicts_itself_is_refused() {
    let twice = View {
        members: vec![view_of(1).members[0].clone(), view_of(1).members[0].clone()],
        ..view_of(2)
    };
    let without_proposer =
        View { ballot: Ballot { round: 1, proposer: member_id(9) }, ..view_of(2) };
    let orphan = View {
        committed: vec![CommittedOp { op: OpId { lane: Lane::MAIN, number: 0 }, digest: 0 }],
        ..view_of(2)
    };
    let by_ranks_of_no_view = View { decided_by: RankSet::of_bits(1), ..view_of(2) };
    let failure = Failure::Disputed(None);
    let in_dispute_with_nobody = View {
        failed: vec![FailedOp { op: OpId { lane: Lane::MAIN, number: 0 }, failure }],
        ..view_of(2)
    };
    let parent = View { ballot: Ballot { round: 5, proposer: member_id(1) }, ..view_of(2) }.id();
    let older_than_parent = View { parent: Some(parent), ..view_of(2) };
    let failure = Failure::Indeterminate;
    let in_doubt_for_all = View {
        parent: Some(view_of(1).id()),
        failed: vec![FailedOp { op: OpId { lane: Lane::MAIN, number: 0 }, failure }],
        ..view_of(2)
    };
    for bad in [
        twice,
        without_proposer,
        orphan,
        by_ranks_of_no_view,
        in_dispute_with_nobody,
        in_doubt_for_all,
        older_than_parent,
    ] {
        assert_eq!(View::from_bytes(&bad.to_bytes()), Err(Malformed::Inconsistent));
    }
}

/// Members that want other sizes of the group are in one View where it fits all of them.
#[test]
fn a_view_keeps_to_the_sizes_of_its_members() {
    let with = |begun, sizes: [[usize; 3]; 3]| {
        let mut view = View { begun, ..view_of(3) };
        for (member, [members, min, max]) in view.members.iter_mut().zip(sizes) {
            member.sizes = Sizes::new(members, min, max).expect("they are in order");
        }
        view
    };
    let (usual, begins_with_four) = ([2, 2, 16], [4, 1, 4]);
    for (begun, sizes, is_consistent) in [
        (true, [usual, [3, 3, 3], usual], true),
        (true, [usual, usual, [2, 2, 2]], false),
        (false, [usual, usual, usual], false),
        (false, [usual, begins_with_four, usual], true),
        (true, [usual, begins_with_four, usual], true),
    ] {
        let view = with(begun, sizes);
        assert_eq!(view.is_consistent(), is_consistent, "{begun}, {sizes:?}");
        assert_eq!(View::from_bytes(&view.to_bytes()).is_ok(), is_consistent);
    }
    let view = with(false, [usual, begins_with_four, usual]);
    assert_eq!((view.to_begin(), view.at_most()), (4, 4));
    assert!(!view.is_enough_for(2));
    let begun = View { begun: true, ..view };
    assert!(begun.is_enough_for(3) && !begun.is_enough_for(4));
}

#[test]
fn committed_and_failed_operations_share_one_limit() {
    let op = |number| OpId { lane: Lane::MAIN.messages(Rank(0), Rank(1)), number };
    let of = |committed: usize, failed: usize| View {
        parent: Some(ViewId { ballot: Ballot::ZERO, digest: ViewDigest([0; 32]) }),
        committed: (0..committed as u64).map(|n| CommittedOp { op: op(n), digest: 1 }).collect(),
        failed: (0..failed as u64)
            .map(|n| FailedOp { op: op(n), failure: Failure::Indeterminate })
            .collect(),
        ..view_of(2)
    };
    for committed in [0, 1, OPS_DECIDED_MAX] {
        let full = of(committed, OPS_DECIDED_MAX - committed);
        assert_eq!(View::from_bytes(&full.to_bytes()), Ok(full));
        let over = of(committed, OPS_DECIDED_MAX - committed + 1);
        assert_eq!(View::from_bytes(&over.to_bytes()), Err(Malformed::TooLong));
    }
}

#[test]
fn the_digest_covers_the_rank_order() {
    let view = view_of(3);
    let mut swapped = view.clone();
    swapped.members.swap(0, 1);
    assert_ne!(view.digest(), swapped.digest());
}
