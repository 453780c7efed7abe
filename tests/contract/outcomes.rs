//! Calls that end without a result, or whose result the program does not take.

use super::on::{On, drop_too_late, everywhere, fresh, joined, meanwhile, of_size, together};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::{Cause, Cluster, Context, Error};
use std::time::Duration;

pub async fn dropped(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut buffer = vec![context.rank().index() as f32; 200_000];
    if context.rank() == 1 {
        // Never polled.
        drop(context.all_reduce(&mut buffer));
    } else {
        let error = context.all_reduce(&mut buffer).await.err().context("added without rank 1")?;
        let Error::Aborted { cause: Cause::Dropped { by: Some(peer) } } = &error else {
            bail!("{error:?}")
        };
        ensure!(peer.rank.index() == 1 && error.is_retryable(), "{error}");
    }
    ensure!(buffer == vec![context.rank().index() as f32; 200_000], "the buffer was touched");
    context.all_reduce(&mut buffer).await?;
    ensure!(buffer == vec![3.0; 200_000], "the next call is wrong");
    Ok(())
}

pub async fn lost(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut buffer = vec![1.0f32; 70_001];
    if context.rank() == 0 {
        let call = context.all_reduce(&mut buffer);
        drop_too_late(&mut context, call).await?;
        ensure!(buffer == vec![1.0; 70_001], "the buffer was touched");
        let refused = context.all_reduce(&mut buffer).await;
        ensure!(matches!(refused, Err(Error::LostResult { .. })), "{refused:?}");
        let sum = loop {
            // Decided as soon as the vote of rank 1 has arrived.
            match context.take_result::<f32>() {
                Some(sum) => break sum,
                None => tokio::task::yield_now().await,
            }
        };
        ensure!(sum == vec![2.0; 70_001] && !context.discard_result(), "not the lost sum");
    } else {
        let call = context.all_reduce(&mut buffer);
        meanwhile(&mut context, call).await?;
        ensure!(buffer == vec![2.0; 70_001], "wrong");
    }
    let mut next = vec![3.0f64; 10];
    context.all_reduce(&mut next).await?;
    ensure!(next == vec![6.0; 10], "the next call is wrong");
    Ok(())
}

pub async fn lost_and_left(on: On) -> Result<()> {
    let nodes = together(joined(on, &fresh("lost-and-left"), 3, 2).await?).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let mut buffer = vec![1.0f32; 70_001];
        let rank = context.rank().index();
        let call = context.all_reduce(&mut buffer);
        if rank == 0 {
            drop_too_late(&mut context, call).await?;
        } else {
            meanwhile(&mut context, call).await?;
        }
        if rank == 2 {
            cluster.leave().await;
            return Ok(());
        }
        let mut context = of_size(&cluster, 2).await?;
        let mut next = vec![3.0f64; 10];
        if rank == 0 {
            let refused = context.all_reduce(&mut next).await;
            ensure!(matches!(refused, Err(Error::LostResult { .. })), "{refused:?}");
            ensure!(context.take_result::<f64>().is_none(), "half an element");
            let sum = context.take_result::<f32>().context("the lost sum is gone")?;
            ensure!(sum == vec![3.0; 70_001] && !context.discard_result(), "not the lost sum");
        }
        context.all_reduce(&mut next).await?;
        ensure!(next == vec![6.0; 10], "the next call is wrong");
        Ok(())
    });
    results.await.map(drop)
}

pub async fn deadline(cluster: Cluster, mut context: Context) -> Result<()> {
    let mut buffer = vec![1.0f32; 1000];
    if context.rank() == 0 {
        let waiting = tokio::spawn(async move {
            let mut changes = cluster.watch();
            while let Some(status) = changes.next().await {
                if let Some(waiting) = status.waiting {
                    return waiting.ranks.first().map(|p| p.rank.index());
                }
            }
            None
        });
        let error = context
            .all_reduce(&mut buffer)
            .deadline(Duration::from_millis(500))
            .await
            .err()
            .context("no deadline")?;
        ensure!(
            matches!(&error, Error::Aborted { cause: Cause::Deadline { of: None } }),
            "{error:?}"
        );
        ensure!(!error.is_retryable());
        ensure!(waiting.await? == Some(1), "the status does not say who was waited for");
        // Signals rank 1, in a lane of its own, that the deadline has passed.
        context.lane(1).barrier().await?;
    } else {
        context.lane(1).barrier().await?;
        let error = context.all_reduce(&mut buffer).await.err().context("the operation is over")?;
        ensure!(
            matches!(
                &error,
                Error::Aborted { cause: Cause::Deadline { of: Some(p) } } if p.rank.index() == 0
            ),
            "{error:?}"
        );
    }
    context.all_reduce(&mut buffer).await?;
    ensure!(buffer == vec![2.0; 1000], "the next call is wrong");
    Ok(())
}

pub async fn owned(_cluster: Cluster, mut context: Context) -> Result<()> {
    let sum = context.all_reduce_owned(vec![2.0f64; 70_000]).await.map_err(Error::from)?;
    ensure!(sum == vec![4.0; 70_000], "wrong");
    let buffer = vec![1.0f32; 5 + context.rank().index()];
    let failed =
        context.all_reduce_owned(buffer.clone()).await.err().context("different lengths")?;
    ensure!(failed.buffer == buffer && failed.error.code() == "mismatch", "{failed:?}");
    Ok(())
}
