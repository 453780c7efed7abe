//! The guarantees of a sync that returns `Ok`: after a dropped one, in several lanes, with several
//! states.

use super::cancel::polled;
use super::numbers;
use super::on::{On, everywhere, out_of_step};
use anyhow::{Result, ensure};
use potluck::{Cluster, Context, Error};
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

/// One rank drops its sync after each number of polls, and calls it again.
pub async fn again_after_a_drop(on: On) -> Result<()> {
    for victim in 0..3 {
        let mut polls = 0;
        loop {
            let program = move |_cluster: Cluster, mut context: Context| async move {
                let rank = context.rank().index();
                let mut state = state_of(3, rank);
                let mut dropped = false;
                if rank == victim {
                    let over =
                        polled(context.sync(version_of(rank), &mut state), polls, false).await;
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
