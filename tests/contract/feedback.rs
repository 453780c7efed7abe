//! Error feedback: the rounding error is kept as a residual, counts once, and changes only with
//! calls that commit.

use super::on::{On, drop_too_late, everywhere, fresh, joined, meanwhile, of_size, together};
use anyhow::{Context as _, Result, ensure};
use potluck::calls::{FeedbackProblem, Rejection};
use potluck::{Cluster, Codec, Context, Error, ReduceOp};

const LEN: usize = 10_001;

/// The input of a rank to a call.
fn input(rank: usize, call: usize) -> Vec<f32> {
    (0..LEN).map(|i| ((i * (call + 3)) as f32 / 17.0).sin() * (rank + 1) as f32).collect()
}

fn bits(elements: &[f32]) -> Vec<u32> {
    elements.iter().map(|x| x.to_bits()).collect()
}

/// The same small numbers beside large ones are always rounded in the same way; with feedback they
/// arrive eventually.
pub async fn small_numbers_arrive(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (mut plain, mut fed) = (Codec::int4(), Codec::int4().with_feedback());
    ensure!(
        fed.residual().is_empty() && plain.residual().is_empty(),
        "there is a residual before the first call"
    );
    let input: Vec<f32> = (0..LEN).map(|i| if i % 256 == 0 { 7.0 } else { 0.15 }).collect();
    let mut arrived = [vec![0.0; LEN], vec![0.0; LEN]];
    for _ in 0..60 {
        for (codec, arrived) in [&mut plain, &mut fed].into_iter().zip(&mut arrived) {
            let mut buffer = input.clone();
            context.all_reduce(&mut buffer).mean().compress(codec).await?;
            arrived.iter_mut().zip(&buffer).for_each(|(sum, x)| *sum += x);
        }
    }
    let off = arrived.map(|arrived| {
        let pairs = arrived.iter().zip(&input);
        pairs.map(|(sum, x)| (sum - 60.0 * x).abs()).fold(0.0, f32::max)
    });
    // A sixtieth of it is the error of a call.
    ensure!(off[0] > 6.0 && off[1] < 1.0, "{off:?} of 9 missing");
    ensure!(
        plain.residual().is_empty() && fed.residual().len() == LEN,
        "{} and {}",
        plain.residual().len(),
        fed.residual().len()
    );
    fed.forget();
    ensure!(fed.residual().is_empty(), "there is still a residual");
    Ok(())
}

/// The same calls, once undisturbed and once with aborted calls in between: no residual counts
/// twice, and none is lost.
pub async fn given_up(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (mut calm, mut troubled) = (Codec::int8().with_feedback(), Codec::int8().with_feedback());
    for call in 0..3 {
        let (mut a, mut b) =
            (input(context.rank().index(), call), input(context.rank().index(), call));
        context.all_reduce(&mut a).mean().compress(&mut calm).await?;
        let before = troubled.residual();
        if context.rank() == call {
            drop(context.all_reduce(&mut b).mean().compress(&mut troubled));
        } else {
            let error = context
                .all_reduce(&mut b)
                .mean()
                .compress(&mut troubled)
                .await
                .err()
                .context("added without one")?;
            ensure!(error.is_retryable(), "{error}");
        }
        ensure!(
            bits(&troubled.residual()) == bits(&before),
            "the residual has changed with a call that does not count"
        );
        // Owned, in a step, and borrowed are three ways to the same result.
        match call {
            0 => {
                b = context
                    .all_reduce_owned(b)
                    .mean()
                    .compress(&mut troubled)
                    .await
                    .map_err(Error::from)?;
            }
            1 => in_step(&mut context, &mut b, &mut troubled).await?,
            _ => context.all_reduce(&mut b).mean().compress(&mut troubled).await?,
        }
        ensure!(
            bits(&a) == bits(&b) && bits(&calm.residual()) == bits(&troubled.residual()),
            "call {call} differs"
        );
        ensure!(bits(&before) != bits(&troubled.residual()), "the residual has not changed");
    }
    Ok(())
}

/// First aborted, then committed.
async fn in_step(context: &mut Context, buffer: &mut [f32], codec: &mut Codec) -> Result<()> {
    let (before, rank, mut beside) = (codec.residual(), context.rank().index(), vec![1u8; 5]);
    let mut step = context.step();
    step.all_reduce(buffer).compress(codec).mean();
    step.all_reduce(&mut beside);
    if rank == 2 {
        drop(step);
    } else {
        ensure!(step.commit().await.is_err(), "committed without rank 2");
    }
    ensure!(
        bits(&codec.residual()) == bits(&before),
        "the residual has changed with a step that does not count"
    );
    let mut step = context.step();
    step.all_reduce(buffer).compress(codec).mean();
    step.all_reduce(&mut beside);
    step.commit().await?;
    Ok(())
}

/// A residual belongs to its member and is kept across Views.
pub async fn over_views(on: On) -> Result<()> {
    let nodes = together(joined(on, &fresh("feedback-views"), 3, 2).await?).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let (mut codec, rank) = (Codec::int4().with_feedback(), context.rank().index());
        let mut buffer = input(rank, 0);
        context.all_reduce(&mut buffer).compress(&mut codec).await?;
        let before = codec.residual();
        if rank == 2 {
            cluster.leave().await;
            return Ok(None);
        }
        // Called in a View that ends, or after it has ended.
        let mut buffer = input(rank, 1);
        let error = context
            .all_reduce(&mut buffer)
            .compress(&mut codec)
            .await
            .err()
            .context("added without rank 2")?;
        ensure!(error.is_retryable() && bits(&codec.residual()) == bits(&before), "{error}");
        let mut context = of_size(&cluster, 2).await?;
        context.all_reduce(&mut buffer).compress(&mut codec).await?;
        // The same call from its own input, with the residual added by hand.
        let (mut second, mut plain) = (input(rank, 1), Codec::int4());
        second.iter_mut().zip(&before).for_each(|(x, residual)| *x += residual);
        context.all_reduce(&mut second).compress(&mut plain).await?;
        ensure!(bits(&buffer) == bits(&second), "the residual was not added once");
        Ok(Some(bits(&buffer)))
    });
    let sums: Vec<_> = results.await?.into_iter().flatten().collect();
    ensure!(sums.len() == 2 && sums[0] == sums[1], "ranks differ");
    Ok(())
}

/// A call that is dropped after the vote may commit, so its residual is not used again.
pub async fn lost(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (mut codec, mut buffer) = (Codec::int8().with_feedback(), input(context.rank().index(), 0));
    context.all_reduce(&mut buffer).compress(&mut codec).await?;
    let (before, mut clone) = (codec.residual(), codec.clone());
    let mut buffer = input(context.rank().index(), 1);
    if context.rank() == 0 {
        let call = context.all_reduce(&mut buffer).compress(&mut codec);
        drop_too_late(&mut context, call).await?;
        while context.take_result::<f32>().is_none() {
            tokio::task::yield_now().await;
        }
    } else {
        let call = context.all_reduce(&mut buffer).compress(&mut codec);
        meanwhile(&mut context, call).await?;
    }
    let after = codec.residual();
    ensure!(bits(&clone.residual()) == bits(&before), "a clone has a call of another");
    let mut twin = input(context.rank().index(), 1);
    context.all_reduce(&mut twin).compress(&mut clone).await?;
    // At the drop the outcome was either known to be a commit, or unknown.
    let is_equal = bits(&after) == bits(&clone.residual());
    ensure!(is_equal || context.rank() == 0 && after.is_empty(), "a residual of {}", after.len());
    Ok(())
}

pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut codec = Codec::bf16().with_feedback();
    let (mut buffer, mut short) = (input(context.rank().index(), 0), vec![1.5f32; 10]);
    context.all_reduce(&mut buffer).compress(&mut codec).await?;
    let before = codec.residual();
    let length = context.all_reduce(&mut short).compress(&mut codec).await;
    let given = FeedbackProblem::Length { given: 10, residual: LEN };
    ensure!(
        matches!(length, Err(Error::Rejected(Rejection::Feedback(problem))) if problem == given),
        "{length:?}"
    );
    let most = context.all_reduce(&mut buffer).max().compress(&mut codec).await;
    let no_sum = FeedbackProblem::NoSum(ReduceOp::Max);
    ensure!(
        matches!(most, Err(Error::Rejected(Rejection::Feedback(problem))) if problem == no_sum),
        "{most:?}"
    );
    let (mut first, mut second) =
        (input(context.rank().index(), 1), input(context.rank().index(), 2));
    let mut step = context.step();
    step.all_reduce(&mut first).compress(&mut codec);
    step.all_reduce(&mut second).compress(&mut codec);
    let twice = step.commit().await;
    let in_use = FeedbackProblem::InUse;
    ensure!(
        matches!(twice, Err(Error::Rejected(Rejection::Feedback(problem))) if problem == in_use),
        "{twice:?}"
    );
    ensure!(
        bits(&codec.residual()) == bits(&before) && short == [1.5; 10],
        "refused, and yet something has changed"
    );
    context.all_reduce(&mut first).compress(&mut codec).await?;
    Ok(())
}
