//! The installed View: its session, its operations and its data links.

use super::super::lighter::lighter;
use super::super::peers::Link;
use super::super::speaker::Speaker;
use super::super::unanswered::NO_PONG;
use super::Node;
use super::open_view::OpenView;
use super::planning::Planning;
use crate::election::{Decides, Input};
use crate::identity::MemberId;
use crate::link::{Session, Stream};
use crate::node::data_link::{DataDial, Laid, laid};
use crate::protocol::{
    DisputedOp, EngineKind, Message, OpId, OpMessage, Post, Rank, View, ViewDigest,
};
use crate::session::Envelope;
use crate::trace;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Number of remembered members that cannot be dialled. A forgotten one is found out again.
const WALLED_MAX: usize = 64;

/// Failures of an engine in one View after which the next View excludes it.
const ENGINE_FAILURES_MAX: u32 = 2;

/// Logs which member of `before` holds a result that no other one has.
fn tell_disputed(before: &View, next: &View) {
    for DisputedOp { op, odd } in &next.disputed {
        let odd = odd.and_then(|rank| before.member(rank)).map(|member| member.name.as_str());
        trace::error!(%op, odd, "an operation has failed: its members hold different results");
    }
}

impl Node {
    pub(super) fn install(&mut self, view: &Arc<View>, decides: Decides) {
        self.dial_again_who_did_not();
        self.data.clear();
        self.deadlines.clear();
        self.unanswered.clear();
        self.peers.session().set(None);
        if let Some(before) = self.envelope.take() {
            match decides {
                Decides::Parent => {
                    tell_disputed(before.view(), view);
                    before.decide(view);
                }
                Decides::Nothing => before.cut_off(),
            }
            before.close();
            self.meter.leave();
            self.committed_before += before.committed();
        }
        let Some(me) = view.rank_of(self.me) else { return };
        let (tx, rx) = mpsc::unbounded_channel();
        // The election accepts no View on an engine that this node lacks. If the View runs both
        // engines, Gloo's also opens the native one.
        let kind = if view.runs(EngineKind::Gloo) { EngineKind::Gloo } else { view.engine.kind };
        let Some(engine) = self.engines.iter().find(|engine| engine.kind() == kind) else { return };
        let mouth = Arc::new(Speaker::new(Arc::clone(view), self.me, self.peers.voices().clone()));
        let envelope = Envelope::open(Arc::clone(view), me, engine.as_ref(), tx, mouth)
            .measured_by(&self.meter)
            .after(&self.lost)
            .with(self.config.seeded);
        let envelope = Arc::new(envelope);
        let why = view.engine.why.sentence(|rank| format!("rank {rank}"));
        trace::info!(view = %view.id(), rank = %me, size = view.size(), engine = %view.engine.kind, why, in_sync = view.in_sync(), "installed a view");
        self.engine_failures = 0;
        self.counters.views += 1;
        self.outgoing = Some(rx);
        self.envelope = Some(Arc::clone(&envelope));
        for member in &view.members {
            self.learn_name(member.id.node, member.name.clone());
        }
        self.waiting = None;
        self.planning = Planning::of(Some(view), self.now());
        self.ways.view_changed(view);
        if self.election.is_frozen() {
            // Installed late, only to decide its operations: the next View is already being agreed.
            envelope.freeze();
            self.tell_installed(view);
            return;
        }
        self.dial_data_links(view, me);
        self.renew_forecasts();
        // Published before the event and the Context: their receivers may ask for the status at
        // once.
        self.publish();
        self.tell_installed(view);
        // Members that were not in the earlier View miss the rates that were measured in it.
        view.ranks().filter(|rank| *rank != me).for_each(|rank| self.replay_rates(rank));
        self.is_envelope_new = true;
        self.peers.session().set(Some(envelope));
    }

    /// Shows the installed View to callers, at the end of a turn. By then the messages that tell
    /// the other members of the View are queued. Calls use the same queues without the driver, and
    /// a member that has not heard of the View would ignore their messages.
    pub(super) fn show_envelope(&mut self) {
        if !std::mem::take(&mut self.is_envelope_new) {
            return;
        }
        let enough = |envelope: &Arc<Envelope>| envelope.view().size() >= self.config.min_members;
        self.views.send_replace(self.envelope.clone().filter(enough));
    }

    pub(super) fn dial_data_links(&mut self, view: &View, me: Rank) {
        let digest = view.digest();
        for peer in view.linked_with(me).filter(|r| *r > me) {
            match view.member(peer).map(|m| m.id) {
                Some(expect) if self.walled.contains(&expect) => {
                    self.data.ask(digest, peer, self.events.clone());
                }
                Some(expect) => self.dial_data_link(digest, me, peer, expect),
                None => {}
            }
        }
    }

    fn dial_data_link(&mut self, view: ViewDigest, me: Rank, peer: Rank, expect: MemberId) {
        let direct = self.peers.get(expect).filter(|link| link.is_direct());
        let Some((to, ours)) = direct.map(|l| (l.address, l.local)) else {
            // The direct link broke at this moment, so no data link can be made.
            return self.step(Input::DataLinkLost(view));
        };
        let others = self.roster.ways_to(expect).into_iter();
        let first = ours.and_then(|ours| lighter(&self.wiring.all, ours, others));
        let dial = DataDial { view, me, peer, expect, first, to };
        self.data.dial(
            dial,
            Arc::clone(&self.net),
            Arc::clone(&self.config.local),
            self.events.clone(),
        );
    }

    /// This node's dials for a data link failed, or the peer was asked to dial and did not in time.
    /// The first time, asks the peer to dial; otherwise the data link is lost.
    pub(crate) fn on_data_link_blocked(&mut self, view: ViewDigest, peer: Rank) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.digest() == view) else { return };
        let Some(member) = envelope.view().member(peer).map(|m| m.id) else { return };
        if self.data.has_stood(peer) {
            return;
        }
        // A peer of a lower rank asked this node because its own dials failed; now both directions
        // do. A peer in `walled` was asked and did not dial in time.
        if peer < envelope.me() || self.walled.remove(&member) {
            return self.step(Input::DataLinkLost(view));
        }
        trace::info!(peer = %member, "a member cannot be dialled, a firewall perhaps: it is asked \
            to dial");
        if self.walled.len() >= WALLED_MAX {
            self.walled.pop_first();
        }
        self.walled.insert(member);
        self.data.ask(view, peer, self.events.clone());
    }

    /// Peers that were asked to dial and did not may be blocked themselves, so in the next View
    /// this node dials them again.
    fn dial_again_who_did_not(&mut self) {
        let Some(envelope) = &self.envelope else { return };
        for rank in self.data.unanswered() {
            if let Some(member) = envelope.view().member(rank) {
                self.walled.remove(&member.id);
            }
        }
    }

    pub(crate) fn ask_to_dial(&mut self, view: ViewDigest, peer: Rank) {
        let envelope = self.envelope.as_ref().filter(|e| e.digest() == view);
        if let Some(member) = envelope.and_then(|e| e.view().member(peer)) {
            self.peers.send(member.id, Message::Dial(view));
        }
    }

    /// A member of a lower rank asks this node to dial, because its own dials fail.
    pub(super) fn on_asked_to_dial(&mut self, from: MemberId, view: ViewDigest) {
        self.step(Input::Heard(from));
        let Some(envelope) = self.envelope.clone().filter(|e| e.digest() == view && !e.is_frozen())
        else {
            return;
        };
        let me = envelope.me();
        let lower = envelope
            .view()
            .linked_with(me)
            .find(|rank| *rank < me && envelope.view().rank_of(from) == Some(*rank));
        let is_missing = |peer: &Rank| {
            !self.data.has_stood(*peer) && self.peers.get(from).is_some_and(Link::is_direct)
        };
        if let Some(peer) = lower.filter(is_missing) {
            self.dial_data_link(view, me, peer, from);
        }
    }

    pub(super) fn open_views(&mut self) {
        let views: Vec<Arc<View>> = self.election.open_views().cloned().collect();
        let same = views.len() == self.open_now.len()
            && views.iter().zip(&self.open_now).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            let me = self.me;
            let open = views.iter().filter_map(|v| {
                let members = v.members.iter().map(|m| m.id).collect();
                Some(OpenView { digest: v.digest(), members, me: v.rank_of(me)? })
            });
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = open.collect();
            self.open_now = views;
        }
    }

    pub(super) fn on_data_accepted(
        &mut self,
        stream: Box<dyn Stream>,
        session: Session,
        view: ViewDigest,
        src: Rank,
        from: SocketAddr,
    ) {
        self.step(Input::DataLink(view));
        if let Some(link) = laid(stream, session, from) {
            self.on_data_link(view, src, link);
        }
    }

    pub(super) fn on_data_link(&mut self, view: ViewDigest, peer: Rank, link: Laid) {
        if let Some(envelope) = self.envelope.as_ref().filter(|e| e.digest() == view) {
            let backend = Arc::clone(envelope.backend());
            self.data.stands(peer);
            let link = self.track(view, peer, link);
            backend.attach(peer, link);
        }
    }

    /// The session of this View, if it is installed. A peer that sends for a View has installed it.
    /// So if this node has accepted that View it installs it now, and loses no message that arrives
    /// before the notice.
    pub(super) fn envelope_of(&mut self, view: ViewDigest) -> Option<Arc<Envelope>> {
        if self.envelope.as_ref().is_none_or(|envelope| envelope.digest() != view) {
            self.step(Input::DataLink(view));
        }
        self.envelope.clone().filter(|envelope| envelope.digest() == view)
    }

    /// A message of an operation, of a View that its reader has not found installed.
    pub(super) fn on_op(&mut self, from: MemberId, message: &OpMessage) {
        let Some(envelope) = self.envelope_of(message.view) else { return };
        let Some(rank) = envelope.view().rank_of(from) else { return };
        if envelope.on_message(rank, message).is_err() {
            self.expel(rank);
        }
    }

    /// Sends an entry of this node on the View's board to all other members.
    pub(super) fn post(&mut self, key: &str, value: &[u8]) {
        let Some(envelope) = self.envelope.clone() else { return };
        for member in envelope.view().members.iter().filter(|m| m.id != self.me) {
            let post = Post { view: envelope.digest(), key: key.to_owned(), value: value.to_vec() };
            self.peers.send(member.id, Message::Post(Box::new(post)));
        }
    }

    pub(super) fn on_post(&mut self, from: MemberId, post: &Post) {
        self.step(Input::Heard(from));
        let Some(envelope) = self.envelope_of(post.view) else { return };
        let Some(rank) = envelope.view().rank_of(from) else { return };
        if envelope.board().hear(rank, &post.key, &post.value).is_err() {
            self.expel(rank);
        }
    }

    /// A single failure may be chance. If an engine fails twice in one View without the loss of a
    /// member, the next View excludes it.
    pub(super) fn on_engine_failed(&mut self) {
        self.engine_failures += 1;
        let Some(view) = self.envelope.as_ref().map(|e| e.digest()) else { return };
        if self.engine_failures >= ENGINE_FAILURES_MAX {
            self.step(Input::EngineUnfit(view));
        }
    }

    /// The View cannot go on, although all its members and links do.
    pub(super) fn on_must_end(&mut self) {
        if let Some(view) = self.envelope.as_ref().map(|e| e.digest()) {
            trace::warn!(
                ?view,
                "an operation of this View is disputed, or it has used too many lanes: it is \
                 replaced"
            );
            self.step(Input::MustEnd(view));
        }
    }

    /// Closes the link of a member that broke the protocol. It may reconnect, and stays a member
    /// unless it does it again and again.
    pub(super) fn expel(&mut self, rank: Rank) {
        let Some(member) = self.envelope.as_ref().and_then(|e| e.view().member(rank).map(|m| m.id))
        else {
            return;
        };
        self.on_breach(member);
    }

    pub(super) fn on_breach(&mut self, member: MemberId) {
        trace::warn!(peer = %member, "a member sent what no honest member sends; its link is \
            closed");
        self.close_link_of(member);
    }

    pub(super) fn close_link_of(&mut self, member: MemberId) {
        self.counters.misbehaviours += 1;
        self.step(Input::Breach(member));
        self.drop_link(member);
        self.roster.link_down(member, self.now());
        self.step(Input::LinkDown(member));
    }

    pub(super) fn arm(&mut self, op: OpId, after: Duration) {
        let Some(envelope) = &self.envelope else { return };
        self.deadlines.arm(op, Instant::now(), after, |op| envelope.is_open(op));
    }

    /// Gives up the operations whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(envelope) = &self.envelope else { return };
        while let Some(op) = self.deadlines.next(now) {
            envelope.expire(op);
        }
    }

    /// All others have been asked for their votes on `op`.
    pub(super) fn await_votes(&mut self, op: OpId) {
        let Some(envelope) = &self.envelope else { return };
        let is_open = |op| !envelope.unanswered(op).is_empty();
        self.unanswered.ask(op, Instant::now(), is_open);
    }

    /// Members that are asked for their votes and withhold them lose their place: nobody could
    /// answer a call as long as they have it.
    pub(super) fn expel_who_withholds_votes(&mut self, now: Instant) {
        for (op, asked) in self.unanswered.due(now) {
            let Some(envelope) = self.envelope.clone() else { return };
            let missing = envelope.unanswered(op);
            if missing.is_empty() {
                self.unanswered.end(op);
            }
            let members = missing.iter().filter_map(|rank| envelope.view().member(*rank));
            let withheld: Vec<MemberId> =
                members.map(|m| m.id).filter(|id| self.withholds_vote(*id, asked, now)).collect();
            for member in withheld {
                let had_place = !self.is_excluded(member);
                self.step(Input::Withheld(member));
                if had_place && self.is_excluded(member) {
                    trace::warn!(peer = %member, %op, "a member answers and withholds its vote; it \
                        loses its place");
                }
            }
        }
    }

    fn is_excluded(&self, id: MemberId) -> bool {
        self.election.quarantined(self.now()).any(|(node, ..)| node == id.node)
    }

    /// Whether this member would have voted by `now`, if it did what it is to do. See
    /// [`unanswered`](crate::node::unanswered).
    fn withholds_vote(&self, id: MemberId, asked: Instant, now: Instant) -> bool {
        if self.election.has_left_behind_this_node(id) {
            return false;
        }
        let answered = self.peers.get(id).and_then(Link::answered);
        answered.is_some_and(|ping| ping > asked)
            || now >= asked + NO_PONG && self.election.hears_this_node(self.now(), id)
    }

    pub(super) fn report_resolved(&mut self) {
        if let Some(envelope) = &self.envelope {
            envelope.tell_resolved();
        }
    }
}
