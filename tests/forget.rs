//! A call that is given up half way, or never polled again: the buffer is the caller's at once, nothing that was started
//! touches it, the other member is answered within a bound, and the next call works. Runs under AddressSanitizer too.

use anyhow::{Context as _, Result, ensure};
use potluck::{Builder, Cluster, Config, Context, Error};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// Longest wait for an answer; only a failing test gets there.
const BOUND: Duration = Duration::from_secs(20);

/// Several chunks, so that a call is half way for a while.
const LEN: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_is_over_for_both_and_its_buffer_untouched() -> Result<()> {
    let (mut a, mut b) = pair("forget-dropped").await?;
    let mut kept = vec![1f32; LEN];
    let mut call = Box::pin(a.ctx.all_reduce(&mut kept));
    ensure!(poll_some(&mut call, 3).await.is_pending());
    drop(call);
    ensure!(kept.iter().all(|x| *x == 1.0), "the buffer of a dropped call has changed");
    drop(kept);

    let mut other = vec![2f32; LEN];
    let answer = tokio::time::timeout(BOUND, b.ctx.all_reduce(&mut other)).await.context("no answer")?;
    ensure!(matches!(answer, Err(Error::Aborted { .. })), "{answer:?}");
    ensure!(other.iter().all(|x| *x == 2.0), "the buffer of an aborted call has changed");
    sums(&mut a.ctx, &mut b.ctx).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_call_ends_without_its_buffer() -> Result<()> {
    let (mut a, mut b) = pair("forget-forgotten").await?;
    let buffer = Box::into_raw(vec![1f32; LEN].into_boxed_slice());
    forget_half_way(&mut a.ctx, buffer, 1).await;

    let mut other = vec![2f32; LEN];
    tokio::time::timeout(BOUND, b.ctx.all_reduce(&mut other)).await.context("no answer")??;
    ensure!(other.iter().all(|x| *x == 3.0), "the sum counts, though one member never looked at it");
    sums(&mut a.ctx, &mut b.ctx).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_forgotten_while_its_data_moves_ends_without_its_buffer() -> Result<()> {
    let (mut a, mut b) = pair("forget-moving").await?;
    let mut other = vec![2f32; LEN];
    let mut theirs = Box::pin(b.ctx.all_reduce(&mut other));
    ensure!(poll_some(&mut theirs, 1).await.is_pending());
    let buffer = Box::into_raw(vec![1f32; LEN].into_boxed_slice());
    forget_half_way(&mut a.ctx, buffer, 3).await;

    tokio::time::timeout(BOUND, theirs).await.context("no answer")??;
    ensure!(other.iter().all(|x| *x == 3.0));
    sums(&mut a.ctx, &mut b.ctx).await
}

/// Polls a call a few times, forgets it, checks its buffer and frees it: for good, as a program may.
#[expect(unsafe_code, reason = "the borrow checker would keep the buffer of a forgotten call alive")]
async fn forget_half_way(ctx: &mut Context, buffer: *mut [f32], polls: usize) {
    // SAFETY: the box was just given up by the caller and nobody else knows the pointer.
    let mut call = Box::pin(ctx.all_reduce(unsafe { &mut *buffer }));
    let reached = poll_some(&mut call, polls).await;
    std::mem::forget(call);
    // SAFETY: as above; the call that borrowed it will never be polled again, and nothing else may hold a pointer into it.
    let freed = unsafe { Box::from_raw(buffer) };
    // On a busy machine the call may have come to its end between two polls.
    let expected = if reached.is_pending() { 1.0 } else { 3.0 };
    assert!(freed.iter().all(|x| *x == expected), "the buffer of a forgotten call has changed");
}

/// Polls up to so many times without waiting in between.
async fn poll_some<F: Future<Output = potluck::Result<()>>>(call: &mut Pin<Box<F>>, polls: usize) -> Poll<()> {
    for _ in 0..polls {
        let reached = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
        if let Poll::Ready(result) = reached {
            result.expect("the other member has called the same");
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// The next call of both adds up.
async fn sums(a: &mut Context, b: &mut Context) -> Result<()> {
    let (mut left, mut right) = (vec![1f32; LEN], vec![2f32; LEN]);
    let both = async { tokio::join!(a.all_reduce(&mut left), b.all_reduce(&mut right)) };
    let (one, two) = tokio::time::timeout(BOUND, both).await.context("the next call hangs")?;
    one.context("the next call")?;
    two.context("the next call")?;
    ensure!(left == right && left.iter().all(|x| *x == 3.0), "the next call gives a wrong sum");
    Ok(())
}

struct Node {
    ctx: Context,
    _cluster: Cluster,
}

async fn pair(namespace: &str) -> Result<(Node, Node)> {
    let join = || async {
        let cluster = Builder::new(Config::local()).open_lan(namespace).min_members(2).join().await?;
        let ctx = cluster.context().await?;
        anyhow::Ok(Node { ctx, _cluster: cluster })
    };
    let (a, b) = tokio::time::timeout(BOUND, async { tokio::join!(join(), join()) }).await.context("no view")?;
    Ok((a?, b?))
}
