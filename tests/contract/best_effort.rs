//! Calls without a vote.

use super::ask::{Ask, Buffers, What};
use anyhow::{Context as _, Result, ensure};
use potluck::{Cause, Cluster, Context, Error};

/// Every kind of call is correct on every rank, with many in sequence and in flight, mixed with
/// voted ones.
pub async fn sums(_cluster: Cluster, mut context: Context) -> Result<()> {
    let n = context.size();
    for what in What::ALL {
        for len in [0, 1, 1000, 65_537] {
            let ask = Ask { best_effort: true, ..Ask::sum(what, len) };
            done(&mut context, ask).await.with_context(|| format!("{ask:?} among {n}"))?;
        }
        done(&mut context, Ask::sum(what, 1000)).await?;
    }
    for round in 0..400u64 {
        let mut buffers = vec![vec![round; 3 + round as usize % 50]; 4];
        let calls: Vec<_> =
            buffers.iter_mut().map(|b| context.all_reduce(b).best_effort()).collect();
        for call in calls {
            call.await?;
        }
        ensure!(buffers.iter().flatten().all(|x| *x == round * n as u64), "round {round}");
    }
    // A rank that has its result must not leave before the others have theirs, because
    // there is no vote to wait for.
    context.barrier().await?;
    Ok(())
}

async fn done(context: &mut Context, ask: Ask) -> Result<()> {
    let mut buffers: Buffers<f32> = ask.buffers(1, context.rank().index(), context.size());
    let result = ask.begin(context, &mut buffers).await?;
    ask.is_done(context, 1, &buffers, result.as_deref())
}

/// A rank drops the call before it sends anything: no rank gets a result, and the next call is
/// correct.
pub async fn given_up(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut buffer = vec![1f32; 70_000];
    let call = context.all_reduce(&mut buffer).best_effort();
    if context.rank() == 1 {
        drop(call);
    } else {
        let error = call.await;
        ensure!(
            matches!(error, Err(Error::Aborted { cause: Cause::Dropped { by: Some(_) } })),
            "{error:?}"
        );
    }
    ensure!(buffer == vec![1.0; 70_000], "the buffer is touched");
    context.all_reduce(&mut buffer).best_effort().await?;
    ensure!(buffer == vec![3.0; 70_000], "the next call is wrong");
    context.all_reduce(&mut buffer).await?;
    ensure!(buffer == vec![9.0; 70_000], "the next call is wrong");
    Ok(())
}
