//! Every call with every element type, operation, length and group size, compared bit for bit with
//! the sequential reference, twice.
//!
//! In one process the matrix is complete. Over loopback it is reduced to groups of three and to
//! four element types, `f32`, `bf16`, `u8` and `i64`. Both variants print the number of cells; a
//! cell is one call by all members, made twice.

use super::numbers::{Number, OPS, differs, has_op, input, reduced};
use super::on::{Network, Nodes, On, everywhere, group};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::{Context, ReduceOp, bf16, f16};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The whole matrix for `n` members.
pub async fn of(on: On, n: usize) -> Result<()> {
    let mut row = Row { nodes: group(on, "matrix", n).await?, cells: 0 };
    row.of::<f32>().await?;
    row.of::<bf16>().await?;
    row.of::<u8>().await?;
    row.of::<i64>().await?;
    if on.network == Network::Process {
        row.of::<f64>().await?;
        row.of::<f16>().await?;
        row.of::<i8>().await?;
        row.of::<i16>().await?;
        row.of::<u16>().await?;
        row.of::<bool>().await?;
        row.of::<i32>().await?;
        row.of::<u32>().await?;
        row.of::<u64>().await?;
    }
    println!("measured: {} cells of the matrix among {n} on {}", row.cells, on.engine);
    Ok(())
}

/// A part of the matrix in sub-groups of `n` members that run at the same time, and in the View
/// beside them.
pub async fn of_groups(on: On, n: usize, groups: &[&[usize]]) -> Result<()> {
    let nodes = group(on, "matrix-groups", n).await?;
    let mut rows = Vec::new();
    for (tag, ranks) in groups.iter().enumerate() {
        let member = |rank: &usize| {
            let (cluster, context) = &nodes[*rank];
            Ok((cluster.clone(), context.group(ranks, tag as u32)?))
        };
        rows.push(Row { nodes: ranks.iter().map(member).collect::<Result<_>>()?, cells: 0 });
    }
    rows.push(Row { nodes, cells: 0 });
    let mut tasks = JoinSet::new();
    for mut row in rows {
        tasks.spawn(async move {
            row.of::<f32>().await?;
            row.of::<u8>().await.map(|()| row)
        });
    }
    // A member that has ended leaves, so all rows are kept until the last one ends.
    let mut ended = Vec::new();
    while let Some(row) = tasks.join_next().await {
        ended.push(row??);
    }
    let cells: usize = ended.iter().map(|row| row.cells).sum();
    println!("measured: {cells} cells of the matrix in groups among {n} on {}", on.engine);
    Ok(())
}

struct Row {
    nodes: Nodes,
    cells: usize,
}

/// A reduction and its expected result, computed once for all ranks.
struct Reduction<T> {
    op: ReduceOp,
    root: usize,
    inputs: Arc<Vec<Vec<T>>>,
    at_all: Vec<T>,
    at_root: Vec<T>,
    in_shards: Vec<T>,
}

/// One buffer per rank for the calls that copy; `parts` has one part per destination rank.
struct Copy<T> {
    root: usize,
    len: usize,
    inputs: Vec<Vec<T>>,
    parts: Vec<Vec<T>>,
}

impl Row {
    async fn of<T: Number>(&mut self) -> Result<()> {
        let size = self.nodes.len();
        for len in BTreeSet::from([0, 1, size - 1, size, 1000, 65537]) {
            let reductions = Arc::new(reductions::<T>(&self.nodes[0].1, len));
            // all_reduce, all_reduce_owned, reduce, reduce_scatter
            self.cells += 4 * reductions.len();
            // broadcast, all_gather, gather, scatter, all_to_all
            self.cells += 5;
            let copy = Arc::new(Copy::<T>::new(size, len));
            let nodes = std::mem::take(&mut self.nodes);
            let told = everywhere(nodes, move |cluster, mut context| {
                let (reductions, copy) = (Arc::clone(&reductions), Arc::clone(&copy));
                async move {
                    let what = format!("rank {} of {size}, {len} x {}", context.rank(), T::DTYPE);
                    for reduction in reductions.iter() {
                        reduction
                            .told(&mut context)
                            .await
                            .with_context(|| format!("{what}, {}", reduction.op))?;
                    }
                    copy.told(&mut context).await.context(what)?;
                    context.barrier().await?;
                    Ok((cluster, context))
                }
            });
            self.nodes = told.await?;
        }
        Ok(())
    }
}

/// Every operation of the element type. The roots alternate.
fn reductions<T: Number>(context: &Context, len: usize) -> Vec<Reduction<T>> {
    let inputs: Arc<Vec<Vec<T>>> =
        Arc::new((0..context.size()).map(|rank| input(len as u64, rank, len)).collect());
    let has_it = |op: &&ReduceOp| has_op(T::DTYPE, **op);
    let reduction = |(turn, op): (usize, &ReduceOp)| {
        let root = (turn + len) % context.size();
        Reduction {
            op: *op,
            root,
            at_all: reduced(&context.fold_order::<T>(len), *op, &inputs),
            at_root: reduced(&context.reduce_order::<T>(root, len), *op, &inputs),
            in_shards: reduced(&context.reduce_scatter_order::<T>(len), *op, &inputs),
            inputs: Arc::clone(&inputs),
        }
    };
    OPS.iter().filter(has_it).enumerate().map(reduction).collect()
}

impl<T: Number> Reduction<T> {
    /// Both runs of all calls at once: eight calls are in flight.
    async fn told(&self, context: &mut Context) -> Result<()> {
        let (op, root, rank) = (self.op, self.root, context.rank().index());
        let mine = &self.inputs[rank];
        let shard = context.shard(mine.len());
        let (mut all, mut all_again) = (mine.clone(), mine.clone());
        let (mut to_root, mut to_root_again) = (mine.clone(), mine.clone());
        let (a, b, c, d, e, f, g, h) = tokio::join!(
            context.all_reduce(&mut all).op(op),
            context.all_reduce(&mut all_again).op(op),
            context.all_reduce_owned(mine.clone()).op(op),
            context.all_reduce_owned(mine.clone()).op(op),
            context.reduce(root, &mut to_root).op(op),
            context.reduce(root, &mut to_root_again).op(op),
            context.reduce_scatter(mine).op(op),
            context.reduce_scatter(mine).op(op),
        );
        [a, b, e, f].into_iter().collect::<potluck::Result<()>>()?;
        same("all_reduce", [&all, &all_again], &self.at_all)?;
        same("all_reduce_owned", [&owned(c)?, &owned(d)?], &self.at_all)?;
        same(
            "reduce",
            [&to_root, &to_root_again],
            if rank == root { &self.at_root } else { mine },
        )?;
        same("reduce_scatter", [&g?, &h?], &self.in_shards[shard])
    }
}

fn owned<T>(result: Result<Vec<T>, potluck::calls::OwnedError<T>>) -> potluck::Result<Vec<T>> {
    result.map_err(|failed| failed.error)
}

impl<T: Number> Copy<T> {
    fn new(size: usize, len: usize) -> Copy<T> {
        let inputs = (0..size).map(|rank| input(len as u64, rank, len)).collect();
        let parts = (0..size).map(|rank| input(!len as u64, rank, len * size)).collect();
        Copy { root: len / 3 % size, len, inputs, parts }
    }

    async fn told(&self, context: &mut Context) -> Result<()> {
        let (root, rank, len) = (self.root, context.rank().index(), self.len);
        let own = rank * len..(rank + 1) * len;
        let (mine, parts) = (&self.inputs[rank], &self.parts[rank]);
        // The parts of ranks other than the root are ignored.
        let given = if rank == root { Some(&parts[..]) } else { [None, Some(&[][..])][rank % 2] };
        let (mut one, mut one_again) = (mine.clone(), mine.clone());
        let (mut part, mut part_again) = (mine.clone(), mine.clone());
        let (a, b, c, d, e, f, g, h, i, j) = tokio::join!(
            context.broadcast(root, &mut one),
            context.broadcast(root, &mut one_again),
            context.scatter(root, given, &mut part),
            context.scatter(root, given, &mut part_again),
            context.all_gather(mine),
            context.all_gather(mine),
            context.gather(root, mine),
            context.gather(root, mine),
            context.all_to_all(parts),
            context.all_to_all(parts),
        );
        [a, b, c, d].into_iter().collect::<potluck::Result<()>>()?;
        same("broadcast", [&one, &one_again], &self.inputs[root])?;
        same("scatter", [&part, &part_again], &self.parts[root][own.clone()])?;
        let all = self.inputs.concat();
        same("all_gather", [&e?, &f?], &all)?;
        match (g?, h?) {
            (Some(first), Some(again)) if rank == root => same("gather", [&first, &again], &all)?,
            (first, again) => {
                ensure!(rank != root && first.is_none() && again.is_none(), "gather at {root}");
            }
        }
        let crossed: Vec<T> =
            self.parts.iter().flat_map(|parts| &parts[own.clone()]).copied().collect();
        same("all_to_all", [&i?, &j?], &crossed)
    }
}

/// Checks that both runs gave this result, bit for bit.
fn same<T: Number>(call: &str, runs: [&[T]; 2], want: &[T]) -> Result<()> {
    for (run, have) in runs.into_iter().enumerate() {
        if let Some(place) = differs(have, want) {
            bail!(
                "{call}, run {run}: {:?} instead of {:?} at {place} of {}",
                have.get(place),
                want.get(place),
                want.len()
            );
        }
    }
    Ok(())
}

/// The inputs of at least 1000 elements contain all awkward numbers, and pairs of them meet in the
/// reduction.
pub fn inputs_are_awkward() -> Result<()> {
    fn pairs<T: Number>() -> Result<()> {
        let (one, other) = (input::<T>(1, 0, 1000), input::<T>(1, 1, 1000));
        for a in T::AWKWARD {
            for b in T::AWKWARD {
                let meet = |(x, y): (&T, &T)| differs(&[*x, *y], &[*a, *b]).is_none();
                ensure!(
                    one.iter().zip(&other).any(meet),
                    "{a:?} never meets {b:?} of {}",
                    T::DTYPE
                );
            }
        }
        Ok(())
    }
    pairs::<f32>()?;
    pairs::<f64>()?;
    pairs::<f16>()?;
    pairs::<bf16>()?;
    pairs::<i8>()?;
    pairs::<u64>()?;
    pairs::<i16>()?;
    pairs::<bool>()?;
    let nans = f32::AWKWARD.iter().filter(|x| x.is_nan()).count();
    let subnormals = f32::AWKWARD.iter().filter(|x| x.is_subnormal()).count();
    ensure!(nans == 3 && subnormals == 3, "{nans} NaNs, {subnormals} subnormals");
    Ok(())
}
