//! Joining and leaving.

use super::on::{On, begun, builder, fresh, group, joined, of_size};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::report::{ConfigProblem, State};
use potluck::{Cause, Cluster, Context, Error};
use std::time::Duration;
use tokio::sync::oneshot;

pub async fn joiner(on: On) -> Result<()> {
    let namespace = fresh("joiner");
    let veterans = joined(on, &namespace, 2, 2).await?;
    let mut tasks = Vec::new();
    for cluster in veterans {
        let namespace = namespace.clone();
        tasks.push(tokio::spawn(async move {
            let mut context = cluster.context().await?;
            let mut buffer = vec![1.0f32; 10];
            context.all_reduce(&mut buffer).await?;
            let third = if context.rank() == 0 {
                Some(builder(on, &namespace, 2).join().await?)
            } else {
                None
            };
            let newcomer = third.map(|third| tokio::spawn(newcomer(third)));
            of_size(&cluster, 3).await?;
            context = context.renewed().await?;
            let refused = context.all_reduce(&mut buffer).await;
            ensure!(matches!(refused, Err(Error::NeedsSync)), "{refused:?}");
            ensure!(cluster.status().state == State::NeedsSync, "{:?}", cluster.status().state);
            let mut state = b"what the veterans know".to_vec();
            context.sync(1, &mut state).await?;
            ensure!(state == b"what the veterans know");
            context.all_reduce(&mut buffer).await?;
            ensure!(buffer == vec![5.0; 10], "{buffer:?}");
            if let Some(newcomer) = newcomer {
                newcomer.await??;
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn newcomer(cluster: Cluster) -> Result<()> {
    let mut context = cluster.context().await?;
    ensure!(!context.is_in_sync(), "a newcomer cannot know what the others know");
    // The longer history wins over the highest version.
    let mut state = vec![0; 100_000];
    context.sync(99, &mut state).await?;
    ensure!(state == b"what the veterans know");
    context.all_reduce(&mut [1.0f32; 10]).await?;
    Ok(())
}

/// One of three leaves while the others call: their calls end, and no View below `min_members` is
/// handed out.
pub async fn leaving(on: On) -> Result<()> {
    let nodes = group(on, "leaving", 3).await?;
    let mut nodes = nodes.into_iter();
    let (last, mut context) = nodes.next_back().context("three nodes")?;
    let (mut tasks, mut calls) = (Vec::new(), Vec::new());
    for (cluster, context) in nodes {
        let (told, call) = oneshot::channel();
        calls.push(call);
        tasks.push(tokio::spawn(left_behind(cluster, context, told)));
    }
    for call in calls {
        // A dropped sender belongs to a failed task, which is reported below.
        let _ = call.await;
    }
    last.leave().await;
    let left = context.all_reduce(&mut [1.0f32; 3]).await;
    ensure!(matches!(left, Err(Error::Closed)), "{left:?} after it has left");
    for task in tasks {
        let (cluster, context) = task.await??;
        // Two members are fewer than the required three, so there is no next View.
        let renewed = tokio::time::timeout(Duration::from_secs(2), context.renewed()).await;
        ensure!(renewed.is_err(), "a View below min_members was handed out: {renewed:?}");
        drop(cluster);
    }
    Ok(())
}

/// Makes a call that rank 2 never makes, because it leaves.
async fn left_behind(
    cluster: Cluster,
    mut context: Context,
    told: oneshot::Sender<()>,
) -> Result<(Cluster, Context)> {
    let mut buffer = vec![1.0f32; 1000];
    let error =
        begun(context.all_reduce(&mut buffer), told).await.err().context("added without rank 2")?;
    ensure!(error.is_retryable() && buffer == vec![1.0; 1000], "{error:?}");
    let Error::Aborted { cause: Cause::MemberLost { lost } } = &error else { bail!("{error:?}") };
    ensure!(
        lost.len() == 1 && lost[0].rank == 2 && error.to_string().contains("rank 2 ("),
        "{error}"
    );
    ensure!(context.all_reduce(&mut buffer).await.is_err(), "the View is over");
    Ok((cluster, context))
}

pub async fn nobody(on: On) -> Result<()> {
    let cluster = builder(on, &fresh("nobody"), 2).join().await?;
    let error =
        cluster.context_within(Duration::from_millis(300)).await.err().context("a group of one")?;
    ensure!(matches!(error, Error::NotEnoughPeers { present: 1, wanted: 2, .. }), "{error:?}");
    ensure!(matches!(cluster.status().state, State::Alone { .. }), "{:?}", cluster.status().state);
    cluster.clone().leave().await;
    ensure!(matches!(cluster.context().await, Err(Error::Closed)));
    Ok(())
}

pub async fn sixteen(on: On) -> Result<()> {
    let namespace = fresh("sixteen");
    let one_more = || builder(on, &namespace, 16).max_members(16).join();
    let mut clusters = Vec::new();
    for _ in 0..16 {
        clusters.push(one_more().await?);
    }
    let mut tasks = Vec::new();
    for cluster in &clusters {
        let cluster = cluster.clone();
        tasks.push(tokio::spawn(async move {
            let mut context = cluster.context().await?;
            let mut buffer = vec![1.0f32; 10_000];
            context.all_reduce(&mut buffer).await?;
            ensure!(buffer == vec![16.0; 10_000], "wrong");
            Ok(context.view())
        }));
    }
    let mut views = Vec::new();
    for task in tasks {
        views.push(task.await??);
    }
    ensure!(views.windows(2).all(|w| w[0] == w[1]), "{views:?}");
    let late = one_more().await?;
    let mut changes = late.watch();
    while changes.next().await.context("the node ended")?.peers.len() < 16 {}
    ensure!(late.context_within(Duration::from_millis(1500)).await.is_err(), "a View of seventeen");
    let mut again = clusters[0].context().await?;
    ensure!(again.view() == views[0], "the seventeenth has disturbed the View");
    drop(again.barrier());
    Ok(())
}

/// Three begin, a fourth has no place, and two of the three go on.
pub async fn sizes(on: On) -> Result<()> {
    let namespace = fresh("sizes");
    let one_more = || builder(on, &namespace, 2).members(3).max_members(3).join();
    let mut clusters = vec![one_more().await?, one_more().await?];
    for cluster in &clusters {
        let text = "2 of 3 here; waiting for one more (members = 3)";
        shows(cluster, |state| state.to_string() == text).await?;
        let error = cluster.context_within(Duration::from_millis(100)).await.err();
        let is_short = matches!(error, Some(Error::NotEnoughPeers { present: 2, wanted: 3, .. }));
        ensure!(is_short, "{error:?}");
    }
    clusters.push(one_more().await?);
    for cluster in &clusters {
        ensure!(cluster.context().await?.size() == 3, "it has begun with two");
    }
    let fourth = one_more().await?;
    shows(&fourth, |state| *state == State::Full { members: 3, max_members: 3 }).await?;
    let view = clusters[0].status().view.context("a View")?;
    ensure!(view.begun && view.sizes.iter().all(|sizes| sizes.members() == 3), "{view:?}");
    fourth.leave().await;
    clusters.pop().context("three")?.leave().await;
    for cluster in &clusters {
        of_size(cluster, 2).await?;
    }
    let refused = builder(on, &namespace, 2).members(4).max_members(3).join().await.err();
    let is_named = matches!(refused, Some(Error::Config(ConfigProblem::BadSizes(_))));
    ensure!(is_named, "{refused:?}");
    Ok(())
}

/// Waits until the node is in such a state.
async fn shows(cluster: &Cluster, likes: impl Fn(&State) -> bool) -> Result<()> {
    let mut changes = cluster.watch();
    let shown = async {
        while let Some(status) = changes.next().await {
            if likes(&status.state) {
                return Ok(());
            }
        }
        bail!("the node has ended")
    };
    let shown = tokio::time::timeout(Duration::from_secs(30), shown).await;
    shown.with_context(|| format!("it shows {}", cluster.status().state))?
}
