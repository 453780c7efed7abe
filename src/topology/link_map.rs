//! The directed graph of links between members: reachability, direct or relayed, round-trip times
//! and measured rates, as the members have proven and reported them.
//!
//! A member reaches another if it has a control link to it, which other members may relay. Bulk
//! data needs a direct link.

#[cfg(test)]
pub(crate) use testing::{links_of, path};

use super::clique::largest_clique;
use super::known_paths::{KnownCoding, KnownPath, KnownPaths};
use super::port::Port;
use super::segment::Segment;
use crate::identity::{MemberId, NodeId};
use crate::os::{HostId, InterfaceKind};
use crate::protocol::{CodingSpeed, MEMBERS_MAX};
use foldhash::fast::FixedState;
use petgraph::Directed;
use petgraph::Direction::{Incoming, Outgoing};
use petgraph::graphmap::GraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// The directed graph of working links between members.
///
/// A directed edge exists if its sender has proven the link by bytes that came back, or reports
/// that it has one. The map does not bound itself: the caller limits the members that it adds and
/// removes those that it no longer trusts.
#[derive(Clone, Debug, Default)]
pub struct LinkMap {
    // The fixed seed makes two runs identical; results are sorted wherever order is visible.
    graph: GraphMap<MemberId, DirectedLink, Directed, FixedState>,
    /// Measurements of links, by machine. They survive while a link is re-established and its edge
    /// is missing, and also when a process is started again.
    paths: BTreeMap<(NodeId, NodeId), Path>,
    /// How fast the members encode and decode, by machine.
    coding: BTreeMap<NodeId, CodingSpeed>,
    /// The hosts of the members, as far as these can share memory with others.
    hosts: BTreeMap<MemberId, HostId>,
    /// Parts of the network that several paths share.
    segments: Vec<Segment>,
    /// The nodes between which all segments are known.
    searched: BTreeSet<NodeId>,
}

/// The measured properties of a proven path. Both directions of a pair use the same link, so each
/// end reports its own port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Idle round-trip time in microseconds.
    pub rtt_us: u32,
    /// The sender's port.
    pub port: Port,
    /// The rate of the otherwise idle path in kbit/s of payload; `None` if not measured.
    pub rate_kbps: Option<NonZeroU32>,
    /// The rate is of an earlier run, and was not measured since.
    pub is_recalled: bool,
}

impl Path {
    /// A path that works but has no measured port or rate.
    pub fn unmeasured(rtt_us: u32) -> Path {
        let port = Port::unmeasured(InterfaceKind::Other, 0);
        Path { rtt_us, port, rate_kbps: None, is_recalled: false }
    }
}

/// One directed edge of the graph. If there is no [`Path`] for it, the link is only reported.
#[derive(Clone, Copy, Debug, Default)]
struct DirectedLink {
    /// Other members relay the link.
    relayed: bool,
}

impl LinkMap {
    /// An empty map.
    pub fn new() -> LinkMap {
        LinkMap::default()
    }

    /// Records that `from` has proven a path to `to`. This replaces earlier knowledge of the path.
    pub fn observe(&mut self, from: MemberId, to: MemberId, path: Path) {
        if from != to {
            if !self.graph.contains_edge(from, to) {
                self.graph.add_edge(from, to, DirectedLink::default());
            }
            self.paths.insert((from.node, to.node), path);
        }
    }

    /// Records that `from` has proven a path to `to` with this round-trip time, and with this port
    /// if it is known. A rate measured through another port is discarded; a rate through the same
    /// port is kept.
    pub fn round_trip(&mut self, from: MemberId, to: MemberId, rtt_us: u32, port: Option<Port>) {
        let is_same = |known: &&Path| port.is_none_or(|port| port.number == known.port.number);
        let known = self.paths.get(&(from.node, to.node)).filter(is_same).copied();
        // The usual case: members report all their round trips again and again.
        if known.is_some_and(|path| path.rtt_us == rtt_us) && self.graph.contains_edge(from, to) {
            return;
        }
        let path = known.unwrap_or_else(|| {
            let unmeasured = Path::unmeasured(rtt_us);
            Path { port: port.unwrap_or(unmeasured.port), ..unmeasured }
        });
        self.observe(from, to, Path { rtt_us, ..path });
    }

    /// Records the rate of a path that leaves its sender through this port, in kbit/s of payload.
    /// The rate is stored even if the edge is missing because the link is being re-established.
    pub fn rate(&mut self, from: MemberId, to: MemberId, port: Port, kbps: NonZeroU32) {
        if from != to {
            let known = self.paths.get(&(from.node, to.node));
            let rtt_us = known.map_or(RTT_UNKNOWN_US, |path| path.rtt_us);
            let same = known.filter(|path| path.port.number == port.number);
            let port = Port { cell: port.cell.or(same.and_then(|path| path.port.cell)), ..port };
            self.paths.insert(
                (from.node, to.node),
                Path { port, rate_kbps: Some(kbps), ..Path::unmeasured(rtt_us) },
            );
        }
    }

    /// Records how fast a member encodes and decodes, as reported by itself.
    pub fn set_coding(&mut self, member: MemberId, speed: CodingSpeed) {
        self.coding.insert(member.node, speed);
    }

    /// The coding speed of a member; all unknown if the member has not reported it.
    pub fn coding(&self, member: MemberId) -> CodingSpeed {
        self.coding.get(&member.node).copied().unwrap_or_default()
    }

    /// Records on which host a member runs.
    pub fn set_host(&mut self, member: MemberId, host: Option<HostId>) {
        match host {
            Some(host) => self.hosts.insert(member, host),
            None => self.hosts.remove(&member),
        };
    }

    /// Whether two members run on one host, and so share its ports.
    pub(super) fn share_host(&self, a: MemberId, b: MemberId) -> bool {
        a == b || self.hosts.get(&a).is_some_and(|host| self.hosts.get(&b) == Some(host))
    }

    /// Records that the known paths of `from` through this port share a medium. Paths that are
    /// added later are not affected.
    pub fn share(&mut self, from: MemberId, number: u32, cell: u32) {
        let leaving = self
            .paths
            .iter_mut()
            .filter(|((sender, _), path)| *sender == from.node && path.port.number == number);
        leaving.for_each(|(_, path)| path.port.cell = Some(cell));
    }

    /// Records a segment. It replaces a known one between the same sides.
    pub fn cross(&mut self, segment: Segment) {
        let [first, second] = &segment.sides;
        let is_other = |known: &Segment| {
            known.sides != segment.sides && known.sides != [second.clone(), first.clone()]
        };
        self.segments.retain(is_other);
        self.segments.push(segment);
        // A member that lies must not fill the memory.
        let most = SEGMENTS_MAX.min(self.segments.len());
        self.segments.drain(..self.segments.len() - most);
    }

    /// Records that the segments between these members are known: those that are added from now on.
    pub fn segments_follow(&mut self, members: &[MemberId]) {
        self.forget_segments(members);
        self.searched = members.iter().map(|member| member.node).collect();
    }

    fn forget_segments(&mut self, members: &[MemberId]) {
        let has_any = |segment: &Segment| {
            let is_at = |side: &BTreeSet<NodeId>| members.iter().any(|m| side.contains(&m.node));
            segment.sides.iter().all(is_at)
        };
        self.segments.retain(|segment| !has_any(segment));
        self.searched.retain(|node| members.iter().all(|member| member.node != *node));
    }

    /// Whether all segments between these members are known.
    pub fn are_segments_known(&self, members: &[MemberId]) -> bool {
        members.iter().all(|member| self.searched.contains(&member.node))
    }

    /// The known segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Forgets the rates of the paths between these members, and the shared media and segments that
    /// were detected by measuring. A Wi-Fi port stays in cell 0.
    pub fn forget_rates(&mut self, members: &[MemberId]) {
        self.forget_segments(members);
        for (from, to) in members.iter().flat_map(|from| members.iter().map(move |to| (*from, *to)))
        {
            if let Some(path) = self.paths.get_mut(&(from.node, to.node)) {
                path.rate_kbps = None;
                path.port.cell = Port::unmeasured(path.port.kind, 0).cell;
            }
        }
    }

    /// Replaces the set of members that `from` reports to reach. A path whose rate was measured is
    /// kept for the case that it is reported again; an unmeasured path is removed.
    pub fn set_reach(&mut self, from: MemberId, to: &BTreeSet<MemberId>) {
        let gone: Vec<MemberId> = self
            .graph
            .neighbors_directed(from, Outgoing)
            .filter(|other| !to.contains(other))
            .collect();
        for other in &gone {
            self.graph.remove_edge(from, *other);
            self.forget_unmeasured(from.node, other.node);
        }
        gone.into_iter().for_each(|other| self.forget_unless_named(other));
        for other in to.iter().copied().filter(|other| *other != from) {
            if !self.graph.contains_edge(from, other) {
                self.graph.add_edge(from, other, DirectedLink::default());
            }
        }
    }

    /// Records that `from` has a direct or relayed link to `to`. Measurements of the path are kept.
    pub fn set_way(&mut self, from: MemberId, to: MemberId, relayed: bool) {
        if from != to {
            self.graph.add_edge(from, to, DirectedLink { relayed });
        }
    }

    /// Marks exactly these links of `from` as relayed and all its other links as direct.
    pub fn set_relayed(&mut self, from: MemberId, to: &BTreeSet<MemberId>) {
        let others: Vec<MemberId> = self.graph.neighbors_directed(from, Outgoing).collect();
        for other in others {
            if let Some(way) = self.graph.edge_weight_mut(from, other) {
                way.relayed = to.contains(&other);
            }
        }
    }

    /// A copy of the map in which these pairs have no direct link.
    #[must_use]
    pub fn without(
        &self,
        no_direct_link: impl IntoIterator<Item = (MemberId, MemberId)>,
    ) -> LinkMap {
        let mut links = self.clone();
        for (a, b) in no_direct_link.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
            if let Some(way) = links.graph.edge_weight_mut(a, b) {
                way.relayed = true;
            }
        }
        links
    }

    /// Removes a member that has no edges left. Names cost an attacker nothing, so they are not
    /// kept.
    fn forget_unless_named(&mut self, member: MemberId) {
        let is_named = self
            .graph
            .neighbors_directed(member, Outgoing)
            .chain(self.graph.neighbors_directed(member, Incoming))
            .next()
            .is_some();
        if !is_named {
            self.graph.remove_node(member);
        }
    }

    /// The members to which `from` reports a direct link, by id.
    pub fn direct_from(&self, from: MemberId) -> BTreeSet<MemberId> {
        self.graph
            .edges_directed(from, Outgoing)
            .filter(|(_, _, way)| !way.relayed)
            .map(|(_, to, _)| to)
            .collect()
    }

    /// All members in the graph, by id.
    pub fn known(&self) -> BTreeSet<MemberId> {
        self.graph.nodes().collect()
    }

    /// Whether `from` reports a direct link to `to`.
    pub fn is_direct(&self, from: MemberId, to: MemberId) -> bool {
        self.graph.edge_weight(from, to).is_some_and(|way| !way.relayed)
    }

    /// Removes all edges from and to a member, and its paths without a measured rate. Rates and
    /// coding speeds stay: they are of the machine, which may start another process.
    pub fn forget(&mut self, member: MemberId) {
        self.graph.remove_node(member);
        let others: BTreeSet<NodeId> = self.paths.keys().flat_map(|(a, b)| [*a, *b]).collect();
        for other in others {
            self.forget_unmeasured(member.node, other);
            self.forget_unmeasured(other, member.node);
        }
        self.hosts.remove(&member);
        let are_many = self.coding.len() > KnownPaths::NODES_MAX;
        if are_many || self.paths.len() > KnownPaths::PATHS_MAX {
            // Names cost an attacker nothing, so no more of the absent are kept.
            let present: BTreeSet<NodeId> = self.graph.nodes().map(|member| member.node).collect();
            self.paths.retain(|(from, to), _| present.contains(from) && present.contains(to));
            self.coding.retain(|node, _| present.contains(node));
        }
    }

    /// Forgets the path from one machine to another if its rate was not measured, and if no process
    /// of the one has a link to a process of the other.
    fn forget_unmeasured(&mut self, from: NodeId, to: NodeId) {
        let is_measured = |path: &Path| path.rate_kbps.is_some();
        if self.paths.get(&(from, to)).is_some_and(|path| !is_measured(path))
            && !self.graph.all_edges().any(|(a, b, _)| (a.node, b.node) == (from, to))
        {
            self.paths.remove(&(from, to));
        }
    }

    /// The measured paths, segments and coding speeds, for the next start. Paths between present
    /// members come first.
    pub fn known_paths(&self) -> KnownPaths {
        let present: BTreeSet<NodeId> = self.graph.nodes().map(|member| member.node).collect();
        let known = |((from, to), path): (&(NodeId, NodeId), &Path)| {
            let Port { kind, number, cell, .. } = path.port;
            let (from, to, rtt_us, rate_kbps) = (*from, *to, path.rtt_us, path.rate_kbps?);
            Some(KnownPath { from, to, kind, number, cell, rtt_us, rate_kbps })
        };
        let is_absent =
            |path: &KnownPath| !present.contains(&path.from) || !present.contains(&path.to);
        let mut paths: Vec<KnownPath> = self.paths.iter().filter_map(known).collect();
        paths.sort_by_key(is_absent);
        paths.truncate(KnownPaths::PATHS_MAX);
        let coding =
            self.coding.iter().map(|(node, speed)| KnownCoding { node: *node, speed: *speed });
        let mut coding: Vec<KnownCoding> = coding.collect();
        coding.sort_by_key(|known| !present.contains(&known.node));
        coding.truncate(KnownPaths::NODES_MAX);
        let (segments, searched) = (self.segments.clone(), self.searched.clone());
        KnownPaths { paths, segments, searched, coding }
    }

    /// Takes over the paths that were known when this node ended. Each rate counts until it is
    /// measured again.
    pub fn recall(&mut self, known: KnownPaths) {
        for KnownPath { from, to, kind, number, cell, rtt_us, rate_kbps } in known.paths {
            let port = Port { cell, ..Port::unmeasured(kind, number) };
            let path = Path { rtt_us, port, rate_kbps: Some(rate_kbps), is_recalled: true };
            self.paths.entry((from, to)).or_insert(path);
        }
        known.segments.into_iter().for_each(|segment| self.cross(segment));
        self.searched = known.searched;
        self.coding.extend(known.coding.into_iter().map(|known| (known.node, known.speed)));
    }

    /// The known properties of the path from one member to another; `None` while the edge is
    /// missing or nothing is recorded.
    pub fn path(&self, from: MemberId, to: MemberId) -> Option<Path> {
        let path = self.paths.get(&(from.node, to.node));
        path.filter(|_| self.graph.contains_edge(from, to)).copied()
    }

    /// The round-trip time between two members; if both have measured it, the larger value.
    pub fn rtt_us(&self, a: MemberId, b: MemberId) -> Option<u32> {
        let measured = |from, to| self.path(from, to).map(|path| path.rtt_us);
        measured(a, b).max(measured(b, a))
    }

    /// Whether both members reach each other. A member reaches itself.
    pub fn reachable_both_ways(&self, a: MemberId, b: MemberId) -> bool {
        a == b || self.graph.contains_edge(a, b) && self.graph.contains_edge(b, a)
    }

    /// Whether both members report a direct link to each other.
    pub fn direct_both_ways(&self, a: MemberId, b: MemberId) -> bool {
        self.is_direct(a, b) && self.is_direct(b, a)
    }

    /// Whether all pairs of these members have direct links.
    pub fn is_mesh(&self, members: &BTreeSet<MemberId>) -> bool {
        members.iter().all(|a| members.range(..*a).all(|b| self.direct_both_ways(*a, *b)))
    }

    /// The connected component of `me` among `members` over direct links, including `me`.
    /// Reductions need direct links, so members outside of it cannot take part.
    pub fn joined_with(&self, me: MemberId, members: &BTreeSet<MemberId>) -> BTreeSet<MemberId> {
        let (mut joined, mut open) = (BTreeSet::from([me]), vec![me]);
        while let Some(at) = open.pop() {
            for next in members.iter().filter(|next| self.direct_both_ways(at, **next)) {
                if joined.insert(*next) {
                    open.push(*next);
                }
            }
        }
        joined
    }

    /// Whether all pairs of these members reach each other, directly or relayed.
    pub fn is_clique(&self, members: &BTreeSet<MemberId>) -> bool {
        members.iter().all(|a| members.range(..*a).all(|b| self.reachable_both_ways(*a, *b)))
    }

    /// The largest clique that contains `me`, at most `MEMBERS_MAX` members: the group that can
    /// form a View.
    ///
    /// Ties are broken by the larger number of members in `prefer`, then by the smaller ids. The
    /// search is exact among 63 neighbours of `me`, preferred ones first, then smaller ids; in a
    /// graph with very many cliques it ends with the best one found. Other neighbours are ignored.
    pub fn largest_clique_with(
        &self,
        me: MemberId,
        prefer: &BTreeSet<MemberId>,
    ) -> BTreeSet<MemberId> {
        let candidates = self.candidates(me, prefer);
        let mask_of = |wanted: &dyn Fn(MemberId) -> bool| {
            candidates
                .iter()
                .enumerate()
                .filter(|(_, id)| wanted(**id))
                .fold(0u64, |mask, (i, _)| mask | 1 << i)
        };
        let neighbours = candidates
            .iter()
            .map(|a| mask_of(&|b| *a != b && self.reachable_both_ways(*a, b)))
            .collect();
        let largest = largest_clique(neighbours, mask_of(&|id| prefer.contains(&id)));
        let chosen =
            candidates.iter().enumerate().filter(|(i, _)| largest >> i & 1 == 1).map(|(_, id)| *id);
        chosen.chain([me]).collect()
    }

    /// At most 63 neighbours of `me`, ordered by id.
    fn candidates(&self, me: MemberId, prefer: &BTreeSet<MemberId>) -> Vec<MemberId> {
        let neighbours = self
            .graph
            .neighbors_directed(me, Outgoing)
            .filter(|other| self.reachable_both_ways(me, *other));
        let mut candidates: Vec<MemberId> = neighbours.collect();
        candidates.sort_unstable_by_key(|id| (!prefer.contains(id), *id));
        candidates.truncate(CANDIDATES_MAX);
        candidates.sort_unstable();
        candidates
    }
}

/// An unmeasured link is assumed to lie between a wire (0.2 ms) and Wi-Fi (2 ms and up).
const RTT_UNKNOWN_US: u32 = 1000;
/// Twice the size of a View: enough to find the best View.
const CANDIDATES_MAX: usize = 2 * MEMBERS_MAX - 1;
/// A View of `MEMBERS_MAX` members on switches of two has this many segments.
const SEGMENTS_MAX: usize = KnownPaths::SEGMENTS_MAX;

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(crate) fn path(rtt_us: u32) -> Path {
        Path { port: Port::unmeasured(InterfaceKind::Ethernet, 0), ..Path::unmeasured(rtt_us) }
    }

    /// A map of the members `1..=n` in which each pair has the RTT that `rtt_us` returns, if any.
    pub(crate) fn links_of(n: u8, rtt_us: impl Fn(u8, u8) -> Option<u32>) -> LinkMap {
        let mut links = LinkMap::new();
        for (a, b) in (1..=n).flat_map(|a| (1..a).map(move |b| (b, a))) {
            if let Some(rtt_us) = rtt_us(a.min(b), a.max(b)) {
                links.observe(
                    crate::protocol::member_id(a),
                    crate::protocol::member_id(b),
                    path(rtt_us),
                );
                links.observe(
                    crate::protocol::member_id(b),
                    crate::protocol::member_id(a),
                    path(rtt_us),
                );
            }
        }
        links
    }
}

#[cfg(test)]
mod tests;
