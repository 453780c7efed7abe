//! How a node establishes, keeps and loses its control links.

use super::super::event::Event;
use super::super::peers::{Arrival, Direct, Taken};
use super::Node;
use super::circuits::DirectDial;
use super::connecting::connect;
use super::open_view::OpenView;
use super::way::{Dialled, Way};
use crate::discovery::{DialOutcome, is_same_place};
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::{DataAsk, DataTerms, PathProof, Purpose, Refusal, Session, Stream, respond};
use crate::os::{Interface, InterfaceKind};
use crate::protocol::{Message, Post};
use crate::topology::Port;
use crate::trace;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

impl Node {
    /// Answers a connection in its own task. The gate may turn it away; else it has two seconds for
    /// its handshake.
    pub(crate) fn on_accepted(&mut self, stream: Box<dyn Stream>, from: SocketAddr) {
        let ip = from.ip().to_canonical();
        let Ok(ticket) = self.gate.admit(self.now(), ip) else {
            self.counters.overloads += 1;
            return;
        };
        let (local, replays, open) =
            (Arc::clone(&self.config.local), Arc::clone(&self.replays), Arc::clone(&self.open));
        let events = self.events.clone();
        tokio::spawn(async move {
            let result = respond(stream, &local, &replays, |ask| terms(&open, ask)).await;
            let _ = events.send(Event::Answered { from, ticket, result }).await;
        });
    }

    pub(super) fn on_answered(
        &mut self,
        from: SocketAddr,
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    ) {
        match result {
            Ok((stream, session)) => {
                // Behind an unproven path anybody may be the source.
                if session.path.is_proven() {
                    self.gate.authenticated(self.now(), from.ip().to_canonical());
                }
                let address = listening_at(from, session.peer.port);
                match session.purpose {
                    Purpose::Control | Purpose::Relink => {
                        _ = self.on_linked(stream, session, Way::direct(address), Dialled::ByPeer);
                    }
                    Purpose::Data { view, src, .. } => {
                        self.on_data_accepted(stream, session, view, src, from);
                    }
                    Purpose::Path { view, src, .. } => {
                        self.on_path_offered(stream, session, view, src, from);
                    }
                }
            }
            Err(refusal) => self.count(refusal),
        }
    }

    pub(super) fn count(&mut self, refusal: Refusal) {
        trace::debug!(%refusal, "refused a connection");
        match refusal {
            Refusal::OtherVersion { .. } => self.counters.other_versions += 1,
            Refusal::Overloaded(_) | Refusal::TooSlow | Refusal::Replayed => {
                self.counters.overloads += 1;
            }
            Refusal::DuplicateIdentity => self.step(Input::Twin),
            Refusal::UnknownView
            | Refusal::OtherPartition
            | Refusal::SelfDial
            | Refusal::Closed
            | Refusal::Io(_) => {}
            _ => self.counters.strangers += 1,
        }
    }

    pub(super) fn dial(&self, to: SocketAddr) {
        let (net, local, events) =
            (Arc::clone(&self.net), Arc::clone(&self.config.local), self.events.clone());
        tokio::spawn(async move {
            let result = connect(net, &local, to, Purpose::Control, None).await;
            let _ = events.send(Event::Dialled { to, result }).await;
        });
    }

    pub(super) fn on_dialled(
        &mut self,
        to: SocketAddr,
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    ) {
        let now = self.now();
        let admitted = |(stream, session): (Box<dyn Stream>, Session)| {
            self.admit(&session).map(|()| (stream, session))
        };
        match result.and_then(admitted) {
            Ok((stream, session)) => {
                self.refusals.remove(&to);
                let outcome = match session.path {
                    PathProof::Proven => DialOutcome::Authenticated(session.peer.id),
                    PathProof::Unproven => DialOutcome::Unproven(session.peer.id),
                };
                self.roster.dialled(to, outcome, now);
                self.on_linked(stream, session, Way::direct(to), Dialled::ByMe);
            }
            Err(refusal) => {
                trace::debug!(%to, %refusal, "a dial failed");
                if refusal == Refusal::DuplicateIdentity {
                    self.step(Input::Twin);
                }
                let outcome = match refusal {
                    Refusal::SelfDial => DialOutcome::Myself,
                    Refusal::OtherVersion { theirs } => DialOutcome::OtherVersion(theirs),
                    Refusal::WrongKey => DialOutcome::OtherNamespace,
                    _ => DialOutcome::Failed,
                };
                self.roster.dialled(to, outcome, now);
                if self.refusals.len() < 64 || self.refusals.contains_key(&to) {
                    self.refusals.insert(to, refusal);
                }
            }
        }
    }

    pub(super) fn on_linked(
        &mut self,
        stream: Box<dyn Stream>,
        session: Session,
        way: Way,
        dialled: Dialled,
    ) -> Taken {
        let Way { address, over } = way;
        if let Err(refusal) = self.admit(&session) {
            trace::debug!(peer = %session.peer.id, %refusal, "no link with it");
            self.count(refusal);
            return Taken::Refused;
        }
        let (id, name, suite) = (session.peer.id, session.peer.name.clone(), session.suite);
        let dialler = if dialled == Dialled::ByMe { self.me.node } else { id.node };
        let before = self.peers.get(id).filter(|link| link.is_direct()).map(|link| link.address);
        let (was_direct, purpose, path) = (before.is_some(), session.purpose, session.path);
        let was_proven = self.has_proven_link(id);
        let direct =
            if self.election.is_quiet(self.now(), id) { Direct::Quiet } else { Direct::Good };
        if over.is_empty() {
            self.make_room(id, address.ip());
        }
        let arrival = Arrival { stream, session, address, over: over.clone(), dialler };
        let taken = self.peers.take(arrival, direct);
        if taken == Taken::Refused {
            return taken;
        }
        trace::debug!(peer = %id, %name, %address, over = over.len(), %suite, ?path, ?taken, ?dialled, "linked");
        self.counters.links += 1;
        self.learn_name(id.node, name.clone());
        self.found(id);
        if was_direct {
            self.end_circuits_over(id);
        }
        if over.is_empty() {
            self.direct_is_back(id);
            self.place_of_link(id, address, path);
            self.step(Input::LinkUp(id));
            if let Some(before) = before
                .filter(|before| purpose == Purpose::Relink && !is_same_place(*before, address))
            {
                self.ways.is_broken(self.now(), id, before);
            }
            if taken == Taken::New {
                self.path_broke(id);
            }
        } else {
            if was_direct || taken == Taken::New && !self.awaits_direct(id) {
                self.lose_direct(id);
            }
            self.step(Input::RelayUp(id, over));
        }
        self.replay(id);
        self.tell_places(id);
        if taken == Taken::New {
            self.meter.linked(id.node, &name);
            self.introduce_others(id);
        }
        if self.has_proven_link(id) && (taken == Taken::New || !was_proven) {
            self.remember_peers();
        }
        taken
    }

    /// Replays to a member over its new link this node's board entries, operation messages, open
    /// plan steps and rates. Operations use the link themselves after their replay.
    pub(super) fn replay(&mut self, to: MemberId) {
        let envelope = self.envelope.clone();
        let Some((envelope, rank)) =
            envelope.and_then(|envelope| envelope.view().rank_of(to).map(|rank| (envelope, rank)))
        else {
            return self.peers.let_speak(to);
        };
        for (key, value) in envelope.board().own() {
            self.peers.send_again(
                to,
                Message::Post(Box::new(Post { view: envelope.digest(), key, value })),
            );
        }
        self.peers.replay(to, &envelope, rank);
        self.replay_plan(rank);
        self.replay_rates(rank);
    }

    pub(super) fn on_closed(
        &mut self,
        member: MemberId,
        generation: u64,
        misbehaved: Option<String>,
    ) {
        let Some(link) = self.peers.closed(member, generation) else { return };
        if let Some(why) = misbehaved {
            trace::warn!(peer = %member, why, "closed the link of a member that broke the \
                protocol");
            self.counters.misbehaviours += 1;
            self.step(Input::Breach(member));
        }
        self.step(Input::LinkDown(member));
        let is_member = self.envelope.as_ref().is_some_and(|e| e.view().contains(member));
        if link.is_unheard() && !is_member {
            // The peer does not admit this node, which it sees only after the handshake.
            return self.roster.set_aside(member, UNWELCOME_MS, self.now());
        }
        if !link.is_direct() {
            return self.seek_lost(member, DirectDial::Over);
        }
        self.end_circuits_over(member);
        self.seek_lost(member, DirectDial::UnderWay);
        let mut to = self.ways_around(member);
        to.retain(|to| !is_same_place(*to, link.address));
        // Whoever forwarded the connection may say that nobody is there.
        let at = if link.is_proven() { 0 } else { to.len() };
        to.insert(at, link.address);
        // A redial that already runs because the link was silent will do.
        self.redial(member, to);
    }

    /// Closes the member's link, and the circuits over it if it was direct.
    pub(super) fn drop_link(&mut self, member: MemberId) {
        if self.peers.drop_link(member).is_some_and(|link| link.is_direct()) {
            self.end_circuits_over(member);
        }
    }

    pub(super) fn ping(&mut self) {
        let sent = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        let members: Vec<MemberId> = self.peers.iter().map(|(id, _)| *id).collect();
        for member in members {
            self.peers.send(member, Message::Ping(sent));
        }
    }

    pub(super) fn on_pong(&mut self, from: MemberId, number: u64) {
        self.step(Input::Heard(from));
        let (now, now_us) =
            (self.now(), u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX));
        let Some(sample_us) = now_us.checked_sub(number).and_then(|us| u32::try_from(us).ok())
        else {
            return;
        };
        let Some(link) = self.peers.get_mut(from) else { return };
        link.has_answered(self.epoch + Duration::from_micros(number));
        link.round_trip.sample(now, sample_us);
        let Some(rtt_us) = link.round_trip.us() else { return };
        let port = self.port_toward(from);
        if port.is_some_and(|port| port.kind == InterfaceKind::Wifi) {
            self.election.set_over_radio(from);
        }
        self.election.links_mut().round_trip(self.me, from, rtt_us, port);
    }

    /// The port of this machine that has this local address; `None` if no interface has it now.
    pub(super) fn port_of(&self, at: SocketAddr) -> Option<Port> {
        self.wiring.of(at).map(|interface| Port::unmeasured(interface.kind, interface.index))
    }

    pub(super) fn interface_of(&self, at: SocketAddr) -> Option<&Interface> {
        self.wiring.of(at)
    }
}

/// The listen address of a peer that dialled from `from`. Keeps the scope, without which a
/// link-local address cannot be dialled.
fn listening_at(mut from: SocketAddr, port: u16) -> SocketAddr {
    from.set_port(port);
    match from.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), port),
        IpAddr::V6(_) => from,
    }
}

/// How long a peer is not dialled that has ended a link without a word, in milliseconds.
const UNWELCOME_MS: u64 = 5000;

fn terms(open: &RwLock<Vec<OpenView>>, ask: &DataAsk) -> Option<DataTerms> {
    let open = open.read().unwrap_or_else(PoisonError::into_inner);
    let view = open.iter().find(|v| v.digest.hint() == ask.hint && v.me == ask.dst)?;
    Some(DataTerms { view: view.digest, expect: *view.members.get(ask.src.index())? })
}
