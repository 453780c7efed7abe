//! Receives that take the next message with their tag from any rank.

use super::numbers::input;
use super::on::{On, everywhere, fresh, joined, of_size, once, together};
use anyhow::{Result, bail, ensure};
use potluck::calls::Rejection;
use potluck::{Cause, Cluster, Context, Error};
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Wake, Waker};
use std::time::Duration;

const MESSAGES: usize = 12;

/// The last rank takes all messages of the others, which each sends in order; short ones and long
/// ones, while other calls are in flight.
pub async fn takes_all(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    for len in [1, 70_001] {
        let message = |from: usize, number: usize| input::<f32>(number as u64, from, len);
        let mut sum = [1u16; 3];
        if rank + 1 == size {
            let mut side = context.lane(5);
            let others = side.all_reduce(&mut sum);
            let mut next: BTreeMap<usize, usize> = BTreeMap::new();
            for _ in 0..MESSAGES * (size - 1) {
                let mut buffer = vec![0f32; len];
                let from = context.recv_any(3, &mut buffer).await?.index();
                let number = next.entry(from).or_default();
                let want = message(from, *number);
                let is_same = want.iter().zip(&buffer).all(|(a, b)| a.to_bits() == b.to_bits());
                ensure!(is_same, "not message {number} of rank {from}");
                *number += 1;
            }
            ensure!(next.len() == size - 1 && next.values().all(|n| *n == MESSAGES), "{next:?}");
            others.await?;
        } else {
            let mut side = context.lane(5);
            let others = side.all_reduce(&mut sum);
            for number in 0..MESSAGES {
                context.send(size - 1, 3, &message(rank, number)).await?;
            }
            others.await?;
        }
        ensure!(sum == [size as u16; 3], "{sum:?}");
    }
    Ok(())
}

/// Messages with another tag stay for `recv`; of ranks that are not asked for, too. A pending
/// `recv` has its number already.
pub async fn by_tag(_cluster: Cluster, mut context: Context) -> Result<()> {
    match context.rank().index() {
        0 => {
            let mut got = [[0u8; 2]; 4];
            let [a, b, c, d] = &mut got;
            // Rank 1 sends tags 4 and 5, rank 2 tag 5 twice.
            let from = context.recv_any(5, a).await?;
            ensure!(from == 2, "rank {from} has sent the tag 4 first");
            let mut any = context.recv_any(5, b).among([1]);
            ensure!(once(&mut any).await.is_pending(), "the tag 4 of rank 1 is in front");
            // Takes what is in front.
            context.recv(1, 4, c).await?;
            ensure!(any.await? == 1, "the tag 5 of rank 1 is behind");
            ensure!(context.recv_any(5, d).await? == 2, "the second of rank 2");
            ensure!(got == [[2, 1], [1, 2], [1, 1], [2, 2]], "{got:?}");
        }
        1 => {
            context.send(0, 4, &[1u8, 1]).await?;
            context.send(0, 5, &[1u8, 2]).await?;
        }
        2 => {
            context.send(0, 5, &[2u8, 1]).await?;
            context.send(0, 5, &[2u8, 2]).await?;
        }
        _ => {}
    }
    context.barrier().await?;
    Ok(())
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A receive that waits behind a message with another tag is woken when this member takes that one,
/// without any news from others.
pub async fn behind_another(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (mut here, mut there) = (context.lane(7), context.lane(7));
    match context.rank().index() {
        0 => {
            // Both messages are announced.
            context.barrier().await?;
            let (mut first, mut second) = ([0u8; 1], [0u8; 1]);
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut any = pin!(here.recv_any(5, &mut second).among([1]).into_future());
            let is_pending = any.as_mut().poll(&mut Task::from_waker(&waker)).is_pending();
            ensure!(is_pending, "the tag 4 is in front");
            let before = woken.0.load(Ordering::SeqCst);
            there.recv(1, 4, &mut first).best_effort().await?;
            ensure!(woken.0.load(Ordering::SeqCst) > before, "it sleeps on");
            ensure!(any.await? == 1 && (first, second) == ([4], [5]), "{first:?} {second:?}");
        }
        1 => {
            let first = async { here.send(0, 4, &[4u8]).best_effort().await };
            let second = async { there.send(0, 5, &[5u8]).await };
            let announced = async { context.barrier().await };
            let (first, second, announced) = tokio::join!(first, second, announced);
            first.and(second).and(announced)?;
        }
        _ => context.barrier().await?,
    }
    Ok(())
}

/// A wait that is dropped or late takes nothing.
pub async fn given_up(cluster: Cluster, mut context: Context) -> Result<()> {
    if context.rank() != 0 {
        context.lane(1).barrier().await?;
        // Given up before the tag was told, then sent.
        if context.rank() == 1 {
            drop(context.send(0, 8, &[1u64; 5]));
            context.lane(2).barrier().await?;
            context.send(0, 8, &[2u64; 5]).await?;
        } else {
            context.lane(2).barrier().await?;
        }
        context.barrier().await?;
        return Ok(());
    }
    let mut buffer = [0u64; 5];
    let mut call = context.recv_any(8, &mut buffer);
    ensure!(once(&mut call).await.is_pending(), "nobody has sent");
    drop(call);
    let watching = tokio::spawn(async move {
        let mut changes = cluster.watch();
        while let Some(status) = changes.next().await {
            if let Some(waiting) = status.waiting {
                let ranks: Vec<usize> = waiting.ranks.iter().map(|p| p.rank.index()).collect();
                return (cluster, ranks, waiting.op.to_string());
            }
        }
        (cluster, vec![], String::new())
    });
    let call = context.recv_any(8, &mut buffer).deadline(Duration::from_millis(1500));
    let error = call.await.err();
    let (_cluster, ranks, op) = watching.await?;
    let others: Vec<usize> = (1..context.size()).collect();
    ensure!(ranks == others && op == "0:any.1", "the status says {op} waits for {ranks:?}");
    ensure!(
        matches!(&error, Some(Error::Aborted { cause: Cause::Deadline { of: None } })),
        "{error:?}"
    );
    context.lane(1).barrier().await?;
    let error = context.recv_any(8, &mut buffer).await.err();
    let Some(Error::Aborted { cause: Cause::Dropped { by: Some(peer) } }) = &error else {
        bail!("{error:?}")
    };
    ensure!(peer.rank == 1 && buffer == [0; 5], "{peer:?} {buffer:?}");
    context.lane(2).barrier().await?;
    let call = context.recv_any(8, &mut buffer).deadline(Duration::from_secs(60));
    ensure!(call.await? == 1 && buffer == [2; 5], "{buffer:?}");
    context.barrier().await?;
    Ok(())
}

/// Lengths and types are compared once a message is chosen.
pub async fn differ(_cluster: Cluster, mut context: Context) -> Result<()> {
    for odd in ["length", "dtype"] {
        let error = match (context.rank().index(), odd) {
            (0, _) => context.recv_any(2, &mut [0f32; 4]).await.err(),
            (1, "length") => context.send(0, 2, &[0f32; 5]).await.err(),
            (1, _) => context.send(0, 2, &[0i32; 4]).await.err(),
            _ => continue,
        };
        ensure!(matches!(&error, Some(Error::Mismatch(_))), "{odd}: {error:?}");
    }
    context.barrier().await?;
    Ok(())
}

/// Ranks that make no sense, and too many waits.
pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (me, size) = (context.rank(), context.size());
    for ranks in [vec![me.index()], vec![size], vec![]] {
        let error = context.recv_any(0, &mut [0u8; 1]).among(ranks).await.err();
        ensure!(matches!(&error, Some(Error::Rejected(Rejection::NoPeer { .. }))), "{error:?}");
    }
    if size == 1 {
        return Ok(());
    }
    let mut buffers = [[0u8; 1]; 65];
    let mut calls: Vec<_> = buffers.iter_mut().map(|buffer| context.recv_any(0, buffer)).collect();
    for (number, call) in calls.iter_mut().enumerate() {
        let polled = once(call).await;
        let is_refused = matches!(polled, std::task::Poll::Ready(Err(Error::TooManyInFlight)));
        ensure!(is_refused == (number == 64), "{number}: {polled:?}");
    }
    drop(calls);
    context.barrier().await?;
    Ok(())
}

/// The end of the View ends the wait.
pub async fn over_views(on: On) -> Result<()> {
    let nodes = together(joined(on, &fresh("any"), 3, 2).await?).await?;
    let results = everywhere(nodes, |cluster, mut context| async move {
        let rank = context.rank().index();
        let mut buffer = [0u32; 3];
        if rank == 2 {
            context.barrier().await?;
            cluster.leave().await;
            return Ok(());
        }
        let mut call = context.lane(4).recv_any(1, &mut buffer);
        ensure!(once(&mut call).await.is_pending(), "nobody has sent");
        context.barrier().await?;
        let error = call.await.err();
        ensure!(matches!(&error, Some(Error::ViewChanged)), "{error:?}");
        let mut context = of_size(&cluster, 2).await?;
        let (me, other) = (context.rank().index(), 1 - context.rank().index());
        if me == 0 {
            ensure!(context.recv_any(1, &mut buffer).await? == 1, "the other one");
            ensure!(buffer == [7; 3], "{buffer:?}");
        } else {
            context.send(other, 1, &[7u32; 3]).await?;
        }
        context.barrier().await?;
        Ok(())
    });
    results.await.map(drop)
}
