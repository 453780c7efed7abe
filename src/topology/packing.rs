//! The fractional packing of spanning trees: which share of a buffer uses which tree, so that the
//! whole takes the least time.
//!
//! A share that goes up a tree and down again crosses each of its edges once in both directions,
//! wherever the root is. So the highest total rate of all trees is the solution of a linear
//! program: maximise the sum of the rates, with no resource busy for more than a second per second.
//! There are too many trees to list. But the dual program asks for prices of the resources at which
//! no tree costs less than 1, and the cheapest tree is a minimum spanning tree. This is column
//! generation as in Gilmore and Gomory 1961:
//!
//! 1. Find prices for the known trees (the dual).
//! 2. Find the cheapest tree at these prices.
//! 3. If it costs 1, no other tree helps: stop. Otherwise add it and repeat.
//!
//! If sending costs as much as receiving, the prices also prove that no algorithm is faster that
//! adds whole elements by messages. For any partition of the group into `k` parts, an element
//! crosses between parts at least `2 (k - 1)` times (one-way gossip, Harary and Schwenk 1974), and
//! a tree needs no more. Blink (2020) and ForestColl (2024) plan for machines with many GPUs in the
//! same way.

use super::costs::Costs;
use super::network::Network;
use crate::protocol::{Algorithm, Tree, TreeShare};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

/// Trees and their rates.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    /// A few trees that carry nearly the maximum. Ordered by root; at most
    /// [`Algorithm::TREES_MAX`].
    pub(super) trees: Vec<TreeShare>,
    /// An upper bound on the rate of any set of trees, in kbit of the buffer per second. It holds
    /// for other schedules only if sending costs as much as receiving.
    pub(super) bound_kbps: f64,
}

impl Packing {
    /// The packing for this network; `None` if it is not connected, or the solver fails on its
    /// numbers.
    pub(super) fn of(network: &Network) -> Option<Packing> {
        let optimum = Optimum::of(network)?;
        let chosen = optimum.few()?;
        let rates: Vec<f64> = chosen.iter().map(|(_, rate)| *rate).collect();
        let tree = |index: usize| optimum.columns[index].tree.clone();
        let shares = chosen
            .iter()
            .zip(millionths(&rates))
            .map(|((index, _), ppm)| TreeShare { tree: tree(*index), ppm });
        let mut trees: Vec<TreeShare> = shares.filter(|share| share.ppm > 0).collect();
        trees.sort_by_key(|share| (share.tree.root(network.size), share.tree.parents.clone()));
        Some(Packing { trees, bound_kbps: optimum.bound * optimum.unit_kbps })
    }
}

/// The solution of the linear program. Rates are in units of the slowest use of any resource. No
/// tree carries more than one unit over that resource, and the solver is accurate for numbers near
/// 1.
struct Optimum {
    unit_kbps: f64,
    /// The trees found, the columns of the linear program.
    columns: Vec<Column>,
    /// The highest total rate of these trees.
    rate: f64,
    /// An upper bound on the total rate of all spanning trees.
    bound: f64,
}

/// A spanning tree.
struct Column {
    /// The indices of its edges, ascending.
    edges: Vec<usize>,
    /// The same tree, rooted where its height is smallest.
    tree: Tree,
    depth: usize,
    /// How long one unit per second keeps each resource busy, in seconds per second.
    load: Vec<f64>,
}

impl Optimum {
    fn of(network: &Network) -> Option<Optimum> {
        let mut costs = Costs::new(network)?;
        let (first, _) = costs.cheapest(&vec![1.0; costs.resources])?;
        let column = |edges: Vec<usize>, costs: &Costs| {
            let tree = network.tree(&edges)?;
            Some(Column {
                depth: tree.height(tree.root(network.size)?),
                load: costs.load(&edges),
                edges,
                tree,
            })
        };
        let stars = costs.stars().filter(|star| *star != first).chain([first.clone()]);
        let mut columns =
            stars.map(|edges| column(edges, &costs)).collect::<Option<Vec<Column>>>()?;
        let mut rounds_left = ROUNDS_MAX;
        loop {
            let (prices, rate) = prices(&columns)?;
            let (edges, cost) = costs.cheapest(&prices)?;
            if cost >= 1.0 - TOLERANCE
                || rounds_left == 0
                || columns.iter().any(|known| known.edges == edges)
            {
                // Dividing the prices by this cost makes every tree cost at least 1, so their sum
                // is a bound.
                let bound = rate / cost.min(1.0);
                return Some(Optimum { unit_kbps: costs.unit_kbps, columns, rate, bound });
            }
            rounds_left -= 1;
            columns.push(column(edges, &costs)?);
        }
    }

    /// A small set of trees, as column indices with their rates.
    ///
    /// It starts with the optimal solution that uses the lowest trees, and of those the ones found
    /// first. Then it drops one tree after another, the slowest first, as long as the rest carries
    /// [`ENOUGH`] of the optimum. A small share on a slow link adds more latency than it saves. It
    /// also drops trees while there are more than [`Algorithm::TREES_MAX`].
    fn few(&self) -> Option<Vec<(usize, f64)>> {
        let mut chosen = self.lowest()?;
        let mut needed = Vec::new();
        loop {
            let open = chosen.iter().filter(|(index, _)| !needed.contains(index));
            let Some((least, _)) = open.min_by(|a, b| a.1.total_cmp(&b.1)).copied() else {
                return Some(chosen);
            };
            let others: Vec<usize> =
                chosen.iter().map(|(index, _)| *index).filter(|index| *index != least).collect();
            let (without, rate) = self.fastest(&others)?;
            if rate >= ENOUGH * self.rate || chosen.len() > Algorithm::TREES_MAX {
                chosen = without;
            } else {
                needed.push(least);
            }
        }
    }

    /// The rates at which these trees carry the most in total, without trees at rate zero, and the
    /// total.
    fn fastest(&self, indices: &[usize]) -> Option<(Vec<(usize, f64)>, f64)> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let rates: Vec<Variable> =
            indices.iter().map(|_| problem.add_var(1.0, FROM_ZERO)).collect();
        self.keep_within_time(indices, &rates, &mut problem);
        let solution = solve(&problem)?;
        Some((used(indices, &rates, &solution), solution.objective()))
    }

    /// The rates of all trees that carry the optimum over trees that are as low as possible.
    fn lowest(&self) -> Option<Vec<(usize, f64)>> {
        let indices: Vec<usize> = (0..self.columns.len()).collect();
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        // The second term only decides between trees of equal depth.
        let penalty = |index: &usize| {
            self.columns[*index].depth as f64 + 1e-3 * *index as f64 / indices.len() as f64
        };
        let rates: Vec<Variable> =
            indices.iter().map(|index| problem.add_var(penalty(index), FROM_ZERO)).collect();
        self.keep_within_time(&indices, &rates, &mut problem);
        problem.add_constraint(
            rates.iter().map(|rate| (*rate, 1.0)),
            ComparisonOp::Ge,
            self.rate * (1.0 - 1e-6),
        );
        Some(used(&indices, &rates, &solve(&problem)?))
    }

    /// Adds the constraints: no resource is busy for more than a second per second.
    fn keep_within_time(&self, indices: &[usize], rates: &[Variable], problem: &mut Problem) {
        let resources = self.columns.first().map_or(0, |column| column.load.len());
        for resource in 0..resources {
            let busy = rates
                .iter()
                .zip(indices)
                .map(|(rate, index)| (*rate, self.columns[*index].load[resource]));
            problem.add_constraint(busy.filter(|(_, time)| *time > 0.0), ComparisonOp::Le, 1.0);
        }
    }
}

/// The dual solution: prices of the resources with the smallest sum at which each of these trees
/// costs at least 1, and that sum.
fn prices(columns: &[Column]) -> Option<(Vec<f64>, f64)> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let prices: Vec<Variable> =
        columns.first()?.load.iter().map(|_| problem.add_var(1.0, FROM_ZERO)).collect();
    for column in columns {
        let cost = prices.iter().zip(&column.load).map(|(price, time)| (*price, *time));
        problem.add_constraint(cost.filter(|(_, time)| *time > 0.0), ComparisonOp::Ge, 1.0);
    }
    let solution = solve(&problem)?;
    Some((
        prices.iter().map(|price| solution.var_value(*price).max(0.0)).collect(),
        solution.objective(),
    ))
}

fn solve(problem: &Problem) -> Option<Solution> {
    // No limits are set, so the solver returns a solution if there is one.
    problem.solve().ok()?.into_solution().ok()
}

fn used(indices: &[usize], rates: &[Variable], solution: &Solution) -> Vec<(usize, f64)> {
    let rates = indices.iter().copied().zip(rates.iter().map(|rate| solution.var_value(*rate)));
    rates.filter(|(_, rate)| *rate > NOTHING).collect()
}

/// Integers in these proportions that add up to a million: all are rounded down, and the rest goes
/// to the largest remainders.
fn millionths(parts: &[f64]) -> Vec<u32> {
    let all: f64 = parts.iter().sum();
    let exact: Vec<f64> = parts.iter().map(|part| part / all * 1e6).collect();
    let mut whole: Vec<u32> = exact.iter().map(|part| *part as u32).collect();
    let mut by_remainder: Vec<usize> = (0..parts.len()).collect();
    by_remainder.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let missing = 1_000_000u32.saturating_sub(whole.iter().sum());
    by_remainder.into_iter().cycle().take(missing as usize).for_each(|index| whole[index] += 1);
    whole
}

const FROM_ZERO: (f64, f64) = (0.0, f64::INFINITY);
/// Another round is not worth a smaller gap to the optimum.
const TOLERANCE: f64 = 1e-7;
/// A rate below this is a rounding error of the solver.
const NOTHING: f64 = 1e-9;
/// The fraction of the optimum that a smaller set of trees must still carry.
const ENOUGH: f64 = 0.97;
/// Twice the maximum over 4000 random homes; takes some tens of milliseconds. The bound stays valid
/// if the search stops early.
const ROUNDS_MAX: usize = 100;

#[cfg(test)]
mod tests;
