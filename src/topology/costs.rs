//! The resource cost of trees: for how long the edges of a tree keep each resource busy, and the
//! cheapest tree at given resource prices.

use super::network::{Edge, Network};
use petgraph::algo::min_spanning_tree;
use petgraph::data::Element;
use petgraph::graph::UnGraph;

/// The edges of a network with their resource use, and their costs at given prices.
pub(super) struct Costs {
    /// The rate of the slowest use, in kbit/s. It is the unit of rate.
    pub(super) unit_kbps: f64,
    /// The number of resources.
    pub(super) resources: usize,
    /// For each edge the resources it uses, and how long one unit in both directions keeps each of
    /// them busy.
    pub(super) uses: Vec<Vec<(usize, f64)>>,
    /// The same edges, each with its price and its index. The index makes the first of equally
    /// priced edges win.
    graph: UnGraph<(), (f64, usize)>,
}

impl Costs {
    /// The costs of this network; `None` if it has no edges.
    pub(super) fn new(network: &Network) -> Option<Costs> {
        let unit_kbps =
            f64::from(network.edges.iter().flat_map(Edge::uses).map(|busy| busy.kbps).min()?);
        let mut uses: Vec<Vec<(usize, f64)>> = Vec::new();
        for edge in &network.edges {
            let mut times = vec![0.0; network.resources.len()];
            edge.uses().for_each(|busy| times[busy.resource] += unit_kbps / f64::from(busy.kbps));
            uses.push(times.into_iter().enumerate().filter(|(_, time)| *time > 0.0).collect());
        }
        let resources = without_slack(&mut uses, network.resources.len());
        let edges = network
            .edges
            .iter()
            .enumerate()
            .map(|(index, edge)| (u32::from(edge.a.0), u32::from(edge.b.0), (0.0, index)));
        let mut graph = UnGraph::from_edges(edges);
        while graph.node_count() < network.size {
            graph.add_node(());
        }
        Some(Costs { unit_kbps, resources, uses, graph })
    }

    /// The stars: the edges of each rank that has an edge to all others.
    pub(super) fn stars(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        let star = |hub| {
            let mut star: Vec<usize> = self.graph.edges(hub).map(|edge| edge.weight().1).collect();
            star.sort_unstable();
            star
        };
        self.graph.node_indices().map(star).filter(|star| star.len() + 1 == self.graph.node_count())
    }

    /// The cheapest spanning tree at these prices (Kruskal 1956) as ascending edge indices, and its
    /// cost; `None` if there is no spanning tree.
    pub(super) fn cheapest(&mut self, prices: &[f64]) -> Option<(Vec<usize>, f64)> {
        for ((price, _), uses) in self.graph.edge_weights_mut().zip(&self.uses) {
            *price = uses.iter().map(|(resource, time)| time * prices[*resource]).sum();
        }
        let (mut tree, mut cost) = (Vec::new(), 0.0);
        for element in min_spanning_tree(&self.graph) {
            if let Element::Edge { weight: (price, index), .. } = element {
                tree.push(index);
                cost += price;
            }
        }
        tree.sort_unstable();
        (tree.len() + 1 == self.graph.node_count()).then_some((tree, cost))
    }

    /// How long a tree at one unit per second keeps each resource busy, in seconds per second.
    pub(super) fn load(&self, tree: &[usize]) -> Vec<f64> {
        let mut load = vec![0.0; self.resources];
        for (resource, time) in tree.iter().flat_map(|edge| &self.uses[*edge]) {
            load[*resource] += time;
        }
        load
    }
}

/// Removes dominated resources, those that are never busier than some other one, because their
/// constraints are never binding. Of equal resources the first stays. Returns the number of
/// remaining resources.
fn without_slack(uses: &mut [Vec<(usize, f64)>], resources: usize) -> usize {
    let mut by_resource: Vec<Vec<f64>> = vec![vec![0.0; uses.len()]; resources];
    for (edge, busy) in uses.iter().enumerate() {
        busy.iter().for_each(|(resource, time)| by_resource[*resource][edge] = *time);
    }
    let never_busier = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a <= b);
    let mut new_indices = vec![None; resources];
    let mut left = 0;
    for (index, mine) in by_resource.iter().enumerate() {
        let covers = |(other, theirs): (usize, &Vec<f64>)| {
            other != index
                && never_busier(mine, theirs)
                && (other < index || !never_busier(theirs, mine))
        };
        if !by_resource.iter().enumerate().any(covers) {
            new_indices[index] = Some(left);
            left += 1;
        }
    }
    for busy in uses {
        *busy = busy
            .iter()
            .filter_map(|(resource, time)| Some((new_indices[*resource]?, *time)))
            .collect();
    }
    left
}
