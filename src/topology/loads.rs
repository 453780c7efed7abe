//! The traffic that a schedule sends between each pair of ranks.

use crate::protocol::{Algorithm, Rank, rank_pairs, ranks};
use std::collections::BTreeMap;

/// For each pair of sender and receiver, the traffic of an all-reduce in millionths of the buffer,
/// rounded down. Pairs without traffic are left out. Empty for Gloo's bcube, whose steps depend on
/// the size of the group.
///
/// The schedule must fit `size` ranks.
pub fn loads_ppm(algorithm: &Algorithm, size: usize) -> BTreeMap<(Rank, Rank), u32> {
    let mut loads = BTreeMap::new();
    match algorithm {
        Algorithm::OneShot | Algorithm::GlooExchange => {
            loads.extend(rank_pairs(size).map(|pair| (pair, WHOLE)));
        }
        Algorithm::Ring { order } => round(order, &mut loads),
        Algorithm::GlooRing => round(&ranks(size).collect::<Vec<_>>(), &mut loads),
        Algorithm::Trees { trees } => {
            for share in trees {
                for way in share.tree.edges().flat_map(|(a, b)| [(a, b), (b, a)]) {
                    // The shares of all trees add up to a million, so this cannot overflow.
                    *loads.entry(way).or_default() += share.ppm;
                }
            }
        }
        Algorithm::GlooBcube => {}
    }
    loads
}

/// Each rank sends all segments but one to the next rank twice: during the reduce-scatter and
/// during the all-gather.
fn round(order: &[Rank], loads: &mut BTreeMap<(Rank, Rank), u32>) {
    let size = order.len() as u64;
    if size < 2 {
        return;
    }
    let each = 2 * (size - 1) * u64::from(WHOLE) / size;
    let next = order.iter().cycle().skip(1);
    loads.extend(order.iter().zip(next).map(|(a, b)| ((*a, *b), each as u32)));
}

/// A whole buffer.
const WHOLE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Tree, TreeShare};

    fn sum(loads: &BTreeMap<(Rank, Rank), u32>) -> u64 {
        loads.values().map(|ppm| u64::from(*ppm)).sum()
    }

    #[test]
    fn rings_and_trees_move_as_little_as_can_be() {
        for size in 2..=16usize {
            let least = 2 * (size as u64 - 1) * 1_000_000;
            let mut order: Vec<Rank> = ranks(size).collect();
            order.reverse();
            let ring = loads_ppm(&Algorithm::Ring { order }, size);
            assert!(least - sum(&ring) < size as u64 && ring.len() == size, "{size}: {ring:?}");
            assert_eq!(sum(&loads_ppm(&Algorithm::GlooRing, size)), sum(&ring));
            let star = |root, ppm| TreeShare { tree: Tree::star(Rank(root), size), ppm };
            let trees = loads_ppm(
                &Algorithm::Trees { trees: vec![star(0, 300_000), star(1, 700_000)] },
                size,
            );
            assert_eq!(sum(&trees), least, "{size}");
            assert_eq!(trees[&(Rank(0), Rank(1))], 1_000_000, "a part up and the other down");
        }
    }

    #[test]
    fn in_a_ring_nobody_sends_back() {
        let ring = loads_ppm(&Algorithm::Ring { order: vec![Rank(0), Rank(2), Rank(1)] }, 3);
        let ways: Vec<(u8, u8)> = ring.keys().map(|(a, b)| (a.0, b.0)).collect();
        assert_eq!((ways, ring[&(Rank(0), Rank(2))]), (vec![(0, 2), (1, 0), (2, 1)], 1_333_333));
    }

    #[test]
    fn whole_buffers_go_everywhere_and_of_bcube_nothing_is_said() {
        assert_eq!(sum(&loads_ppm(&Algorithm::OneShot, 3)), 6_000_000);
        assert!(loads_ppm(&Algorithm::GlooBcube, 4).is_empty());
        assert!(
            loads_ppm(&Algorithm::OneShot, 1).is_empty()
                && loads_ppm(&Algorithm::GlooRing, 1).is_empty()
        );
    }
}
