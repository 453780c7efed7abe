//! A call that is dropped half way, or leaked: the buffer belongs to the caller at once and is not
//! written any more, the other member gets an answer within a bound, and the next call works. Runs
//! under AddressSanitizer too.

use anyhow::{Context as _, Result, ensure};
use potluck::{Builder, Cluster, Config, Context, EngineOffer, Error};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// The time limit for an answer; only a failing test reaches it.
const BOUND: Duration = Duration::from_secs(20);

/// Several chunks, so that a call takes a while.
const LEN: usize = 1 << 20;

/// The calls that write to a borrowed buffer.
#[derive(Clone, Copy, Debug)]
enum Call {
    AllReduce,
    /// Its root.
    Broadcast(Root),
    Reduce(Root),
    Scatter(Root),
}

/// The role of a root, or of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Root {
    TheOneThatForgets,
    TheOther,
}

const CALLS: [Call; 7] = [
    Call::AllReduce,
    Call::Broadcast(Root::TheOneThatForgets),
    Call::Broadcast(Root::TheOther),
    Call::Reduce(Root::TheOneThatForgets),
    Call::Reduce(Root::TheOther),
    Call::Scatter(Root::TheOneThatForgets),
    Call::Scatter(Root::TheOther),
];

type Under<'b> = Pin<Box<dyn Future<Output = potluck::Result<()>> + Send + 'b>>;

impl Call {
    /// `parts` is the root's input of a scatter.
    fn begin<'b>(
        self,
        ctx: &mut Context,
        forgets: usize,
        buffer: &'b mut [f32],
        parts: &'b [f32],
    ) -> Under<'b> {
        let at = |root| if root == Root::TheOneThatForgets { forgets } else { 1 - forgets };
        match self {
            Call::AllReduce => Box::pin(ctx.all_reduce(buffer)),
            Call::Broadcast(root) => Box::pin(ctx.broadcast(at(root), buffer)),
            Call::Reduce(root) => Box::pin(ctx.reduce(at(root), buffer)),
            Call::Scatter(root) => Box::pin(ctx.scatter(at(root), Some(parts), buffer)),
        }
    }

    /// The contents of the buffers on the leaking member, if the call completes there, and on the
    /// other one. Before, their buffers hold 1 and 2, their parts 10 and 20.
    fn leaves(self) -> (f32, f32) {
        match self {
            Call::AllReduce => (3.0, 3.0),
            Call::Broadcast(Root::TheOneThatForgets) => (1.0, 1.0),
            Call::Broadcast(Root::TheOther) => (2.0, 2.0),
            Call::Reduce(Root::TheOneThatForgets) => (3.0, 2.0),
            Call::Reduce(Root::TheOther) => (1.0, 3.0),
            Call::Scatter(Root::TheOneThatForgets) => (10.0, 10.0),
            Call::Scatter(Root::TheOther) => (20.0, 20.0),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_is_over_for_both_and_its_buffer_untouched() -> Result<()> {
    for engine in engines() {
        let (mut a, mut b) = pair("forget-dropped", engine).await?;
        let mut kept = vec![1f32; LEN];
        let mut call: Under<'_> = Box::pin(a.ctx.all_reduce(&mut kept));
        ensure!(poll_some(&mut call, 3).await.is_pending());
        drop(call);
        ensure!(kept.iter().all(|x| *x == 1.0), "the buffer of a dropped call has changed");
        drop(kept);

        let mut other = vec![2f32; LEN];
        let answer =
            tokio::time::timeout(BOUND, b.ctx.all_reduce(&mut other)).await.context("no answer")?;
        ensure!(matches!(answer, Err(Error::Aborted { .. })), "{answer:?}");
        ensure!(other.iter().all(|x| *x == 2.0), "the buffer of an aborted call has changed");
        sums(&mut a.ctx, &mut b.ctx).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_call_ends_without_its_buffer() -> Result<()> {
    for engine in engines() {
        let (mut a, mut b) = pair("forget-forgotten", engine).await?;
        let forgets = a.ctx.rank().index();
        for call in CALLS {
            let what = || format!("{call:?} on {engine:?}");
            forget_half_way(&mut a.ctx, call, 1).await;
            let (mut other, parts) = (vec![2f32; LEN], vec![20f32; 2 * LEN]);
            let theirs = call.begin(&mut b.ctx, forgets, &mut other, &parts);
            tokio::time::timeout(BOUND, theirs)
                .await
                .context("no answer")
                .with_context(what)?
                .with_context(what)?;
            ensure!(
                other.iter().all(|x| *x == call.leaves().1),
                "it counts, though one never looked at it: {}",
                what()
            );
            sums(&mut a.ctx, &mut b.ctx).await.with_context(what)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_forgotten_while_its_data_moves_ends_without_its_buffer() -> Result<()> {
    for engine in engines() {
        let (mut a, mut b) = pair("forget-moving", engine).await?;
        let forgets = a.ctx.rank().index();
        for call in CALLS {
            let what = || format!("{call:?} on {engine:?}");
            let (mut other, parts) = (vec![2f32; LEN], vec![20f32; 2 * LEN]);
            let mut theirs = call.begin(&mut b.ctx, forgets, &mut other, &parts);
            ensure!(poll_some(&mut theirs, 1).await.is_pending());
            forget_half_way(&mut a.ctx, call, 3).await;
            tokio::time::timeout(BOUND, theirs)
                .await
                .context("no answer")
                .with_context(what)?
                .with_context(what)?;
            ensure!(other.iter().all(|x| *x == call.leaves().1), "{}", what());
            sums(&mut a.ctx, &mut b.ctx).await.with_context(what)?;
        }
    }
    Ok(())
}

/// Polls a call a few times, leaks it, checks its buffers and frees them, as a program may.
#[expect(
    unsafe_code,
    reason = "the borrow checker would keep the buffers of a forgotten call alive"
)]
async fn forget_half_way(ctx: &mut Context, call: Call, polls: usize) {
    let buffer = Box::into_raw(vec![1f32; LEN].into_boxed_slice());
    let parts = Box::into_raw(vec![10f32; 2 * LEN].into_boxed_slice());
    let forgets = ctx.rank().index();
    // SAFETY: the boxes were just given up, and no other code knows the pointers.
    let mut under = call.begin(ctx, forgets, unsafe { &mut *buffer }, unsafe { &*parts });
    let reached = poll_some(&mut under, polls).await;
    std::mem::forget(under);
    // SAFETY: as above; the call that borrowed them will never be polled again, and nothing else
    // may hold a pointer into them.
    let (freed, _parts) = unsafe { (Box::from_raw(buffer), Box::from_raw(parts)) };
    // On a busy machine the call may complete between two polls.
    let expected = if reached.is_pending() { 1.0 } else { call.leaves().0 };
    assert!(freed.iter().all(|x| *x == expected), "the buffer of a forgotten {call:?} has changed");
}

/// Polls up to `polls` times in a row.
async fn poll_some(call: &mut Under<'_>, polls: usize) -> Poll<()> {
    for _ in 0..polls {
        let reached = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
        if let Poll::Ready(result) = reached {
            result.expect("the other member has called the same");
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// The next call of both members is correct.
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

/// The engines of this build.
fn engines() -> Vec<EngineOffer> {
    let gloo = potluck::gloo_version().map(|_| EngineOffer::Gloo);
    std::iter::once(EngineOffer::Native).chain(gloo).collect()
}

async fn pair(namespace: &str, engine: EngineOffer) -> Result<(Node, Node)> {
    let namespace = format!("{namespace}-{engine:?}").to_lowercase();
    let join = || async {
        let cluster = Builder::new(Config::local())
            .open_lan(&namespace)
            .min_members(2)
            .engine(engine)
            .join()
            .await?;
        let ctx = cluster.context().await?;
        anyhow::Ok(Node { ctx, _cluster: cluster })
    };
    let (a, b) = tokio::time::timeout(BOUND, async { tokio::join!(join(), join()) })
        .await
        .context("no view")?;
    Ok((a?, b?))
}
