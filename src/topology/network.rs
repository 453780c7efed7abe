//! The capacity model of a View's links for planning: the edges between ranks, and the resources
//! that sending over an edge occupies.
//!
//! A wired port has two resources, one for sending and one for receiving. Members on one host share
//! its ports. All radios of one cell share a single resource, the air. Traffic between two stations
//! (radio members) uses the air twice, because it passes through the access point. The access
//! point's own cable needs no resource: the rate of a station is measured through it, so the air
//! saturates first. A measured rate between two stations already includes both hops.
//!
//! A segment, which is a part of the network that many paths share, has one resource for each
//! direction; if it is half duplex, one for both. A path that carries less than its ports and
//! segments has a resource of its own.
//!
//! Rates are whole kbit/s of payload. Similar rates are made equal: two measurements of the same
//! capacity differ, and a plan that follows this noise is slower than one that ignores it.

use super::link_map::{LinkMap, Path};
use super::port::Port;
use super::segment::Segment;
use crate::identity::MemberId;
use crate::os::InterfaceKind;
use crate::protocol::{Rank, Tree, ranks};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The edges between the ranks of a View and the resources that they use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// The number of ranks.
    pub(super) size: usize,
    /// The pairs of ranks with a direct link, in ascending order.
    pub(super) edges: Vec<Edge>,
    /// The resources. Each has a capacity of one second of busy time per second.
    pub(super) resources: Vec<Resource>,
}

/// A pair of ranks with a direct link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// The lower rank.
    pub(super) a: Rank,
    /// The higher rank.
    pub(super) b: Rank,
    /// Round-trip time in microseconds.
    pub(super) rtt_us: u32,
    /// The resources that are busy while the lower rank sends to the higher one.
    pub(super) there: Vec<Use>,
    /// The resources that are busy while the higher rank sends to the lower one.
    pub(super) back: Vec<Use>,
}

/// The use of one resource by a transfer: the resource is busy for as long as the transfer takes at
/// this rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Index into [`Network::resources`].
    pub(super) resource: usize,
    /// In kbit/s of payload, at least 1.
    pub(super) kbps: u32,
}

/// Anything that a transfer can occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// The sending direction of a wired port.
    Send,
    /// The receiving direction of a wired port.
    Receive,
    /// The air of a radio cell.
    Air,
    /// One direction of a segment, or both if it is half duplex.
    Segment,
    /// One direction of a path that carries less than its ports and segments.
    Path,
}

impl Network {
    /// The network of these members, given in rank order; `None` if a needed rate is unknown.
    ///
    /// A port's rate is the highest rate that was measured for the port itself or for any path
    /// through it: a measurement can be too low but never too high.
    pub(super) fn of(members: &[MemberId], links: &LinkMap) -> Option<Network> {
        let mut pairs = pairs(members, links)?;
        put_at_known_ports(&mut pairs);
        let owners = Owners::of(members, links);
        let ports = ports(&pairs, &owners);
        let of_ports = ports.values().flat_map(|port| [port.send_kbps, port.receive_kbps]);
        let of_paths = pairs.iter().flat_map(|pair| [pair.there.rate_kbps, pair.back.rate_kbps]);
        let segments = segments(members, links, &pairs);
        let of_segments = segments.iter().flat_map(|segment| segment.kbps).map(Some);
        let all = of_ports.chain(of_paths).chain(of_segments).flatten();
        let rates = alike(all.map(NonZeroU32::get).collect());

        let mut resources = Vec::new();
        let outlets = outlets(&ports, &rates, &mut resources)?;
        let crossings: Vec<Crossing> = segments
            .iter()
            .map(|segment| Crossing::new(segment, &rates, &mut resources))
            .collect::<Option<_>>()?;
        let mut edges = Vec::new();
        for Pair { a, b, there, back } in pairs {
            let [at_a, at_b] = [
                outlets.get(&owners.of_port(a, there.port))?,
                outlets.get(&owners.of_port(b, back.port))?,
            ];
            let (low, high) = (members[a.index()], members[b.index()]);
            let crossed = |from, to, path: Path| {
                crossings.iter().filter_map(move |crossing| crossing.busy(from, to, path)).collect()
            };
            let mut uses = |from: Use, to: Use, crossed: Vec<Use>, path: Path| {
                uses(from, to, crossed, path.rate_kbps, &rates, &mut resources)
            };
            let there_uses = uses(at_a.send, at_b.receive, crossed(low, high, there), there);
            let back_uses = uses(at_b.send, at_a.receive, crossed(high, low, back), back);
            edges.push(Edge {
                a,
                b,
                rtt_us: there.rtt_us.max(back.rtt_us),
                there: there_uses,
                back: back_uses,
            });
        }
        Some(Network { size: members.len(), edges, resources })
    }

    /// Whether enough rates of these members' links are known to judge whether the links are
    /// homogeneous.
    pub(super) fn is_known(members: &[MemberId], links: &LinkMap) -> bool {
        Network::of(members, links).is_some()
    }

    /// Whether the network is homogeneous: all pairs have a direct link, every member has a single
    /// port, the ports are all wired or all on one air, and all rates are equal. Then no plan gains
    /// by treating members differently.
    pub(super) fn is_even(&self) -> bool {
        let wired = |resource: &Resource| matches!(resource, Resource::Send | Resource::Receive);
        let one_make = self.resources == [Resource::Air]
            || self.resources.len() == 2 * self.size && self.resources.iter().all(wired);
        let mut rates = self.edges.iter().flat_map(Edge::uses).map(|busy| busy.kbps);
        let first = rates.next();
        one_make && self.is_mesh() && rates.all(|kbps| Some(kbps) == first)
    }

    /// Whether all pairs have a direct link.
    pub(super) fn is_mesh(&self) -> bool {
        self.edges.len() == self.size * self.size.saturating_sub(1) / 2
    }

    /// The edge between two ranks, and the resources that are busy while `from` sends to `to`.
    pub(super) fn direct(&self, from: Rank, to: Rank) -> Option<(&Edge, &[Use])> {
        let ends = (from.min(to), from.max(to));
        let edge = self.edges.iter().find(|edge| (edge.a, edge.b) == ends)?;
        Some((edge, if from < to { &edge.there } else { &edge.back }))
    }

    /// The rate from one rank to another: that of the slowest resource in between.
    pub(super) fn kbps(&self, from: Rank, to: Rank) -> Option<u32> {
        self.direct(from, to)?.1.iter().map(|busy| busy.kbps).min()
    }

    /// The tree of these edges, rooted where its height is smallest; `None` if these edges are no
    /// spanning tree of all ranks.
    pub(super) fn tree(&self, edges: &[usize]) -> Option<Tree> {
        Tree::lowest(self.size, |rank| {
            edges.iter().filter_map(move |edge| self.edges[*edge].other_end(rank))
        })
    }
}

impl Edge {
    /// The resources of both directions, for when both ends send.
    pub(super) fn uses(&self) -> impl Iterator<Item = &Use> {
        self.there.iter().chain(&self.back)
    }

    fn other_end(&self, rank: Rank) -> Option<Rank> {
        let other = if rank == self.a { self.b } else { self.a };
        [self.a, self.b].contains(&rank).then_some(other)
    }
}

/// Two ranks and the paths between them.
struct Pair {
    a: Rank,
    b: Rank,
    there: Path,
    back: Path,
}

/// The resources that are busy while a port sends and while it receives.
struct Outlet {
    send: Use,
    receive: Use,
}

/// The pairs with a direct link; `None` if the path between two such members is unknown.
fn pairs(members: &[MemberId], links: &LinkMap) -> Option<Vec<Pair>> {
    let ranked = || ranks(members.len()).zip(members.iter().copied());
    let pairs = ranked()
        .flat_map(|low| ranked().filter(move |high| low.0 < high.0).map(move |high| (low, high)));
    let direct = pairs.filter(|((_, a), (_, b))| links.direct_both_ways(*a, *b));
    direct
        .map(|((a, low), (b, high))| {
            Some(Pair { a, b, there: links.path(low, high)?, back: links.path(high, low)? })
        })
        .collect()
}

/// Assigns a port to paths that are only reported by others. The report of an unmeasured path does
/// not name the sender's port. Such a path is assumed to leave through the slowest known port of
/// its sender until it is measured: a cable to a single member is faster than the port that leads
/// to all.
fn put_at_known_ports(pairs: &mut [Pair]) {
    let mut slowest: BTreeMap<Rank, (NonZeroU32, Port)> = BTreeMap::new();
    for (rank, path) in pairs.iter().flat_map(|pair| [(pair.a, pair.there), (pair.b, pair.back)]) {
        if let Some(kbps) = path.rate_kbps {
            let least = slowest.entry(rank).or_insert((kbps, path.port));
            *least = if kbps < least.0 { (kbps, path.port) } else { *least };
        }
    }
    let is_unknown = |path: &Path| {
        path.rate_kbps.is_none() && path.port == Port::unmeasured(InterfaceKind::Other, 0)
    };
    for (rank, path) in
        pairs.iter_mut().flat_map(|pair| [(pair.a, &mut pair.there), (pair.b, &mut pair.back)])
    {
        if let Some((_, port)) = slowest.get(&rank).filter(|_| is_unknown(path)) {
            path.port = *port;
        }
    }
}

/// For each rank, the lowest rank on its host.
struct Owners(Vec<Rank>);

impl Owners {
    fn of(members: &[MemberId], links: &LinkMap) -> Owners {
        let owner = |member: &MemberId| {
            members.iter().position(|other| links.share_host(*other, *member)).unwrap_or_default()
        };
        Owners(members.iter().map(owner).map(Rank::from).collect())
    }

    /// The name of a port: its owner and its number. The data between members of one host goes
    /// through memory, which each of them reads and writes for itself.
    fn of_port(&self, rank: Rank, port: Port) -> (Rank, u32) {
        let is_memory = port.kind == InterfaceKind::Loopback;
        (if is_memory { rank } else { self.0[rank.index()] }, port.number)
    }
}

/// All ports by name, each with the highest rates that were measured for it.
fn ports(pairs: &[Pair], owners: &Owners) -> BTreeMap<(Rank, u32), Port> {
    let mut ports: BTreeMap<(Rank, u32), Port> = BTreeMap::new();
    for Pair { a, b, there, back } in pairs {
        for (rank, out, into) in [(*a, there, back), (*b, back, there)] {
            let port = ports.entry(owners.of_port(rank, out.port)).or_insert(out.port);
            port.send_kbps = port.send_kbps.max(out.port.send_kbps).max(out.rate_kbps);
            // The cell may be known on only some of the paths through this port.
            port.cell = port.cell.max(out.port.cell);
            port.receive_kbps = port.receive_kbps.max(out.port.receive_kbps).max(into.rate_kbps);
        }
    }
    ports
}

/// The resources of each port; `None` if a rate is missing.
fn outlets(
    ports: &BTreeMap<(Rank, u32), Port>,
    rates: &BTreeMap<u32, u32>,
    resources: &mut Vec<Resource>,
) -> Option<BTreeMap<(Rank, u32), Outlet>> {
    let mut cells: BTreeMap<u32, usize> = BTreeMap::new();
    let mut outlets = BTreeMap::new();
    for (name, port) in ports {
        let [send_kbps, receive_kbps] =
            [rates.get(&port.send_kbps?.get())?, rates.get(&port.receive_kbps?.get())?];
        let (send, receive) = if let Some(cell) = port.cell {
            let air = *cells.entry(cell).or_insert_with(|| added(resources, Resource::Air));
            (air, air)
        } else {
            (added(resources, Resource::Send), added(resources, Resource::Receive))
        };
        let outlet = Outlet {
            send: Use { resource: send, kbps: *send_kbps },
            receive: Use { resource: receive, kbps: *receive_kbps },
        };
        outlets.insert(*name, outlet);
    }
    Some(outlets)
}

/// A segment and the resources of its two directions.
struct Crossing<'a> {
    segment: &'a Segment,
    directions: [Use; 2],
}

impl<'a> Crossing<'a> {
    fn new(
        segment: &'a Segment,
        rates: &BTreeMap<u32, u32>,
        resources: &mut Vec<Resource>,
    ) -> Option<Crossing<'a>> {
        let there = added(resources, Resource::Segment);
        let back = if segment.is_half { there } else { added(resources, Resource::Segment) };
        let [there_kbps, back_kbps] = segment.kbps.map(|kbps| rates.get(&kbps.get()));
        let directions = [
            Use { resource: there, kbps: *there_kbps? },
            Use { resource: back, kbps: *back_kbps? },
        ];
        Some(Crossing { segment, directions })
    }

    /// The resource that is busy while this path carries something; `None` if it does not use the
    /// segment.
    fn busy(&self, from: MemberId, to: MemberId, path: Path) -> Option<Use> {
        let direction = self.segment.crossed_by(from.node, to.node, path.rate_kbps)?;
        Some(self.directions[direction])
    }
}

/// The segments that lie between these members, each with at least the rates of the paths over it:
/// a measurement can be too low but never too high.
fn segments(members: &[MemberId], links: &LinkMap, pairs: &[Pair]) -> Vec<Segment> {
    let crosses = |segment: &&Segment| {
        segment.sides.iter().all(|side| members.iter().any(|m| side.contains(&m.node)))
    };
    let mut segments: Vec<Segment> = links.segments().iter().filter(crosses).cloned().collect();
    for segment in &mut segments {
        for Pair { a, b, there, back } in pairs {
            let (a, b) = (members[a.index()], members[b.index()]);
            for (from, to, path) in [(a, b, there), (b, a, back)] {
                let crossed = segment.crossed_by(from.node, to.node, path.rate_kbps);
                if let Some((kbps, direction)) = path.rate_kbps.zip(crossed) {
                    segment.kbps[direction] = segment.kbps[direction].max(kbps);
                }
            }
        }
    }
    segments
}

/// The resources that are busy while one port sends to another along a path.
fn uses(
    from: Use,
    to: Use,
    crossed: Vec<Use>,
    path_kbps: Option<NonZeroU32>,
    rates: &BTreeMap<u32, u32>,
    resources: &mut Vec<Resource>,
) -> Vec<Use> {
    let measured = path_kbps.and_then(|kbps| rates.get(&kbps.get()));
    if let Some(kbps) = measured.filter(|_| from.resource == to.resource) {
        // Between two stations: the measured rate includes both hops.
        return vec![Use { resource: from.resource, kbps: *kbps }];
    }
    let mut uses = vec![from, to];
    uses.extend(crossed);
    let slower = measured.filter(|kbps| uses.iter().all(|busy| **kbps < busy.kbps));
    uses.extend(slower.map(|kbps| Use { resource: added(resources, Resource::Path), kbps: *kbps }));
    uses
}

fn added(resources: &mut Vec<Resource>, resource: Resource) -> usize {
    resources.push(resource);
    resources.len() - 1
}

/// The value that replaces each rate. Rates are grouped from the highest down: a group holds all
/// rates of at least four fifths of its highest one, and all of them are replaced by the group's
/// median (of two rates the lower one). For example 100, 81, 79, 66 become 81, 81, 66, 66.
///
/// With a measurement error of 10 %, a plan that used the raw rates cost a group of equal members 8
/// % and more; a plan from grouped rates cost 2 %.
fn alike(mut rates: Vec<u32>) -> BTreeMap<u32, u32> {
    rates.sort_unstable_by(|a, b| b.cmp(a));
    let least = rates.first().map_or(1, |highest| (highest / SPREAD_MAX).max(1));
    let (mut counts_as, mut left) = (BTreeMap::new(), &rates[..]);
    while let Some(first) = left.first() {
        let (group, rest) = left
            .split_at(left.partition_point(|kbps| u64::from(*kbps) * 5 >= u64::from(*first) * 4));
        let middle = group[group.len() / 2].max(least);
        counts_as.extend(group.iter().map(|kbps| (*kbps, middle)));
        left = rest;
    }
    counts_as
}

/// Rates lower than the highest one by more than this factor are raised to that bound: either one
/// dominates the duration, and sums stay exact.
const SPREAD_MAX: u32 = 10_000;

#[cfg(test)]
mod tests;
