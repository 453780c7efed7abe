//! Members on plain threads, without an async runtime.

use anyhow::{Context as _, Result, bail, ensure};
use potluck::blocking::{Cluster, Context, Wait};
use potluck::calls::OwnedError;
use potluck::report::{State, Topology};
use potluck::{Builder, Cause, Config, Error};
use std::ops::ControlFlow::{Break, Continue};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(namespace: &str, members: usize) -> Builder {
    Builder::new(Config::local()).open_lan(namespace).min_members(members)
}

/// Runs one program on `members` threads, each with its own node; returns the results in no
/// particular order.
fn members<R: Send + 'static>(
    namespace: &'static str,
    members: usize,
    program: fn(Cluster, Context) -> Result<R>,
) -> Result<Vec<R>> {
    let one = move || {
        ensure!(tokio::runtime::Handle::try_current().is_err(), "this must do without a runtime");
        let cluster = Cluster::join_with(config(namespace, members))?;
        let context = cluster.context_within(PATIENCE)?;
        program(cluster, context)
    };
    let threads: Vec<_> = (0..members).map(|_| thread::spawn(one)).collect();
    threads.into_iter().map(|thread| thread.join().expect("no member panics")).collect()
}

#[test]
fn every_call_without_a_runtime() -> Result<()> {
    members("every-call", 3, |cluster, mut context| {
        let rank = context.rank().index();
        let mut sum = vec![rank as f64; 70_000];
        context.all_reduce(&mut sum).wait()?;
        ensure!(sum == vec![3.0; 70_000], "all_reduce");
        context.all_reduce(&mut sum).mean().deadline(PATIENCE).reject_non_finite().wait()?;
        ensure!(sum == vec![3.0; 70_000], "all_reduce with choices");
        let product =
            context.all_reduce_owned(vec![2u32; 5]).product().wait().map_err(Error::from)?;
        ensure!(product == [8; 5], "all_reduce_owned");
        let mut least = [rank as i32, -(rank as i32)];
        context.reduce(1, &mut least).min().wait()?;
        ensure!(rank != 1 || least == [0, -2], "reduce");
        ensure!(
            context.reduce_scatter(&[1u8, 2, 3]).wait()? == [3 * (rank as u8 + 1)],
            "reduce_scatter"
        );
        let mut word = [rank as u64];
        context.broadcast(2, &mut word).wait()?;
        ensure!(word == [2], "broadcast");
        ensure!(context.all_gather(&[rank as i8]).wait()? == [0, 1, 2], "all_gather");
        ensure!(
            context.gather(0, &[rank as i8]).wait()?.is_none_or(|all| all == [0, 1, 2]),
            "gather"
        );
        context.scatter(0, Some(&[7, 8, 9]), &mut word).wait()?;
        ensure!(word == [7 + rank as u64], "scatter");
        ensure!(context.all_to_all(&[rank as u32; 3]).wait()? == [0, 1, 2], "all_to_all");
        context.barrier().wait()?;
        context.sync(1, &mut vec![1]).wait()?;

        let mut lane = context.lane(5);
        let other = thread::spawn(move || lane.barrier().wait());
        context.barrier().wait()?;
        other.join().expect("no lane panics")?;

        let renewed = context.renewed()?;
        ensure!(
            renewed.view() == context.view() && renewed.size() == 3,
            "{renewed:?} beside {context:?}"
        );
        let failed = context.all_reduce_owned(vec![1.0f32; rank]).wait();
        ensure!(
            matches!(
                &failed,
                Err(OwnedError { error: Error::Mismatch(_), buffer }) if buffer.len() == rank
            ),
            "{failed:?}"
        );
        ensure!(
            cluster.metrics().operation("barrier").is_some_and(|o| o.committed == 3),
            "{:?}",
            cluster.metrics()
        );
        // No member leaves before all have called.
        context.barrier().wait()?;
        Ok(())
    })?;
    Ok(())
}

#[test]
fn the_group_as_a_graph() -> Result<()> {
    members("graph", 3, |cluster, mut context| {
        // Heartbeats carry the set of members that each member reaches.
        let knows_all = |topology: &Topology| topology.links.len() == 3;
        let until = Instant::now() + PATIENCE;
        let topology = cluster.watch().find_map(|_| match cluster.topology().filter(knows_all) {
            None if Instant::now() < until => None,
            found => Some(found),
        });
        let topology = topology
            .flatten()
            .with_context(|| format!("not all links are told: {:?}", cluster.topology()))?;
        let me = context.rank();
        ensure!((topology.view.to_string(), topology.me) == (context.view(), me), "{topology:?}");
        ensure!(
            topology.members == context.members() && topology.plan == context.plan().explain(),
            "{topology:?}"
        );
        let ends: Vec<(usize, usize)> =
            topology.links.iter().map(|link| (link.a.index(), link.b.index())).collect();
        ensure!(ends == [(0, 1), (0, 2), (1, 2)], "{ends:?}");
        ensure!(
            topology.links.iter().all(|link| link.path.is_some() == (link.a == me || link.b == me)),
            "{topology:?}"
        );
        // In a ring each member sends two thirds of the buffer twice, to one neighbour.
        let shares =
            topology.links.iter().flat_map(|link| [link.there.share_ppm, link.back.share_ppm]);
        ensure!(shares.clone().flatten().eq([1_333_333; 3]) && shares.count() == 6, "{topology:?}");
        ensure!(
            topology.slowest().is_none() && topology.port_bps(0).is_none(),
            "inside a process nothing is measured"
        );
        context.barrier().wait()?;
        Ok(())
    })?;
    let alone = Cluster::join_with(config("graph-alone", 2))?;
    ensure!(alone.topology().is_none(), "{:?}", alone.topology());
    alone.leave();
    Ok(())
}

#[test]
fn who_waits_sleeps() -> Result<()> {
    let results = members("sleeps", 2, |_cluster, mut context| {
        let second = Duration::from_secs(1);
        let (started, before) = (Instant::now(), thread_time());
        let result = if context.rank() == 0 {
            context.lane(1).barrier().deadline(second).wait()
        } else {
            Ok(())
        };
        let (took, worked) = (started.elapsed(), thread_time().saturating_sub(before));
        context.barrier().wait()?;
        Ok((result, took, worked))
    })?;
    let (error, took, worked) = results
        .into_iter()
        .find_map(|(result, took, worked)| Some((result.err()?, took, worked)))
        .context("nobody had to wait")?;
    ensure!(matches!(error, Error::Aborted { cause: Cause::Deadline { of: None } }), "{error:?}");
    ensure!(
        took >= Duration::from_secs(1) && worked < Duration::from_millis(200),
        "{worked:?} of work in {took:?}"
    );
    Ok(())
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_node_alone_waits_as_long_as_it_is_told() -> Result<()> {
    let cluster = Cluster::join_with(config("alone", 2))?;
    let error =
        cluster.context_within(Duration::from_millis(100)).err().context("a group of one")?;
    ensure!(matches!(error, Error::NotEnoughPeers { present: 1, wanted: 2, .. }), "{error:?}");
    let changes = cluster.watch();
    let waiting = thread::spawn({
        let cluster = cluster.clone();
        move || cluster.context().map(drop)
    });
    cluster.clone().leave();
    let waited = waiting.join().expect("it does not panic");
    ensure!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    // The stream ends by itself.
    let last = changes.last().context("there is always a present status")?;
    ensure!(last.state == State::Closed, "{last:?}");
    Ok(())
}

#[test]
fn on_a_thread_of_a_runtime_it_works_and_holds_it_up() -> Result<()> {
    let threads: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let other = tokio::spawn(async { "only when the thread is free" });
                    let cluster = Cluster::join_with(config("runtime", 2))?;
                    let mut context = cluster.context()?;
                    for _ in 0..300 {
                        context = context.renewed()?;
                        context.barrier().wait()?;
                    }
                    if other.is_finished() {
                        bail!("another task ran on a thread that waits");
                    }
                    other.await?;
                    // Converts to the async types and back.
                    let mut same: potluck::Context = context.into();
                    same.barrier().await?;
                    cluster.leave();
                    Ok(())
                })
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("no member panics"))
}

#[test]
fn an_elastic_loop_and_a_state_that_is_made_where_needed() -> Result<()> {
    let ends = members("elastic", 2, |cluster, mut context| {
        let mut state = (0u64, vec![1.0f32; 10]);
        context.sync_with(0, &mut state, |_| Vec::new(), |_, _| ()).wait()?;
        let weight = 1.0 + context.rank().index() as f64;
        cluster.elastic(&mut state, |ctx, (steps, numbers)| {
            let mut next: Vec<f32> = numbers.iter().map(|x| x * weight as f32).collect();
            ctx.all_reduce(&mut next).weighted(weight).wait()?;
            (*steps, *numbers) = (*steps + 1, next);
            Ok(if *steps < 20 { Continue(()) } else { Break(()) })
        })?;
        Ok(state)
    })?;
    ensure!(ends[0] == ends[1] && ends[0].0 == 20, "{ends:?}");
    Ok(())
}
