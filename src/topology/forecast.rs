//! The predicted duration of a schedule on a network.

use super::network::{Network, Resource, Use};
use crate::protocol::{Algorithm, Rank, TreeShare, rank_pairs, ranks};
use std::collections::BTreeSet;

/// The predicted duration of an all-reduce of `bytes` bytes in microseconds. `None` if two ranks
/// that must send to each other have no edge, or for Gloo's exchange and bcube.
///
/// It is the busy time of the busiest resource, plus the latency of the sequential steps, plus the
/// time to fill the pipeline: one chunk for each level of a tree. In a ring all ports are busy from
/// the beginning, but each step takes at least a chunk and its latency.
pub(super) fn forecast_us(
    network: &Network,
    algorithm: &Algorithm,
    bytes: u64,
    chunk_bytes: u32,
) -> Option<f64> {
    forecast_longer_us(network, algorithm, bytes, chunk_bytes, |_| 1.0)
}

/// The same if the data that some ranks send up their trees is longer than other data by the factor
/// `longer_up`. A rank that skips the codec sends such data.
pub(super) fn forecast_longer_us(
    network: &Network,
    algorithm: &Algorithm,
    bytes: u64,
    chunk_bytes: u32,
    longer_up: impl Fn(Rank) -> f64,
) -> Option<f64> {
    let size = network.size as f64;
    let part = |share: f64| (bytes as f64 * share).min(f64::from(chunk_bytes));
    match algorithm {
        Algorithm::OneShot => {
            let hop = |(from, to)| Hop { from, to, times: 1.0, longer: 1.0 };
            let hops: Vec<Hop> = rank_pairs(network.size).map(hop).collect();
            Some(
                longest(hops.iter().map(|hop| one_way_us(network, hop.from, hop.to)))?
                    + busiest_us(network, &hops, bytes)?,
            )
        }
        Algorithm::Ring { order } => ring_us(network, order, bytes, part(1.0 / size)),
        Algorithm::GlooRing => {
            let segment = f64::min(part(1.0 / size), f64::from(GLOO_SEGMENT_BYTES_MAX));
            ring_us(network, &ranks(network.size).collect::<Vec<_>>(), bytes, segment)
        }
        Algorithm::Trees { trees } => {
            let hops_of = |share: &TreeShare| tree_hops(share, &longer_up);
            let hops: Vec<Hop> = trees.iter().flat_map(hops_of).collect();
            let fill_us = |share: &TreeShare| {
                fill_of_tree_us(network, share, &hops_of(share), part(f64::from(share.ppm) / 1e6))
            };
            Some(longest(trees.iter().map(fill_us))? + busiest_us(network, &hops, bytes)?)
        }
        Algorithm::GlooExchange | Algorithm::GlooBcube => None,
    }
}

/// The wait for a segment of Gloo's ring counts as if the segment had at most this size: the rest
/// of a longer one overlaps with other segments.
pub(super) const GLOO_SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// The duration of a ring; `chunk` is the number of bytes that move on as one piece.
fn ring_us(network: &Network, order: &[Rank], bytes: u64, chunk: f64) -> Option<f64> {
    let size = network.size as f64;
    let next = order.iter().cycle().skip(1);
    let times = 2.0 * (size - 1.0) / size;
    let hops: Vec<Hop> =
        order.iter().zip(next).map(|(a, b)| Hop { from: *a, to: *b, times, longer: 1.0 }).collect();
    let round_us =
        hops.iter().map(|hop| one_way_us(network, hop.from, hop.to)).sum::<Option<f64>>()?;
    // All ports are busy from the beginning, so a chunk moves on one step after it has arrived. If
    // a segment is shorter than a chunk, every step waits for the one before it.
    let step_us = round_us / size + slowest_us(network, &hops, chunk)?;
    Some(f64::max(busiest_us(network, &hops, bytes)?, 2.0 * (size - 1.0) * step_us) + step_us)
}

/// One transfer of a schedule.
struct Hop {
    from: Rank,
    to: Rank,
    /// The amount of data, as a multiple of the buffer.
    times: f64,
    /// The factor by which this data is longer on the wire than other data.
    longer: f64,
}

fn tree_hops(share: &TreeShare, longer_up: &impl Fn(Rank) -> f64) -> Vec<Hop> {
    let times = f64::from(share.ppm) / 1e6;
    let both = |(child, parent)| {
        let up = Hop { from: child, to: parent, times, longer: longer_up(child) };
        [up, Hop { from: parent, to: child, times, longer: 1.0 }]
    };
    share.tree.edges().flat_map(both).collect()
}

/// The time to fill a tree: the latency of the longest path to the root and back, and one chunk for
/// each level.
fn fill_of_tree_us(network: &Network, share: &TreeShare, hops: &[Hop], chunk: f64) -> Option<f64> {
    let root = share.tree.root(network.size)?;
    let latency_us = latency_us(network, share, root)?;
    Some(2.0 * latency_us + share.tree.height(root) as f64 * slowest_us(network, hops, chunk)?)
}

/// The window of a schedule of trees, in chunks; `None` for other schedules, where a hop goes by
/// radio, whose round trips grow under load, and where two ranks of a tree have no link.
///
/// A rank with a fast link could send its whole contribution at once. It would fill the queue of
/// the switch in front of the root, and delay the chunks of the slowest rank, which set the pace. A
/// window that is too small would slow the tree down. So it covers twice the round trip to the root
/// at the pace of the busiest port, and some chunks for each level that adds.
pub(super) fn window_chunks(
    network: &Network,
    algorithm: &Algorithm,
    chunk_bytes: u32,
) -> Option<u32> {
    let Algorithm::Trees { trees } = algorithm else { return None };
    let hops: Vec<Hop> = trees.iter().flat_map(|share| tree_hops(share, &|_| 1.0)).collect();
    let is_air = |busy: &Use| network.resources[busy.resource] == Resource::Air;
    let is_by_radio = |hop: &Hop| {
        network.direct(hop.from, hop.to).is_some_and(|(_, busy)| busy.iter().any(is_air))
    };
    if hops.iter().any(is_by_radio) {
        return None;
    }
    // All trees together move a chunk in this time.
    let chunk_us = busiest_us(network, &hops, u64::from(chunk_bytes))?;
    let window = |share: &TreeShare| {
        let root = share.tree.root(network.size)?;
        let round_us = 2.0 * latency_us(network, share, root)?;
        let under_way = 2.0 * round_us * f64::from(share.ppm) / 1e6 / chunk_us;
        Some(under_way + (CHUNKS_A_LEVEL * share.tree.height(root)) as f64)
    };
    Some(longest(trees.iter().map(window))?.ceil() as u32)
}

/// The one-way latency of the longest path to the root.
fn latency_us(network: &Network, share: &TreeShare, root: Rank) -> Option<f64> {
    let way_us = |rank: Rank| {
        let path = share.tree.path(rank, root);
        path.windows(2).map(|pair| one_way_us(network, pair[0], pair[1])).sum::<Option<f64>>()
    };
    longest(ranks(network.size).map(way_us))
}

fn one_way_us(network: &Network, from: Rank, to: Rank) -> Option<f64> {
    network.direct(from, to).map(|(edge, _)| f64::from(edge.rtt_us) / 2.0)
}

/// The time for `bytes` bytes on the slowest of these hops, in microseconds.
fn slowest_us(network: &Network, hops: &[Hop], bytes: f64) -> Option<f64> {
    longest(
        hops.iter().map(|hop| {
            Some(hop.longer * bytes * 8000.0 / f64::from(network.kbps(hop.from, hop.to)?))
        }),
    )
}

/// The maximum, 0 for an empty iterator; `None` if any is `None`.
fn longest(mut times_us: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    times_us.try_fold(0.0, |most, us| Some(f64::max(most, us?)))
}

/// The busy time of the busiest resource, in microseconds.
fn busiest_us(network: &Network, hops: &[Hop], bytes: u64) -> Option<f64> {
    let mut busy_us = vec![0.0; network.resources.len()];
    let mut senders: Vec<BTreeSet<Rank>> = vec![BTreeSet::new(); network.resources.len()];
    for hop in hops {
        for busy in network.direct(hop.from, hop.to)?.1 {
            busy_us[busy.resource] +=
                hop.times * hop.longer * bytes as f64 * 8000.0 / f64::from(busy.kbps);
            senders[busy.resource].insert(hop.from);
        }
    }
    let crowded =
        |index: usize| network.resources[index] == Resource::Receive && senders[index].len() > 2;
    let times = busy_us
        .into_iter()
        .enumerate()
        .map(|(index, us)| if crowded(index) { us * INCAST } else { us });
    Some(times.fold(0.0, f64::max))
}

/// The slow-down of a wired port when more than two members send to it at once, because a switch
/// drops packets that its buffer cannot hold (incast). Measured with four members at 100 Mbit/s: a
/// homogeneous mesh took 3 to 7 % longer than a ring that moves the same bytes.
const INCAST: f64 = 1.06;
/// Chunks of a window for each level of a tree. With 4 or more, chunks of 16 KiB were never late
/// with 200 Mbit/s at one of four machines.
const CHUNKS_A_LEVEL: usize = 8;
