//! The numbers that the members add up. Every member can compute those of every other one.
//!
//! They repeat after [`PERIOD`] elements, a prime number. So a whole buffer is checked with one
//! period of arithmetic for each order of summation, and misplaced elements are still detected.

use potluck::ReduceOp;
use potluck::plan::{FoldOrder, FoldSegment, FoldTree, reference_sum};

/// The numbers of all ranks.
pub struct Numbers {
    /// One period of each rank.
    periods: Vec<Vec<f32>>,
}

impl Numbers {
    /// The numbers of this seed, for `size` ranks.
    pub fn new(seed: u64, size: usize) -> Numbers {
        Numbers { periods: (0..size as u64).map(|rank| drawn(seed, rank)).collect() }
    }

    /// The buffer of a rank before the sum.
    pub fn of_rank(&self, rank: usize, len: usize) -> Vec<f32> {
        self.periods[rank].iter().copied().cycle().take(len).collect()
    }

    /// Whether this is the buffer of a rank before the sum.
    pub fn are_of(&self, rank: usize, buffer: &[f32]) -> bool {
        buffer.chunks(PERIOD).all(|part| same(part, &self.periods[rank][..part.len()]))
    }

    /// Whether this is the sum of all ranks' buffers, added up in this order.
    pub fn are_summed(&self, order: &FoldOrder, buffer: &[f32]) -> bool {
        let mut sums: Vec<(&FoldTree, Vec<f32>)> = Vec::new();
        let mut checked = 0;
        for FoldSegment { elements, tree } in &order.segments {
            let known = sums.iter().position(|(other, _)| *other == tree);
            let at = known.unwrap_or_else(|| {
                sums.push((tree, self.sum(tree)));
                sums.len() - 1
            });
            let (sum, part) = (&sums[at].1, buffer.get(elements.clone()));
            let is_right = |part: &[f32]| {
                let expected = sum.iter().cycle().skip(elements.start % PERIOD);
                part.iter().zip(expected).all(|(x, y)| x.to_bits() == y.to_bits())
            };
            if !part.is_some_and(is_right) {
                return false;
            }
            checked += elements.len();
        }
        checked == buffer.len()
    }

    /// One period of the sum in the order of this tree.
    fn sum(&self, tree: &FoldTree) -> Vec<f32> {
        let whole = FoldSegment { elements: 0..PERIOD, tree: tree.clone() };
        reference_sum(&FoldOrder { segments: vec![whole] }, ReduceOp::Sum, &self.periods)
    }
}

/// A hash of all words, in order.
pub fn hash(words: impl Iterator<Item = u32>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let hash = (hash ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^ (hash >> 29)
    })
}

fn same(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// One period of a rank: pseudo-random numbers in -1..1, by SplitMix64.
fn drawn(seed: u64, rank: u64) -> Vec<f32> {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = seed ^ (rank + 1).wrapping_mul(STEP);
    let draw = || {
        state = state.wrapping_add(STEP);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        ((x >> 11) as f64 / (1u64 << 52) as f64 - 1.0) as f32
    };
    std::iter::repeat_with(draw).take(PERIOD).collect()
}

/// Coprime to every chunk length.
const PERIOD: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 3 * PERIOD / 2;

    /// Two segments, the second summed in the other order.
    fn order(cut: usize) -> FoldOrder {
        let tree = |ranks: [usize; 3]| {
            FoldTree::Sum(ranks.into_iter().map(|rank| FoldTree::Leaf(rank.into())).collect())
        };
        let segments = vec![
            FoldSegment { elements: 0..cut, tree: tree([0, 1, 2]) },
            FoldSegment { elements: cut..LEN, tree: tree([2, 1, 0]) },
        ];
        FoldOrder { segments }
    }

    #[test]
    fn a_sum_is_right_in_its_order_alone() {
        let numbers = Numbers::new(7, 3);
        let inputs: Vec<Vec<f32>> = (0..3).map(|rank| numbers.of_rank(rank, LEN)).collect();
        let sum = reference_sum(&order(1000), ReduceOp::Sum, &inputs);
        assert!(numbers.are_summed(&order(1000), &sum));
        assert!(!numbers.are_summed(&order(PERIOD), &sum), "another order has other bits");
        assert!(!numbers.are_summed(&order(1000), &sum[..LEN - 1]), "too short");
        let mut moved = sum.clone();
        moved.swap(LEN - 1, LEN - 2);
        assert!(!numbers.are_summed(&order(1000), &moved));
    }

    #[test]
    fn a_buffer_is_that_of_its_rank_alone() {
        let numbers = Numbers::new(7, 2);
        let mut buffer = numbers.of_rank(1, LEN);
        assert!(numbers.are_of(1, &buffer) && !numbers.are_of(0, &buffer));
        buffer[LEN - 1] = 0.0;
        assert!(!numbers.are_of(1, &buffer));
    }
}
