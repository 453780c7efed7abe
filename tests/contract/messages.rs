//! Point-to-point messages.

use super::cancel::{Fate, polled};
use super::numbers::{Chance, Number, differs, input};
use super::on::{On, SOON, everywhere, group, seed};
use anyhow::{Result, bail, ensure};
use potluck::calls::{CallKind, Rejection};
use potluck::{Cause, Cluster, Context, Error, bf16};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The seed of the inputs of dropped messages, and their length: longer than what is sent eagerly.
const SEED: u64 = 8;
const LONG: usize = 40_000;

const LENS: [usize; 6] = [0, 1, 7, 1001, 65_537, 400_000];

/// All pairs of ranks, two messages at a time, while the other ranks do something else or nothing.
pub async fn reach_one(_cluster: Cluster, mut context: Context) -> Result<()> {
    let n = context.size();
    for from in 0..n {
        for to in (0..n).filter(|to| *to != from) {
            for len in LENS {
                pass::<f32>(&mut context, from, to, len).await?;
            }
            pass::<bf16>(&mut context, from, to, 999).await?;
            pass::<u64>(&mut context, from, to, 999).await?;
        }
    }
    // Messages do not use the numbers of the lane's collectives.
    let mut sum = [1u32; 9];
    context.all_reduce(&mut sum).await?;
    ensure!(sum == [n as u32; 9], "{sum:?}");
    Ok(())
}

async fn pass<T: Number>(context: &mut Context, from: usize, to: usize, len: usize) -> Result<()> {
    let sent: Vec<T> = input(len as u64, from, len);
    if context.rank() == from {
        context.send(to, 3, &sent).await?;
    } else if context.rank() == to {
        let mut buffer: Vec<T> = input(99, to, len);
        context.recv(from, 3, &mut buffer).await?;
        ensure!(differs(&buffer, &sent).is_none(), "{len} x {} from {from} to {to}", T::DTYPE);
    }
    Ok(())
}

/// Many messages in flight in both directions, mixed with collectives of all three ranks, in a
/// random order on every rank.
pub async fn in_order(on: On) -> Result<()> {
    let seed = seed("messages in order")?;
    let nodes = group(on, "messages", 3).await?;
    let results = everywhere(nodes, move |_cluster, mut context| async move {
        let (rank, mut chance) = (context.rank().index(), Chance::new(seed));
        for round in 0..40 {
            let (a, len) = (chance.below(3), 1 + chance.below(5000));
            let b = (a + 1 + chance.below(2)) % 3;
            let mut sum = vec![rank as u64; len];
            let there: Vec<Vec<i32>> = (0..5).map(|i| input(round * 10 + i, a, len)).collect();
            let back: Vec<Vec<i32>> = (0..5).map(|i| input(round * 10 + i, b, len)).collect();
            let mut got = vec![vec![0i32; len]; 5];
            let call = context.all_reduce(&mut sum);
            if rank == a || rank == b {
                let (other, mine, theirs) =
                    if rank == a { (b, &there, &back) } else { (a, &back, &there) };
                let sends: Vec<_> = mine.iter().map(|m| context.send(other, 1, m)).collect();
                let recvs: Vec<_> = got.iter_mut().map(|m| context.recv(other, 1, m)).collect();
                let (sends, recvs) = tokio::join!(all(sends), all(recvs));
                sends?;
                recvs?;
                ensure!(got == *theirs, "round {round}: messages are mixed up");
            }
            call.await?;
            ensure!(sum == vec![3; len], "round {round}: a wrong sum");
        }
        Ok(())
    });
    results.await.map(drop)
}

async fn all(calls: Vec<impl Future<Output = potluck::Result<()>>>) -> potluck::Result<()> {
    // Polls the last call first: numbers were taken at the call.
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|task| {
        let mut error = None;
        calls.retain_mut(|call| match call.as_mut().poll(task) {
            std::task::Poll::Ready(outcome) => {
                error = error.take().or(outcome.err());
                false
            }
            std::task::Poll::Pending => true,
        });
        match error {
            Some(error) => std::task::Poll::Ready(Err(error)),
            None if calls.is_empty() => std::task::Poll::Ready(Ok(())),
            None => std::task::Poll::Pending,
        }
    })
    .await
}

/// Different lengths, element types or tags: both ends fail soon, and the next message is correct.
pub async fn differ(_cluster: Cluster, mut context: Context) -> Result<()> {
    for (a, b) in [(0, 1), (1, 0), (2, 1), (0, 2)] {
        for odd in ["length", "large", "dtype", "tag"] {
            context.barrier().await?;
            let started = Instant::now();
            let (long, mut mine) = (vec![7f32; 100_000], vec![5f32; 30]);
            let error = match (context.rank().index(), odd) {
                (rank, "length") if rank == a => context.send(b, 4, &long[..29]).await.err(),
                (rank, "large") if rank == a => context.send(b, 4, &long).await.err(),
                (rank, "dtype") if rank == a => context.send(b, 4, &[7i32; 30]).await.err(),
                (rank, "tag") if rank == a => context.send(b, 5, &long[..30]).await.err(),
                (rank, _) if rank == b => context.recv(a, 4, &mut mine).await.err(),
                _ => continue,
            };
            ensure!(started.elapsed() < SOON, "{odd}: told after {:?}", started.elapsed());
            let Some(Error::Mismatch(calls)) = &error else {
                bail!("{odd} of {a} to {b}: {error:?}")
            };
            let [one, other] = [&calls.one, &calls.other].map(|(peer, call)| (peer.rank, *call));
            let ends = [one.0.index(), other.0.index()];
            ensure!(ends == [a.min(b), a.max(b)], "{odd}: {calls}");
            let kind = |tag| CallKind::Message { from: a.into(), to: b.into(), tag };
            ensure!([kind(4), kind(5)].contains(&one.1.kind) && one.1 != other.1, "{odd}: {calls}");
            ensure!(mine == [5.0; 30], "the buffer is touched");
            pass::<f32>(&mut context, a, b, 70_000).await?;
        }
    }
    // The rank without a part in the last message must not leave before it completes.
    context.barrier().await?;
    Ok(())
}

pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, other) = (context.rank().index(), 1 - context.rank().index());
    for nobody in [rank, 2, 15, 16, 255, 1 << 40] {
        let errors =
            [context.send(nobody, 0, &[1u8]).await, context.recv(nobody, 0, &mut [1u8]).await];
        for error in errors {
            ensure!(
                matches!(error, Err(Error::Rejected(Rejection::NoPeer { size: 2 }))),
                "{nobody}: {error:?}"
            );
        }
    }
    // Rejected messages take no number, so these are the first ones. For half of them the other
    // end has not called yet.
    let (mine, mut got) = ([rank as u8; 3], vec![[9u8; 3]; 16]);
    let sends: Vec<_> = (0..16).map(|_| context.send(other, 0, &mine)).collect();
    let recvs: Vec<_> = got.iter_mut().map(|m| context.recv(other, 0, m)).collect();
    let mut one_more = [9u8; 3];
    let error = context.recv(other, 0, &mut one_more).await;
    ensure!(matches!(error, Err(Error::TooManyInFlight)), "{error:?}");
    context.barrier().await?;
    let (sends, recvs) = tokio::join!(all(sends), all(recvs));
    sends?;
    recvs?;
    ensure!(got == vec![[other as u8; 3]; 16], "{got:?}");
    pass::<f32>(&mut context, 0, 1, 10).await
}

/// Either end drops the message before its first poll, or the receiver calls after the sender's
/// deadline: the other end fails, and the third rank is not affected.
pub async fn dropped(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let data = vec![1f32; 50_000];
    let mut buffer = vec![2f32; 50_000];
    if rank == 0 {
        drop(context.send(1, 0, &data));
        let error = context.send(1, 0, &data).await;
        ensure!(
            matches!(error, Err(Error::Aborted { cause: Cause::Dropped { by: Some(_) } })),
            "{error:?}"
        );
        let late = context.send(1, 0, &data).deadline(Duration::from_millis(50)).await;
        ensure!(
            matches!(late, Err(Error::Aborted { cause: Cause::Deadline { of: None } })),
            "{late:?}"
        );
        context.barrier().await?;
    } else if rank == 1 {
        let error = context.recv(0, 0, &mut buffer).await;
        ensure!(
            matches!(error, Err(Error::Aborted { cause: Cause::Dropped { by: Some(_) } })),
            "{error:?}"
        );
        drop(context.recv(0, 0, &mut buffer));
        context.barrier().await?;
        let late = context.recv(0, 0, &mut buffer).await;
        ensure!(
            matches!(late, Err(Error::Aborted { cause: Cause::Deadline { of: Some(_) } })),
            "{late:?}"
        );
        ensure!(buffer == vec![2.0; 50_000], "the buffer is touched");
    } else {
        context.barrier().await?;
    }
    pass::<f32>(&mut context, 0, 1, 10).await?;
    context.barrier().await?;
    Ok(())
}

/// One end drops a message after each number of polls: the other end fails, and the third rank
/// continues.
pub async fn dropped_at_every_poll(on: On) -> Result<()> {
    let mut nodes = group(on, "cancel-message", 3).await?;
    let mut fates = BTreeMap::new();
    for victim in [0, 1] {
        for woken in [false, true] {
            for polls in usize::from(woken).. {
                ensure!(polls < 20, "a message never ends");
                let program = move |cluster: Cluster, mut context: Context| async move {
                    let fate = message_dropped(&mut context, victim, polls, woken).await?;
                    Ok((cluster, context, fate))
                };
                let seen = everywhere(nodes, program).await?;
                let (theirs, other) = (seen[victim].2, seen[1 - victim].2);
                let fits = if theirs == Some(Fate::Aborted) { Fate::Aborted } else { Fate::Done };
                ensure!(
                    other == Some(fits),
                    "{theirs:?} after {polls} polls by {victim}, and {other:?}"
                );
                nodes = seen.into_iter().map(|(cluster, context, _)| (cluster, context)).collect();
                *fates.entry(theirs).or_insert(0) += 1;
                if theirs == Some(Fate::Done) {
                    break;
                }
            }
        }
    }
    println!("measured: messages dropped by the count of polls on {}: {fates:?}", on.engine);
    // Whether a drop falls between the vote and the decision is random.
    ensure!(
        fates.contains_key(&Some(Fate::Done)) && fates.contains_key(&Some(Fate::Aborted)),
        "{fates:?}"
    );
    Ok(())
}

/// Rank 0 sends to rank 1. The result is the fate of the message on this rank, if it takes part.
async fn message_dropped(
    context: &mut Context,
    victim: usize,
    polls: usize,
    woken: bool,
) -> Result<Option<Fate>> {
    let rank = context.rank().index();
    let sent: Vec<f32> = input(SEED, 0, LONG);
    let was: Vec<f32> = input(!SEED, 1, LONG);
    let mut buffer = was.clone();
    let outcome = match rank {
        0 if victim == 0 => polled(context.send(1, 2, &sent), polls, woken).await,
        0 => Some(context.send(1, 2, &sent).await),
        1 if victim == 1 => polled(context.recv(0, 2, &mut buffer), polls, woken).await,
        1 => Some(context.recv(0, 2, &mut buffer).await),
        _ => None,
    };
    let mut fate = match outcome {
        Some(Ok(())) => Some(Fate::Done),
        Some(Err(Error::Aborted { cause: Cause::Dropped { by: Some(peer) } }))
            if peer.rank.index() == victim =>
        {
            Some(Fate::Aborted)
        }
        Some(Err(error)) => return Err(error.into()),
        None => (rank == victim).then_some(Fate::Aborted),
    };
    let expected = if fate == Some(Fate::Done) { &sent } else { &was };
    ensure!(
        rank != 1 || differs(&buffer, expected).is_none(),
        "the buffer is neither as it was nor what was sent"
    );
    let mut taken = None;
    while let Err(error) = context.barrier().await {
        ensure!(matches!(error, Error::LostResult { .. }) && rank == victim, "{error}");
        fate = Some(Fate::Lost);
        taken = taken.or(context.take_result::<f32>());
        tokio::task::yield_now().await;
    }
    let is_sent = |taken: &Vec<f32>| differs(taken, &sent).is_none();
    ensure!(
        rank != 1 || fate != Some(Fate::Lost) || taken.as_ref().is_some_and(is_sent),
        "not the message that was lost"
    );
    Ok(fate)
}
