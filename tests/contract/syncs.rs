//! The guarantees of a sync that returns `Ok`: after a dropped one, in several lanes, with several
//! states.

use super::cancel::polled;
use super::numbers;
use super::on::{On, everywhere, out_of_step};
use anyhow::{Result, ensure};
use potluck::{Cluster, Context, Error};
use std::cell::Cell;
use std::sync::Arc;
use tokio::sync::Barrier;

const LEN: usize = 40_000;

/// The state of a rank before the sync; lengths differ between ranks.
fn state_of(seed: u64, rank: usize) -> Vec<u8> {
    numbers::input(seed, rank, LEN + rank)
}

/// The versions that make rank 1 the source.
fn version_of(rank: usize) -> u64 {
    u64::from(rank == 1)
}

/// Each rank, dropping its call at once after the last poll, and with the next wake.
fn victims() -> impl Iterator<Item = (usize, bool)> {
    (0..3).flat_map(|victim| [(victim, false), (victim, true)])
}

/// Retries until a sync commits, as a program does.
async fn until_it_counts(context: &mut Context, state: &mut Vec<u8>) -> Result<()> {
    let version = version_of(context.rank().index());
    loop {
        match context.sync(version, state).await {
            Err(Error::Aborted { .. }) => {}
            other => return Ok(other?),
        }
    }
}

/// One rank drops its sync after each number of polls, at once or with its next wake, and calls it
/// again.
pub async fn again_after_a_drop(on: On) -> Result<()> {
    for (victim, woken) in victims() {
        let mut polls = 0;
        loop {
            let program = move |_cluster: Cluster, mut context: Context| async move {
                let rank = context.rank().index();
                let mut state = state_of(3, rank);
                let mut dropped = false;
                if rank == victim {
                    let over =
                        polled(context.sync(version_of(rank), &mut state), polls, woken).await;
                    dropped = over.is_none();
                    ensure!(
                        !dropped || state == state_of(3, rank),
                        "written by a call that was dropped"
                    );
                }
                until_it_counts(&mut context, &mut state).await?;
                ensure!(
                    state == state_of(3, 1),
                    "rank {rank} is told that it has the state, and has not"
                );
                context.barrier().await?;
                Ok(dropped)
            };
            let dropped = everywhere(out_of_step(on, "sync-again").await?, program).await?;
            if !dropped[victim] {
                break;
            }
            polls += 1;
            ensure!(polls < 20, "a sync never ends");
        }
    }
    Ok(())
}

/// Each program has two tasks with a state and a lane each. Two members begin the second sync after
/// the first one, the third member begins both at once: the result is the same.
pub async fn in_two_lanes(on: On) -> Result<()> {
    let program = |_cluster: Cluster, mut context: Context| async move {
        let rank = context.rank().index();
        let mut other = context.lane(7);
        let (mut first, mut second) = (state_of(3, rank), state_of(4, rank));
        let begun = Barrier::new(2);
        let one = async {
            until_it_counts(&mut context, &mut first).await?;
            context.barrier().await?;
            if rank != 0 {
                begun.wait().await;
            }
            anyhow::Ok(())
        };
        let two = async {
            if rank != 0 {
                begun.wait().await;
            }
            until_it_counts(&mut other, &mut second).await?;
            other.barrier().await?;
            anyhow::Ok(())
        };
        tokio::try_join!(one, two)?;
        ensure!(
            first == state_of(3, 1) && second == state_of(4, 1),
            "rank {rank} has not both states"
        );
        Ok(())
    };
    everywhere(out_of_step(on, "sync-lanes").await?, program).await.map(drop)
}

/// A program that keeps its state in two buffers, and a program that reaches the start of its loop
/// again without a call in between.
pub async fn of_two_states(on: On) -> Result<()> {
    let turn = Arc::new(Barrier::new(3));
    let program = move |_cluster: Cluster, mut context: Context| {
        let turn = Arc::clone(&turn);
        async move {
            let rank = context.rank().index();
            let (mut weights, mut moments) = (state_of(3, rank), state_of(4, rank));
            until_it_counts(&mut context, &mut weights).await?;
            until_it_counts(&mut context, &mut moments).await?;
            ensure!(
                weights == state_of(3, 1) && moments == state_of(4, 1),
                "rank {rank} has not both states"
            );
            turn.wait().await;
            if rank == 2 {
                // The other ranks do not make this call.
                context.sync(0, &mut moments).await?;
            }
            context.barrier().await?;
            if rank == 0 {
                // Nor this one: the lane has been used.
                context.sync(0, &mut vec![rank as u8]).await?;
            }
            context.barrier().await?;
            Ok(())
        }
    };
    everywhere(out_of_step(on, "sync-states").await?, program).await.map(drop)
}

/// A state that counts how often its bytes are made and taken.
#[derive(Clone, Default)]
struct Counting {
    bytes: Vec<u8>,
    saves: Cell<usize>,
    loads: usize,
}

impl Counting {
    fn save(&self) -> Vec<u8> {
        self.saves.set(self.saves.get() + 1);
        self.bytes.clone()
    }

    fn load(&mut self, bytes: &[u8]) {
        self.loads += 1;
        self.bytes = bytes.to_vec();
    }

    fn counts(&self) -> (usize, usize) {
        (self.saves.get(), self.loads)
    }
}

/// The state is made on its source alone, and taken by those that lack it.
pub async fn made_where_needed(on: On) -> Result<()> {
    let nodes = out_of_step(on, "sync-made").await?;
    // The two that have a history of their own: the third is the newcomer.
    let in_step: Vec<bool> =
        nodes.iter().map(|(cluster, _)| cluster.metrics().operation("barrier").is_some()).collect();
    let veterans: Vec<usize> = (0..3).filter(|rank| in_step[*rank]).collect();
    ensure!(veterans.len() == 2, "{in_step:?}");
    let (first, second) = (veterans[0], veterans[1]);
    let program = move |_cluster: Cluster, mut context: Context| async move {
        let rank = context.rank().index();
        // The veterans have one version and one state, the newcomer a higher version.
        let newcomer = rank != first && rank != second;
        let (version, seed) = if newcomer { (99, 8) } else { (4, 3) };
        let mut state = Counting { bytes: numbers::input(seed, 0, LEN), ..Counting::default() };
        until_with(&mut context, version, &mut state).await?;
        ensure!(state.bytes == numbers::input::<u8>(3, 0, LEN), "rank {rank} has another state");
        let expected = if newcomer { (0, 1) } else { (usize::from(rank == first), 0) };
        ensure!(state.counts() == expected, "rank {rank}: {:?}", state.counts());
        context.barrier().await?;
        // The lane has been used, so no member needs anything.
        context.sync_with(7, &mut state, Counting::save, Counting::load).await?;
        ensure!(state.counts() == expected, "rank {rank}: {:?} for nothing", state.counts());
        // In another lane the second veteran is ahead: the first one lacks its state too.
        let mut lane = context.lane(3);
        let mut state = Counting { bytes: vec![rank as u8; LEN + rank], ..Counting::default() };
        let version = if rank == second { 6 } else { 5 };
        until_with(&mut lane, version, &mut state).await?;
        ensure!(state.bytes == vec![second as u8; LEN + second], "rank {rank} has another state");
        let expected = if rank == second { (1, 0) } else { (0, 1) };
        ensure!(state.counts() == expected, "rank {rank}: {:?}", state.counts());
        // Again without a call in between: the state is compared, and it is the same.
        lane.sync_with(6, &mut state, Counting::save, Counting::load).await?;
        ensure!(state.counts() == (expected.0 + 1, expected.1), "{:?}", state.counts());
        lane.barrier().await?;
        Ok(())
    };
    everywhere(nodes, program).await.map(drop)
}

async fn until_with(context: &mut Context, version: u64, state: &mut Counting) -> Result<()> {
    loop {
        match context.sync_with(version, state, Counting::save, Counting::load).await {
            Err(Error::Aborted { .. }) => {}
            other => return Ok(other?),
        }
    }
}

/// In a View of one history no state is made.
pub async fn nothing_is_made(_cluster: Cluster, mut context: Context) -> Result<()> {
    let mut state = Counting { bytes: vec![1; 10], ..Counting::default() };
    for version in 0..20 {
        context.sync_with(version, &mut state, Counting::save, Counting::load).await?;
        context.all_reduce(&mut [1.0f32]).await?;
    }
    ensure!(state.counts() == (0, 0), "{:?}", state.counts());
    Ok(())
}

/// A sync that fails leaves the state as it is, and takes nothing; the one that continues a dropped
/// one brings the state.
pub async fn with_after_a_drop(on: On) -> Result<()> {
    for (victim, woken) in victims() {
        for polls in 0..20 {
            let program = move |_cluster: Cluster, mut context: Context| async move {
                let rank = context.rank().index();
                let version = version_of(rank);
                let mut state = Counting { bytes: state_of(3, rank), ..Counting::default() };
                let mut dropped = false;
                if rank == victim {
                    let call =
                        context.sync_with(version, &mut state, Counting::save, Counting::load);
                    dropped = polled(call, polls, woken).await.is_none();
                    let untouched = state.loads == 0 && state.bytes == state_of(3, rank);
                    ensure!(!dropped || untouched, "taken by a call that was dropped");
                }
                until_with(&mut context, version, &mut state).await?;
                // Rank 1 or the other member of the history is the source.
                let all = context.all_gather(&[numbers_of(&state.bytes)]).await?;
                ensure!(all.iter().all(|one| *one == all[0]), "rank {rank}: other states");
                Ok(dropped)
            };
            let dropped = everywhere(out_of_step(on, "sync-with").await?, program).await?;
            if !dropped[victim] {
                break;
            }
            ensure!(polls < 19, "a sync never ends");
        }
    }
    Ok(())
}

fn numbers_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
}
