//! Sub-groups: some ranks of a View call among themselves.

use super::numbers::{differs, input, reduced};
use super::on::{
    On, begun, everywhere, fresh, group, joined, of_size, once, out_of_step, together,
};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::{GroupProblem, Rejection};
use potluck::plan::EngineKind;
use potluck::{Cause, Cluster, Context, Error, ReduceOp};
use std::time::Duration;
use tokio::sync::oneshot;

/// Runs a program of three ranks in a group of three of five, while the other two call in a group
/// of theirs and all five in the View.
pub async fn run<F>(
    on: On,
    program: impl Fn(Cluster, Context) -> F + Copy + Send + Sync + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let nodes = group(on, "in-a-group", 5).await?;
    let done = everywhere(nodes, move |cluster, context| async move {
        let rank = context.rank().index();
        if [1, 2, 4].contains(&rank) {
            let inside = context.group(&[4, 1, 2], 3)?;
            ensure!(inside.size() == 3 && inside.rank() == [9, 0, 1, 9, 2][rank]);
            tokio::try_join!(of_all(context), program(cluster, inside))?;
        } else {
            let pair = context.group(&[0, 3], 3)?;
            tokio::try_join!(of_all(context), of_two(pair))?;
        }
        Ok(())
    });
    done.await.map(drop)
}

async fn of_all(mut context: Context) -> Result<()> {
    for round in 0..10u32 {
        let mut sum = vec![round; 5000];
        context.all_reduce(&mut sum).await?;
        ensure!(sum == vec![5 * round; 5000], "a wrong sum of all");
    }
    Ok(())
}

async fn of_two(mut context: Context) -> Result<()> {
    let mut sum = vec![1.0 + context.rank().index() as f32; 100_000];
    context.all_reduce(&mut sum).await?;
    ensure!(sum == vec![3.0; 100_000], "a wrong sum of two");
    Ok(())
}

/// A group of a group, lanes of a group, a group of one, and a group of all.
pub async fn nest(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let mut whole = context.group(&[0, 1, 2, 3, 4], 7)?;
    let mut sum = [1u8];
    whole.all_reduce(&mut sum).await?;
    ensure!(sum == [5] && whole.rank() == rank && whole.is_in_sync());
    let mut alone = context.group(&[rank], 0)?;
    let mut own = vec![rank as f32; 1000];
    alone.all_reduce(&mut own).mean().await?;
    alone.barrier().await?;
    ensure!(own == vec![rank as f32; 1000] && alone.size() == 1 && alone.rank() == 0);
    if rank != 2 {
        let outer = context.group(&[0, 1, 3, 4], 0)?;
        let (low, high) = ([0, 1], [2, 3]);
        let ranks = if outer.rank().index() < 2 { low } else { high };
        // Ranks of the outer group: 3 and 4 of the View are 2 and 3 there.
        let mut inner = outer.group(&ranks, 0)?;
        let (mut lane, mut other) = (inner.lane(1), outer.lane(1));
        let (mut a, mut b, mut c) = ([rank as u64], [rank as u64], [rank as u64]);
        tokio::try_join!(
            inner.all_reduce(&mut a),
            lane.all_reduce(&mut b).max(),
            other.all_reduce(&mut c),
        )?;
        let expected = if rank < 2 { ([1], [1]) } else { ([7], [4]) };
        ensure!((a, b) == expected && c == [8], "{a:?} {b:?} {c:?}");
    }
    context.barrier().await?;
    Ok(())
}

/// Ranks that are no group.
pub async fn refused(_cluster: Cluster, context: Context) -> Result<()> {
    let own = context.rank().index();
    no_group(&context, &[], GroupProblem::Empty)?;
    no_group(&context, &[own, 1, 1], GroupProblem::Twice(1.into()))?;
    no_group(&context, &[(own + 1) % 3], GroupProblem::WithoutOwn(own.into()))?;
    for none in [3, 16, usize::MAX] {
        let problem = GroupProblem::NoRank { rank: none.into(), size: 3 };
        no_group(&context, &[own, none], problem)?;
    }
    if own != 2 {
        refused_in_a_group(context.group(&[0, 1], 0)?).await?;
    }
    Ok(())
}

async fn refused_in_a_group(mut pair: Context) -> Result<()> {
    let (mut state, mut buffer) = (vec![1], [1f32; 4]);
    let synced = pair.sync(1, &mut state).await;
    ensure!(matches!(synced, Err(Error::Rejected(Rejection::SyncOfGroup))), "{synced:?}");
    let root = pair.broadcast(2, &mut buffer).await;
    ensure!(matches!(root, Err(Error::Rejected(Rejection::NoRoot { size: 2, .. }))), "{root:?}");
    let message = pair.send(2, 0, &buffer).await;
    ensure!(matches!(message, Err(Error::Rejected(Rejection::NoPeer { size: 2 }))), "{message:?}");
    let mut buffers = vec![[0f32; 4]; 33];
    if pair.rank() == 0 {
        let mut calls: Vec<_> = buffers.iter_mut().map(|b| pair.all_reduce(b)).collect();
        let last = calls.pop().context("33 calls")?.await;
        ensure!(matches!(last, Err(Error::TooManyInFlight)), "{last:?}");
    }
    Ok(())
}

fn no_group(context: &Context, ranks: &[usize], problem: GroupProblem) -> Result<()> {
    match context.group(ranks, 0) {
        Err(Error::Rejected(Rejection::Group(found))) if found == problem => Ok(()),
        other => bail!("{ranks:?}: {other:?}"),
    }
}

/// The engine of a group, and why.
pub async fn engine(on: On) -> Result<()> {
    let nodes = group(on, "engine-of-a-group", 3).await?;
    let pair = nodes[0].1.group(&[0, 2], 0)?;
    let why = pair.engine_reason();
    ensure!(pair.engine() == EngineKind::Native, "{why}");
    ensure!(why.contains("beside it") == (on.engine == EngineKind::Gloo), "{why}");
    ensure!(nodes[0].1.engine() == on.engine);
    Ok(())
}

/// In a View that needs a sync, groups have no calls either. After the sync they do, and they are
/// no part of a history.
pub async fn out_of_sync(on: On) -> Result<()> {
    let nodes = out_of_step(on, "groups-out-of-step").await?;
    let done = everywhere(nodes, |_cluster, mut context| async move {
        let rank = context.rank().index();
        let mut pair = if rank == 1 { None } else { Some(context.group(&[0, 2], 0)?) };
        if let Some(pair) = &mut pair {
            let early = pair.barrier().await;
            ensure!(matches!(early, Err(Error::NeedsSync)), "{early:?}");
        }
        let mut state = vec![rank as u8; 10];
        context.sync(1, &mut state).await?;
        if let Some(pair) = &mut pair {
            let mut sum = [1u8];
            pair.all_reduce(&mut sum).await?;
            ensure!(sum == [2] && pair.is_in_sync());
        }
        context.barrier().await?;
        Ok(())
    });
    done.await.map(drop)
}

/// One of four leaves, while each of two groups has a call that one of its ranks has not made. Both
/// calls end on all others, which make their groups anew.
pub async fn left(on: On) -> Result<()> {
    let nodes = together(joined(on, &fresh("left-groups"), 4, 3).await?).await?;
    let (mut open, mut tasks) = (Vec::new(), Vec::new());
    for (cluster, context) in nodes {
        let (told, is_open) = oneshot::channel();
        let rank = context.rank().index();
        if rank < 3 {
            if rank != 1 {
                open.push(is_open);
            }
            tasks.push(tokio::spawn(stays(cluster, context, told)));
        } else {
            let calls = std::mem::take(&mut open);
            tasks.push(tokio::spawn(async move {
                for call in calls {
                    // A dropped sender belongs to a failed task, which is reported below.
                    let _ = call.await;
                }
                drop(context);
                cluster.leave().await;
                Ok(())
            }));
        }
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Rank 0 calls with 1, which does not call; rank 2 calls with 3, which leaves.
async fn stays(cluster: Cluster, context: Context, told: oneshot::Sender<()>) -> Result<()> {
    let rank = context.rank().index();
    let name = context.members()[3].name.clone();
    let ranks = if rank < 2 { [0, 1] } else { [2, 3] };
    let mut pair = context.group(&ranks, 0)?;
    let mut buffer = vec![1.0f32; 1000];
    if rank != 1 {
        let error = begun(pair.all_reduce(&mut buffer), told).await.err().context("no error")?;
        let Error::Aborted { cause: Cause::MemberLost { lost } } = &error else {
            bail!("rank {rank}: {error:?}")
        };
        ensure!(lost.len() == 1 && lost[0].rank == 3 && lost[0].name == name, "{error}");
        ensure!(buffer == vec![1.0; 1000], "the buffer is touched");
    }
    let mut context = of_size(&cluster, 3).await?;
    let later = pair.barrier().await;
    ensure!(matches!(later, Err(Error::ViewChanged)), "{later:?}");
    let own = context.rank().index();
    if own != 1 {
        let mut pair = context.group(&[0, 2], 0)?;
        pair.all_reduce(&mut buffer).await?;
        ensure!(buffer == vec![2.0; 1000], "the next group is wrong");
    }
    // A member that has ended leaves, and the others may not have seen the View of three yet.
    context.barrier().await?;
    Ok(())
}

/// Calls in two groups that share a rank, in another order on each; and a call that one of them
/// drops, which ends in its group alone.
pub async fn overlap(on: On) -> Result<()> {
    let nodes = group(on, "overlapping", 4).await?;
    let done = everywhere(nodes, |_cluster, context| async move {
        let rank = context.rank().index();
        let groups: [&[usize]; 3] = [&[0, 1, 2], &[2, 3], &[1, 2, 3]];
        let mut tasks = Vec::new();
        for turn in 0..3 {
            let tag = (turn + rank) % 3;
            if !groups[tag].contains(&rank) {
                continue;
            }
            let mut inside = context.group(groups[tag], 1)?;
            tasks.push(tokio::spawn(async move {
                let (own, size) = (inside.rank().index(), inside.size());
                for round in 0..10 {
                    let seed = (tag * 100 + round) as u64;
                    let inputs: Vec<Vec<f32>> =
                        (0..size).map(|rank| input(seed, rank, 20_001)).collect();
                    let order = inside.fold_order::<f32>(20_001);
                    let mut buffer = inputs[own].clone();
                    let is_dropped = round == 5 && tag == 0;
                    if is_dropped && own == 1 {
                        let mut call = inside.all_reduce(&mut buffer);
                        ensure!(once(&mut call).await.is_pending(), "the others call later");
                        drop(call);
                        inside.lane(2).barrier().await?;
                        continue;
                    }
                    if is_dropped {
                        inside.lane(2).barrier().await?;
                    }
                    let outcome = inside.all_reduce(&mut buffer).await;
                    if is_dropped {
                        let Err(Error::Aborted { cause: Cause::Dropped { by: Some(by) } }) =
                            &outcome
                        else {
                            bail!("{outcome:?}")
                        };
                        ensure!(by.rank == 1 && *by == inside.members()[1], "{by}");
                        continue;
                    }
                    outcome?;
                    let expected = reduced(&order, ReduceOp::Sum, &inputs);
                    ensure!(differs(&buffer, &expected).is_none(), "group {tag}, round {round}");
                }
                Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    });
    done.await.map(drop)
}

/// The deadline of a call in a group that one of its ranks does not make.
pub async fn late(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    if rank != 0 {
        let mut pair = context.group(&[1, 2], 0)?;
        let mut buffer = [1f32; 10];
        if rank == 1 {
            let late = pair.all_reduce(&mut buffer).deadline(Duration::from_millis(100)).await;
            ensure!(
                matches!(&late, Err(Error::Aborted { cause: Cause::Deadline { of: None } })),
                "{late:?}"
            );
            pair.lane(1).barrier().await?;
        } else {
            pair.lane(1).barrier().await?;
            let late = pair.all_reduce(&mut buffer).await;
            ensure!(
                matches!(
                    &late,
                    Err(Error::Aborted { cause: Cause::Deadline { of: Some(p) } }) if p.rank == 0
                ),
                "{late:?}"
            );
        }
        pair.all_reduce(&mut buffer).await?;
        ensure!(buffer == [2.0; 10]);
    }
    context.barrier().await?;
    Ok(())
}
