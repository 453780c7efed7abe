//! Layer: Words.
//!
//! The group as a graph: the members, what lies between them, and how much the plan sends there.

use crate::engine::EngineKind;
use crate::error::Peer;
use crate::status::{Forecast, PathStatus, PeerStatus, Status, ViewStatus};
use crate::topology::InterfaceKind;
use crate::view::ViewId;
use std::net::SocketAddr;

/// The group of one View as this node knows it: a snapshot, see
/// [`Cluster::topology`](crate::Cluster::topology).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The View.
    pub view: ViewId,
    /// The rank of the node that tells it.
    pub me: usize,
    /// The members in rank order, at most 16.
    pub members: Vec<Peer>,
    /// The pairs of members of which at least one has said that it reaches the other one,
    /// ascending, each once.
    pub links: Vec<TopologyLink>,
    /// What the members run on.
    pub engine: EngineKind,
    /// Why the plan is as it is, in one sentence.
    pub plan: String,
    /// 0 for the plan that the View came with, more for those that took its place.
    pub plan_revision: u32,
    /// How long an `all_reduce` should take; empty as long as too little is known of the links.
    pub forecasts: Vec<Forecast>,
}

/// What lies between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyLink {
    /// The lower rank.
    pub a: usize,
    /// The higher rank.
    pub b: usize,
    /// From the lower rank to the higher one.
    pub there: LinkDirection,
    /// From the higher rank to the lower one.
    pub back: LinkDirection,
    /// Where it runs, when this node is at one of its ends.
    pub path: Option<LinkPath>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkDirection {
    /// What the sender's end is made of, as far as it has told.
    pub kind: Option<InterfaceKind>,
    /// Which medium that shares with the other ends of the same number, of which one sends at a
    /// time, as radio does; `None` for a wire, or where nobody has found out.
    pub medium: Option<u32>,
    /// Round-trip time in microseconds as its sender sees it, as far as it has told.
    pub rtt_us: Option<u32>,
    /// What it carries while nothing else goes on, in bit/s of payload; `None` where nobody has
    /// measured it, as inside one machine. At most 8 Gbit/s are told apart.
    pub rate_bps: Option<u64>,
    /// How much goes this way while a buffer of 64 MiB is reduced, in millionths of the buffer: 1
    /// 500 000 round a ring of four. `None` where the plan sends nothing, or leaves it to Gloo's
    /// bcube.
    pub share_ppm: Option<u32>,
}

/// Where a link of this node runs. The data link keeps to the interface of the control link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkPath {
    /// The name of this machine's interface; `None` where none has the address, as inside one
    /// process.
    pub interface: Option<String>,
    /// This end.
    pub local: Option<SocketAddr>,
    /// Where the other end listens.
    pub remote: SocketAddr,
}

impl Status {
    /// The same as a graph, with how much the plan sends over each link. `None` while there is no
    /// View.
    pub fn topology(&self) -> Option<Topology> {
        let view = self.view.as_ref()?;
        let me = view.members.iter().position(|member| member.node == self.node)?;
        let ranks = 0..view.members.len();
        let pairs =
            ranks.clone().flat_map(|a| ranks.clone().filter(move |b| a < *b).map(move |b| (a, b)));
        Some(Topology {
            view: view.id,
            me,
            members: view.members.clone(),
            links: pairs.filter_map(|pair| link(self, view, me, pair)).collect(),
            engine: view.engine,
            plan: view.plan.clone(),
            plan_revision: view.plan_revision,
            forecasts: view.forecasts.clone(),
        })
    }
}

impl Topology {
    /// What a member sends or receives at most, whichever is less, in bit/s of payload, by what was
    /// measured of its links; `None` where that is nothing. A port that is faster than all others
    /// shows no more than they do.
    pub fn port_bps(&self, rank: usize) -> Option<u64> {
        let ways = |sends: bool| {
            let its =
                self.links.iter().filter_map(move |link| match (link.a == rank, link.b == rank) {
                    (true, _) => Some(if sends { link.there } else { link.back }),
                    (_, true) => Some(if sends { link.back } else { link.there }),
                    _ => None,
                });
            its.filter_map(|way| way.rate_bps).max()
        };
        Some(ways(true)?.min(ways(false)?))
    }

    /// The rank for which the others wait most: whose port carries less than four fifths of what
    /// any other one does. `None` where there is no such member, or the port of one has not been
    /// measured.
    pub fn slowest(&self) -> Option<usize> {
        let ranks = 0..self.members.len();
        let mut ports =
            ranks.map(|rank| Some((self.port_bps(rank)?, rank))).collect::<Option<Vec<_>>>()?;
        ports.sort_unstable();
        let [(least, rank), (next, _), ..] = ports[..] else { return None };
        (least.saturating_mul(5) < next.saturating_mul(4)).then_some(rank)
    }
}

fn link(
    status: &Status,
    view: &ViewStatus,
    me: usize,
    (a, b): (usize, usize),
) -> Option<TopologyLink> {
    let [there, back] = [(a, b), (b, a)]
        .map(|(from, to)| view.paths.iter().find(|path| (path.from, path.to) == (from, to)));
    if there.is_none() && back.is_none() {
        return None;
    }
    let direction = |(from, to): (usize, usize), path: Option<&PathStatus>| LinkDirection {
        kind: path.and_then(|path| path.kind),
        medium: path.and_then(|path| path.medium),
        rtt_us: path.and_then(|path| path.rtt_us),
        rate_bps: path.and_then(|path| path.rate_kbps).map(|kbps| u64::from(kbps) * 1000),
        share_ppm: view
            .shares
            .iter()
            .find(|share| (share.from, share.to) == (from, to))
            .map(|share| share.ppm),
    };
    let other = if a == me { Some(b) } else { (b == me).then_some(a) };
    let peer = other
        .and_then(|other| status.peers.iter().find(|peer| peer.node == view.members[other].node));
    let path = |peer: &PeerStatus| LinkPath {
        interface: peer.interface.clone(),
        local: peer.local,
        remote: peer.address,
    };
    Some(TopologyLink {
        a,
        b,
        there: direction((a, b), there),
        back: direction((b, a), back),
        path: peer.map(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Name, NodeId};
    use crate::view::Rank;
    use crate::view::testing::view_of;

    /// Three members, of which `ports` says in Mbit/s what they carry.
    fn of_ports(ports: [Option<u32>; 3]) -> Topology {
        let carries = |a: usize, b: usize| Some(u64::from(ports[a]?.min(ports[b]?)) * 1_000_000);
        let way = |a, b| LinkDirection { rate_bps: carries(a, b), ..LinkDirection::default() };
        let link = |a, b| TopologyLink { a, b, there: way(a, b), back: way(b, a), path: None };
        let member = |rank: u8| Peer {
            rank: Rank(rank),
            name: Name::from_lossy("x"),
            node: NodeId([rank; 32]),
        };
        Topology {
            view: view_of(3).id(),
            me: 0,
            members: (0..3).map(member).collect(),
            links: vec![link(0, 1), link(0, 2), link(1, 2)],
            engine: EngineKind::Native,
            plan: String::new(),
            plan_revision: 0,
            forecasts: Vec::new(),
        }
    }

    #[test]
    fn who_is_slow_is_named_where_all_are_measured_and_one_stands_out() {
        let topology = of_ports([Some(940), Some(940), Some(100)]);
        assert_eq!(
            [0, 1, 2].map(|rank| topology.port_bps(rank)),
            [Some(940_000_000), Some(940_000_000), Some(100_000_000)]
        );
        assert_eq!(topology.slowest(), Some(2));
        assert_eq!(
            of_ports([Some(940), Some(800), Some(760)]).slowest(),
            None,
            "nobody stands out"
        );
        assert_eq!(of_ports([Some(940), Some(100), Some(100)]).slowest(), None, "two are");
        assert_eq!(of_ports([Some(940), Some(940), None]).slowest(), None, "one may be anything");
        assert_eq!(of_ports([None; 3]).port_bps(3), None, "there is no such rank");
    }
}
