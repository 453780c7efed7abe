//! The plan for members whose links are measured and heterogeneous.
//!
//! The candidates are the exchange of whole buffers, rings, a star around each rank, the best
//! single tree, and the best packing of trees. Each size class gets the candidate with the shortest
//! predicted duration. Buffers up to 1 KiB get the exchange if all pairs have a direct link.
//!
//! One ring has the smallest sum of round-trip times, or, with more than eight members, goes to the
//! nearest remaining member each time. If the network has segments, another one crosses each of
//! them once in each direction, which is as little as a ring can.

use super::codec_choice::with_codecs;
use super::forecast::{forecast_us, window_chunks};
use super::link_map::LinkMap;
use super::network::Network;
use super::packing::Packing;
use super::planner::{gloo_plan, plan};
use super::rings::Rings;
use super::segment::Segment;
use super::single_tree::single_tree;
use crate::identity::{MemberId, NodeId};
use crate::protocol::{
    Algorithm, EngineKind, Plan, PlanClass, Rank, RankSet, Tree, TreeShare, ranks,
};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A plan for heterogeneous links, and its predicted duration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Heterogeneous {
    /// The plan.
    pub(super) plan: Plan,
    /// Predicted duration for a large buffer, in microseconds.
    us: f64,
    /// Predicted duration of a ring in rank order for the same buffer, in microseconds; `None` if
    /// some neighbours have no link.
    ring_us: Option<f64>,
}

impl Heterogeneous {
    /// The plan for these members, given in rank order. `None` if there are fewer than three, a
    /// rate is unknown, the links are homogeneous, or the links do not connect all members.
    pub(super) fn of(members: &[MemberId], links: &LinkMap) -> Option<Heterogeneous> {
        if members.len() < 3 {
            return None;
        }
        let network = Network::of(members, links).filter(|network| !network.is_even())?;
        let packing = Packing::of(&network)?;
        let rings = [Rings::new(members, links).best(), by_sides(members, links, &network)];
        let candidates = Candidates::of(&network, rings.into_iter().flatten(), &packing);
        let classes = candidates.classes()?;
        let large = classes.last()?;
        let us = candidates.us(&large.algorithm, LARGE_BYTES, large)?;
        let ring = Algorithm::Ring { order: ranks(members.len()).collect() };
        let ring_us = candidates.us(&ring, LARGE_BYTES, large);
        let shared = shared(members, links.segments());
        let reason = candidates.reason(large, us, packing.bound_kbps) + &shared;
        let reason = Plan::cut_reason(&reason, 0).to_owned();
        Some(Heterogeneous { plan: Plan { revision: 0, reason, classes }, us, ring_us })
    }

    /// Whether the plan is more than a tenth faster for a large buffer than a ring in rank order.
    pub(super) fn is_worth_it(&self) -> bool {
        self.ring_us.is_none_or(|ring_us| ring_us > self.us * WORTH_IT)
    }
}

/// A plan for these members that is more than a tenth faster for a large buffer than their present
/// one, according to the current measurements. A smaller gain does not justify holding calls.
/// `None` if there is no such plan, or a rate is unknown. For `have_gloo` see [`best_plan`].
pub fn better_plan(
    members: &[MemberId],
    links: &LinkMap,
    present: &Plan,
    have_gloo: bool,
) -> Option<Plan> {
    let network = Network::of(members, links)?;
    let us = |plan: &Plan| {
        let class = plan.class_for(LARGE_BYTES);
        forecast_us(&network, &class.algorithm, LARGE_BYTES, class.chunk_bytes)
    };
    let better = best_plan(members, links, have_gloo);
    let us_better = us(&better)?;
    let is_better = us(present).is_none_or(|us_present| us_present > us_better * WORTH_IT);
    is_better.then_some(better)
}

/// The best plan for these members according to the current measurements. `have_gloo` means that
/// all members offer Gloo and have direct links to each other. Then the plan uses Gloo's algorithms
/// unless a plan for heterogeneous links is more than a tenth faster than a ring in rank order.
pub fn best_plan(members: &[MemberId], links: &LinkMap, have_gloo: bool) -> Plan {
    let best = match Heterogeneous::of(members, links) {
        Some(heterogeneous) if !have_gloo || heterogeneous.is_worth_it() => heterogeneous.plan,
        _ if have_gloo => gloo_plan(members.len()),
        _ => plan(members, links),
    };
    with_codecs(members, links, best)
}

/// Other plans than the present one, with the best schedules of each kind for large buffers: those
/// that are predicted to take at most `us_max` microseconds for [`RUNNER_UPS_BYTES`], the fastest
/// first.
pub fn runner_ups(members: &[MemberId], links: &LinkMap, present: &Plan, us_max: f64) -> Vec<Plan> {
    let Some(network) = Network::of(members, links) else { return Vec::new() };
    let Some(packing) = Packing::of(&network) else { return Vec::new() };
    let rings = [Rings::new(members, links).best(), by_sides(members, links, &network)];
    let candidates = Candidates::of(&network, rings.into_iter().flatten(), &packing);
    // Small buffers stay as they are, unless they are Gloo's: a plan has one engine.
    let base = match present.engine() {
        EngineKind::Gloo => plan(members, links),
        EngineKind::Native => present.clone(),
    };
    let with = |algorithm: &Algorithm| {
        let reason =
            format!("tried {}, because operations took longer than predicted", in_words(algorithm));
        let small = base.classes.iter().filter(|class| class.bytes_max <= SIZES[1].0).cloned();
        let large = SIZES[2..].iter().map(|(bytes_max, typical_bytes, kib_max)| {
            let best = candidates.best_chunk(algorithm, *typical_bytes, *kib_max);
            candidates.class(*bytes_max, best.map_or(*kib_max, |(_, kib)| kib), algorithm)
        });
        let plan = Plan { revision: 0, reason, classes: small.chain(large).collect() };
        with_codecs(members, links, plan)
    };
    let mut timed: Vec<(f64, &Algorithm)> = candidates.best_of_each_kind().collect();
    let present = &present.class_for(u64::MAX).algorithm;
    timed.retain(|(us, algorithm)| *us <= us_max && *algorithm != present);
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Equal ones have equal durations.
    timed.dedup_by(|a, b| a.1 == b.1);
    timed.into_iter().take(RUNNER_UPS_MAX).map(|(_, algorithm)| with(algorithm)).collect()
}

/// Predicted durations of an all-reduce under this plan: for each buffer size in `bytes` the size
/// and the duration in microseconds. Sizes without a forecast are left out: all of them if a rate
/// is unknown, and those whose class uses Gloo's exchange or bcube.
pub fn forecasts_us<const N: usize>(
    members: &[MemberId],
    links: &LinkMap,
    plan: &Plan,
    bytes: [u64; N],
) -> Vec<(u64, f64)> {
    let Some(network) = Network::of(members, links) else { return Vec::new() };
    let us = |bytes: u64| {
        let class = plan.class_for(bytes);
        forecast_us(&network, &class.algorithm, bytes, class.chunk_bytes)
    };
    bytes.into_iter().filter_map(|bytes| Some((bytes, us(bytes)?))).collect()
}

/// The candidate schedules. Of equally fast ones the first is taken: rings, a single tree, trees,
/// stars, exchange.
struct Candidates<'a> {
    network: &'a Network,
    rings: Vec<Algorithm>,
    tree: Option<Algorithm>,
    trees: Algorithm,
    hubs: Vec<Algorithm>,
    exchange: Option<Algorithm>,
}

impl<'a> Candidates<'a> {
    fn of(
        network: &'a Network,
        orders: impl Iterator<Item = Vec<Rank>>,
        packing: &Packing,
    ) -> Candidates<'a> {
        let hub = |rank| Algorithm::tree(Tree::star(rank, network.size));
        Candidates {
            network,
            rings: orders.map(|order| Algorithm::Ring { order }).collect(),
            tree: single_tree(network).map(Algorithm::tree),
            trees: Algorithm::Trees { trees: packing.trees.clone() },
            hubs: ranks(network.size).map(hub).collect(),
            exchange: network.is_mesh().then_some(Algorithm::OneShot),
        }
    }

    fn us(&self, algorithm: &Algorithm, bytes: u64, class: &PlanClass) -> Option<f64> {
        forecast_us(self.network, algorithm, bytes, class.chunk_bytes)
    }

    /// The predicted duration with the best chunk size up to `kib_max` KiB, in microseconds, and
    /// that size. Small chunks fill a tree sooner, and each of them costs [`CHUNK_US`].
    fn best_chunk(&self, algorithm: &Algorithm, bytes: u64, kib_max: u32) -> Option<(f64, u32)> {
        let timed = |kib: u32| {
            let chunks = bytes as f64 / f64::from(kib * 1024);
            let us = forecast_us(self.network, algorithm, bytes, kib * 1024)?;
            Some((us + chunks * CHUNK_US, kib))
        };
        let kib = CHUNKS_KIB.into_iter().filter(|kib| *kib <= kib_max);
        kib.filter_map(timed).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn class(&self, bytes_max: u64, chunk_kib: u32, algorithm: &Algorithm) -> PlanClass {
        let chunk_bytes = chunk_kib * 1024;
        let window_chunks = window_chunks(self.network, algorithm, chunk_bytes).unwrap_or(0);
        PlanClass { window_chunks, ..PlanClass::new(bytes_max, chunk_bytes, algorithm.clone()) }
    }

    /// The fastest candidate for each size class. Adjacent classes with the same result are merged.
    fn classes(&self) -> Option<Vec<PlanClass>> {
        // Tiny buffers use the exchange if all pairs have a direct link. It takes one step. A plan
        // that contains it also shows that all pairs have direct links, which gathers and
        // point-to-point messages rely on.
        let tiny =
            self.exchange.iter().map(|algorithm| self.class(TINY_BYTES_MAX, SIZES[0].2, algorithm));
        let mut classes: Vec<PlanClass> = tiny.collect();
        for (bytes_max, typical_bytes, chunk_kib_max) in SIZES {
            let trees = self.tree.iter().chain([&self.trees]).chain(&self.hubs);
            let all = self.rings.iter().chain(trees).chain(&self.exchange);
            let timed = all.filter_map(|algorithm| {
                let (us, chunk_kib) = self.best_chunk(algorithm, typical_bytes, chunk_kib_max)?;
                Some((us, self.class(bytes_max, chunk_kib, algorithm)))
            });
            let (_, best) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
            classes.pop_if(|last| {
                (last.chunk_bytes, &last.algorithm) == (best.chunk_bytes, &best.algorithm)
            });
            classes.push(best);
        }
        Some(classes)
    }

    /// The schedules for large buffers: each ring, the single tree, the packing, the exchange and
    /// the fastest star; with their predicted durations for [`RUNNER_UPS_BYTES`], in microseconds.
    fn best_of_each_kind(&self) -> impl Iterator<Item = (f64, &Algorithm)> {
        let timed = move |algorithm| {
            let (us, _) = self.best_chunk(algorithm, RUNNER_UPS_BYTES, SIZES[3].2)?;
            Some((us, algorithm))
        };
        let star = self.hubs.iter().filter_map(timed).min_by(|a, b| a.0.total_cmp(&b.0));
        let trees = self.tree.iter().chain([&self.trees]).chain(&self.exchange);
        self.rings.iter().chain(trees).filter_map(timed).chain(star)
    }

    fn reason(&self, large: &PlanClass, chosen_us: f64, bound_kbps: f64) -> String {
        let chosen = in_words(&large.algorithm);
        let us = |algorithm: &Algorithm| self.us(algorithm, LARGE_BYTES, large);
        let faster = |a: &&Algorithm, b: &&Algorithm| {
            let [a, b] = [a, b].map(|ring| us(ring).unwrap_or(f64::INFINITY));
            a.total_cmp(&b)
        };
        let ring = self.rings.iter().min_by(faster);
        let others = [("round a ring", ring), ("whole to everybody", self.exchange.as_ref())];
        let against = others
            .iter()
            .filter(|(name, _)| *name != chosen)
            .filter_map(|(name, algorithm)| Some(format!("{} {name}", time(us((*algorithm)?)?))));
        let against: Vec<String> = against.collect();
        let against = if against.is_empty() {
            String::new()
        } else {
            format!(" against {}", against.join(" and "))
        };
        let bound = time(LARGE_BYTES as f64 * 8000.0 / bound_kbps);
        let size = self.network.size;
        format!(
            "{size} members whose links differ: 64 MiB {chosen} take about {}{against}; trees \
             could not take less than {bound}",
            time(chosen_us)
        )
    }
}

/// A ring that crosses each segment once in each direction; `None` if there is no segment, or if
/// two neighbours have no direct link.
///
/// Switches form a tree, so of two sides that do not contain rank 0, one contains the other, or
/// they have no common member. In such a family of sets, this order keeps the members of each
/// together: by the largest set that a member is in, then by the next one, and so on.
fn by_sides(members: &[MemberId], links: &LinkMap, network: &Network) -> Option<Vec<Rank>> {
    let far = |segment: &Segment| {
        let [first, second] = &segment.sides;
        let side = if second.contains(&members.first()?.node) { first } else { second };
        Some(
            ranks(members.len())
                .filter(|rank| side.contains(&members[rank.index()].node))
                .collect(),
        )
    };
    let mut sides: Vec<RankSet> = links.segments().iter().filter_map(far).collect();
    sides.retain(|side| !side.is_empty());
    sides.sort_by_key(|side| (Reverse(side.len()), *side));
    let mut order: Vec<Rank> = ranks(members.len()).collect();
    order.sort_by_key(|rank| sides.iter().map(|side| side.contains(*rank)).collect::<Vec<bool>>());
    let mut next = order.iter().cycle().skip(1);
    let mut hops = order.iter().zip(&mut next);
    let is_ring = hops.all(|(from, to)| network.direct(*from, *to).is_some());
    (is_ring && !sides.is_empty()).then_some(order)
}

/// A schedule for people.
pub(super) fn in_words(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::Trees { trees } => over(trees),
        Algorithm::Ring { .. } => "round a ring".to_owned(),
        Algorithm::OneShot => "whole to everybody".to_owned(),
        Algorithm::GlooRing => "round Gloo's ring".to_owned(),
        Algorithm::GlooExchange | Algorithm::GlooBcube => "by Gloo".to_owned(),
    }
}

fn over(trees: &[TreeShare]) -> String {
    let named = |share: &TreeShare| {
        let root = share.tree.root(share.tree.parents.len());
        let root = root.map_or_else(String::new, |root| root.to_string());
        if trees.len() == 1 { root } else { format!("{root} ({} %)", (share.ppm + 5_000) / 10_000) }
    };
    let roots: Vec<String> = trees.iter().map(named).collect();
    format!("over {} to {}", if trees.len() == 1 { "a tree" } else { "trees" }, roots.join(", "))
}

/// The shared rates of the paths between these members, for people; of several segments the first
/// two.
fn shared(members: &[MemberId], segments: &[Segment]) -> String {
    let names = |side: &BTreeSet<NodeId>| {
        let at_side =
            ranks(members.len()).filter(|rank| side.contains(&members[rank.index()].node));
        at_side.map(|rank| rank.to_string()).collect::<Vec<String>>().join(", ")
    };
    let named = |segment: &Segment| {
        let [near, far] = segment.sides.each_ref().map(names);
        let mbps = segment.kbps[0].get() / 1000;
        let both = if segment.is_half { " in both directions together" } else { "" };
        (!near.is_empty() && !far.is_empty())
            .then(|| format!("; {near} and {far} share {mbps} Mbit/s between them{both}"))
    };
    segments.iter().filter_map(named).take(2).collect()
}

/// A duration for people, in seconds from one second on.
fn time(us: f64) -> String {
    if us >= 1e6 { format!("{:.2} s", us / 1e6) } else { format!("{:.2} ms", us / 1e3) }
}

/// The minimum speed-up for a change of the plan or of the engine.
const WORTH_IT: f64 = 1.1;
/// Other plans are compared by their durations for this size.
pub const RUNNER_UPS_BYTES: u64 = LARGE_BYTES;
/// At most so many are worth a trial.
const RUNNER_UPS_MAX: usize = 3;
const KIB: u64 = 1024;
const TINY_BYTES_MAX: u64 = KIB;
/// The buffer size by which plans are compared.
const LARGE_BYTES: u64 = 64 * 1024 * KIB;
/// The assumed cost of a chunk to a processor, in microseconds: frames, system calls and threads.
const CHUNK_US: f64 = 20.0;
const CHUNKS_KIB: [u32; 5] = [16, 32, 64, 128, 256];
/// Size classes: the largest buffer, the buffer for which durations are predicted, and the largest
/// chunk in KiB, which suits a ring at 1 Gbit/s.
const SIZES: [(u64, u64, u32); 4] = [
    (16 * KIB, 8 * KIB, 16),
    (256 * KIB, 64 * KIB, 32),
    (1024 * KIB, 512 * KIB, 64),
    (u64::MAX, LARGE_BYTES, 256),
];

#[cfg(test)]
mod tests;
