//! The plans for the links of a group: rings, trees, and Gloo.

use super::super::link_map::{links_of, path};
use super::*;
use crate::protocol::member_id;
use proptest::prelude::*;

fn members(n: u8) -> Vec<MemberId> {
    (1..=n).map(member_id).collect()
}

/// The ring order for large buffers, by rank.
fn ring(plan: &Plan) -> Vec<u8> {
    match &plan.class_for(64 << 20).algorithm {
        Algorithm::Ring { order } => order.iter().map(|rank| rank.0).collect(),
        _ => Vec::new(),
    }
}

fn all_one_shot(plan: &Plan) -> bool {
    plan.classes.iter().all(|class| class.algorithm == Algorithm::OneShot)
}

#[test]
fn two_members_are_a_ring_whatever_is_known() {
    for links in [LinkMap::new(), links_of(2, |_, _| Some(200))] {
        assert!(all_one_shot(&plan(&members(1), &links)));
        let plan = plan(&members(2), &links);
        assert!(plan.fits(2) && plan.reason.len() <= Plan::REASON_BYTES_MAX);
        assert_eq!(
            (&plan.class_for(32 << 10).algorithm, ring(&plan)),
            (&Algorithm::OneShot, vec![0, 1])
        );
    }
}

#[test]
fn small_buffers_go_whole_and_larger_ones_round_a_ring() {
    let plan = plan(&members(4), &links_of(4, |_, _| Some(200)));
    assert_eq!(plan.class_for(16 * 1024).algorithm, Algorithm::OneShot);
    assert_eq!(ring(&plan), [0, 1, 2, 3]);
    let chunks = [16_385, 64 << 10, 256 << 10, 1 << 20, (1 << 20) + 1]
        .map(|bytes| plan.class_for(bytes).chunk_bytes);
    assert_eq!(chunks, [32 << 10, 32 << 10, 32 << 10, 64 << 10, 256 << 10]);
}

#[test]
fn each_rank_has_four_long_segments_of_gloos_ring() {
    let segment = |size, mib: u64| gloo_plan(size).class_for(mib << 20).chunk_bytes >> 20;
    assert_eq!([15, 16, 31, 32, 64].map(|mib| segment(2, mib)), [1, 2, 2, 4, 4]);
    assert_eq!([2, 31, 32, 63, 64].map(|mib| segment(4, mib)), [1, 1, 2, 2, 4]);
    assert!((2..=16).all(|size| gloo_plan(size).fits(size)));
}

#[test]
fn the_ring_keeps_the_slow_links_out() {
    // Two rooms: ranks 0 and 2 are in one, 1 and 3 in the other.
    let plan =
        plan(&members(4), &links_of(4, |a, b| Some(if a % 2 == b % 2 { 100 } else { 3000 })));
    assert_eq!(ring(&plan), [0, 1, 3, 2]);
    assert_eq!(
        plan.reason,
        "4 members in a ring (0-1-3-2, 6.20 ms round where rank order takes 12.00 ms); \
             small buffers go whole to everybody, about 1.50 ms of latency against 4.65 ms"
    );
}

#[test]
fn a_pair_without_a_link_is_not_made_neighbours() {
    let sparse = links_of(4, |a, b| (![(1, 2), (3, 4)].contains(&(a, b))).then_some(200));
    let found = plan(&members(4), &sparse);
    assert_eq!(ring(&found), [0, 2, 1, 3]);
    assert!(
        !found.classes.iter().any(|class| class.algorithm == Algorithm::OneShot),
        "one pair has no link for it"
    );
    assert!(!found.reason.contains("small buffers"), "{}", found.reason);
    let parted = links_of(4, |a, b| (a + 2 == b).then_some(200));
    let fallback = plan(&members(4), &parted);
    assert!(all_one_shot(&fallback) && fallback.fits(4));
}

#[test]
fn links_that_form_no_ring_are_a_tree_as_low_as_they_allow() {
    for (links, parents) in [
        (links_of(4, |a, _| (a == 2).then_some(200)), vec![None, None, Some(1), Some(1)]),
        (links_of(4, |a, b| (a + 1 == b).then_some(200)), vec![Some(1), None, Some(1), Some(2)]),
        (
            links_of(5, |a, b| (a + 1 == b).then_some(200)),
            vec![Some(1), Some(2), None, Some(2), Some(3)],
        ),
    ] {
        let size = parents.len();
        let found = plan(&members(size as u8), &links);
        let expected =
            Tree { parents: parents.into_iter().map(|parent| parent.map(Rank)).collect() };
        let connected = expected.root(size).is_some();
        for class in &found.classes {
            assert_eq!(
                class.algorithm == Algorithm::tree(expected.clone()),
                connected,
                "{found:?}"
            );
        }
        assert!(
            found.fits(size) && (!connected || found.reason.contains("no ring")),
            "{}",
            found.reason
        );
    }
}

#[test]
fn links_that_are_only_reported_are_enough() {
    let mut links = LinkMap::new();
    let everybody: BTreeSet<MemberId> = members(3).into_iter().collect();
    for member in members(3) {
        links.set_reach(member, &everybody);
    }
    let found = plan(&members(3), &links);
    assert_eq!(ring(&found), [0, 1, 2]);
    assert!(found.reason.contains("before all round trips were measured"));
    links.observe(member_id(1), member_id(2), path(100));
    assert_eq!(ring(&plan(&members(3), &links)), [0, 1, 2]);
}

#[test]
fn sixteen_members_go_to_the_nearest_and_the_search_of_a_sparse_graph_ends() {
    let line = |a: u8, b: u8| Some(100 * u32::from(b - a));
    let found = plan(&members(16), &links_of(16, line));
    assert_eq!(ring(&found), (0..16).collect::<Vec<u8>>());
    assert!(found.fits(16) && found.reason.len() <= Plan::REASON_BYTES_MAX);
    // Two halves that share one member: no ring exists, and there are far too many paths to
    // find that out by trying all.
    let halves = links_of(16, |a, b| (a == 1 || (a <= 8) == (b <= 8)).then_some(200));
    let Algorithm::Trees { trees } = &plan(&members(16), &halves).classes[0].algorithm else {
        panic!("no tree")
    };
    assert_eq!(trees[0].tree, Tree::star(Rank(0), 16));
    // The nearest-neighbour search runs into a dead end here and must backtrack.
    let detour = links_of(9, |a, b| match (a, b) {
        (1, 9) | (8, 9) => Some(100),
        (_, 9) => None,
        (1, 8) => Some(50),
        _ => Some(200),
    });
    let found = plan(&members(9), &detour);
    assert!(found.fits(9) && ring(&found).len() == 9, "{}", found.reason);
}

#[test]
fn ranks_stay_and_joiners_come_behind() {
    let [a, b, c, d] = [5, 3, 4, 1].map(member_id);
    assert_eq!(rank_order(&[a, b, c], &BTreeSet::from([a, c, d])), [a, c, d]);
    assert_eq!(rank_order(&[], &BTreeSet::from([a, b, d])), [d, b, a]);
    assert_eq!(rank_order(&[a, b], &BTreeSet::new()), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plan_fits_and_depends_on_nothing_but_its_input(
        n in 1u8..=16,
        seed: u64,
        density in 0u64..=100,
    ) {
        let draw = |a: u8, b: u8| {
            (seed ^ u64::from(a) << 8 ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
        };
        let rtt_us =
            |a: u8, b: u8| (draw(a, b) % 100 < density).then(|| (draw(b, a) % 5000) as u32);
        let links = links_of(n, rtt_us);
        let first = plan(&members(n), &links);
        prop_assert!(first.fits(usize::from(n)));
        prop_assert!(first.reason.len() <= Plan::REASON_BYTES_MAX);

        let mut backwards = LinkMap::new();
        for (a, b) in (1..=n).rev().flat_map(|a| (1..a).rev().map(move |b| (b, a))) {
            if let Some(rtt_us) = rtt_us(a, b) {
                backwards.observe(member_id(b), member_id(a), path(rtt_us));
                backwards.observe(member_id(a), member_id(b), path(rtt_us));
            }
        }
        prop_assert_eq!(first, plan(&members(n), &backwards));
    }
}
