//! A deadline ends the wait on all members, for every kind of call.

use super::on::{On, builder, fresh, joined, of_size};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::OwnedError;
use potluck::{Cause, Cluster, Context, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;

/// A deadline that passes.
const SOON: Duration = Duration::from_millis(100);

/// A deadline that passes, of ranks that begin at most half of it apart.
const TOGETHER: Duration = Duration::from_secs(2);

/// A deadline that does not pass.
const LATE: Duration = Duration::from_secs(3600);

/// The names of all calls that transfer data.
const KINDS: [&str; 10] = [
    "all_reduce",
    "all_reduce_owned",
    "reduce",
    "reduce_scatter",
    "broadcast",
    "all_gather",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
];

/// Makes the named call. The flag says whether the caller's buffer is unchanged; true for calls
/// without one.
async fn call(context: &mut Context, kind: &str, within: Duration) -> (potluck::Result<()>, bool) {
    let mut buffer = [1.5f32; 600];
    let mut part = [1.5f32; 200];
    let result = match kind {
        "all_reduce" => context.all_reduce(&mut buffer).deadline(within).await,
        "all_reduce_owned" => {
            match context.all_reduce_owned(buffer.to_vec()).deadline(within).await {
                Ok(_) => Ok(()),
                Err(OwnedError { error, buffer: back }) => return (Err(error), back == buffer),
            }
        }
        "reduce" => context.reduce(1, &mut buffer).deadline(within).await,
        "reduce_scatter" => context.reduce_scatter(&buffer).deadline(within).await.map(drop),
        "broadcast" => context.broadcast(1, &mut buffer).deadline(within).await,
        "all_gather" => context.all_gather(&buffer).deadline(within).await.map(drop),
        "gather" => context.gather(1, &buffer).deadline(within).await.map(drop),
        "scatter" => context.scatter(1, Some(&buffer), &mut part).deadline(within).await,
        "all_to_all" => context.all_to_all(&buffer).deadline(within).await.map(drop),
        _ => context.barrier().deadline(within).await,
    };
    (result, buffer == [1.5; 600] && part == [1.5; 200])
}

/// Rank 0 has a short deadline, rank 1 a long one. Rank 2 calls only after both have failed.
pub async fn of_every_kind(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut heard = context.lane(1);
    for kind in KINDS {
        if context.rank() == 2 {
            heard.barrier().await?;
        }
        let within = if context.rank() == 0 { SOON } else { LATE };
        let (result, is_untouched) = call(&mut context, kind, within).await;
        given_up(result, context.rank() == 0)
            .with_context(|| format!("{kind} on rank {}", context.rank()))?;
        ensure!(is_untouched, "{kind} has touched a buffer");
        if context.rank() != 2 {
            heard.barrier().await?;
        }
        let mut next = [context.rank().index() as u32; 100];
        context.all_reduce(&mut next).await?;
        ensure!(next == [3; 100], "the call after {kind} is wrong");
    }
    Ok(())
}

/// The error of a call whose deadline has passed on rank 0.
fn given_up(result: potluck::Result<()>, is_its_own: bool) -> Result<()> {
    let error = result.err().context("done without rank 2")?;
    match &error {
        Error::Aborted { cause: Cause::Deadline { of: None } } => {
            ensure!(is_its_own && !error.is_retryable(), "{error}");
        }
        Error::Aborted { cause: Cause::Deadline { of: Some(peer) } } => {
            ensure!(!is_its_own && peer.rank.index() == 0 && error.is_retryable(), "{error}");
        }
        error => bail!("{error:?}"),
    }
    Ok(())
}

/// All callers have the same deadline, and each reports it as its own.
pub async fn the_same_everywhere(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut heard = context.lane(1);
    for kind in KINDS {
        if context.rank() == 2 {
            heard.barrier().await?;
            ensure!(call(&mut context, kind, LATE).await.0.is_err(), "{kind} was done");
        } else {
            given_up(call(&mut context, kind, TOGETHER).await.0, true).context(kind)?;
            heard.barrier().await?;
        }
    }
    Ok(())
}

/// The deadline counts from the first poll: a call that is created but not polled has not begun.
pub async fn from_the_first_poll(_cluster: Cluster, mut context: Context) -> Result<()> {
    let second = Duration::from_secs(1);
    let mut buffer = [1u8; 10];
    if context.rank() == 0 {
        let mut other = context.lane(1);
        let early = context.all_reduce(&mut buffer).deadline(second);
        // Rank 1 makes the earlier call only after this deadline has passed, so the earlier
        // deadline would have passed too.
        given_up(other.barrier().deadline(second).await, true)?;
        early.await?;
    } else {
        context.all_reduce(&mut buffer).deadline(LATE).await?;
        given_up(context.lane(1).barrier().await, false)?;
    }
    ensure!(buffer == [2; 10], "a wrong sum");
    // The first to leave would change the View before the other's last call.
    context.barrier().await?;
    Ok(())
}

/// Two members have a common history; a third one joins and does not call `sync`.
pub async fn of_a_sync(on: On) -> Result<()> {
    let namespace = fresh("sync-deadline");
    let heard = Arc::new(Barrier::new(3));
    let mut clusters = joined(on, &namespace, 2, 2).await?;
    let together = clusters
        .iter()
        .cloned()
        .map(|cluster| tokio::spawn(async move { cluster.context().await?.barrier().await }));
    for call in together.collect::<Vec<_>>() {
        call.await??;
    }
    clusters.push(builder(on, &namespace, 2).join().await?);
    let mut tasks = Vec::new();
    for (index, cluster) in clusters.into_iter().enumerate() {
        let heard = Arc::clone(&heard);
        tasks.push(tokio::spawn(async move {
            let mut context = of_size(&cluster, 3).await?;
            let mine = vec![index as u8; 5 + index];
            let mut state = mine.clone();
            if index == 2 {
                heard.wait().await;
            }
            let within = if index == 0 { SOON } else { LATE };
            let error = context
                .sync(0, &mut state)
                .deadline(within)
                .await
                .err()
                .context("a sync without the third")?;
            let Error::Aborted { cause: Cause::Deadline { of } } = &error else {
                bail!("{error:?}")
            };
            ensure!(
                of.is_none() == (index == 0) && state == mine,
                "{error} at {index}, which has {state:?}"
            );
            if index != 2 {
                heard.wait().await;
            }
            context.sync(0, &mut state).deadline(LATE).await?;
            ensure!(state.len() < 7, "the newcomer's state: {state:?}");
            // If there is nothing to do, no deadline is too short.
            context.sync(0, &mut state).deadline(Duration::ZERO).await?;
            context.barrier().await?;
            Ok(state)
        }));
    }
    let mut states = Vec::new();
    for task in tasks {
        states.push(task.await??);
    }
    ensure!(states.windows(2).all(|w| w[0] == w[1]), "{states:?}");
    Ok(())
}
