//! Several calls in flight.

use super::on::{On, group};
use anyhow::{Context as _, Result, ensure};
use potluck::{Cluster, Context, Error};

pub async fn many_at_once(_cluster: Cluster, context: Context) -> Result<()> {
    at_once(context, 32).await
}

/// As many as may be in flight in a group.
pub async fn fewer_at_once(_cluster: Cluster, context: Context) -> Result<()> {
    at_once(context, 30).await
}

async fn at_once(mut context: Context, calls: usize) -> Result<()> {
    for _ in 0..20 {
        let mut buffers: Vec<Vec<f32>> = (0..calls).map(|i| vec![i as f32; 1 + 37 * i]).collect();
        let calls: Vec<_> = buffers.iter_mut().map(|b| context.all_reduce(b)).collect();
        for call in calls.into_iter().rev() {
            call.await?;
        }
        ensure!(
            buffers.iter().enumerate().all(|(i, b)| b.iter().all(|x| *x == 3.0 * i as f32)),
            "a wrong sum"
        );
    }
    Ok(())
}

pub async fn lanes(_cluster: Cluster, context: Context) -> Result<()> {
    let rank = context.rank().index();
    let mut tasks = Vec::new();
    for i in 0..4u32 {
        // Every rank starts the lanes in another order.
        let tag = (i + rank as u32) % 4;
        let mut lane = context.lane(tag);
        tasks.push(tokio::spawn(async move {
            for round in 0..25 {
                let mut buffer = vec![(tag * 100 + round) as f32; 50_000];
                lane.all_reduce(&mut buffer).await?;
                ensure!(
                    buffer.iter().all(|x| *x == 3.0 * (tag * 100 + round) as f32),
                    "lanes were mixed"
                );
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

pub async fn too_many(on: On) -> Result<()> {
    let mut nodes = group(on, "too-many", 2).await?;
    let (_cluster, context) = &mut nodes[0];
    let mut buffers = vec![[0f32; 4]; 65];
    let mut calls: Vec<_> = buffers.iter_mut().map(|b| context.all_reduce(b)).collect();
    let last = calls.pop().context("65 calls")?.await;
    ensure!(matches!(last, Err(Error::TooManyInFlight)), "{last:?}");
    Ok(())
}
