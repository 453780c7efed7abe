//! `Cluster::metrics`.

use super::on::{On, everywhere, fresh, group, joined, of_size, once};
use anyhow::{Context as _, Result, ensure};
use potluck::report::{EdgeMetrics, Metrics};
use potluck::{Cluster, Context, NodeId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

pub async fn of_operations(on: On) -> Result<()> {
    let nodes = group(on, "metrics", 3).await?;
    let done = Arc::new(Barrier::new(3));
    let results = everywhere(nodes, move |cluster, mut context| {
        let done = Arc::clone(&done);
        async move {
            ensure!(cluster.metrics().operations.is_empty(), "counted before anything was called");
            let started = Instant::now();
            for _ in 0..5 {
                context.all_reduce(&mut vec![1.0f32; 70_000]).await?;
            }
            context.all_reduce_owned(vec![1u8; 9]).await.map_err(potluck::Error::from)?;
            context.broadcast(1, &mut [7.0f64; 11]).await?;
            let took = started.elapsed();
            // Aborted by a mismatch, by a deadline, before anything was sent, and by a drop.
            let different = vec![1.0f32; 10 + context.rank().index()];
            ensure!(context.all_gather(&different).await.is_err(), "different lengths");
            if context.rank() == 0 {
                ensure!(
                    context.barrier().deadline(Duration::from_millis(50)).await.is_err(),
                    "nobody else calls it"
                );
                done.wait().await;
            } else {
                done.wait().await;
                ensure!(context.barrier().await.is_err(), "it is over");
            }
            let mean = context.reduce(0, &mut [f32::NAN]).reject_non_finite().await;
            ensure!(mean.is_err(), "a NaN");
            let begun = u64::from(context.rank() == 0);
            if begun == 1 {
                let mut other = context.lane(7);
                let mut call = other.gather(0, &[1u8]);
                ensure!(once(&mut call).await.is_pending(), "nobody else calls it");
            }

            let metrics = cluster.metrics();
            let counts = |kind: &str| {
                metrics.operation(kind).map(|o| (o.begun, o.committed, o.aborted, o.bytes))
            };
            ensure!(counts("all_reduce") == Some((6, 6, 0, 5 * 280_000 + 9)), "{metrics:?}");
            ensure!(counts("broadcast") == Some((1, 1, 0, 88)), "{metrics:?}");
            ensure!(counts("all_gather") == Some((1, 0, 1, 0)), "{metrics:?}");
            ensure!(counts("barrier") == Some((1, 0, 1, 0)), "{metrics:?}");
            ensure!(counts("reduce") == Some((1, 0, 1, 0)), "{metrics:?}");
            ensure!(counts("gather") == (begun == 1).then_some((1, 0, 1, 0)), "{metrics:?}");
            ensure!(
                counts("scatter").is_none() && metrics.operations.len() as u64 == 5 + begun,
                "{metrics:?}"
            );
            let sums = metrics.operation("all_reduce").context("counted above")?;
            let (sum, max) = (sums.duration_sum, sums.duration_max);
            ensure!(
                max > Duration::ZERO && max <= sum && sum <= 6 * max && sum <= took,
                "{sum:?}, {max:?} of {took:?}"
            );

            ensure!(
                metrics.edges.len() == 2
                    && metrics.edges.iter().all(|e| e.links >= 1 && e.busy >= sum),
                "{metrics:?}"
            );
            Ok((cluster, context))
        }
    });
    let nodes = results.await?;
    let sent_everywhere = agreed(&nodes).await;
    ensure!(
        sent_everywhere >= 4 * 5 * 280_000,
        "three cannot share {sent_everywhere} bytes of sums"
    );
    Ok(())
}

/// Waits until every byte that one node has sent is counted as received by another one; returns the
/// sum.
async fn agreed(nodes: &[(Cluster, Context)]) -> u64 {
    loop {
        let told: Vec<Metrics> = nodes.iter().map(|(cluster, _)| cluster.metrics()).collect();
        let key = |i: usize| nodes[i].1.members()[i].node;
        let pairs = (0..nodes.len())
            .flat_map(|i| (0..nodes.len()).map(move |j| (i, j)))
            .filter(|(i, j)| i != j);
        let alike = pairs.clone().all(|(i, j)| {
            edge(&told[i], key(j)).sent_bytes == edge(&told[j], key(i)).received_bytes
        });
        let whole = nodes
            .iter()
            .zip(&told)
            .all(|((_, context), its)| sum(its) == context.traffic().sent_bytes);
        if alike && whole {
            assert!(
                told.iter()
                    .flat_map(|its| &its.edges)
                    .all(|e| e.sent_rate().is_some() && e.received_rate().is_some())
            );
            return told.iter().map(sum).sum();
        }
        tokio::task::yield_now().await;
    }
}

fn sum(metrics: &Metrics) -> u64 {
    metrics.edges.iter().map(|edge| edge.sent_bytes).sum()
}

fn edge(metrics: &Metrics, node: NodeId) -> EdgeMetrics {
    metrics.edges.iter().find(|edge| edge.node == node).cloned().expect("an edge to every member")
}

/// Three members, one of which leaves.
pub async fn over_views(on: On) -> Result<()> {
    let mut clusters = joined(on, &fresh("metrics-views"), 3, 2).await?;
    let leaver = clusters.pop().context("three")?;
    let gone = leaver.status().node;
    let other = tokio::spawn(async move {
        of_size(&leaver, 3).await?.all_reduce(&mut [1.0f64; 1000]).await?;
        leaver.leave().await;
        anyhow::Ok(())
    });
    let stay = clusters.into_iter().map(|cluster| {
        tokio::spawn(async move {
            of_size(&cluster, 3).await?.all_reduce(&mut [1.0f64; 1000]).await?;
            let mut context = of_size(&cluster, 2).await?;
            let before = edge(&cluster.metrics(), gone);
            context.all_reduce(&mut [1.0f64; 1000]).await?;
            let metrics = cluster.metrics();
            let sums = metrics.operation("all_reduce").context("two were made")?;
            ensure!((sums.begun, sums.committed, sums.bytes) == (2, 2, 16_000), "{metrics:?}");
            let after = edge(&metrics, gone);
            ensure!(
                after.sent_bytes + after.received_bytes > 0 && after == before,
                "{before:?} became {after:?}"
            );
            ensure!(metrics.edges.len() == 2, "{metrics:?}");
            Ok(())
        })
    });
    for task in stay.collect::<Vec<_>>() {
        task.await??;
    }
    other.await?
}
