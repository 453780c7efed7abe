//! The group as a graph: the members, the links between them, and the traffic that the plan puts on
//! each link.

use super::error::Peer;
use super::status::{Forecast, PathStatus, PeerStatus, Status, ViewStatus};
use crate::os::InterfaceKind;
use crate::protocol::{EngineKind, Rank, ViewId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The group of one View as this node knows it. A snapshot, see
/// [`Cluster::topology`](crate::Cluster::topology).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The View.
    pub view: ViewId,
    /// The rank of the node that reports.
    pub me: Rank,
    /// The members in rank order, at most 32.
    pub members: Vec<Peer>,
    /// One link for each pair of members of which at least one has reported that it reaches the
    /// other, in ascending order, each pair once.
    pub links: Vec<TopologyLink>,
    /// The engine that new calls run on.
    pub engine: EngineKind,
    /// The reason for the plan, in one sentence.
    pub plan: String,
    /// 0 for the View's first plan, larger for each plan that replaced it.
    pub plan_revision: u32,
    /// Predicted durations of an `all_reduce`; empty while too few links are measured.
    pub forecasts: Vec<Forecast>,
}

/// The link between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyLink {
    /// The lower rank.
    pub a: Rank,
    /// The higher rank.
    pub b: Rank,
    /// From the lower rank to the higher one.
    pub there: LinkDirection,
    /// From the higher rank to the lower one.
    pub back: LinkDirection,
    /// The local end of the link, if this node is one of its ends.
    pub path: Option<LinkPath>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkDirection {
    /// The kind of the sender's interface; `None` until the sender has reported it.
    pub kind: Option<InterfaceKind>,
    /// The number of the shared medium of this link. Ends with the same number share it: only one
    /// of them sends at a time, as with radio. `None` for a wire, or if unknown.
    #[serde(default)]
    pub medium: Option<u32>,
    /// Round-trip time in microseconds as measured by the sender; `None` until the sender has
    /// reported it.
    pub rtt_us: Option<u32>,
    /// The payload rate of the idle link in bit/s; `None` if not measured, as inside one machine.
    /// Rates above 8 Gbit/s are not told apart.
    pub rate_bps: Option<u64>,
    /// The traffic in this direction for the reduction of a buffer of 64 MiB, in millionths of the
    /// buffer: 1 500 000 in a ring of four. `None` if the plan sends nothing here, or uses Gloo's
    /// bcube.
    pub share_ppm: Option<u32>,
}

/// The local end of a link of this node. The data link uses the same interface as the control link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkPath {
    /// The name of the local interface; `None` if no interface has the local address, as inside one
    /// process.
    pub interface: Option<String>,
    /// The local address.
    pub local: Option<SocketAddr>,
    /// The address at which the peer listens; for a relayed link, that of the first relay.
    pub remote: SocketAddr,
}

impl Status {
    /// This status as a graph, with the traffic that the plan puts on each link. `None` while there
    /// is no View.
    pub fn topology(&self) -> Option<Topology> {
        let view = self.view.as_ref()?;
        let ranks = || view.members.iter().map(|member| member.rank);
        let me = view.members.iter().find(|member| member.node == self.node)?.rank;
        let pairs = ranks().flat_map(|a| ranks().filter(move |b| a < *b).map(move |b| (a, b)));
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
    /// The measured rate of a member's port in bit/s of payload: the highest rate at which it sends
    /// over any link, or that at which it receives, whichever is lower. `None` if one of the two is
    /// not measured. A port that is faster than all others shows only the rate of the fastest other
    /// port.
    pub fn port_bps(&self, rank: impl Into<Rank>) -> Option<u64> {
        let rank = rank.into();
        let rate = |sends: bool| {
            let its =
                self.links.iter().filter_map(move |link| match (link.a == rank, link.b == rank) {
                    (true, _) => Some(if sends { link.there } else { link.back }),
                    (_, true) => Some(if sends { link.back } else { link.there }),
                    _ => None,
                });
            its.filter_map(|direction| direction.rate_bps).max()
        };
        Some(rate(true)?.min(rate(false)?))
    }

    /// The rank that slows the group down: the one whose port carries less than four fifths of the
    /// rate of every other port. `None` if no rank stands out, or if the port of any member is not
    /// measured.
    pub fn slowest(&self) -> Option<Rank> {
        let ranks = self.members.iter().map(|member| member.rank);
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
    me: Rank,
    (a, b): (Rank, Rank),
) -> Option<TopologyLink> {
    let [there, back] = [(a, b), (b, a)]
        .map(|(from, to)| view.paths.iter().find(|path| (path.from, path.to) == (from, to)));
    if there.is_none() && back.is_none() {
        return None;
    }
    let direction = |(from, to): (Rank, Rank), path: Option<&PathStatus>| LinkDirection {
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
    let node = other.and_then(|other| view.members.get(other.index())).map(|member| member.node);
    let peer = node.and_then(|node| status.peers.iter().find(|peer| peer.node == node));
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
    use crate::protocol::view_of;

    /// Three members whose ports carry these rates in Mbit/s.
    fn of_ports(ports: [Option<u32>; 3]) -> Topology {
        let carries = |a: usize, b: usize| Some(u64::from(ports[a]?.min(ports[b]?)) * 1_000_000);
        let direction =
            |a, b| LinkDirection { rate_bps: carries(a, b), ..LinkDirection::default() };
        let link = |a: usize, b: usize| TopologyLink {
            a: a.into(),
            b: b.into(),
            there: direction(a, b),
            back: direction(b, a),
            path: None,
        };
        let member = |rank: u8| Peer {
            rank: Rank(rank),
            name: Name::from_lossy("x"),
            node: NodeId([rank; 32]),
        };
        Topology {
            view: view_of(3).id(),
            me: Rank(0),
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
        assert_eq!(topology.slowest(), Some(Rank(2)));
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
