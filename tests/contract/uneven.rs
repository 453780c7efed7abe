//! Calls with a length per rank.

use super::numbers::{Number, differs, input};
use super::on::{On, SOON, everywhere, fresh, joined, of_size, once, together};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::{CallKind, RankParts, Rejection};
use potluck::{Cause, Cluster, Context, Error, bf16};
use std::time::{Duration, Instant};

/// The length of each part, by sender and receiver: nothing, little, and much.
fn length(seed: usize, from: usize, to: usize) -> usize {
    [0, 1, 7, 1001, 0, 65_537, 3, 200_003][(seed + 3 * from + 5 * to) % 8]
}

/// Both calls, of several types and lengths, two at a time, against the inputs of all.
pub async fn are_the_reference(_cluster: Cluster, mut context: Context) -> Result<()> {
    for seed in 0..8 {
        both::<f32>(&mut context, seed).await?;
    }
    both::<bool>(&mut context, 1).await?;
    both::<bf16>(&mut context, 2).await?;
    both::<i16>(&mut context, 5).await?;
    both::<u64>(&mut context, 7).await?;
    let mut sum = [1u32; 9];
    context.all_reduce(&mut sum).await?;
    ensure!(sum == [context.size() as u32; 9], "{sum:?}");
    Ok(())
}

async fn both<T: Number>(context: &mut Context, seed: usize) -> Result<()> {
    let (me, size) = (context.rank().index(), context.size());
    let whole = |rank: usize| input::<T>(seed as u64, rank, length(seed, rank, 0));
    let part = |from: usize, to: usize| {
        input::<T>((100 + seed + 16 * to) as u64, from, length(seed, from, to))
    };
    let mine = whole(me);
    let lengths: Vec<usize> = (0..size).map(|to| length(seed, me, to)).collect();
    let parts: Vec<T> = (0..size).flat_map(|to| part(me, to)).collect();
    let (gathered, crossed, again) = tokio::join!(
        context.all_gather_uneven(&mine),
        context.all_to_all_uneven(&parts, &lengths),
        context.all_gather_uneven(&mine),
    );
    let (gathered, crossed) = (gathered?, crossed?);
    same("all_gather_uneven", &gathered, (0..size).map(whole))?;
    same("all_gather_uneven again", &again?, (0..size).map(whole))?;
    same("all_to_all_uneven", &crossed, (0..size).map(|from| part(from, me)))
}

fn same<T: Number>(
    what: &str,
    have: &RankParts<T>,
    want: impl Iterator<Item = Vec<T>>,
) -> Result<()> {
    for (rank, want) in want.enumerate() {
        let part = have.of(rank);
        ensure!(
            differs(part, &want).is_none() && have.lengths()[rank] == want.len(),
            "{what}: {} elements of rank {rank}, {} expected",
            part.len(),
            want.len()
        );
    }
    Ok(())
}

/// Ranks that differ in the type or the call hear so soon, and the next call is right.
pub async fn differ(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    for odd in ["dtype", "kind", "even", "operator", "step"] {
        for odd_rank in 0..context.size() {
            context.barrier().await?;
            let (mine, lengths) = ([7f32; 3], [1, 0, 2]);
            let started = Instant::now();
            let error = match odd {
                _ if rank != odd_rank => context.all_gather_uneven(&mine).await.err(),
                "dtype" => context.all_gather_uneven(&[7i32; 3]).await.err(),
                "kind" => context.all_to_all_uneven(&mine, &lengths).await.err(),
                "even" => context.all_gather(&mine).await.err(),
                "operator" => context.all_reduce(&mut [7f32; 3]).max().await.err(),
                _ => {
                    let mut sum = [7f32; 3];
                    let mut step = context.step();
                    step.all_reduce(&mut sum);
                    step.commit().await.err()
                }
            };
            let Some(Error::Mismatch(calls)) = &error else { bail!("{odd}: {error:?}") };
            ensure!(started.elapsed() < SOON, "told late");
            let sides = [&calls.one, &calls.other];
            ensure!(sides.iter().any(|(peer, _)| peer.rank == odd_rank), "{odd}: {calls:?}");
            let usual = sides.iter().find(|(peer, _)| peer.rank != odd_rank);
            ensure!(
                usual.is_some_and(
                    |(_, call)| call.kind == CallKind::AllGatherUneven && call.count == 3
                ),
                "{odd}: {calls:?}"
            );
        }
    }
    both::<u16>(&mut context, 3).await
}

/// Lengths that do not cut the buffer.
pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    for lengths in [&[1usize, 1][..], &[1, 1, 2], &[1, 1, 1, 0], &[usize::MAX, 2, 2], &[]] {
        let error = if context.rank() == 1 {
            context.all_to_all_uneven(&[1u8; 3], lengths).await.err()
        } else {
            context.all_to_all_uneven(&[1u8; 3], &[1, 1, 1]).await.err()
        };
        match &error {
            Some(Error::Rejected(Rejection::PartLengths { given: 3, size: 3, .. }))
                if context.rank() == 1 => {}
            Some(Error::Aborted { cause: Cause::Dropped { by: Some(peer) } })
                if context.rank() != 1 && peer.rank == 1 => {}
            _ => bail!("{lengths:?}: {error:?}"),
        }
    }
    both::<f32>(&mut context, 1).await
}

/// Dropped before the data moves, given up by a deadline, and dropped too late.
pub async fn given_up(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, mine) = (context.rank().index(), vec![context.rank().index() as u16; 40_000]);
    if rank == 1 {
        let mut call = context.all_gather_uneven(&mine);
        ensure!(once(&mut call).await.is_pending(), "the others call later");
        drop(call);
        context.lane(8).barrier().await?;
    } else {
        context.lane(8).barrier().await?;
        let error = context.all_gather_uneven(&mine).await.err();
        let Some(Error::Aborted { cause: Cause::Dropped { by: Some(peer) } }) = &error else {
            bail!("{error:?}")
        };
        ensure!(peer.rank == 1, "{error:?}");
    }
    let late = Duration::from_millis(300);
    if rank == 0 {
        let error = context.all_gather_uneven(&mine).deadline(late).await.err();
        let Some(Error::Aborted { cause: Cause::Deadline { of: None } }) = &error else {
            bail!("{error:?}")
        };
        context.lane(9).barrier().await?;
    } else {
        context.lane(9).barrier().await?;
        let error = context.all_gather_uneven(&mine).await.err();
        let Some(Error::Aborted { cause: Cause::Deadline { of: Some(peer) } }) = &error else {
            bail!("{error:?}")
        };
        ensure!(peer.rank == 0, "{error:?}");
    }
    both::<f32>(&mut context, 4).await
}

/// Dropped after the vote, its elements are kept, without the lengths.
pub async fn lost(_cluster: Cluster, mut context: Context) -> Result<()> {
    // A single member has all lengths in the first poll, and votes without another one.
    let mine: Vec<u16> = (0..100).collect();
    let mut call = context.all_gather_uneven(&mine);
    let ended = once(&mut call).await;
    drop(call);
    if ended.is_pending() {
        let refused = context.all_gather_uneven(&mine).await;
        ensure!(matches!(refused, Err(Error::LostResult { .. })), "{refused:?}");
        let taken = loop {
            match context.take_result::<u16>() {
                Some(taken) => break taken,
                None => tokio::task::yield_now().await,
            }
        };
        ensure!(taken == mine, "{taken:?}");
    }
    both::<f32>(&mut context, 5).await
}

/// A member that is lost in the middle ends the call for the others, who go on without it.
pub async fn without_one(on: On) -> Result<()> {
    let nodes = together(joined(on, &fresh("uneven"), 3, 2).await?).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let rank = context.rank().index();
        let mine = vec![rank as f32; 1000 * rank + 1];
        if rank == 2 {
            let mut call = context.all_gather_uneven(&mine);
            ensure!(once(&mut call).await.is_pending(), "rank 1 calls later");
            std::mem::forget(call);
            cluster.leave().await;
            return Ok(());
        }
        // So nobody has all lengths before rank 2 is gone.
        if rank == 1 {
            of_size(&cluster, 2).await?;
        }
        let error = context.all_gather_uneven(&mine).await.err().context("without rank 2")?;
        ensure!(
            matches!(
                &error,
                Error::Aborted { cause: Cause::MemberLost { .. } } | Error::ViewChanged
            ),
            "{error:?}"
        );
        let mut context = of_size(&cluster, 2).await?;
        both::<f32>(&mut context, 6).await
    });
    results.await.map(drop)
}
