//! The status that a node reports about itself.

use super::super::peers::Link;
use super::super::reporter::{Complaint, engine_reason, peer_at};
use super::ControlPlane;
use crate::discovery::{AddressEvidence, Advert};
use crate::election::LeftOut;
use crate::identity::{Boot, JobMember, JobName, MemberId, Name, NodeId};
use crate::link::Refusal;
use crate::protocol::{Plan, SizeSetting, View};
use crate::report::{
    InterfaceFinding, NoLinkReason, NodeInfo, OtherJob, PathStatus, PeerStatus, PlanShare,
    Quarantined, State, Status, Unlinked, UnlinkedReason, ViewStatus, without_answer,
};
use crate::session::ViewSession;
use crate::topology::loads_ppm;
use crate::wire::PROTOCOL_VERSION;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::Instant;

/// How long a node is shown as a duplicate after it last met the other one. Dials repeat more often
/// than that.
const DUPLICATE_SHOWN_MS: u64 = 90_000;

/// Nodes without a link that are reported, of each origin.
const OTHERS_MAX: usize = 16;

/// Buffer size for which the plan's shares are reported.
const LARGE_BYTES: u64 = 64 << 20;

impl ControlPlane {
    pub(super) fn publish(&mut self) {
        let status = self.status();
        self.reporter.publish(status, Instant::now());
    }

    fn status(&self) -> Status {
        let session = self.installed.session();
        let mut counters = self.reporter.counters(session.map(|session| &**session));
        counters.overloads += self.relays.turned_away();
        let (hello, namespace) = (&self.handshakes.local().hello, self.access.namespace());
        Status {
            node: self.me.node,
            name: hello.name.clone(),
            namespace: namespace.name().as_str().to_owned(),
            job: hello.job.as_str().to_owned(),
            open: namespace.is_open(),
            port: self.network.port(),
            observer: hello.observer,
            state: self.state(),
            sizes: self.reporter.sizes(),
            peers: self.peers.iter().map(|(id, link)| self.peer_status(*id, link)).collect(),
            view: session.map(|session| self.view_status(session)),
            interfaces: self.reporter.interfaces().to_vec(),
            others: self.others(),
            other_jobs: self.other_jobs(),
            duplicates: self.duplicates(),
            quarantined: self.quarantined(),
            disk_waits: self.election.disk_waits_ms(self.now()).map(Duration::from_millis),
            waiting: session.and_then(|session| self.reporter.waiting(session)),
            counters,
            process: std::process::id(),
            gloo: self.reporter.gloo().map(str::to_owned),
        }
    }

    fn peer_status(&self, id: MemberId, link: &Link) -> PeerStatus {
        PeerStatus {
            node: id.node,
            name: link.hello.name.clone(),
            address: link.address,
            local: link.local,
            interface: self.network.name_of(link.local),
            through: link.over.iter().map(|over| self.reporter.who(over.node)).collect(),
            forwarded: link.is_direct() && !link.is_proven(),
            rtt_us: link.round_trip.us(),
        }
    }

    fn state(&self) -> State {
        if let nodes @ 1.. = self.status_links.documents().len() {
            return State::Observing { nodes };
        }
        if let Some(state) = self.kept_out() {
            return state;
        }
        match self.election.left_out(self.now()) {
            Some(LeftOut::NoPlace { members, most }) => {
                return State::Full { members, max_members: most };
            }
            Some(LeftOut::TooFew { present }) => return self.too_small(present),
            None => {}
        }
        if let Some(present) = self.election.stranded(self.now()) {
            return self.too_small(present);
        }
        let least = self.reporter.sizes().min_members();
        match self.installed.session() {
            // A node in a group has its place; the duplicate has none.
            e if self.has_duplicate() && e.is_none_or(|e| e.view().size() == 1) => State::Duplicate,
            Some(e) if e.view().is_enough_for(least) && e.is_synced() => State::In,
            Some(e) if e.view().is_enough_for(least) => State::NeedsSync,
            Some(e) if !e.view().begun => State::NotEnoughPeers {
                present: e.view().size(),
                wanted: e.view().to_begin().max(least),
                setting: SizeSetting::Members,
            },
            Some(e) => self.too_small(e.view().size()),
            None if self.peers.iter().next().is_none() => {
                State::Alone { interfaces: self.alone_on() }
            }
            None => self.forming(),
        }
    }

    /// Whether this node is in a View that has begun and has enough members.
    pub(super) fn has_group(&self) -> bool {
        let sizes = self.reporter.sizes();
        let session = self.installed.session();
        session.is_some_and(|session| session.view().is_enough_for(sizes.min_members()))
    }

    /// The state of a node of a group that has begun, and that does not go on with these members.
    fn too_small(&self, present: usize) -> State {
        too_small(present, self.reporter.sizes().min_members(), self.election.demanded())
    }

    /// Set while this node has no View that runs, and members of one that does keep it out.
    fn kept_out(&self) -> Option<State> {
        let is_outside = self.installed.session().is_none() || self.election.is_frozen();
        let (by, ms) = self.election.kept_out_by(self.now()).filter(|_| is_outside)?;
        Some(State::KeptOut {
            by: self.reporter.who(by.node),
            left: Duration::from_secs(ms.div_ceil(1000)),
        })
    }

    fn forming(&self) -> State {
        match self.election.one_way(self.now()) {
            Some(peer) => State::OneWay { peer: self.reporter.who(peer.node) },
            None => State::Forming,
        }
    }

    fn alone_on(&self) -> Vec<InterfaceFinding> {
        let why = if self.roster.sees_ours() || self.reporter.complaints().next().is_some() {
            NoLinkReason::NotConnected
        } else if self.roster.sees_others() {
            NoLinkReason::OnlyOthers
        } else {
            NoLinkReason::Ended
        };
        let reports = self.reporter.interfaces().iter();
        reports.map(|report| InterfaceFinding::of(report, why)).collect()
    }

    fn has_duplicate(&self) -> bool {
        self.election.own_duplicate_at().is_some_and(|at| self.now() < at + DUPLICATE_SHOWN_MS)
    }

    /// Identities that two living processes use.
    fn duplicates(&self) -> Vec<NodeId> {
        let now = self.now();
        let others = self
            .election
            .duplicates()
            .filter(|(_, at)| now < at + DUPLICATE_SHOWN_MS)
            .map(|(node, _)| node);
        self.has_duplicate().then_some(self.me.node).into_iter().chain(others).collect()
    }

    fn quarantined(&self) -> Vec<Quarantined> {
        let held = self.election.quarantined(self.now());
        held.map(|(node, ms, why)| Quarantined {
            node,
            name: self.reporter.name_of(node),
            left: Duration::from_secs(ms.div_ceil(1000)),
            why,
        })
        .collect()
    }

    fn view_status(&self, session: &ViewSession) -> ViewStatus {
        let (view, plan) = (session.view(), session.plan());
        ViewStatus {
            id: view.id(),
            members: view.ranks().filter_map(|rank| peer_at(view, rank)).collect(),
            sizes: view.members.iter().map(|member| member.sizes).collect(),
            begun: view.begun,
            engine: view.engine_under(&plan).kind,
            engine_reason: engine_reason(view, view.engine_under(&plan)),
            plan: plan.reason.clone(),
            plan_revision: plan.revision,
            paths: self.reporter.paths().to_vec(),
            shares: shares(&plan, view.size()),
            forecasts: self.planner.forecasts().to_vec(),
            in_sync: session.is_synced(),
            committed: session.committed(),
        }
    }

    /// Looks at the paths of the installed View, whose number grows with the square of its size;
    /// so this is done less often than the status is published.
    pub(super) fn look_at_paths(&mut self) {
        let paths = self.installed.session().map(|session| self.paths(session.view()));
        self.reporter.set_paths(paths.unwrap_or_default());
    }

    fn paths(&self, view: &View) -> Vec<PathStatus> {
        let ranks = || view.ranks().zip(&view.members);
        let pairs = ranks().flat_map(|from| ranks().map(move |to| (from, to)));
        let known = pairs.filter_map(|((from, sender), (to, receiver))| {
            let links = self.election.links();
            let path = links.path(sender.id, receiver.id);
            let works = path.is_some()
                || sender.id != receiver.id && links.reachable_both_ways(sender.id, receiver.id);
            works.then(|| PathStatus {
                from,
                to,
                kind: path.map(|path| path.port.kind),
                medium: path.and_then(|path| path.port.cell),
                rtt_us: path.map(|path| path.rtt_us),
                rate_kbps: path.and_then(|path| path.rate_kbps).map(NonZeroU32::get),
            })
        });
        known.collect()
    }

    /// Whether a linked member is known to be at this address; if nothing answered there, also at
    /// another port of its machine.
    fn is_reached(&self, to: SocketAddr, refusal: &Refusal) -> bool {
        let is_silent = matches!(refusal, Refusal::Io(_) | Refusal::TooSlow);
        let is_there = |at: SocketAddr| at == to || is_silent && at.ip() == to.ip();
        is_silent && self.roster.has_link_on(to.ip())
            || self.peers.iter().any(|(id, link)| {
                is_there(link.address) || self.roster.addresses_of(*id).any(is_there)
            })
    }

    /// The nodes of this cluster that run other jobs, by job.
    fn other_jobs(&self) -> Vec<OtherJob> {
        let mut jobs: BTreeMap<&JobName, BTreeMap<(&Name, NodeId), NodeInfo>> = BTreeMap::new();
        for JobMember { id, name, job } in self.roster.other_jobs(self.now()) {
            let node = NodeInfo { node: id.node, name: Some(name.clone()) };
            jobs.entry(job).or_default().insert((name, id.node), node);
        }
        let jobs = jobs.into_iter().map(|(job, nodes)| (job.as_str().to_owned(), nodes));
        jobs.map(|(job, nodes)| OtherJob { job, nodes: nodes.into_values().collect() }).collect()
    }

    /// Nodes that are seen, and addresses that are dialled, without a link.
    fn others(&self) -> Vec<Unlinked> {
        let announced = |advert: &Advert, why: UnlinkedReason| {
            let boot = Some(advert.boot);
            advert.addresses.iter().map(|to| (boot, *to, why.clone())).collect::<Vec<_>>()
        };
        let strangers = self.roster.others().take(OTHERS_MAX).flat_map(|advert| {
            let why = match advert.version {
                PROTOCOL_VERSION => UnlinkedReason::OtherCluster,
                theirs => UnlinkedReason::OtherVersion { theirs, ours: PROTOCOL_VERSION },
            };
            announced(advert, why)
        });
        let elsewhere = self.roster.elsewhere().take(OTHERS_MAX).flat_map(|advert| {
            announced(advert, UnlinkedReason::OtherNetwork { ours: self.network.subnets() })
        });
        let refused =
            self.reporter.refusals().filter_map(|(to, refusal)| self.refused(to, refusal));
        // A node that has left, so that its address is dialled no more, admits nobody.
        let holds = |(id, at, complaint): &(MemberId, SocketAddr, Complaint)| {
            let is_there = *complaint == Complaint::Silent || self.roster.evidence(*at).is_some();
            is_there && self.peers.get(*id).is_none()
        };
        let complaints = self.reporter.complaints().filter(holds);
        let complaints = complaints.map(|(member, at, complaint)| {
            let peer = self.reporter.who(member.node);
            let why = match complaint {
                Complaint::NotAdmitted => UnlinkedReason::NotAdmitted { peer },
                Complaint::Silent => UnlinkedReason::Silent { peer },
            };
            (Some(member.boot), at, why)
        });
        let all = strangers.chain(elsewhere).chain(refused).chain(complaints);
        let mut others = Unlinked::joined(all);
        others.truncate(3 * OTHERS_MAX);
        others.extend(self.names.unknown().map(Unlinked::without_address));
        others
    }

    /// Why there is no link with the node at this address, which was dialled; `None` if that is no
    /// news: it is not dialled any more, the node has a link, or the status names it elsewhere.
    fn refused(
        &self,
        to: SocketAddr,
        refusal: &Refusal,
    ) -> Option<(Option<Boot>, SocketAddr, UnlinkedReason)> {
        let standing = self.roster.evidence(to)?;
        if self.is_reached(to, refusal) || *refusal == Refusal::DuplicateIdentity {
            return None;
        }
        let boot = match standing {
            AddressEvidence::Answered(member) => Some(member.boot),
            AddressEvidence::Announced(boot) => Some(boot),
            AddressEvidence::ByHand | AddressEvidence::Hearsay => None,
        };
        let why = match (without_answer(refusal), standing) {
            (Some(error), AddressEvidence::Answered(member)) => {
                UnlinkedReason::Ended { peer: self.reporter.who(member.node), error }
            }
            (Some(error), AddressEvidence::Announced(_)) => UnlinkedReason::Announced { error },
            // Something is there, and hangs up as a node with another key does.
            (Some(io::ErrorKind::ConnectionReset), _) | (None, _) => {
                UnlinkedReason::Refused(refusal.to_string())
            }
            // One sentence names all ports of a host, and is not said again for each.
            (Some(_), AddressEvidence::ByHand) if !self.roster.is_tried(to.ip()) => return None,
            (Some(error), AddressEvidence::ByHand) => UnlinkedReason::ByHand { error },
            (Some(error), AddressEvidence::Hearsay) => UnlinkedReason::Earlier { error },
        };
        Some((boot, to, why))
    }
}

/// How the plan distributes a large buffer over the paths.
fn shares(plan: &Plan, size: usize) -> Vec<PlanShare> {
    let loads = loads_ppm(&plan.class_for(LARGE_BYTES).algorithm, size);
    loads.into_iter().map(|((from, to), ppm)| PlanShare { from, to, ppm }).collect()
}

/// The state of a node that does not go on with the `present` members, itself included. They may be
/// enough already: then a View of them is being agreed.
fn too_small(present: usize, min_members: usize, demanded: usize) -> State {
    let wanted = min_members.max(demanded);
    let setting =
        if demanded >= min_members { SizeSetting::Partition } else { SizeSetting::MinMembers };
    if present >= wanted {
        State::Forming
    } else {
        State::NotEnoughPeers { present, wanted, setting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_waits_for_a_view_of_enough_members_waits_for_no_more_members() {
        let too_few = |present, wanted, setting| State::NotEnoughPeers { present, wanted, setting };
        assert_eq!(too_small(1, 2, 0), too_few(1, 2, SizeSetting::MinMembers));
        assert_eq!(too_small(1, 2, 2), too_few(1, 2, SizeSetting::Partition));
        assert_eq!(too_small(3, 1, 0), State::Forming);
        assert_eq!(too_small(2, 1, 2), State::Forming);
    }
}
