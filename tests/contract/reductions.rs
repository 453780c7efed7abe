//! Reductions against the reference.

use super::numbers::{Number, differs, input};
use super::on::{On, everywhere, group};
use anyhow::{Context as _, Result, ensure};
use potluck::{Bf16, Cluster, Codec, Context, DType, Error, F16, ReduceOp, Rejection};
use std::sync::Arc;

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

pub async fn reductions(on: On) -> Result<()> {
    for n in 1..=5 {
        let mut nodes = group(on, "reduce", n).await?;
        nodes = reduce_all::<f32>(nodes, &OPS).await?;
        nodes = reduce_all::<f64>(nodes, &OPS).await?;
        nodes = reduce_all::<F16>(nodes, &OPS).await?;
        nodes = reduce_all::<Bf16>(nodes, &OPS).await?;
        let of_integers = OPS.map(|op| if op == ReduceOp::Mean { ReduceOp::Sum } else { op });
        nodes = reduce_all::<i8>(nodes, &of_integers).await?;
        nodes = reduce_all::<i32>(nodes, &of_integers).await?;
        nodes = reduce_all::<i64>(nodes, &of_integers).await?;
        nodes = reduce_all::<u8>(nodes, &of_integers).await?;
        nodes = reduce_all::<u32>(nodes, &of_integers).await?;
        reduce_all::<u64>(nodes, &of_integers).await?;
    }
    Ok(())
}

/// Every operation on every length, on all nodes; the reference is worked out once for all of them.
async fn reduce_all<T: Number>(nodes: Vec<(Cluster, Context)>, ops: &[ReduceOp]) -> Result<Vec<(Cluster, Context)>> {
    let size = nodes.len();
    let mut cases = Vec::new();
    for len in [0, 1, size - 1, size, 1000, 65537] {
        let inputs: Arc<Vec<Vec<T>>> = Arc::new((0..size).map(|rank| input(len as u64, rank, len)).collect());
        let order = nodes[0].1.fold_order::<T>(len);
        // The reference is slow: of large buffers each group size takes every other operation.
        let asked = ops.iter().skip(if len > 1000 { size % 2 } else { 0 }).step_by(if len > 1000 { 2 } else { 1 });
        cases.extend(asked.map(|op| (*op, Arc::clone(&inputs), potluck::reference_sum(&order, *op, &inputs))));
    }
    let cases = Arc::new(cases);
    let results = everywhere(nodes, move |cluster, mut context| {
        let cases = Arc::clone(&cases);
        async move {
            for (op, inputs, expected) in cases.iter() {
                let mut buffer = inputs[context.rank()].clone();
                context.all_reduce(&mut buffer).op(*op).await?;
                let (rank, len, dtype) = (context.rank(), buffer.len(), T::DTYPE);
                let wrong = differs(&buffer, expected);
                ensure!(wrong.is_none(), "rank {rank} of {size}, {op} of {len} x {dtype}: {wrong:?} is not the reference");
            }
            Ok((cluster, context))
        }
    });
    results.await?.into_iter().collect()
}

pub async fn rejected(on: On) -> Result<()> {
    let nodes = group(on, "rejected", 3).await?;
    let results = everywhere(nodes, |_cluster, mut context| async move {
        let mut buffer = vec![7i32; 100];
        let error = context.all_reduce(&mut buffer).mean().await.err().context("the mean of integers")?;
        ensure!(matches!(error, Error::Rejected(Rejection::MeanOfIntegers(DType::I32))), "{error:?}");
        ensure!(error.code() == "rejected" && !error.is_retryable() && buffer == [7; 100], "{error}");
        // One alone calls it so: its place in the lane is used up on every rank.
        let one = context.all_reduce(&mut buffer);
        let error = if context.rank() == 1 { one.mean().await } else { one.await };
        let error = error.err().context("added without rank 1")?;
        ensure!(matches!(error, Error::Rejected(_)) == (context.rank() == 1) && buffer == [7; 100], "{error}");
        context.all_reduce(&mut buffer).product().await?;
        ensure!(buffer == [343; 100], "the next call is wrong");
        Ok(())
    });
    results.await?.into_iter().collect()
}

pub async fn bf16(on: On) -> Result<()> {
    for n in [2, 3] {
        let nodes = group(on, "bf16", n).await?;
        let results = everywhere(nodes, move |_cluster, mut context| async move {
            let mut buffer: Vec<f32> = (0..10_001).map(|i| (i as f32 / 17.0).sin() * (context.rank() + 1) as f32).collect();
            let exact: Vec<f32> = (0..10_001).map(|i| (i as f32 / 17.0).sin() * (n * (n + 1) / 2) as f32).collect();
            context.all_reduce(&mut buffer).compress(&mut Codec::bf16()).await?;
            let off = buffer.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            ensure!(off > 0.0 && off < 0.1, "off by {off}");
            Ok(buffer.iter().map(|x| x.to_bits()).collect::<Vec<u32>>())
        });
        let bits: Vec<Vec<u32>> = results.await?.into_iter().collect::<Result<_>>()?;
        ensure!(bits.windows(2).all(|w| w[0] == w[1]), "ranks differ");
    }
    Ok(())
}
