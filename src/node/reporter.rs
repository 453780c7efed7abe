//! The reports of a node to its program: sessions, status, events and counters.

use super::look_back::LookBackRound;
use super::notices::Notices;
use super::published::Published;
use crate::discovery::InterfaceReport;
use crate::election::Notice;
use crate::identity::{MemberId, Name, NodeId};
use crate::link::Refusal;
use crate::protocol::{EngineChoice, OpId, Rank, Sizes, View};
use crate::report::document::StatusDocument;
use crate::report::{
    Counters, Event, NodeInfo, PathStatus, Peer, Sight, State, Status, Waiting, without_answer,
};
use crate::session::{Meter, ViewSession};
use crate::trace;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Warn about missing ranks when an operation has waited this long for them.
const WAITING_WARN: Duration = Duration::from_secs(10);

/// Number of names kept, also of nodes that are gone.
const NAMES_MAX: usize = 256;

/// Number of addresses kept at which a dial was refused.
const REFUSALS_MAX: usize = 64;

/// Why a link was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// The member has ended it before it said anything: it does not admit this node.
    NotAdmitted,
    /// The member's answer has not come.
    Silent,
}

/// The reports of one node, and its memory for them.
pub(super) struct Reporter {
    told: Published,
    me: (NodeId, Name),
    /// The sizes of the group that this node asks for.
    sizes: Sizes,
    names: BTreeMap<NodeId, Name>,
    counters: Counters,
    /// Where this node's dials were refused.
    refusals: BTreeMap<SocketAddr, Refusal>,
    /// Members whose link with this node was of no use, and where.
    complaints: BTreeMap<MemberId, (SocketAddr, Complaint)>,
    /// The last report of discovery on each interface.
    interfaces: Vec<InterfaceReport>,
    /// The paths between the members of the installed View, at the last look.
    paths: Vec<PathStatus>,
    /// The operation that waits for other ranks, since when, and whether a warning was given.
    waiting: Option<(OpId, Instant, bool)>,
    /// The version of Gloo in this build.
    gloo: Option<String>,
    notices: Notices,
}

impl Reporter {
    pub(super) fn new(
        told: Published,
        me: (NodeId, Name),
        sizes: Sizes,
        gloo: Option<String>,
        notices: bool,
    ) -> Reporter {
        let notices = Notices::new(notices, told.waits.clone());
        Reporter {
            told,
            me,
            sizes,
            names: BTreeMap::new(),
            counters: Counters::default(),
            refusals: BTreeMap::new(),
            complaints: BTreeMap::new(),
            interfaces: Vec::new(),
            paths: Vec::new(),
            waiting: None,
            gloo,
            notices,
        }
    }

    // Sessions.

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Shows the installed View to callers, if its group has begun and has enough members to go on.
    pub(super) fn show(&self, session: Option<&Arc<ViewSession>>) {
        let least = self.sizes.min_members();
        let enough = |session: &&Arc<ViewSession>| session.view().is_enough_for(least);
        self.told.views.send_replace(session.filter(enough).cloned());
    }

    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.told.meter
    }

    /// Counts a View that is installed. No call waits for its operations yet.
    pub(super) fn count_view(&mut self) {
        self.counters.views += 1;
        self.waiting = None;
    }

    /// The session of a View is over.
    pub(super) fn leave(&mut self, session: &ViewSession) {
        self.told.meter.leave();
        self.counters.committed += session.committed();
    }

    /// Tells callers that the node is closed.
    pub(super) fn close(&self) {
        self.told.meter.leave();
        self.told.views.send_replace(None);
        self.told.status.send_modify(|status| {
            status.state = State::Closed;
            status.view = None;
        });
    }

    // Status.

    pub(super) fn publish(&mut self, status: Status, now: Instant) {
        self.notices.watch(&status, now);
        self.told.status.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
    }

    /// Publishes the documents of the observed nodes.
    pub(super) fn publish_observed(&self, documents: Vec<StatusDocument>) {
        self.told.observed.send_replace(documents);
    }

    /// These nodes are asked to look back.
    pub(super) fn begin_look_back(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let waits_for = nodes.into_iter().collect();
        self.told.looked_back.send_replace(LookBackRound { waits_for, answers: Vec::new() });
    }

    /// A node will not look back: its link has ended.
    pub(super) fn will_not_look_back(&self, node: NodeId) {
        self.told.looked_back.send_if_modified(|round| round.waits_for.remove(&node));
    }

    /// A node has looked back; `None` if its answer has not come in time.
    pub(super) fn looked_back(&self, node: NodeId, sight: Option<Sight>) {
        self.told.looked_back.send_if_modified(|round| {
            let is_waited_for = round.waits_for.remove(&node);
            if is_waited_for {
                round.answers.push((node, sight));
            }
            is_waited_for
        });
    }

    pub(super) fn gloo(&self) -> Option<&str> {
        self.gloo.as_deref()
    }

    /// Discovery's report on each interface.
    pub(super) fn set_interfaces(&mut self, interfaces: Vec<InterfaceReport>) {
        self.interfaces = interfaces;
    }

    /// The paths between the members of the installed View.
    pub(super) fn set_paths(&mut self, paths: Vec<PathStatus>) {
        self.paths = paths;
    }

    pub(super) fn paths(&self) -> &[PathStatus] {
        &self.paths
    }

    pub(super) fn interfaces(&self) -> &[InterfaceReport] {
        &self.interfaces
    }

    /// Records the operation that waits for other ranks. Warns once when it has waited for
    /// [`WAITING_WARN`].
    pub(super) fn watch_waiting(&mut self, waiting: Option<(OpId, Vec<Rank>)>, now: Instant) {
        self.waiting = match (waiting, self.waiting) {
            (Some((op, ranks)), Some((known, since, warned))) if known == op => {
                let late = now.duration_since(since) >= WAITING_WARN;
                if late && !warned {
                    trace::warn!(%op, ?ranks, "an operation waits for ranks that have not called \
                        it");
                }
                Some((op, since, warned || late))
            }
            (Some((op, _)), _) => Some((op, now, false)),
            (None, _) => None,
        };
    }

    /// The operation that waits for other ranks.
    pub(super) fn waiting(&self, session: &ViewSession) -> Option<Waiting> {
        let (op, since, _) = self.waiting?;
        let (_, ranks) = session.waiting_for().filter(|(now, _)| *now == op)?;
        let ranks = ranks.into_iter().filter_map(|rank| peer_at(session.view(), rank)).collect();
        Some(Waiting { op, ranks, since: since.elapsed() })
    }

    // Counters.

    /// The counters that the caller is to increase.
    pub(super) fn count(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The counters, with those of the present session.
    pub(super) fn counters(&self, session: Option<&ViewSession>) -> Counters {
        let committed = self.counters.committed + session.map_or(0, ViewSession::committed);
        Counters { committed, ..self.counters }
    }

    /// Counts a refused connection.
    pub(super) fn count_refusal(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::OtherVersion { .. } => self.counters.other_versions += 1,
            Refusal::Overloaded(_) | Refusal::TooSlow | Refusal::Replayed => {
                self.counters.overloads += 1;
            }
            Refusal::DuplicateIdentity
            | Refusal::UnknownView
            | Refusal::OtherJob(_)
            | Refusal::Observer
            | Refusal::OtherPartition
            | Refusal::SelfDial
            | Refusal::Closed
            | Refusal::Io(_) => {}
            _ => self.counters.strangers += 1,
        }
    }

    /// Records the result of a dial of this address: a refusal, or a link.
    pub(super) fn dialled(&mut self, to: SocketAddr, refusal: Option<Refusal>) {
        if refusal.as_ref().is_some_and(|refusal| without_answer(refusal).is_some()) {
            self.complaints.retain(|_, (at, _)| *at != to);
        }
        let is_new = !self.refusals.contains_key(&to);
        if is_new && refusal.is_some() && self.refusals.len() >= REFUSALS_MAX {
            // A named peer without a port is 16 addresses, of which 15 answer nothing.
            let mut told = self.refusals.iter();
            let silent = told.find(|(_, refusal)| without_answer(refusal).is_some());
            let silent = silent.map(|(at, _)| *at);
            silent.and_then(|at| self.refusals.remove(&at));
        }
        match refusal {
            None => _ = self.refusals.remove(&to),
            Some(refusal)
                if self.refusals.len() < REFUSALS_MAX || self.refusals.contains_key(&to) =>
            {
                self.refusals.insert(to, refusal);
            }
            Some(_) => {}
        }
    }

    /// The link with a member was of no use.
    pub(super) fn complain(&mut self, member: MemberId, at: SocketAddr, complaint: Complaint) {
        if self.complaints.len() < REFUSALS_MAX || self.complaints.contains_key(&member) {
            self.complaints.insert(member, (at, complaint));
        }
    }

    /// A node has said something over its link, or has left: complaints about any of its starts do
    /// not hold any more.
    pub(super) fn forget_complaints(&mut self, node: NodeId) {
        self.complaints.retain(|member, _| member.node != node);
    }

    /// The members whose links were of no use, and where.
    pub(super) fn complaints(&self) -> impl Iterator<Item = (MemberId, SocketAddr, Complaint)> {
        self.complaints.iter().map(|(member, (at, complaint))| (*member, *at, *complaint))
    }

    /// Where this node's dials were refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (SocketAddr, &Refusal)> {
        self.refusals.iter().map(|(to, refusal)| (*to, refusal))
    }

    /// The keys have changed: other dials are refused now.
    pub(super) fn forget_refusals(&mut self) {
        self.refusals.clear();
        self.complaints.clear();
    }

    // Events.

    /// Sends an event. Without subscribers it is lost, and a slow subscriber loses the oldest
    /// events.
    pub(super) fn tell(&self, event: Event) {
        trace::debug!(%event, "happened");
        let _ = self.told.happened.send(event);
    }

    pub(super) fn tell_notice(&self, notice: Notice) {
        let who = |id: MemberId| self.who(id.node);
        self.tell(match notice {
            Notice::Joined(id) => Event::Joined(who(id)),
            Notice::Merged(ids) => Event::Merged(ids.into_iter().map(who).collect()),
            Notice::Left(id) => Event::Left(who(id)),
            Notice::Lost(id, why) => Event::Lost { peer: who(id), why },
            Notice::Quarantined(node, ms) => {
                Event::Quarantined { peer: self.who(node), lasts: Duration::from_millis(ms) }
            }
            Notice::Woke => Event::Woke,
            Notice::Duplicate(node) => Event::Duplicate(self.who(node)),
            Notice::OneWay(id) => Event::OneWay(who(id)),
        });
    }

    pub(super) fn tell_installed(&self, view: &View) {
        let members = view.ranks().filter_map(|rank| peer_at(view, rank)).collect();
        self.tell(Event::Installed { view: view.id(), members, in_sync: view.in_sync() });
    }

    /// The links with a member take another path, over this interface.
    pub(super) fn tell_path(&self, member: MemberId, interface: String) {
        trace::info!(peer = %member, interface, "the links with a member take another path");
        self.tell(Event::PathChanged { peer: self.who(member.node), interface });
    }

    // Names.

    pub(super) fn who(&self, node: NodeId) -> NodeInfo {
        NodeInfo { node, name: self.name_of(node) }
    }

    pub(super) fn learn_name(&mut self, node: NodeId, name: Name) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(&node) {
            // Any one: names are for people, and a home has fewer nodes.
            self.names.pop_first();
        }
        self.names.insert(node, name);
    }

    /// The name of a node, if it is known.
    pub(super) fn name_of(&self, node: NodeId) -> Option<Name> {
        if node == self.me.0 { Some(self.me.1.clone()) } else { self.names.get(&node).cloned() }
    }
}

/// Why calls of the View run on this engine, with the names of members.
pub fn engine_reason(view: &View, engine: EngineChoice) -> String {
    engine.why.sentence(|rank| {
        peer_at(view, rank).map_or_else(|| format!("rank {rank}"), |peer| peer.to_string())
    })
}

/// A member as errors and reports name it.
pub fn peer_at(view: &View, rank: Rank) -> Option<Peer> {
    view.member(rank).map(|m| Peer { rank, name: m.name.clone(), node: m.id.node })
}
