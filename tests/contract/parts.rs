//! Collectives whose result differs between ranks, or exists only on some.

use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::Rejection;
use potluck::{Cause, Cluster, Context, Error};

pub async fn parts_that_do_not_fit(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let uneven = context.all_to_all(&[1u32; 7]).await;
    ensure!(
        matches!(uneven, Err(Error::Rejected(Rejection::Uneven { count: 7, size: 3 }))),
        "{uneven:?}"
    );
    let mut sum = [1i32; 5];
    let mean = context.reduce(0, &mut sum).mean().await;
    ensure!(matches!(mean, Err(Error::Rejected(Rejection::MeanOfIntegers(_)))), "{mean:?}");
    for given in [None, Some(&[0u8; 11][..]), Some(&[0u8; 13][..])] {
        let mut out = [9u8; 4];
        let error = context
            .scatter(1, given, &mut out)
            .await
            .err()
            .context("scattered what was not there")?;
        match error {
            Error::Rejected(Rejection::ScatterInput { given: n, part: 4, size: 3 }) => {
                ensure!(rank == 1 && n == given.map_or(0, <[u8]>::len), "{n} on rank {rank}");
            }
            Error::Aborted { cause: Cause::Dropped { by: Some(peer) } } => {
                ensure!(rank != 1 && peer.rank.index() == 1);
            }
            error => bail!("{error:?}"),
        }
        ensure!(out == [9; 4], "the buffer was touched");
    }
    for root in [3, 255, 256, usize::MAX] {
        ensure!(context.reduce(root, &mut sum).await.is_err(), "there is no rank {root}");
        ensure!(context.gather(root, &sum).await.is_err(), "there is no rank {root}");
        ensure!(context.scatter(root, None, &mut sum).await.is_err(), "there is no rank {root}");
    }
    ensure!(sum == [1; 5], "the buffer was touched");
    let parts = context.all_to_all(&[rank as u32; 3]).await?;
    ensure!(parts == [0, 1, 2], "the next call is wrong: {parts:?}");
    Ok(())
}

pub async fn all_kinds_at_once(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, len) = (context.rank().index(), 20_000);
    for round in 0..10 {
        let root = round % 4;
        let mine = vec![rank as f32; len];
        let (mut sum, mut total, mut part) = (mine.clone(), mine.clone(), vec![0.0; len]);
        let parts: Vec<f32> = (0..4 * len).map(|i| (i / len) as f32).collect();
        let to_root = context.reduce(root, &mut sum);
        let shard = context.reduce_scatter(&mine);
        let all = context.gather(root, &mine);
        let one = context.scatter(root, Some(&parts), &mut part);
        let crossed = context.all_to_all(&parts);
        let to_all = context.all_reduce(&mut total);
        to_all.await?;
        ensure!(crossed.await? == vec![rank as f32; 4 * len], "all_to_all");
        one.await?;
        ensure!(all.await?.is_none_or(|all| all == parts), "gather");
        ensure!(shard.await? == vec![6.0; len / 4], "reduce_scatter");
        to_root.await?;
        ensure!(part == mine && total == vec![6.0; len], "scatter or all_reduce");
        ensure!(if rank == root { sum == total } else { sum == mine }, "reduce");
    }
    Ok(())
}
