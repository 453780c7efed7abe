//! Several calls under one vote.

use super::numbers::{Number, differs, input, reduced};
use super::on::SOON;
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::{CallKind, CallMode, Rejection};
use potluck::{Cause, Cluster, Codec, Context, Error, ReduceOp, Step};
use std::time::{Duration, Instant};

/// All results or none, with other calls beside the step.
pub async fn count_as_one(_cluster: Cluster, mut context: Context) -> Result<()> {
    let n = context.size();
    for round in 0..5u64 {
        let rank = context.rank().index();
        let lens = [0, 1, 1000, 65_537, 300_000];
        let mut buffers: Vec<Vec<f32>> = lens.iter().map(|len| input(round, rank, *len)).collect();
        let mut beside = vec![1i64; 1000];
        let mut step = context.step();
        let mut first = None;
        for (i, buffer) in buffers.iter_mut().enumerate() {
            let call = step.all_reduce(buffer);
            if i % 2 == 1 {
                call.mean();
            }
            // Called in the middle of the step, and complete before its end.
            if i == 2 {
                first = Some(context.all_reduce(&mut beside));
            }
        }
        first.context("it was called")?.await?;
        step.commit().await?;
        ensure!(beside == vec![n as i64; 1000], "a wrong sum beside a step");
        for (i, (buffer, len)) in buffers.iter().zip(lens).enumerate() {
            let inputs: Vec<Vec<f32>> = (0..n).map(|rank| input(round, rank, len)).collect();
            let op = if i % 2 == 1 { ReduceOp::Mean } else { ReduceOp::Sum };
            let expected = reduced(&context.fold_order::<f32>(len), op, &inputs);
            ensure!(differs(buffer, &expected).is_none(), "call {i} of round {round} among {n}");
        }
    }
    let empty = context.step();
    empty.commit().await?;
    Ok(())
}

/// The results of a step with every kind of call.
pub async fn of_every_kind(_cluster: Cluster, mut context: Context) -> Result<()> {
    for len in [0, 5, 65_537] {
        kinds::<f32>(&mut context, len).await?;
        kinds::<u8>(&mut context, len).await?;
    }
    let (mut rounded, mut exact) = (vec![0.1f32; 100], vec![0.1f32; 100]);
    let mut step = context.step();
    step.all_reduce(&mut rounded).compress(&mut Codec::bf16());
    step.all_reduce(&mut exact);
    step.commit().await?;
    ensure!(
        rounded != exact && (rounded[0] - exact[0]).abs() < 0.01,
        "{} and {}",
        rounded[0],
        exact[0]
    );
    Ok(())
}

async fn kinds<T: Number>(context: &mut Context, len: usize) -> Result<()> {
    let (rank, n, root) = (context.rank().index(), context.size(), 1);
    let all: Vec<Vec<T>> = (0..n).map(|rank| input(3, rank, len * n)).collect();
    let (whole, mine) = (&all[rank], &all[rank][..len]);
    let heads = || all.iter().map(|all| all[..len].to_vec()).collect::<Vec<_>>();
    let (mut summed, mut reduced_to, mut copied) = (mine.to_vec(), mine.to_vec(), mine.to_vec());
    let mut shard = vec![T::ZERO; context.shard(len).len()];
    let (mut gathered, mut at_root) = (vec![T::ZERO; len * n], vec![T::ZERO; len * n]);
    let (mut scattered, mut crossed) = (mine.to_vec(), vec![T::ZERO; len * n]);
    let mut step = context.step();
    step.all_reduce(&mut summed).max();
    step.reduce(root, &mut reduced_to);
    step.reduce_scatter(mine, &mut shard).product();
    step.broadcast(root, &mut copied);
    step.all_gather(mine, &mut gathered);
    step.gather(root, mine, (rank == root).then_some(&mut at_root[..]));
    step.scatter(root, (rank == root).then_some(&whole[..]), &mut scattered);
    step.all_to_all(whole, &mut crossed);
    step.commit().await?;

    let same = |what: &str, have: &[T], want: &[T]| match differs(have, want) {
        None => Ok(()),
        Some(place) => bail!("{what} of {len} x {} among {n}: {place} differs", T::DTYPE),
    };
    same("all_reduce", &summed, &reduced(&context.fold_order::<T>(len), ReduceOp::Max, &heads()))?;
    let sum = reduced(&context.reduce_order::<T>(root, len), ReduceOp::Sum, &heads());
    same("reduce", &reduced_to, if rank == root { &sum } else { mine })?;
    let product = reduced(&context.reduce_scatter_order::<T>(len), ReduceOp::Prod, &heads());
    same("reduce_scatter", &shard, &product[context.shard(len)])?;
    same("broadcast", &copied, &all[root][..len])?;
    same("all_gather", &gathered, &heads().concat())?;
    same(
        "gather",
        &at_root,
        &if rank == root { heads().concat() } else { vec![T::ZERO; len * n] },
    )?;
    same("scatter", &scattered, &all[root][rank * len..(rank + 1) * len])?;
    let crossing: Vec<T> =
        all.iter().flat_map(|all| &all[rank * len..(rank + 1) * len]).copied().collect();
    same("all_to_all", &crossed, &crossing)
}

/// One member makes another step: another call, one more, one less, or no step at all.
pub async fn differ(_cluster: Cluster, mut context: Context) -> Result<()> {
    for odd_rank in 0..3 {
        for odd in ["call", "more", "fewer", "none", "early"] {
            context.barrier().await?;
            let started = Instant::now();
            let is_odd = context.rank() == odd_rank;
            let error = differing(&mut context, odd, is_odd)
                .await
                .with_context(|| format!("{odd} on {odd_rank}"))?;
            ensure!(started.elapsed() < SOON, "{odd}: told after {:?}", started.elapsed());
            let Error::Mismatch(calls) = &error else { bail!("{odd} on {odd_rank}: {error:?}") };
            let sides = [&calls.one, &calls.other];
            ensure!(
                sides.iter().filter(|(peer, _)| peer.rank.index() == odd_rank).count() == 1,
                "{odd}: {calls}"
            );
            let in_step = |(_, call): &&(_, potluck::calls::Call)| {
                call.mode == CallMode::PerStep || matches!(call.kind, CallKind::Step { .. })
            };
            ensure!(
                sides.iter().any(in_step) && calls.to_string().contains("step"),
                "{odd}: {calls}"
            );
            let mut next = [1u8; 3];
            context.all_reduce(&mut next).await?;
            ensure!(next == [3; 3], "{odd}: the next call is wrong");
        }
    }
    Ok(())
}

async fn differing(context: &mut Context, odd: &str, is_odd: bool) -> Result<Error> {
    let (mut a, mut b, mut c) = ([1f32; 10], vec![2f32; 70_000], [3f32; 10]);
    let error = if is_odd && odd == "none" {
        context.all_reduce(&mut a).await.err()
    } else {
        let mut step = context.step();
        step.all_reduce(&mut a);
        match (is_odd, odd) {
            (true, "call") => step.all_reduce(&mut b[..69_999]),
            (true, "fewer") => return ended(step).await,
            _ => step.all_reduce(&mut b),
        };
        // If one rank has an extra call, the others have ended their step already.
        match (odd, is_odd) {
            ("early", true) => step.broadcast(0, &mut c),
            ("early", false) | ("more", true) => drop(step.all_reduce(&mut c)),
            _ => {}
        }
        step.commit().await.err()
    };
    ensure!(a == [1.0; 10] && b == vec![2.0; 70_000] && c == [3.0; 10], "a buffer is touched");
    error.context("steps that differ were committed")
}

async fn ended(step: Step<'_>) -> Result<Error> {
    step.commit().await.err().context("a step that lacks a call was committed")
}

/// The rank with an invalid step gets the reason, the others get an abort, and the next call is
/// correct.
pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, mut many) = (context.rank().index(), vec![[1u8; 4]; 65]);
    let (mut small, mut other, mut ints) = ([0f32; 5], [1f32; 5], [1i32; 5]);
    for odd_rank in 0..3 {
        for case in 0..5 {
            let mut step = context.step();
            step.all_reduce(&mut small);
            if rank == odd_rank {
                match case {
                    0 => step.all_reduce(&mut ints).mean(),
                    1 => many.iter_mut().for_each(|buffer| drop(step.all_reduce(buffer))),
                    2 => step.all_gather(&[1.0f32; 2], &mut []),
                    3 => drop(step.reduce(0, &mut other).compress(&mut Codec::bf16())),
                    _ => step.all_to_all(&[1u8; 4], &mut many[0]),
                }
            }
            let error = step.commit().await.err().context("committed")?;
            match error {
                Error::Rejected(why) if rank == odd_rank => {
                    let right = match case {
                        0 => matches!(why, Rejection::MeanOfIntegers(_)),
                        1 => why == Rejection::StepTooLong,
                        2 => why == Rejection::Output { given: 0, wanted: 6 },
                        3 => why == Rejection::NotEncoded,
                        _ => matches!(why, Rejection::Uneven { .. }),
                    };
                    ensure!(right, "case {case}: {why}");
                }
                Error::Aborted { cause: Cause::Dropped { by: Some(_) } } if rank != odd_rank => {}
                // It has begun valid calls before the one too many.
                Error::Mismatch(_) if rank != odd_rank && case == 1 => {}
                error => bail!("case {case}: {error:?}"),
            }
            let mut next = [1u8; 3];
            context.all_reduce(&mut next).await?;
            ensure!(next == [3; 3] && small == [0.0; 5] && ints == [1; 5], "case {case}");
        }
    }
    Ok(())
}

/// Dropped before its end, dropped at its end, past its deadline, or with a non-finite number:
/// aborted for all.
pub async fn given_up(_cluster: Cluster, mut context: Context) -> Result<()> {
    for case in 0..4 {
        let rank = context.rank().index();
        let mut buffer = vec![rank as f32; 100_000];
        if case == 3 && rank == 1 {
            buffer[77_777] = f32::NAN;
        }
        let before = buffer.clone();
        let mut step = context.step();
        if case == 3 && rank == 1 {
            step.reject_non_finite();
        }
        step.all_reduce(&mut buffer);
        let outcome = match (case, rank) {
            (0, 1) => {
                drop(step);
                None
            }
            (1, 1) => {
                drop(step.commit());
                None
            }
            (2, 1) => Some(step.commit().deadline(Duration::from_millis(50)).await),
            (2, 2) => {
                // Runs when all is over.
                let error = context.lane(7).all_reduce(&mut [0u8]).await;
                error?;
                Some(step.commit().await)
            }
            _ => Some(step.commit().await),
        };
        if case == 2 && rank < 2 {
            context.lane(7).all_reduce(&mut [0u8]).await?;
        }
        let cause = match outcome {
            None => None,
            Some(Err(Error::Aborted { cause })) => Some(cause),
            Some(other) => bail!("case {case}: {other:?}"),
        };
        let right = match (case, cause) {
            (0 | 1, None) => rank == 1,
            (0 | 1, Some(Cause::Dropped { by: Some(peer) })) => peer.rank.index() == 1,
            (2, Some(Cause::Deadline { of })) => of.is_none() == (rank == 1),
            (3, Some(Cause::NonFinite { on })) => on.is_none() == (rank == 1),
            _ => false,
        };
        ensure!(right, "case {case} on {rank}");
        ensure!(differs(&buffer, &before).is_none(), "case {case}: the buffer is touched");
        let mut next = [1u8; 3];
        context.all_reduce(&mut next).await?;
        ensure!(next == [3; 3], "case {case}: the next call is wrong");
    }
    Ok(())
}
