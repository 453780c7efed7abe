//! Layer: Core.
//!
//! How long a schedule takes on a network, as far as that can be told beforehand.

use super::network::{Network, Resource};
use super::plan::{Schedule, TreeShare};
use super::ranks;
use crate::view::Rank;
use std::collections::BTreeSet;

/// The time that an all-reduce of so many bytes takes, in microseconds; `None` where two ranks that
/// should send to each other have no edge.
///
/// That is how long the busiest resource is busy, and before that the latency of the steps one
/// after the other and the time in which the pipeline fills: one chunk for each level of a tree. In
/// a ring all are busy from the beginning, but each step takes as long as a chunk and its latency.
pub(super) fn forecast_us(
    network: &Network,
    schedule: &Schedule,
    bytes: u64,
    chunk_bytes: u32,
) -> Option<f64> {
    forecast_longer_us(network, schedule, bytes, chunk_bytes, |_| 1.0)
}

/// The same where what some ranks send up their trees is so many times longer than what else
/// travels.
pub(super) fn forecast_longer_us(
    network: &Network,
    schedule: &Schedule,
    bytes: u64,
    chunk_bytes: u32,
    longer_up: impl Fn(Rank) -> f64,
) -> Option<f64> {
    let size = network.size as f64;
    let part = |share: f64| (bytes as f64 * share).min(f64::from(chunk_bytes));
    match schedule {
        Schedule::OneShot => {
            let pairs = ranks(network.size)
                .flat_map(|a| ranks(network.size).filter(move |b| a != *b).map(move |b| (a, b)));
            let hops: Vec<Hop> =
                pairs.map(|(from, to)| Hop { from, to, times: 1.0, longer: 1.0 }).collect();
            Some(
                longest(hops.iter().map(|hop| one_way_us(network, hop.from, hop.to)))?
                    + busiest_us(network, &hops, bytes)?,
            )
        }
        Schedule::Ring { order } => ring_us(network, order, bytes, part(1.0 / size)),
        Schedule::GlooRing => {
            let segment = f64::min(part(1.0 / size), f64::from(GLOO_SEGMENT_BYTES_MAX));
            ring_us(network, &ranks(network.size).collect::<Vec<_>>(), bytes, segment)
        }
        Schedule::Trees { trees } => {
            let hops_of = |share: &TreeShare| tree_hops(share, &longer_up);
            let hops: Vec<Hop> = trees.iter().flat_map(hops_of).collect();
            let fill_us = |share: &TreeShare| {
                fill_of_tree_us(network, share, &hops_of(share), part(f64::from(share.ppm) / 1e6))
            };
            Some(longest(trees.iter().map(fill_us))? + busiest_us(network, &hops, bytes)?)
        }
        Schedule::GlooExchange | Schedule::GlooBcube => None,
    }
}

/// What a longer segment of Gloo's ring waits for goes on beside the others.
pub(super) const GLOO_SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// `chunk` is as much as goes on at once.
fn ring_us(network: &Network, order: &[Rank], bytes: u64, chunk: f64) -> Option<f64> {
    let size = network.size as f64;
    let next = order.iter().cycle().skip(1);
    let times = 2.0 * (size - 1.0) / size;
    let hops: Vec<Hop> =
        order.iter().zip(next).map(|(a, b)| Hop { from: *a, to: *b, times, longer: 1.0 }).collect();
    let round_us =
        hops.iter().map(|hop| one_way_us(network, hop.from, hop.to)).sum::<Option<f64>>()?;
    // A chunk can go on a step after it has come, as all ports are busy from the beginning; where a
    // segment is less than that, each step is waited for.
    let step_us = round_us / size + slowest_us(network, &hops, chunk)?;
    Some(f64::max(busiest_us(network, &hops, bytes)?, 2.0 * (size - 1.0) * step_us) + step_us)
}

/// What one rank sends to another.
struct Hop {
    from: Rank,
    to: Rank,
    /// How many times the buffer.
    times: f64,
    /// How many times longer than elsewhere that is on the wire.
    longer: f64,
}

fn tree_hops(share: &TreeShare, longer_up: &impl Fn(Rank) -> f64) -> Vec<Hop> {
    let times = f64::from(share.ppm) / 1e6;
    let edges = ranks(share.tree.parents.len())
        .zip(&share.tree.parents)
        .filter_map(|(rank, parent)| Some((rank, (*parent)?)));
    let both = |(child, parent)| {
        let up = Hop { from: child, to: parent, times, longer: longer_up(child) };
        [up, Hop { from: parent, to: child, times, longer: 1.0 }]
    };
    edges.flat_map(both).collect()
}

/// The longest way to the root and back, and a chunk for each level.
fn fill_of_tree_us(network: &Network, share: &TreeShare, hops: &[Hop], chunk: f64) -> Option<f64> {
    let root = share.tree.root(network.size)?;
    let way_us = |rank: Rank| {
        let path = share.tree.path(rank, root);
        path.windows(2).map(|pair| one_way_us(network, pair[0], pair[1])).sum::<Option<f64>>()
    };
    let latency_us = longest(ranks(network.size).map(way_us))?;
    Some(2.0 * latency_us + share.tree.height(root) as f64 * slowest_us(network, hops, chunk)?)
}

fn one_way_us(network: &Network, from: Rank, to: Rank) -> Option<f64> {
    network.way(from, to).map(|(edge, _)| f64::from(edge.rtt_us) / 2.0)
}

/// What so many bytes take on the slowest of these hops.
fn slowest_us(network: &Network, hops: &[Hop], bytes: f64) -> Option<f64> {
    longest(
        hops.iter().map(|hop| {
            Some(hop.longer * bytes * 8000.0 / f64::from(network.kbps(hop.from, hop.to)?))
        }),
    )
}

/// 0 of none.
fn longest(mut times_us: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    times_us.try_fold(0.0, |most, us| Some(f64::max(most, us?)))
}

/// How long the busiest resource is busy.
fn busiest_us(network: &Network, hops: &[Hop], bytes: u64) -> Option<f64> {
    let mut busy_us = vec![0.0; network.resources.len()];
    let mut senders: Vec<BTreeSet<Rank>> = vec![BTreeSet::new(); network.resources.len()];
    for hop in hops {
        for busy in network.way(hop.from, hop.to)?.1 {
            busy_us[busy.resource] +=
                hop.times * hop.longer * bytes as f64 * 8000.0 / f64::from(busy.kbps);
            senders[busy.resource].insert(hop.from);
        }
    }
    let crowded =
        |place: usize| network.resources[place] == Resource::Receive && senders[place].len() > 2;
    let times = busy_us
        .into_iter()
        .enumerate()
        .map(|(place, us)| if crowded(place) { us * INCAST } else { us });
    Some(times.fold(0.0, f64::max))
}

/// How much longer a wired port takes when more than two send to it at once: a switch drops what it
/// cannot keep. Measured at four members and 100 Mbit/s, where an equal mesh took 3 to 7 % longer
/// than a ring that moves the same bytes.
const INCAST: f64 = 1.06;
