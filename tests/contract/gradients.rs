//! `GradientSync`: the mean of every bucket in one step, across Views.

use super::cancel::polled;
use super::numbers::differs;
use super::on::{On, builder, drop_too_late, everywhere, fresh, group, joined, meanwhile, of_size};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::{GradientProblem, Rejection};
use potluck::plan::reference_sum;
use potluck::{Cause, Cluster, Codec, Context, Error, GradientSync, Rank, ReduceOp};
use std::time::Duration;

/// The lengths of a model's parameters; odd ones, and an empty one.
const LENS: [usize; 6] = [8192, 128, 0, 70_001, 1280, 10];

/// The gradients of a rank.
fn gradients(rank: usize, step: usize) -> Vec<Vec<f32>> {
    let one = |(parameter, len): (usize, &usize)| {
        (0..*len)
            .map(|i| ((i * (step + 2) + parameter) as f32 / 13.0).sin() * (rank + 1) as f32)
            .collect()
    };
    LENS.iter().enumerate().map(one).collect()
}

fn bits(gradients: &[Vec<f32>]) -> Vec<u32> {
    gradients.iter().flatten().map(|x| x.to_bits()).collect()
}

/// The expected means: each bucket reduced as one buffer.
fn means(sync: &GradientSync, context: &Context, step: usize) -> Vec<Vec<f32>> {
    let (mut all, n) = (gradients(0, step), context.size());
    for bucket in sync.buckets() {
        let inputs: Vec<Vec<f32>> =
            (0..n).map(|rank| gradients(rank, step)[bucket.clone()].concat()).collect();
        let mean =
            reference_sum(&context.fold_order::<f32>(inputs[0].len()), ReduceOp::Mean, &inputs);
        let mut start = 0;
        for gradient in &mut all[bucket.clone()] {
            let end = start + gradient.len();
            gradient.copy_from_slice(&mean[start..end]);
            start = end;
        }
    }
    all
}

async fn step(
    sync: &mut GradientSync,
    gradients: &mut [Vec<f32>],
    backwards: bool,
) -> potluck::Result<()> {
    let mut step = sync.step().await?;
    let mut parameters: Vec<_> = gradients.iter_mut().enumerate().collect();
    if backwards {
        parameters.reverse();
    }
    for (parameter, gradient) in parameters {
        step.push(parameter, gradient);
    }
    step.finish().await
}

pub async fn are_the_means(cluster: Cluster, context: Context) -> Result<()> {
    for (bucket_bytes, buckets) in [(1, 6), (40_000, 3), (1 << 30, 1)] {
        let mut sync = GradientSync::new(&cluster, &LENS).bucket_bytes(bucket_bytes);
        ensure!(sync.buckets().len() == buckets, "{:?}", sync.buckets());
        for (number, backwards) in [true, false, true].into_iter().enumerate() {
            let mut mine = gradients(context.rank().index(), number);
            step(&mut sync, &mut mine, backwards).await?;
            for (have, want) in mine.iter().zip(means(&sync, &context, number)) {
                ensure!(differs(have, &want).is_none(), "step {number} in {buckets} buckets");
            }
        }
    }
    Ok(())
}

/// The gradients of the last layers are sent before those of the first layers are known.
pub async fn leave_early(cluster: Cluster, context: Context) -> Result<()> {
    // The bytes that a member sends for one bucket alone: two thirds of it in each of the two
    // phases.
    for (codec, bytes) in [
        (None, 200_000),
        (Some(Codec::bf16()), 100_000),
        (Some(Codec::int8().with_feedback()), 50_000),
    ] {
        let sync = GradientSync::new(&cluster, &[50_000; 3]).bucket_bytes(200_000);
        let mut sync = if let Some(codec) = codec { sync.compress(codec) } else { sync };
        let mut mine = vec![vec![context.rank().index() as f32; 50_000]; 3];
        let [first, second, last] = mine.as_mut_slice() else { bail!("three parameters") };
        let mut step = sync.step().await?;
        let before = context.traffic().sent_bytes;
        step.push(2, last);
        while context.traffic().sent_bytes - before < bytes {
            tokio::task::yield_now().await;
        }
        step.push(1, second);
        step.push(0, first);
        step.finish().await?;
        ensure!(
            mine.iter().flatten().all(|mean| (mean - 1.0).abs() < 0.02),
            "wrong means with {sync:?}"
        );
    }
    Ok(())
}

/// More parameters than a step may have calls.
pub async fn of_many_parameters(cluster: Cluster, context: Context) -> Result<()> {
    let mut sync = GradientSync::new(&cluster, &[3; 500]).bucket_bytes(12).compress(Codec::bf16());
    ensure!((2..=64).contains(&sync.buckets().len()), "{}", sync.buckets().len());
    let mut mine = vec![vec![context.rank().index() as f32; 3]; 500];
    step(&mut sync, &mut mine, true).await?;
    ensure!(mine == vec![vec![0.5; 3]; 500], "wrong means");
    Ok(())
}

pub async fn encoded_are_alike(on: On) -> Result<()> {
    let nodes = group(on, "gradients-encoded", 3).await?;
    let results = everywhere(nodes, |cluster, context| async move {
        let mut all = Vec::new();
        let top = || Codec::top_k(0.1);
        for codec in [
            Codec::bf16(),
            Codec::int8(),
            Codec::int4().with_feedback(),
            Codec::one_bit(),
            top(),
            top().without_feedback(),
        ] {
            let mut sync = GradientSync::new(&cluster, &LENS).bucket_bytes(40_000).compress(codec);
            for number in 0..3 {
                let mut mine = gradients(context.rank().index(), number);
                step(&mut sync, &mut mine, true).await?;
                let exact = means(&sync, &context, number);
                let off = mine
                    .iter()
                    .flatten()
                    .zip(exact.iter().flatten())
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                ensure!(off > 0.0 && off < 6.0, "{sync:?}: off by {off}");
                all.push(bits(&mine));
            }
        }
        Ok(all)
    });
    let all = results.await?;
    ensure!(all.windows(2).all(|pair| pair[0] == pair[1]), "ranks differ");
    Ok(())
}

/// All or none of the members complete the step, and nothing is written before that.
pub async fn given_up(cluster: Cluster, mut context: Context) -> Result<()> {
    let codec = Codec::int4().with_feedback();
    let mut sync = GradientSync::new(&cluster, &LENS).compress(codec.clone());
    let mut calm = GradientSync::new(&cluster, &LENS).compress(codec);
    for number in 0..3 {
        let (mut first, residuals) = (gradients(context.rank().index(), number), sync.residuals());
        let before = bits(&first);
        if context.rank() == number {
            let mut given_up = sync.step().await?;
            first
                .iter_mut()
                .enumerate()
                .rev()
                .take(4)
                .for_each(|(parameter, gradient)| given_up.push(parameter, gradient));
            drop(given_up);
        } else {
            let error =
                step(&mut sync, &mut first, true).await.err().context("finished without one")?;
            ensure!(error.is_retryable(), "{error}");
        }
        ensure!(bits(&first) == before && sync.residuals() == residuals, "something was written");
        step(&mut sync, &mut first, true).await?;
        let mut second = gradients(context.rank().index(), number);
        step(&mut calm, &mut second, true).await?;
        ensure!(
            bits(&first) == bits(&second) && sync.residuals() == calm.residuals(),
            "step {number} differs"
        );
    }
    // No other rank takes part in this step.
    if context.rank() == 1 {
        let mut mine = gradients(1, 9);
        let mut alone = sync.step().await?;
        alone.deadline(Duration::from_millis(50));
        mine.iter_mut()
            .enumerate()
            .for_each(|(parameter, gradient)| alone.push(parameter, gradient));
        let error = alone.finish().await.err().context("finished alone")?;
        ensure!(
            matches!(error, Error::Aborted { cause: Cause::Deadline { of: None } }),
            "{error:?}"
        );
    }
    context.barrier().await?;
    Ok(())
}

/// A step that is dropped after the vote may commit: the next step reports the lost result, and no
/// residual counts twice.
pub async fn lost(on: On) -> Result<()> {
    let nodes = group(on, "gradients-lost", 2).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let mut sync = GradientSync::new(&cluster, &LENS).compress(Codec::int8().with_feedback());
        let mut mine = gradients(context.rank().index(), 0);
        step(&mut sync, &mut mine, true).await?;
        let before = sync.residuals();
        let mut mine = gradients(context.rank().index(), 1);
        if context.rank() == 0 {
            let untouched = bits(&mine);
            let mut begun = sync.step().await?;
            mine.iter_mut()
                .enumerate()
                .rev()
                .for_each(|(parameter, gradient)| begun.push(parameter, gradient));
            drop_too_late(&mut context, Box::pin(begun.finish())).await?;
            ensure!(
                bits(&mine) == untouched && sync.residuals() != before,
                "the residual may have counted"
            );
            let refused = step(&mut sync, &mut mine, true).await;
            ensure!(matches!(refused, Err(Error::LostResult { .. })), "{refused:?}");
            while !sync.context().await?.discard_result() {
                tokio::task::yield_now().await;
            }
        } else {
            meanwhile(&mut context, step(&mut sync, &mut mine, true)).await?;
        }
        let mut next = gradients(context.rank().index(), 2);
        step(&mut sync, &mut next, true).await?;
        Ok(bits(&next))
    });
    let all = results.await?;
    ensure!(all[0] == all[1], "ranks differ");
    Ok(())
}

/// A step is dropped while the layouts are compared, after each number of polls: the next step
/// continues there. It is dropped at once after the last poll, when it has not voted as a rule, or
/// with its next wake, when it has.
pub async fn begun_again(on: On) -> Result<()> {
    for woken in [false, true] {
        begun_again_when(on, woken).await?;
    }
    Ok(())
}

async fn begun_again_when(on: On, woken: bool) -> Result<()> {
    for polls in 0..20 {
        let nodes = group(on, "gradients-again", 2).await?;
        let results = everywhere(nodes, move |cluster, context| async move {
            let mut sync = GradientSync::new(&cluster, &LENS);
            let mut dropped = false;
            if context.rank() == 0 {
                dropped = polled(Box::pin(sync.step()), polls, woken).await.is_none();
            }
            for number in 0..2 {
                let mut mine = gradients(context.rank().index(), number);
                let mut done = step(&mut sync, &mut mine, true).await;
                if matches!(done, Err(Error::Aborted { .. })) && number == 0 {
                    // Rank 0 had begun a step and dropped it.
                    done = step(&mut sync, &mut mine, true).await;
                }
                done?;
                let wanted = means(&sync, &context, number);
                ensure!(bits(&mine) == bits(&wanted), "wrong means in step {number}");
            }
            Ok(dropped)
        });
        if !results.await?[0] {
            ensure!(polls > 1, "nothing was dropped");
            return Ok(());
        }
    }
    bail!("the comparison never ends")
}

pub async fn refused(cluster: Cluster, context: Context) -> Result<()> {
    let mut sync = GradientSync::new(&cluster, &LENS);
    for (odd, parameter, problem) in [
        (0, 0, GradientProblem::Missing),
        (1, 1, GradientProblem::Twice),
        (2, 6, GradientProblem::Unknown),
        (3, 5, GradientProblem::Length { given: 3, wanted: 10 }),
    ] {
        let (mut mine, mut more) = (gradients(context.rank().index(), 0), vec![1.0; 128]);
        let before = bits(&mine);
        let mut step = sync.step().await?;
        let skipped = if odd == 0 { Some(0) } else { None };
        for (i, gradient) in mine.iter_mut().enumerate().filter(|(i, _)| Some(*i) != skipped).rev()
        {
            let end = if odd == 3 && i == 5 { 3 } else { gradient.len() };
            step.push(i, &mut gradient[..end]);
        }
        if let 1 | 2 = odd {
            step.push(parameter, &mut more);
        }
        let error = step.finish().await.err().context("a step that makes no sense")?;
        let expected = Rejection::Gradient { parameter, problem };
        ensure!(
            matches!(error, Error::Rejected(rejection) if rejection == expected),
            "{odd}: {error:?}"
        );
        ensure!(bits(&mine) == before, "{odd}: something was written");
    }
    // The same number of elements in other parameters, and other buckets.
    let other = if context.rank() == 0 { [10, 20, 30] } else { [10, 30, 20] };
    let mut unlike = GradientSync::new(&cluster, &other);
    for _ in 0..2 {
        let error = unlike.step().await.err().context("parameters that differ")?;
        let expected = Rejection::Layout { rank: Rank::from(1 - context.rank().index()) };
        ensure!(matches!(error, Error::Rejected(rejection) if rejection == expected), "{error:?}");
    }
    let bucket_bytes = if context.rank() == 0 { 40 } else { 1000 };
    let mut unlike = GradientSync::new(&cluster, &[10, 20, 30]).bucket_bytes(bucket_bytes);
    ensure!(unlike.step().await.is_err(), "buckets that differ");
    let mut mine = gradients(context.rank().index(), 0);
    step(&mut sync, &mut mine, true).await?;
    Ok(())
}

/// Three members train, one leaves, another joins: residuals are kept, and the new member gets the
/// state.
pub async fn over_views(on: On) -> Result<()> {
    let namespace = fresh("gradients-views");
    let mut clusters = joined(on, &namespace, 3, 2).await?;
    for cluster in &clusters {
        of_size(cluster, 3).await?;
    }
    let train = |cluster: Cluster, steps: usize, leaves_after: usize, wait_for: usize| async move {
        let mut sync = GradientSync::new(&cluster, &LENS).compress(Codec::int4().with_feedback());
        let (mut model, mut step_number) = (vec![0u8; 4], 0u64);
        let mut sizes = Vec::new();
        while step_number < steps as u64 && (step_number as usize) < leaves_after {
            let done = train_step(&mut sync, &mut step_number, &mut model, wait_for).await;
            match done {
                Ok(Some(size)) => sizes.push(size),
                Ok(None) | Err(Error::Indeterminate) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let residuals = sync.residuals();
        if leaves_after < steps {
            cluster.leave().await;
        }
        anyhow::Ok((model, residuals, sizes))
    };
    let mut tasks = Vec::new();
    for (i, cluster) in clusters.iter().enumerate() {
        let leaves_after = if i == 2 { 5 } else { usize::MAX };
        tasks.push(tokio::spawn(train(cluster.clone(), 40, leaves_after, 3)));
    }
    let left = tasks.remove(2).await??;
    ensure!(left.2.len() == 5, "{:?}", left.2);
    clusters.remove(2);
    let late = builder(on, &namespace, 2).join().await?;
    tasks.push(tokio::spawn(train(late.clone(), 40, usize::MAX, 3)));
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await??);
    }
    ensure!(ends.windows(2).all(|pair| pair[0].0 == pair[1].0), "the models differ");
    ensure!(
        ends.iter()
            .all(|(_, residuals, _)| residuals.iter().flatten().any(|residual| *residual != 0.0)),
        "there is no residual"
    );
    Ok(())
}

/// One training step of a model that is a hash of all means so far. `Some` of the View's size if it
/// committed.
async fn train_step(
    sync: &mut GradientSync,
    number: &mut u64,
    model: &mut Vec<u8>,
    at_first: usize,
) -> potluck::Result<Option<usize>> {
    let mut state = [number.to_le_bytes().as_slice(), model].concat();
    let context = sync.context().await?;
    // Wait until all three are present: before one leaves, and after another has joined.
    if !(5..20).contains(number) && context.size() < at_first {
        tokio::task::yield_now().await;
        return Ok(None);
    }
    context.sync(*number, &mut state).await?;
    let (head, rest) = state.split_first_chunk().unwrap_or((&[0; 8], &[]));
    (*number, *model) = (u64::from_le_bytes(*head), rest.to_vec());
    let mut step = sync.step().await?;
    let size = step.size();
    let mut mine = gradients(step.rank().index(), *number as usize);
    mine.iter_mut()
        .enumerate()
        .rev()
        .for_each(|(parameter, gradient)| step.push(parameter, gradient));
    step.finish().await?;
    let sum = bits(&mine)
        .iter()
        .fold(u32::from_le_bytes(model.as_slice().try_into().unwrap_or_default()), |sum, bits| {
            sum.wrapping_mul(31).wrapping_add(*bits)
        });
    *model = sum.to_le_bytes().to_vec();
    *number += 1;
    Ok(Some(size))
}
