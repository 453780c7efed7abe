//! The group as a graph, as `potluck status --json` prints it and as pictures are made of it.
//! Fields are added, never renamed or taken away.

use crate::document::hex;
use potluck::{LinkDirection, LinkPath, Topology, TopologyLink};
use serde::{Deserialize, Serialize};

/// The members of a View and what lies between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphDocument {
    pub view: String,
    /// The rank of this node.
    pub me: usize,
    pub engine: String,
    /// Why the plan is as it is, in one sentence.
    pub plan: String,
    pub plan_revision: u32,
    /// The rank whose port carries less than four fifths of what any other one does; null when none
    /// stands out, or not all are measured.
    pub slowest: Option<usize>,
    /// In rank order, at most 16.
    pub members: Vec<GraphMember>,
    /// By their lower, then their higher rank.
    pub links: Vec<GraphLink>,
    /// By growing size; empty as long as too little is measured.
    pub forecasts: Vec<GraphForecast>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphMember {
    pub rank: usize,
    pub name: String,
    pub node: String,
    /// What it sends or receives at most, whichever is less, in bit/s of payload; null until it is
    /// measured.
    pub rate_bps: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphLink {
    /// The lower rank.
    pub a: usize,
    /// The higher rank.
    pub b: usize,
    /// From `a` to `b`.
    pub there: GraphDirection,
    /// From `b` to `a`.
    pub back: GraphDirection,
    /// Where it runs; null where this node is at neither end.
    pub path: Option<GraphPath>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphDirection {
    /// What the sender's end is made of: ethernet, wifi, thunderbolt, bridge, vpn, container,
    /// loopback or other; null until it is told.
    pub kind: Option<String>,
    /// Ends of one number share a medium, as radios do, of which one sends at a time; null for a
    /// wire, or where nobody has found out.
    #[serde(default)]
    pub medium: Option<u32>,
    /// Round-trip time in microseconds as the sender sees it; null until it is told.
    pub rtt_us: Option<u32>,
    /// In bit/s of payload; null until it is measured, which it never is inside one machine.
    pub rate_bps: Option<u64>,
    /// How much goes this way while 64 MiB are reduced, in millionths of that; null for nothing, or
    /// unknown.
    pub share_ppm: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPath {
    /// Of this machine; null where none has the address.
    pub interface: Option<String>,
    pub local: Option<String>,
    pub remote: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphForecast {
    /// Of a buffer of so many bytes.
    pub bytes: u64,
    /// An all-reduce should take so long.
    pub us: u64,
}

impl From<&Topology> for GraphDocument {
    fn from(topology: &Topology) -> GraphDocument {
        let members = topology.members.iter().map(|member| GraphMember {
            rank: member.rank.index(),
            name: member.name.as_str().to_owned(),
            node: hex(member.node),
            rate_bps: topology.port_bps(member.rank.index()),
        });
        let forecasts = topology.forecasts.iter().map(|forecast| GraphForecast {
            bytes: forecast.bytes,
            us: u64::try_from(forecast.takes.as_micros()).unwrap_or(u64::MAX),
        });
        GraphDocument {
            view: topology.view.to_string(),
            me: topology.me,
            engine: topology.engine.to_string(),
            plan: topology.plan.clone(),
            plan_revision: topology.plan_revision,
            slowest: topology.slowest(),
            members: members.collect(),
            links: topology.links.iter().map(GraphLink::from).collect(),
            forecasts: forecasts.collect(),
        }
    }
}

impl From<&TopologyLink> for GraphLink {
    fn from(link: &TopologyLink) -> GraphLink {
        let path = |path: &LinkPath| GraphPath {
            interface: path.interface.clone(),
            local: path.local.map(|address| address.to_string()),
            remote: path.remote.to_string(),
        };
        GraphLink {
            a: link.a,
            b: link.b,
            there: GraphDirection::from(&link.there),
            back: GraphDirection::from(&link.back),
            path: link.path.as_ref().map(path),
        }
    }
}

impl From<&LinkDirection> for GraphDirection {
    fn from(way: &LinkDirection) -> GraphDirection {
        let kind = way.kind.map(|kind| kind.to_string());
        GraphDirection {
            kind,
            medium: way.medium,
            rtt_us: way.rtt_us,
            rate_bps: way.rate_bps,
            share_ppm: way.share_ppm,
        }
    }
}

impl GraphLink {
    /// Both directions, this one first.
    pub fn ways(&self) -> [&GraphDirection; 2] {
        [&self.there, &self.back]
    }

    /// What it carries in its slower direction, in bit/s; `None` while either is not measured.
    pub fn rate_bps(&self) -> Option<u64> {
        Some(self.there.rate_bps?.min(self.back.rate_bps?))
    }

    /// Whether the plan sends something over it.
    pub fn is_used(&self) -> bool {
        self.ways().iter().any(|way| way.share_ppm.is_some_and(|ppm| ppm > 0))
    }

    /// Round-trip time in microseconds, as the slower of the two ends sees it.
    pub fn rtt_us(&self) -> Option<u32> {
        self.there.rtt_us.max(self.back.rtt_us)
    }
}
