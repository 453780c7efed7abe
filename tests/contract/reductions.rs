//! Reductions that are rejected, and reductions with codecs that round.

use super::on::{On, everywhere, group};
use anyhow::{Context as _, Result, ensure};
use potluck::calls::Rejection;
use potluck::{Cluster, Codec, Context, DType, Error};

pub async fn rejected(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut buffer = vec![7i32; 100];
    let error =
        context.all_reduce(&mut buffer).mean().await.err().context("the mean of integers")?;
    ensure!(matches!(error, Error::Rejected(Rejection::MeanOfIntegers(DType::I32))), "{error:?}");
    ensure!(error.code() == "rejected" && !error.is_retryable() && buffer == [7; 100], "{error}");
    // Only one rank makes the invalid call; it takes a number of the lane on every rank.
    let one = context.all_reduce(&mut buffer);
    let error = if context.rank() == 1 { one.mean().await } else { one.await };
    let error = error.err().context("added without rank 1")?;
    ensure!(
        matches!(error, Error::Rejected(_)) == (context.rank() == 1) && buffer == [7; 100],
        "{error}"
    );
    context.all_reduce(&mut buffer).product().await?;
    ensure!(buffer == [343; 100], "the next call is wrong");
    Ok(())
}

/// A root that is no rank, for every call that has a root.
pub async fn no_root(_cluster: Cluster, mut context: Context) -> Result<()> {
    for root in [3, 1000] {
        let (mut buffer, mut part, parts) = ([7i32; 30], [7i32; 10], [7i32; 30]);
        let mut step = context.step();
        step.reduce(root, &mut buffer);
        let errors = [
            step.commit().await.err(),
            context.broadcast(root, &mut buffer).await.err(),
            context.reduce(root, &mut buffer).await.err(),
            context.gather(root, &buffer).await.err(),
            context.scatter(root, Some(&parts), &mut part).await.err(),
        ];
        for (index, error) in errors.into_iter().enumerate() {
            let error = error.with_context(|| format!("call {index} to rank {root}"))?;
            let is_told = matches!(error, Error::Rejected(Rejection::NoRoot { size: 3, .. }));
            ensure!(
                is_told && !error.is_retryable() && error.to_string().contains("0 to 2"),
                "call {index}: {error:?}"
            );
        }
        ensure!(buffer == [7; 30] && part == [7; 10], "something was written");
    }
    let mut next = [context.rank().index() as u32; 100];
    context.all_reduce(&mut next).await?;
    ensure!(next == [3; 100], "the next call is wrong");
    Ok(())
}

pub async fn codecs(on: On) -> Result<()> {
    for n in [2, 3] {
        let nodes = group(on, "codecs", n).await?;
        let results = everywhere(nodes, move |_cluster, mut context| async move {
            let mut all = Vec::new();
            // The maximum error for contributions of magnitude 1, including the encoding of the
            // sum.
            for (mut codec, off_by) in [
                (Codec::bf16(), 0.004),
                (Codec::f16(), 0.0005),
                (Codec::int8(), 0.004),
                // Noise: seven times the usual error of an element.
                (Codec::int4(), 0.6),
                (Codec::one_bit(), 1.0),
                (Codec::top_k(0.2), 1.0),
            ] {
                let mut buffer: Vec<f32> = (0..10_001)
                    .map(|i| (i as f32 / 17.0).sin() * (context.rank().index() + 1) as f32)
                    .collect();
                let most = (n * (n + 1) / 2) as f32;
                let exact: Vec<f32> = (0..10_001).map(|i| (i as f32 / 17.0).sin() * most).collect();
                context.all_reduce(&mut buffer).compress(&mut codec).await?;
                let off = buffer.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                ensure!(off > 0.0 && off < 2.0 * most * off_by, "{codec:?}: off by {off}");
                all.extend(buffer.iter().map(|x| x.to_bits()));
            }
            Ok(all)
        });
        let bits: Vec<Vec<u32>> = results.await?;
        ensure!(bits.windows(2).all(|w| w[0] == w[1]), "ranks differ");
    }
    Ok(())
}
