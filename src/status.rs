//! Layer: Words.
//!
//! What a node can say about itself and its group at any moment.

use crate::discovery::{Activity, InterfaceReport, Skip};
use crate::engine::EngineKind;
use crate::error::Peer;
use crate::events::Who;
use crate::identity::{Name, NodeId};
use crate::topology::InterfaceKind;
use crate::view::{OpId, ViewId};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A snapshot of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// This node's key.
    pub node: NodeId,
    /// What it calls itself.
    pub name: Name,
    /// The namespace it is in.
    pub namespace: String,
    /// Whether the namespace is open: separated by name, admitted by nothing.
    pub open: bool,
    /// The TCP port it listens on.
    pub port: u16,
    /// Where it stands.
    pub state: State,
    /// The View it is in, if any.
    pub view: Option<ViewStatus>,
    /// The nodes it has a link with.
    pub peers: Vec<PeerStatus>,
    /// What discovery does on each interface.
    pub interfaces: Vec<InterfaceReport>,
    /// Nodes that are seen and not joined, with the reason.
    pub others: Vec<String>,
    /// Identities that two living processes use; this node's own among them when it has met its
    /// twin, or was told of it. The one that came first keeps its place, the other one is refused.
    pub duplicates: Vec<NodeId>,
    /// Nodes that were lost three times within a minute, or withheld a vote, and are kept out for a
    /// while, if enough others are there.
    pub quarantined: Vec<Quarantined>,
    /// For how long this node has waited for its disk to keep what it is to promise; `None` while
    /// it does not.
    pub disk_waits: Option<Duration>,
    /// The call that waits longest for somebody.
    pub waiting: Option<Waiting>,
    /// Counters since the start.
    pub counters: Counters,
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nobody is linked.
    Alone {
        /// What came of looking for others, on each interface. Empty until discovery has reported,
        /// and where there is none.
        interfaces: Vec<AloneOn>,
    },
    /// Others are linked, and a View is being agreed.
    Forming,
    /// In a View of enough members.
    In,
    /// The group is smaller than `min_members`.
    NotEnoughPeers {
        /// Members now.
        present: usize,
        /// Members wanted.
        wanted: usize,
    },
    /// In a View whose members do not hold the same state yet.
    NeedsSync,
    /// The View has 16 members and no place for this node.
    Full,
    /// A peer is heard and does not hear this node, so they cannot be in one View.
    OneWay {
        /// Who.
        peer: Who,
    },
    /// Another living process uses this node's identity and came first, or neither is in a group.
    /// Give each its own.
    Duplicate,
    /// Left.
    Closed,
}

/// What came of looking for others on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AloneOn {
    /// Its name.
    pub interface: String,
    /// Questions sent there, where they are counted.
    pub sent: Option<u64>,
    /// Announcements of other nodes heard there.
    pub heard: u64,
    /// Why that has brought nobody.
    pub why: AloneBecause,
}

/// Why an interface has brought nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AloneBecause {
    /// It is not used.
    Skipped(Skip),
    /// No announcement was heard there: nobody else runs, or multicast does not get through.
    NothingHeard,
    /// Whoever is heard belongs to other clusters, or speaks another version.
    OnlyOthers,
    /// Nodes of this cluster announce themselves, and no connection to them has come about: a
    /// firewall, or they are refused.
    NoLink,
}

impl AloneOn {
    /// `ours_are_seen`: nodes of this cluster announce themselves, wherever.
    pub(crate) fn of(report: &InterfaceReport, ours_are_seen: bool) -> AloneOn {
        let (sent, heard, why) = match &report.activity {
            Activity::Skipped(skip) => (None, 0, AloneBecause::Skipped(*skip)),
            Activity::Active { queries, adverts: 0, .. } => {
                (*queries, 0, AloneBecause::NothingHeard)
            }
            Activity::Active { queries, adverts, .. } if ours_are_seen => {
                (*queries, *adverts, AloneBecause::NoLink)
            }
            Activity::Active { queries, adverts, .. } => {
                (*queries, *adverts, AloneBecause::OnlyOthers)
            }
        };
        AloneOn { interface: report.interface.clone(), sent, heard, why }
    }
}

impl fmt::Display for AloneBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AloneBecause::Skipped(skip) => write!(f, "not used: {skip}"),
            AloneBecause::NothingHeard => {
                f.write_str("nobody is heard: nobody else runs there, or multicast does not get through")
            }
            AloneBecause::OnlyOthers => f.write_str("only nodes of other clusters or versions are heard"),
            AloneBecause::NoLink => {
                f.write_str("nodes of this cluster are heard and not reached: a firewall, or they refuse this one")
            }
        }
    }
}

/// The View, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStatus {
    /// Its name.
    pub id: ViewId,
    /// The members in rank order.
    pub members: Vec<Peer>,
    /// The engine that calls run on by now.
    pub engine: EngineKind,
    /// Why this one, in one sentence.
    pub engine_reason: String,
    /// Why the plan is as it is.
    pub plan: String,
    /// 0 for the plan that the View came with, more for those that took its place.
    pub plan_revision: u32,
    /// The paths between the members that are known to work, by sender, then receiver, and what is
    /// known of them.
    pub paths: Vec<PathStatus>,
    /// How much the plan sends from whom to whom, by sender, then receiver; empty where it is
    /// Gloo's bcube.
    pub shares: Vec<PlanShare>,
    /// How long an `all_reduce` should take under the plan, by what is known of the paths; empty as
    /// long as that is too little.
    pub forecasts: Vec<Forecast>,
    /// Whether the members share one history.
    pub in_sync: bool,
    /// Operations committed in it by this member.
    pub committed: u64,
}

/// One direction between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStatus {
    /// The rank of the sender.
    pub from: usize,
    /// The rank of the receiver.
    pub to: usize,
    /// What the sender's end is made of, as far as it has told.
    pub kind: Option<InterfaceKind>,
    /// Which medium that shares with the other ends of the same number, of which one sends at a
    /// time, as radio does; `None` for a wire, or where nobody has found out.
    pub medium: Option<u32>,
    /// Round-trip time in microseconds while nothing is in the way, as far as the sender has told.
    pub rtt_us: Option<u32>,
    /// What it carries, in kbit/s of payload; `None` where nobody has measured it. At most 8 Gbit/s
    /// are told apart.
    pub rate_kbps: Option<u32>,
}

/// How much of a large buffer a plan sends from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanShare {
    /// The rank of the sender.
    pub from: usize,
    /// The rank of the receiver.
    pub to: usize,
    /// While a buffer of 64 MiB is reduced, in millionths of the buffer.
    pub ppm: u32,
}

/// How long an operation should take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forecast {
    /// Of a buffer of so many bytes.
    pub bytes: u64,
    /// Without the time in which members wait for each other.
    pub takes: Duration,
}

/// A linked node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its key.
    pub node: NodeId,
    /// What it calls itself.
    pub name: Name,
    /// Where it is reached; where others pass the link on, the address of the first of these.
    pub address: SocketAddr,
    /// This end of the control link.
    pub local: Option<SocketAddr>,
    /// This machine's interface that the control link uses, where one has its address. Data links
    /// keep to it.
    pub interface: Option<String>,
    /// Who passes the control link on, in order from here; nobody where it is direct.
    pub through: Vec<Who>,
    /// Round-trip time of the control link in microseconds, once it is measured: the least of the
    /// last seconds, so what waits in front of it does not count.
    pub rtt_us: Option<u32>,
}

/// A node that is kept out for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its key.
    pub node: NodeId,
    /// What it calls itself, if this node has ever known.
    pub name: Option<Name>,
    /// For how long still, in whole seconds.
    pub left: Duration,
    /// What for.
    pub why: KeptOut,
}

/// Why a node is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptOut {
    /// It was lost three times within a minute.
    LostOften,
    /// It was there, and did not vote on operations that the others had given up.
    WithheldVote,
}

/// A call that others have not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which operation.
    pub op: OpId,
    /// Who has not called it.
    pub ranks: Vec<Peer>,
    /// For how long.
    pub since: Duration,
}

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Views installed.
    pub views: u64,
    /// Handshakes that ended in a link.
    pub links: u64,
    /// Connections refused for a wrong key or because they were not potluck's.
    pub strangers: u64,
    /// Connections refused because they speak another protocol version.
    pub other_versions: u64,
    /// Connections refused at the door: too many, too fast, too slow, replayed.
    pub overloads: u64,
    /// Links closed because an authenticated member broke the protocol.
    pub misbehaviours: u64,
    /// Operations committed.
    pub committed: u64,
}

impl Status {
    /// One sentence per reason why nobody, or not everybody, is here. Empty when all is well.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        if matches!(self.state, State::Alone { .. } | State::NotEnoughPeers { .. }) {
            reasons.extend(self.interfaces.iter().map(|report| self.looked_on(report)));
            if self.others.is_empty() && self.peers.is_empty() {
                reasons.push(
                    "if the other machine runs: potluck up --peer ADDRESS names it by hand"
                        .to_owned(),
                );
            }
        }
        reasons.extend(self.others.iter().cloned());
        reasons.extend(self.duplicates.iter().map(|node| self.duplicate(*node)));
        reasons.extend(self.quarantined.iter().map(ToString::to_string));
        if let Some(waits) = self.disk_waits.filter(|waits| *waits >= Duration::from_secs(1)) {
            let seconds = waits.as_secs();
            reasons.push(format!(
                "this node has waited {seconds} s for its disk and can agree to nothing before: is it full, or its home not writable?"
            ));
        }
        if let Some(waiting) = self.waiting.as_ref().filter(|w| w.since >= Duration::from_secs(1)) {
            reasons.push(waiting.to_string());
        }
        reasons
    }
}

impl Status {
    fn looked_on(&self, report: &InterfaceReport) -> String {
        let alone =
            if let State::Alone { interfaces } = &self.state { &interfaces[..] } else { &[] };
        let why = alone.iter().find(|on| on.interface == report.interface).map(|on| on.why);
        // Of one that is not used the report has said so.
        match why.filter(|why| !matches!(why, AloneBecause::Skipped(_))) {
            Some(why) => format!("{report}: {why}"),
            None => report.to_string(),
        }
    }

    fn duplicate(&self, node: NodeId) -> String {
        let named = self
            .peers
            .iter()
            .find(|peer| peer.node == node)
            .map(|peer| format!("{} {node}", peer.name));
        let whose = if node == self.node {
            "this node".to_owned()
        } else {
            named.unwrap_or_else(|| node.to_string())
        };
        format!(
            "two processes use the identity of {whose}: one of them was started from a copied folder; give it its own"
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Alone { .. } => f.write_str("alone"),
            State::Forming => f.write_str("forming"),
            State::In => f.write_str("in"),
            State::NotEnoughPeers { present, wanted } => {
                write!(f, "waiting for peers ({present} of {wanted})")
            }
            State::NeedsSync => f.write_str("in, not in sync"),
            State::Full => f.write_str("full"),
            State::OneWay { peer } => write!(f, "not heard by {peer}"),
            State::Duplicate => f.write_str("duplicate identity"),
            State::Closed => f.write_str("closed"),
        }
    }
}

impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("{name} "));
        write!(f, "{name}{} {} and is kept out for {} s", self.node, self.why, self.left.as_secs())
    }
}

impl fmt::Display for KeptOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeptOut::LostOften => "was lost three times within a minute",
            KeptOut::WithheldVote => "answered and did not vote",
        })
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.ranks.iter().map(Peer::to_string).collect();
        write!(
            f,
            "operation {} has waited {:.0} s for {}",
            self.op,
            self.since.as_secs_f64(),
            names.join(", ")
        )
    }
}
