//! Plans: their encoding, their bounds, their size classes, and their orders of folding.

use crate::protocol::{MEMBERS_MAX, Tree};

use super::*;
use crate::wire::assert_codec;
use proptest::prelude::*;

fn leaves(tree: &FoldTree) -> Vec<u8> {
    match tree {
        FoldTree::Leaf(rank) => vec![rank.0],
        FoldTree::Sum(parts) => parts.iter().flat_map(leaves).collect(),
    }
}

#[test]
fn who_has_no_direct_link_is_not_sent_to() {
    let no_direct_link = [(Rank(0), Rank(2)), (Rank(0), Rank(3))];
    assert!(!Plan::mesh(4).avoids(&no_direct_link) && Plan::mesh(4).avoids(&[]));
    assert!(ring_of([0, 1, 2, 3].map(Rank).into()).avoids(&no_direct_link[..1]));
    assert!(
        !ring_of([0, 1, 2, 3].map(Rank).into()).avoids(&no_direct_link),
        "the last one sends to the first"
    );
    for (parents, kept) in
        [([Some(1), None, Some(1), Some(2)], true), ([Some(1), None, Some(0), Some(2)], false)]
    {
        let tree = Tree { parents: parents.map(|parent| parent.map(Rank)).into() };
        let plan = Plan::of_one(4096, Algorithm::tree(tree));
        assert_eq!(plan.avoids(&no_direct_link), kept, "{plan:?}");
    }
}

fn ring_of(order: Vec<Rank>) -> Plan {
    Plan::of_one(4096, Algorithm::Ring { order })
}

/// Asserts that the segments cover every element once and that each adds every rank once.
fn assert_covers(fold: &FoldOrder, size: usize, count: usize) {
    let mut next = 0;
    for segment in &fold.segments {
        assert_eq!(segment.elements.start, next);
        next = segment.elements.end;
        let mut ranks = leaves(&segment.tree);
        ranks.sort_unstable();
        assert!(ranks.into_iter().map(usize::from).eq(0..size));
    }
    assert_eq!(next, count);
}

fn ring(order: &[u8]) -> Plan {
    let order = order.iter().copied().map(Rank).collect();
    let mut plan = Plan::mesh(3);
    plan.classes.insert(0, PlanClass::new(99, 4096, Algorithm::Ring { order }));
    plan
}

#[test]
fn chunks_have_bounds_and_those_of_gloos_ring_wider_ones() {
    let fits = |algorithm, chunk_bytes| Plan::of_one(chunk_bytes, algorithm).fits(3);
    const MIB: u32 = 1 << 20;
    for (algorithm, most) in
        [(Algorithm::GlooRing, 4 * MIB), (Algorithm::GlooBcube, MIB), (Algorithm::OneShot, MIB)]
    {
        for (chunk_bytes, is_good) in [
            (1024, true),
            (most, true),
            (1023, false),
            (960, false),
            (1025, false),
            (most + 64, false),
        ] {
            assert_eq!(
                fits(algorithm.clone(), chunk_bytes),
                is_good,
                "{algorithm:?}, {chunk_bytes}"
            );
        }
    }
}

#[test]
fn a_plan_survives_the_wire() {
    assert_codec(&ring(&[2, 0, 1]));
}

fn trees(shares: &[(&[u8], u32)]) -> Plan {
    let tree = |parents: &[u8]| Tree {
        parents: parents.iter().map(|p| (*p != 9).then_some(Rank(*p))).collect(),
    };
    let trees =
        shares.iter().map(|(parents, ppm)| TreeShare { tree: tree(parents), ppm: *ppm }).collect();
    Plan::of_one(4096, Algorithm::Trees { trees })
}

#[test]
fn trees_span_all_ranks_and_share_the_whole() {
    let plan = trees(&[(&[9, 0, 1], 250_000), (&[2, 2, 9], 750_000)]);
    assert_codec(&plan);
    assert!(plan.fits(3) && plan.is_for(EngineKind::Native));
    assert!(!plan.fits(4));
    assert!(!trees(&[(&[9, 0, 1], 250_000), (&[2, 2, 9], 750_001)]).fits(3));
    assert!(!trees(&[(&[9, 2, 1], 1_000_000)]).fits(3));
    assert!(!trees(&[]).fits(3));
}

#[test]
fn a_tree_adds_at_every_node_by_ascending_rank() {
    let leaf = |rank| FoldTree::Leaf(Rank(rank));
    // 2 is the parent of 0 and 3, and 0 is the parent of 1.
    let plan = trees(&[(&[2, 0, 9, 2], 1_000_000)]);
    let at_0 = FoldTree::Sum(vec![leaf(0), leaf(1)]);
    assert_eq!(
        plan.fold_order(4, 8, 4).segments[0].tree,
        FoldTree::Sum(vec![at_0, leaf(2), leaf(3)])
    );
    // Re-rooted at 1 the edges stay the same: 1 is the parent of 0, 0 of 2, and 2 of 3.
    let at_2 = FoldTree::Sum(vec![leaf(2), leaf(3)]);
    let at_0 = FoldTree::Sum(vec![leaf(0), at_2]);
    assert_eq!(
        plan.reduce_order(4, Rank(1), 8, 4).segments[0].tree,
        FoldTree::Sum(vec![at_0, leaf(1)])
    );
}

#[test]
fn a_ring_names_every_rank_once() {
    assert!(ring(&[2, 0, 1]).fits(3));
    assert!(!ring(&[2, 0, 1]).fits(4));
    assert!(!ring(&[2, 0, 2]).fits(3));
}

#[test]
fn the_class_is_found_by_size() {
    assert!(matches!(ring(&[0, 1, 2]).class_for(99).algorithm, Algorithm::Ring { .. }));
    assert_eq!(ring(&[0, 1, 2]).class_for(100).algorithm, Algorithm::OneShot);
}

#[test]
fn a_ring_folds_from_the_owners_successor_round_to_the_owner() {
    let fold = ring(&[2, 0, 1]).fold_order(3, 10, 8);
    let shown: Vec<_> =
        fold.segments.iter().map(|s| (s.elements.clone(), leaves(&s.tree))).collect();
    assert_eq!(shown, [(0..3, vec![0, 1, 2]), (3..6, vec![1, 2, 0]), (6..10, vec![2, 0, 1])]);
}

/// Rank `order[s]` owns the s-th part. Its successor adds first, and the owner last.
#[test]
fn rings_of_all_sizes_fold_in_the_order_of_the_ring() {
    for size in 1..=MEMBERS_MAX {
        // Each step of five is coprime to the size, or the ranks are in their order.
        let step = if size.is_multiple_of(5) { 1 } else { 5 };
        let order: Vec<Rank> = (0..size).map(|at| Rank((at * step % size) as u8)).collect();
        for count in [0, 1, size - 1, size, 1001, 65_537] {
            let fold = ring_of(order.clone()).fold_order(size, count, 4);
            let expected = (0..size).map(|part| {
                let ranks = (1..=size).map(|later| order[(part + later) % size].0);
                (part * count / size..(part + 1) * count / size, ranks.collect::<Vec<u8>>())
            });
            let parts = fold.segments.iter().map(|s| (s.elements.clone(), leaves(&s.tree)));
            let parts: Vec<_> = parts.filter(|(elements, _)| !elements.is_empty()).collect();
            let expected: Vec<_> = expected.filter(|(part, _)| !part.is_empty()).collect();
            assert_eq!(parts, expected, "{size} ranks, {count} elements");
        }
    }
}

#[test]
fn the_fold_follows_the_class_of_the_buffer() {
    let fold = ring(&[2, 0, 1]).fold_order(3, 100, 1);
    assert_eq!(fold.segments.len(), 1);
    assert_eq!(
        (fold.segments[0].elements.clone(), leaves(&fold.segments[0].tree)),
        (0..100, vec![0, 1, 2])
    );
    assert_eq!(ring(&[2, 0, 1]).fold_order(3, 99, 1).segments.len(), 3);
    assert_eq!(
        ring(&[2, 0, 1]).fold_order(3, usize::MAX, 8).segments.len(),
        1,
        "a size past u64 is the last class"
    );
}

#[test]
fn folds_cover_odd_buffers_of_all_group_sizes() {
    for size in 1..=MEMBERS_MAX {
        for count in [0, 1, 2, size - 1, size, size + 1, 1001, 65_537, usize::MAX] {
            let ranks = (0..size as u8).rev().map(Rank).collect();
            assert_covers(&ring_of(ranks).fold_order(size, count, 4), size, count);
            assert_covers(&Plan::mesh(size).fold_order(size, count, 4), size, count);
            let plan = ring_of((0..size as u8).rev().map(Rank).collect());
            assert_covers(&plan.reduce_order(size, Rank(0), count, 4), size, count);
            assert_covers(&plan.reduce_scatter_order(size, count, 4), size, count);
        }
    }
}

proptest! {
    #[test]
    fn ring_segments_are_even(size in 1usize..=MEMBERS_MAX, count: usize) {
        let ranks = (0..size as u8).map(Rank).collect();
        assert_covers(&ring_of(ranks).fold_order(size, count, 1), size, count);
        let lens = (0..size).map(|place| ring_segment(place, size, count).len());
        let (least, most) = (lens.clone().min(), lens.max());
        prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
    }
}
