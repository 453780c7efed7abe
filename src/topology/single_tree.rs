//! The spanning tree over which a whole buffer takes the least time.
//!
//! A packing of several trees carries more, but only if all of them advance in proportion to their
//! shares, because together they keep many resources busy all the time. A single tree leaves most
//! resources idle for a while, and loses nothing to chance. If one is as fast as the packing, it is
//! the better plan.
//!
//! To find the tree with the smallest load of its busiest resource is hard in general: with one
//! resource for each port it is the tree of the smallest degree. So this is a local search that
//! replaces one edge by another as long as that helps.

use super::costs::Costs;
use super::network::Network;
use crate::protocol::Tree;
use petgraph::unionfind::UnionFind;

/// A tree that no exchange of one edge improves; `None` if the network is not connected.
pub(super) fn single_tree(network: &Network) -> Option<Tree> {
    let mut costs = Costs::new(network)?;
    let (cheapest, _) = costs.cheapest(&vec![1.0; costs.resources])?;
    let stars: Vec<Vec<usize>> = costs.stars().collect();
    let improved = stars.into_iter().chain([cheapest]).map(|tree| improved(network, &costs, tree));
    let (best, _) = improved.min_by(|a, b| a.1.total_cmp(&b.1))?;
    network.tree(&best)
}

/// The tree after all exchanges that help, as edge indices, and its [`strain`].
fn improved(network: &Network, costs: &Costs, mut tree: Vec<usize>) -> (Vec<usize>, f64) {
    let mut least = strain(&costs.load(&tree));
    // Each exchange makes the strain smaller, so there is an end. The limit bounds the time.
    for _ in 0..EXCHANGES_MAX {
        let Some((index, edge, lower)) = best_exchange(network, costs, &tree) else { break };
        if lower >= least * (1.0 - 1e-9) {
            break;
        }
        tree[index] = edge;
        least = lower;
    }
    (tree, least)
}

/// The edge of the tree, by its place, and the edge in its place that give the smallest strain.
fn best_exchange(network: &Network, costs: &Costs, tree: &[usize]) -> Option<(usize, usize, f64)> {
    let load = costs.load(tree);
    let mut best: Option<(usize, usize, f64)> = None;
    for (index, removed) in tree.iter().enumerate() {
        let mut without = load.clone();
        costs.uses[*removed].iter().for_each(|(resource, time)| without[*resource] -= time);
        let mut parts = UnionFind::<usize>::new(network.size);
        for edge in tree.iter().filter(|edge| *edge != removed) {
            parts.union(network.edges[*edge].a.index(), network.edges[*edge].b.index());
        }
        for (edge, ends) in network.edges.iter().enumerate() {
            if edge == *removed || parts.equiv(ends.a.index(), ends.b.index()) {
                continue;
            }
            let mut with = without.clone();
            costs.uses[edge].iter().for_each(|(resource, time)| with[*resource] += time);
            let strain = strain(&with);
            if best.is_none_or(|(_, _, least)| strain < least) {
                best = Some((index, edge, strain));
            }
        }
    }
    best
}

/// A measure that is dominated by the busiest resource, and still falls if one of several equally
/// busy ones gets less to do: the sum of the eighth powers of the loads.
fn strain(load: &[f64]) -> f64 {
    load.iter().map(|busy| busy.powi(8)).sum()
}

/// More than enough for 32 members.
const EXCHANGES_MAX: usize = 64;
