//! Measures each direction of each link by messages, while nothing else is sent.

use super::report::Link;
use super::sums::median;
use potluck::report::{LinkDirection, Topology};
use potluck::{Context, Error};
use std::time::Instant;

/// Measures all directions, one after the other. Every rank gets the same answer.
pub async fn measure(ctx: &mut Context, topology: Option<&Topology>) -> potluck::Result<Vec<Link>> {
    let n = ctx.size();
    // Rank 0 knows the rates of the plan best; the others may have a later status.
    let mut predicted = vec![NO_LINK; n * n];
    for (from, to, direction) in topology.iter().flat_map(|topology| directions(topology)) {
        predicted[from * n + to] = direction.rate_bps.unwrap_or(UNKNOWN);
    }
    ctx.broadcast(0, &mut predicted).await?;
    let mut measured = vec![0.0f64; n * n];
    for from in 0..n {
        for to in 0..n {
            let rate = predicted[from * n + to];
            if from != to && rate != NO_LINK {
                measured[from * n + to] = one_direction(ctx, (from, to), bytes(rate)).await?;
            }
        }
    }
    // Only the receiver of a direction has measured it.
    ctx.all_reduce(&mut measured).await?;
    let link = |at: usize| Link {
        from: at / n,
        to: at % n,
        predicted_bps: (predicted[at] != UNKNOWN).then_some(predicted[at]),
        measured_bps: (measured[at] > 0.0).then_some(measured[at] as u64),
    };
    Ok((0..n * n).filter(|at| predicted[*at] != NO_LINK).map(link).collect())
}

/// The directions of all links between members: from, to, and the known figures.
fn directions(topology: &Topology) -> impl Iterator<Item = (usize, usize, LinkDirection)> {
    topology.links.iter().flat_map(|link| {
        let (a, b) = (link.a.index(), link.b.index());
        [(a, b, link.there), (b, a, link.back)]
    })
}

/// The rate of one direction in bit/s at the receiver, 0 at all other ranks and if the two have no
/// direct link.
async fn one_direction(
    ctx: &mut Context,
    (from, to): (usize, usize),
    bytes: usize,
) -> potluck::Result<f64> {
    let mut buffer = vec![0u8; bytes];
    let mut seconds = Vec::new();
    let me = ctx.rank().index();
    for _ in 0..ROUNDS {
        ctx.barrier().await?;
        let began = Instant::now();
        let told = match me {
            _ if me == from => ctx.send(to, TAG, &buffer).await,
            _ if me == to => ctx.recv(from, TAG, &mut buffer).await,
            _ => Ok(()),
        };
        match told {
            Ok(()) => seconds.push(began.elapsed().as_secs_f64()),
            // Messages are not forwarded. Both ends and nobody else are told.
            Err(Error::Rejected(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let is_receiver = me == to && !seconds.is_empty();
    // The first message begins at a rate that grows.
    let steady = seconds.get_mut(1..).unwrap_or_default();
    Ok(if is_receiver { 8.0 * bytes as f64 / median(steady) } else { 0.0 })
}

/// A message of about a third of a second at this rate.
fn bytes(bps: u64) -> usize {
    let bytes = if bps == UNKNOWN { BYTES.1 } else { bps / 8 / 3 };
    bytes.clamp(BYTES.0, BYTES.1) as usize
}

/// Bounds of the length of a message.
const BYTES: (u64, u64) = (64 << 10, 16 << 20);

const ROUNDS: usize = 4;

const TAG: u32 = 1;

/// In the table of rates: the two have no link.
const NO_LINK: u64 = 0;

/// In the table of rates: the link is not measured.
const UNKNOWN: u64 = u64::MAX;
