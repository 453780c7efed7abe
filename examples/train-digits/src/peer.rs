//! One member of the group: a process that executes tasks, one line of input each.

use crate::digits::Samples;
use crate::train::{Order, codec, train};
use anyhow::{Context as _, Result, bail};
use potluck::{Builder, Cluster, Config};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Trains a model; answers `trained` and a [`Trained`](crate::train::Trained).
    Train(Order),
    /// Sums a buffer of this many elements this many times; answers `summed` and the seconds of
    /// each sum.
    Sum { elements: usize, codec: String, rounds: usize },
}

/// Joins, prints `ready`, and executes tasks until the end of the input.
pub async fn serve(network: &str, min_members: usize, digits: Option<&Path>) -> Result<()> {
    let config = match network {
        "loopback" => Config::loopback(),
        "lan" => Config::home(),
        _ => bail!("no network {network}"),
    };
    let samples = digits.map_or_else(|| Ok(Samples::made_up()), Samples::read)?;
    let cluster =
        Builder::new(config).open_lan("train-digits").min_members(min_members).join().await?;
    let context = cluster.context().await?;
    println!("ready {}", context.engine());
    drop(context);
    for line in std::io::stdin().lines() {
        match serde_json::from_str(&line?).context("a task")? {
            Task::Train(order) => println!(
                "trained {}",
                serde_json::to_string(&train(&cluster, &samples, &order).await?)?
            ),
            Task::Sum { elements, codec, rounds } => {
                let seconds = sum(&cluster, elements, &codec, rounds).await?;
                println!("summed {}", serde_json::to_string(&seconds)?);
            }
        }
    }
    cluster.leave().await;
    Ok(())
}

async fn sum(cluster: &Cluster, elements: usize, name: &str, rounds: usize) -> Result<Vec<f64>> {
    let mut context = cluster.context().await?;
    let mut seconds = Vec::new();
    // The first sum is not counted: it maps new memory and opens the links.
    for _ in 0..=rounds {
        let mut buffer: Vec<f32> =
            (0..elements).map(|i| ((i + context.rank().index()) as f32).sin()).collect();
        context.barrier().await?;
        let started = Instant::now();
        match codec(name)? {
            None => context.all_reduce(&mut buffer).await?,
            Some(mut codec) => context.all_reduce(&mut buffer).compress(&mut codec).await?,
        }
        seconds.push(started.elapsed().as_secs_f64());
    }
    Ok(seconds.split_off(1))
}
