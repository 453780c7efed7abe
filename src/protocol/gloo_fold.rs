//! The order in which Gloo's two all-reduce algorithms add, for a sequential reference.
//!
//! *Ring*: the buffer is divided into segments of at most the plan's chunk, an equal number for
//! each rank and at least two. A rank's chunk is all of its segments. The chunk of an owner starts
//! at the rank before it, passes through descending ranks and ends at the owner. Each rank adds its
//! own contribution.
//!
//! *Bcube*: in every step the ranks of a group divide the chunk that they share and exchange the
//! parts. Each adds to its own part those of the others by ascending rank. Groups are pairs while
//! the size is even, then one group of all remaining ranks. Example of six ranks:
//!
//! - step 1, pairs: `(0 1)`, `(2 3)`, `(4 5)`;
//! - step 2, groups of three: `(0 2 4)`, `(1 3 5)`;
//! - then rank 0 holds `((0 1) (2 3) (4 5))`.

use super::fold_order::{FoldSegment, FoldTree};
use super::rank::Rank;
use std::ops::Range;

/// The elements whose sums `rank` finishes in Gloo's ring of `size` ranks, for a buffer of `count`
/// elements in segments of at most `segment_bytes`. The ranges of all ranks are consecutive and
/// cover the buffer; the last ones may be short or empty.
pub fn gloo_ring_chunk(
    rank: usize,
    size: usize,
    count: usize,
    elem_bytes: usize,
    segment_bytes: usize,
) -> Range<usize> {
    let total = count.saturating_mul(elem_bytes);
    let segment_max = elem_bytes * (segment_bytes / elem_bytes).max(1);
    let segments = total.div_ceil(segment_max).max(2 * size).next_multiple_of(size);
    let segment = total.div_ceil(segments).div_ceil(elem_bytes);
    let cut = |rank: usize| (rank * (segments / size) * segment).min(count);
    cut(rank)..cut(rank + 1)
}

/// The order of Gloo's ring.
pub(super) fn ring(
    size: usize,
    count: usize,
    elem_bytes: usize,
    segment_bytes: usize,
) -> Vec<FoldSegment> {
    let chunk = |owner: usize| {
        let path = (1..=size).map(|step| rank((owner + size - step) % size));
        let elements = gloo_ring_chunk(owner, size, count, elem_bytes, segment_bytes);
        FoldSegment { elements, tree: FoldTree::sum_of(path) }
    };
    (0..size).map(chunk).collect()
}

/// The order of Gloo's bcube.
pub(super) fn bcube(size: usize, count: usize) -> Vec<FoldSegment> {
    let steps = group_sizes(size);
    let chunk = |owner: usize| FoldSegment {
        elements: bcube_chunk(owner, &steps, count),
        tree: held_by(owner, &steps),
    };
    let mut segments: Vec<FoldSegment> = (0..size).map(chunk).collect();
    segments.sort_by_key(|segment| (segment.elements.start, segment.elements.end));
    segments
}

/// The group size of each step.
fn group_sizes(mut size: usize) -> Vec<usize> {
    let mut steps = Vec::new();
    while size > 1 && size.is_multiple_of(2) {
        steps.push(2);
        size /= 2;
    }
    if size > 1 {
        steps.push(size);
    }
    steps
}

/// The elements whose sum `owner` holds after all steps.
fn bcube_chunk(owner: usize, steps: &[usize], count: usize) -> Range<usize> {
    let (mut start, mut len, mut distance) = (0, count, 1);
    for group in steps {
        let place = owner / distance % group;
        let part = len.div_ceil(*group);
        start += place * part;
        len = len.saturating_sub(place * part).min(part);
        distance *= group;
    }
    let start = start.min(count);
    start..start + len
}

/// The sum that `owner` holds for its chunk after these steps.
fn held_by(owner: usize, steps: &[usize]) -> FoldTree {
    let Some((group, before)) = steps.split_last() else { return FoldTree::Leaf(rank(owner)) };
    let distance: usize = before.iter().product();
    let base = owner - owner / distance % group * distance;
    let others = (0..*group).map(|place| base + place * distance).filter(|other| *other != owner);
    FoldTree::Sum(
        std::iter::once(owner).chain(others).map(|member| held_by(member, before)).collect(),
    )
}

fn rank(index: usize) -> Rank {
    // A View has at most 32 members.
    Rank(u8::try_from(index).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tree: &FoldTree) -> String {
        match tree {
            FoldTree::Leaf(rank) => rank.to_string(),
            FoldTree::Sum(parts) => {
                format!("({})", parts.iter().map(told).collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn covers(segments: &[FoldSegment], count: usize) -> bool {
        let mut at = 0;
        segments.iter().all(|s| {
            let fits = s.elements.start == at || s.elements.is_empty();
            at = at.max(s.elements.end);
            fits
        }) && at == count
    }

    #[test]
    fn chunks_cover_the_buffer() {
        for size in 2..=32 {
            for count in [1, 2, 3, size - 1, size, 2 * size + 1, 1000, 65_537, 3_000_001] {
                for segment_bytes in [1024, 1 << 20] {
                    assert!(
                        covers(&ring(size, count, 4, segment_bytes), count),
                        "ring of {size}, {count} elements"
                    );
                }
                assert!(covers(&bcube(size, count), count), "bcube of {size}, {count} elements");
            }
        }
    }

    #[test]
    fn a_chunk_of_the_ring_ends_at_its_owner() {
        let segments = ring(3, 600, 4, 1 << 20);
        assert_eq!(
            segments.iter().map(|s| told(&s.tree)).collect::<Vec<_>>(),
            ["(2 1 0)", "(0 2 1)", "(1 0 2)"]
        );
        assert_eq!(
            segments.iter().map(|s| s.elements.clone()).collect::<Vec<_>>(),
            [0..200, 200..400, 400..600]
        );
        // Ten segments of one element for seven elements: the last ranks finish nothing.
        let ranges: Vec<_> = (0..5).map(|rank| gloo_ring_chunk(rank, 5, 7, 4, 1 << 20)).collect();
        assert_eq!(ranges, [0..2, 2..4, 4..6, 6..7, 7..7]);
        // Nine segments of 75 elements; or, because each rank has at least two, six of 100.
        let first = |segment_bytes| gloo_ring_chunk(0, 3, 600, 4, segment_bytes);
        assert_eq!([300, 400, 4000].map(first), [0..201, 0..200, 0..200]);
    }

    #[test]
    fn bcube_halves_in_pairs_then_exchanges_among_the_rest() {
        let tree = |size, n: usize| told(&bcube(size, 1200)[n].tree);
        assert_eq!(tree(2, 1), "(1 0)");
        assert_eq!(
            (tree(4, 0), tree(4, 1), tree(4, 2)),
            ("((0 1) (2 3))".into(), "((2 3) (0 1))".into(), "((1 0) (3 2))".into())
        );
        assert_eq!((tree(3, 1), tree(6, 0)), ("(1 0 2)".into(), "((0 1) (2 3) (4 5))".into()));
        assert_eq!(group_sizes(12), [2, 2, 3]);
    }
}
