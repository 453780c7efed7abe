//! Measures `all_reduce` of one size, and verifies each sum.

use super::report::Sum;
use super::size::Size;
use crate::exit::{Exit, Stop};
use anyhow::Result;
use potluck::{Cluster, Context, ReduceOp};
use std::time::{Duration, Instant};

/// Sums buffers of this size for about `seconds`. Every rank gets the same answer.
pub async fn measure(
    ctx: &mut Context,
    cluster: &Cluster,
    size: Size,
    seconds: f64,
) -> Result<Sum> {
    let mut buffer = vec![0.0f32; size.elements()];
    // Not counted: it takes the memory, and begins connections that were idle.
    let first = one(ctx, &mut buffer).await?;
    let mut agreed = [rounds(first, seconds), predicted_us(cluster, size)];
    ctx.broadcast(0, &mut agreed).await?;
    let [rounds, predicted_us] = agreed;
    let mut took = Vec::new();
    for _ in 0..rounds.clamp(ROUNDS.0, ROUNDS.1) {
        took.push(one(ctx, &mut buffer).await?.as_secs_f64());
    }
    // A sum has taken as long as on the rank that had it last.
    ctx.all_reduce(&mut took).op(ReduceOp::Max).await?;
    let us = |seconds: f64| (1e6 * seconds) as u64;
    Ok(Sum {
        bytes: size.bytes(),
        rounds: took.len(),
        predicted_us: (predicted_us != NOT_PREDICTED).then_some(predicted_us),
        median_us: us(median(&mut took)),
        min_us: us(took.iter().copied().fold(f64::INFINITY, f64::min)),
        max_us: us(took.iter().copied().fold(0.0, f64::max)),
    })
}

/// The duration of one sum, which all ranks begin together, and whose result is right.
async fn one(ctx: &mut Context, buffer: &mut [f32]) -> Result<Duration> {
    let rank = ctx.rank().index();
    buffer.iter_mut().enumerate().for_each(|(i, x)| *x = element(i, rank));
    ctx.barrier().await?;
    let began = Instant::now();
    ctx.all_reduce(buffer).await?;
    let took = began.elapsed();
    let ranks = ctx.size();
    let sum = |i: usize| (0..ranks).map(|rank| element(i, rank)).sum::<f32>();
    if buffer.iter().enumerate().any(|(i, x)| *x != sum(i)) {
        return Err(Stop::with(Exit::Failed, "wrong-sum", "a sum was wrong: report this as a bug"));
    }
    Ok(took)
}

/// The contribution of a rank: small whole numbers, whose sums are exact in any order.
fn element(i: usize, rank: usize) -> f32 {
    ((7 * i + 3 * rank) % 13) as f32
}

/// How many sums take about `seconds`, if one takes `first`.
fn rounds(first: Duration, seconds: f64) -> u64 {
    (seconds / first.as_secs_f64().max(1e-6)) as u64
}

fn predicted_us(cluster: &Cluster, size: Size) -> u64 {
    let forecasts = cluster.topology().map(|topology| topology.forecasts).unwrap_or_default();
    let of_size = forecasts.iter().find(|forecast| forecast.bytes == size.bytes());
    of_size.map_or(NOT_PREDICTED, |forecast| forecast.takes.as_micros() as u64)
}

/// The middle value; of an even number the higher one of the two in the middle. 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Fewest and most sums of one size.
const ROUNDS: (u64, u64) = (3, 200);

const NOT_PREDICTED: u64 = u64::MAX;
