//! The members of the next View, where the sizes that nodes ask for do not allow all of them.

use crate::identity::MemberId;
use crate::protocol::{MEMBERS_MAX, Sizes, ViewId};
use std::collections::BTreeSet;

/// A node that may become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: MemberId,
    pub(super) sizes: Sizes,
    /// Its View, if it has one.
    pub(super) view: Option<ViewId>,
    /// The group of that View has begun.
    pub(super) begun: bool,
    /// Since when it waits, in milliseconds.
    pub(super) since: u64,
}

/// Whether one View may have all of these, and would not be too small for ever: each allows so many
/// members, and all allow as many as each needs to begin, or, if one of them is in a group that has
/// begun, to go on.
pub(super) fn fit<'a>(candidates: impl Iterator<Item = &'a Candidate> + Clone) -> bool {
    let begun = candidates.clone().any(|c| c.begun);
    let needs = |c: &Candidate| if begun { c.sizes.min_members() } else { c.sizes.members() };
    let most = candidates.clone().map(|c| c.sizes.max_members()).min().unwrap_or(MEMBERS_MAX);
    candidates.clone().all(|c| needs(c) <= most) && candidates.count() <= most
}

/// The candidates that a View may have together: first those in the View `present`, then those that
/// have waited longest. The members of another View that has begun come together or not at all, so
/// that no running group is broken for the sake of another one. A group that goes on takes no
/// member that would not go on with so few: it would wait for that one.
pub(super) fn select(present: Option<ViewId>, candidates: &[Candidate]) -> BTreeSet<MemberId> {
    let mut candidates = candidates.to_vec();
    loop {
        let taken = taken(present, &candidates);
        let is_in_it = |c: &Candidate| c.begun && is_of(present, c);
        let stops_it = |c: &Candidate| !is_in_it(c) && c.sizes.min_members() > taken.len();
        let goes_on = taken.iter().any(|c| c.begun && c.sizes.min_members() <= taken.len());
        if !goes_on || !taken.iter().any(stops_it) {
            return taken.into_iter().map(|candidate| candidate.id).collect();
        }
        candidates.retain(|c| !stops_it(c));
    }
}

fn taken(present: Option<ViewId>, candidates: &[Candidate]) -> Vec<Candidate> {
    if fit(candidates.iter()) {
        return candidates.to_vec();
    }
    let mut taken: Vec<Candidate> = Vec::new();
    for block in blocks(present, candidates) {
        if fit(taken.iter().chain(&block)) {
            taken.extend(block);
        }
    }
    taken
}

fn is_of(view: Option<ViewId>, candidate: &Candidate) -> bool {
    view.is_some() && candidate.view == view
}

/// The candidates in the order in which they get a place; those in one block come together.
fn blocks(present: Option<ViewId>, candidates: &[Candidate]) -> Vec<Vec<Candidate>> {
    let mut blocks: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        let is_of_its_group =
            |block: &&mut Vec<Candidate>| block[0].begun && block[0].view == candidate.view;
        match blocks.iter_mut().find(is_of_its_group).filter(|_| candidate.begun) {
            Some(block) => block.push(*candidate),
            None => blocks.push(vec![*candidate]),
        }
    }
    blocks.sort_by_key(|block| {
        let first = block.iter().map(|candidate| (candidate.since, candidate.id)).min();
        (!is_of(present, &block[0]), first)
    });
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Ballot, ViewDigest, member_id};

    const USUAL: [usize; 3] = [2, 2, 16];

    fn view(round: u64) -> Option<ViewId> {
        let ballot = Ballot { round, proposer: member_id(1) };
        Some(ViewId { ballot, digest: ViewDigest([0; 32]) })
    }

    /// A candidate without a View, which waits since the time of its number.
    fn fresh(n: u8, [members, min, max]: [usize; 3]) -> Candidate {
        let sizes = Sizes::new(members, min, max).expect("they are in order");
        Candidate { id: member_id(n), sizes, view: None, begun: false, since: u64::from(n) }
    }

    /// One in the View of this round.
    fn of(round: u64, n: u8, sizes: [usize; 3]) -> Candidate {
        Candidate { view: view(round), begun: true, ..fresh(n, sizes) }
    }

    #[track_caller]
    fn assert_selects(present: Option<ViewId>, candidates: &[Candidate], expected: &[u8]) {
        let expected: BTreeSet<MemberId> = expected.iter().map(|n| member_id(*n)).collect();
        assert_eq!(select(present, candidates), expected);
        let mut reversed = candidates.to_vec();
        reversed.reverse();
        assert_eq!(select(present, &reversed), expected, "in another order");
    }

    #[test]
    fn all_are_selected_where_all_fit() {
        let all = [fresh(1, USUAL), fresh(2, [3, 2, 3]), of(1, 3, USUAL)];
        assert_selects(None, &all, &[1, 2, 3]);
        assert!(fit(all.iter()) && fit([].iter()));
    }

    #[test]
    fn present_members_go_first_and_then_those_that_waited_longest() {
        let three = [2, 2, 3];
        let all = [fresh(1, three), fresh(2, three), of(7, 8, three), of(7, 9, three)];
        assert_selects(view(7), &all, &[1, 8, 9]);
        let of_unbegun = |n| Candidate { begun: false, ..of(7, n, three) };
        let all = [fresh(1, three), fresh(2, three), of_unbegun(8), of_unbegun(9)];
        assert_selects(view(7), &all, &[1, 8, 9]);
    }

    /// One that allows few members takes no places from the others.
    #[test]
    fn the_smallest_limit_counts_and_one_too_small_is_passed_over() {
        let all = [of(7, 1, USUAL), of(7, 2, USUAL), fresh(3, [2, 2, 2]), fresh(4, USUAL)];
        assert_selects(view(7), &all, &[1, 2, 4]);
        assert_selects(None, &[fresh(1, [2, 2, 2]), fresh(2, USUAL), fresh(3, USUAL)], &[1, 2]);
    }

    #[test]
    fn a_group_that_has_begun_comes_whole_or_not_at_all() {
        let four = [2, 2, 4];
        let mut all = vec![of(7, 6, four), of(7, 7, four)];
        all.extend([of(8, 1, four), of(8, 2, four), fresh(5, four)]);
        assert_selects(view(7), &all, &[1, 2, 6, 7]);
        all.push(of(8, 3, four));
        assert_selects(view(7), &all, &[5, 6, 7]);
        // One that has not begun has nothing to lose.
        let idle = |n| Candidate { begun: false, ..of(8, n, four) };
        all.retain(|c| c.view != view(8));
        all.extend([idle(1), idle(2), idle(3)]);
        assert_selects(view(7), &all, &[1, 2, 6, 7]);
    }

    /// With one that allows too few members, a group could never begin.
    #[test]
    fn those_that_could_never_begin_together_are_in_no_view() {
        let all = [fresh(1, [4, 2, 8]), fresh(2, [2, 2, 3]), fresh(3, [4, 2, 8])];
        assert!(!fit(all.iter()));
        assert_selects(None, &all, &[1, 3]);
        // A group that has begun takes both.
        let all = [of(7, 1, [4, 2, 8]), of(7, 3, [4, 2, 8]), fresh(2, [2, 2, 3])];
        assert_selects(view(7), &all, &[1, 2, 3]);
        let all = [of(7, 1, [4, 4, 8]), of(7, 3, [4, 2, 8]), fresh(2, [2, 2, 3])];
        assert_selects(view(7), &all, &[1, 3]);
    }

    /// It would get no context, and the others would wait for its calls.
    #[test]
    fn one_that_would_not_go_on_with_so_few_does_not_stop_a_group() {
        let (four, two) = ([4, 4, 16], [of(7, 1, USUAL), of(7, 2, USUAL)]);
        assert_selects(view(7), &[&two[..], &[fresh(3, four)]].concat(), &[1, 2]);
        assert_selects(
            view(7),
            &[&two[..], &[fresh(3, four), fresh(4, USUAL)]].concat(),
            &[1, 2, 3, 4],
        );
        let all = [&two[..], &[fresh(3, [5, 5, 16]), fresh(4, [4, 4, 16])]].concat();
        assert_selects(view(7), &all, &[1, 2]);
        // Nor do two that wait already and would still be too few.
        let idle = |n| Candidate { begun: false, ..of(8, n, [5, 5, 16]) };
        assert_selects(view(8), &[&two[..], &[idle(3), idle(4)]].concat(), &[1, 2]);
        // Where nobody goes on, nobody is stopped.
        assert_selects(view(7), &[of(7, 1, four), of(7, 2, four), fresh(3, four)], &[1, 2, 3]);
        // A member stays, and one that has not begun waits together with the others.
        assert_selects(view(7), &[of(7, 1, USUAL), of(7, 2, four)], &[1, 2]);
        assert_selects(None, &[fresh(1, USUAL), fresh(2, four)], &[1, 2]);
    }
}
