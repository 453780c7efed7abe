//! The group as a graph, as JSON: the input of all pictures.

use super::super::graph::{LinkDirection, LinkPath, Topology, TopologyLink};
use super::hex;
use serde::{Deserialize, Serialize};

/// The members of a View and the links between them, see [`Topology`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphDocument {
    /// The identifier of the View.
    pub view: String,
    /// The rank of this node.
    pub me: usize,
    /// The engine that new calls run on: native or gloo.
    pub engine: String,
    /// The reason for the plan, in one sentence.
    pub plan: String,
    /// 0 for the View's first plan, larger for each plan that replaced it.
    pub plan_revision: u32,
    /// The rank whose port carries less than four fifths of every other port's rate; null if there
    /// is none, or not all ports are measured.
    pub slowest: Option<usize>,
    /// In rank order, at most 32.
    pub members: Vec<GraphMember>,
    /// Ordered by lower, then higher rank.
    pub links: Vec<GraphLink>,
    /// By increasing size; empty while too little is measured.
    pub forecasts: Vec<GraphForecast>,
}

/// A member of the View.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphMember {
    /// Its rank.
    pub rank: usize,
    /// Its display name.
    pub name: String,
    /// Its public key.
    pub node: String,
    /// The lower of its maximum send and receive rates, in bit/s of payload; null until measured.
    pub rate_bps: Option<u64>,
}

/// The link between two members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphLink {
    /// The lower rank.
    pub a: usize,
    /// The higher rank.
    pub b: usize,
    /// From `a` to `b`.
    pub there: LinkDirection,
    /// From `b` to `a`.
    pub back: LinkDirection,
    /// Addresses and interface of the link; null if this node is at neither end.
    pub path: Option<LinkPath>,
}

/// The predicted duration of an all-reduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphForecast {
    /// The size of the buffer in bytes.
    pub bytes: u64,
    /// The predicted duration of an all-reduce in microseconds.
    pub us: u64,
}

impl From<&Topology> for GraphDocument {
    fn from(topology: &Topology) -> GraphDocument {
        let members = topology.members.iter().map(|member| GraphMember {
            rank: member.rank.index(),
            name: member.name.as_str().to_owned(),
            node: hex(member.node),
            rate_bps: topology.port_bps(member.rank),
        });
        let forecasts = topology.forecasts.iter().map(|forecast| GraphForecast {
            bytes: forecast.bytes,
            us: u64::try_from(forecast.takes.as_micros()).unwrap_or(u64::MAX),
        });
        GraphDocument {
            view: topology.view.to_string(),
            me: topology.me.index(),
            engine: topology.engine.to_string(),
            plan: topology.plan.clone(),
            plan_revision: topology.plan_revision,
            slowest: topology.slowest().map(usize::from),
            members: members.collect(),
            links: topology.links.iter().map(GraphLink::from).collect(),
            forecasts: forecasts.collect(),
        }
    }
}

impl From<&TopologyLink> for GraphLink {
    fn from(link: &TopologyLink) -> GraphLink {
        GraphLink {
            a: link.a.index(),
            b: link.b.index(),
            there: link.there,
            back: link.back,
            path: link.path.clone(),
        }
    }
}

impl GraphLink {
    /// Both directions, `there` first.
    pub fn directions(&self) -> [&LinkDirection; 2] {
        [&self.there, &self.back]
    }

    /// The rate of the slower direction in bit/s; `None` unless both are measured.
    pub fn rate_bps(&self) -> Option<u64> {
        Some(self.there.rate_bps?.min(self.back.rate_bps?))
    }

    /// Whether the plan sends data over it.
    pub fn is_used(&self) -> bool {
        self.directions().iter().any(|direction| direction.share_ppm.is_some_and(|ppm| ppm > 0))
    }

    /// Round-trip time in microseconds, the larger of the two ends' measurements.
    pub fn rtt_us(&self) -> Option<u32> {
        self.there.rtt_us.max(self.back.rtt_us)
    }
}
