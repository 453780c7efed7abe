//! How a node establishes, keeps and loses its control links.

use super::super::data_link::established;
use super::super::event::Linked;
use super::super::peers::{Arrival, Direct, Taken};
use super::super::relays::DirectDial;
use super::super::reporter::Complaint;
use super::ControlPlane;
use super::control_path::{ControlPath, Dialled};
use crate::discovery::{DialOutcome, is_same_interface};
use crate::election::Input;
use crate::identity::{MemberId, Newcomer};
use crate::link::{PathProof, Purpose, Refusal, SecureChannel, Stream};
use crate::os::InterfaceKind;
use crate::protocol::{Message, Post};
use crate::report::{Event, NodeInfo};
use crate::topology::Port;
use crate::trace;
use std::net::{IpAddr, SocketAddr};

/// How long a peer is not dialled that has ended a link without a word, in milliseconds.
const UNWELCOME_MS: u64 = 5000;

/// How long the addresses of a member whose link gave way are not dialled, in milliseconds.
const CROWDED_OUT_MS: u64 = 60_000;

impl ControlPlane {
    /// Answers a connection, unless the gate turns it away.
    pub(crate) fn on_accepted(&mut self, stream: Box<dyn Stream>, from: SocketAddr) {
        if !self.handshakes.answer(self.clock.now(), stream, from) {
            self.reporter.count().overloads += 1;
        }
    }

    pub(super) fn on_answered(&mut self, from: SocketAddr, result: Linked) {
        match result {
            Ok((stream, session)) => {
                // Behind an unproven path any host may be the source.
                if session.path.is_proven() {
                    self.handshakes.authenticated(self.clock.now(), from.ip());
                }
                let address = listening_at(from, session.peer.port);
                match session.purpose {
                    Purpose::Control | Purpose::Relink => {
                        _ = self.on_linked(
                            stream,
                            session,
                            ControlPath::direct(address),
                            Dialled::ByPeer,
                        );
                    }
                    Purpose::Observe => {
                        self.on_status_link(stream, session, address, Dialled::ByPeer);
                    }
                    Purpose::Data { view, src, .. } => {
                        self.step(Input::DataLink(view));
                        if let Some(link) = established(stream, session, from) {
                            self.on_data_link(view, src, link);
                        }
                    }
                    Purpose::Path { view, src, .. } => {
                        if let Some(link) = established(stream, session, from) {
                            self.on_path_offered(view, src, link);
                        }
                    }
                }
            }
            Err(refusal) => self.count(refusal),
        }
    }

    pub(super) fn count(&mut self, refusal: Refusal) {
        trace::debug!(%refusal, "refused a connection");
        self.reporter.count_refusal(&refusal);
        self.learn(refusal);
    }

    /// Two refusals say something about the peer, which has proved the cluster key.
    pub(super) fn learn(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::DuplicateIdentity => self.step(Input::Duplicate),
            Refusal::OtherJob(member) => self.roster.meets(*member, self.clock.now()),
            _ => {}
        }
    }

    pub(super) fn on_dialled(&mut self, to: SocketAddr, result: Linked) {
        let now = self.now();
        let admitted = |(stream, session): (Box<dyn Stream>, SecureChannel)| {
            self.admit(&session).map(|()| (stream, session))
        };
        match result.and_then(admitted) {
            Ok((stream, session)) => {
                self.reporter.dialled(to, None);
                let outcome = match session.path {
                    PathProof::Proven => DialOutcome::Authenticated(session.peer.id),
                    PathProof::Unproven => DialOutcome::Unproven(session.peer.id),
                };
                self.roster.dialled(to, outcome, now);
                if session.purpose == Purpose::Observe {
                    self.on_status_link(stream, session, to, Dialled::ByMe);
                } else {
                    let peer = session.peer.id;
                    let path = ControlPath::direct(to);
                    let taken = self.on_linked(stream, session, path, Dialled::ByMe);
                    if taken == Taken::Refused && self.peers.get(peer).is_none() {
                        // There is no room for it.
                        self.roster.set_aside(peer, UNWELCOME_MS, now);
                    }
                }
            }
            Err(refusal) => {
                trace::debug!(%to, %refusal, "a dial failed");
                let outcome = match &refusal {
                    Refusal::SelfDial => DialOutcome::Myself,
                    Refusal::OtherVersion { theirs } => DialOutcome::OtherVersion(*theirs),
                    Refusal::WrongKey => DialOutcome::OtherNamespace,
                    Refusal::OtherJob(_) | Refusal::Observer => DialOutcome::OtherJob,
                    _ => DialOutcome::Failed,
                };
                self.roster.dialled(to, outcome, now);
                // The status names nodes of other jobs by themselves, and no observers.
                let is_shown = outcome != DialOutcome::OtherJob;
                self.reporter.dialled(to, is_shown.then(|| refusal.clone()));
                self.learn(refusal);
            }
        }
    }

    /// Whether a peer is admitted. One that is met for the first time is remembered.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn admit(&mut self, session: &SecureChannel) -> Result<(), Refusal> {
        if let Some(Newcomer { node, name, namesake }) = self.access.admit(session)? {
            self.store.know(node, name.as_str().to_owned());
            let peer = NodeInfo { node, name: Some(name) };
            self.reporter.tell(Event::FirstMet { peer, namesake });
        }
        Ok(())
    }

    pub(super) fn on_linked(
        &mut self,
        stream: Box<dyn Stream>,
        session: SecureChannel,
        path: ControlPath,
        dialled: Dialled,
    ) -> Taken {
        let ControlPath { address, over } = path;
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
        trace::debug!(
            peer = %id, %name, %address, over = over.len(), %suite, ?path, ?taken, ?dialled,
            "linked"
        );
        self.reporter.count().links += 1;
        self.reporter.learn_name(id.node, name.clone());
        self.relays.found(id);
        if was_direct {
            self.relays.end_over(id, (&self.peers, &self.handshakes));
        }
        if over.is_empty() {
            self.redials.await_no_longer(id);
            self.address_of_link(id, address, path);
            self.step(Input::LinkUp(id));
            if let Some(before) = before
                .filter(|before| purpose == Purpose::Relink && !is_same_interface(*before, address))
            {
                self.paths.is_broken(self.clock.now(), id, before);
            }
            if taken == Taken::New {
                self.path_broke(id);
            }
        } else {
            if was_direct
                || taken == Taken::New && !self.redials.awaits_direct(self.clock.now(), id)
            {
                self.lose_direct(id);
            }
            self.step(Input::RelayUp(id, over));
        }
        self.replay(id);
        self.tell_addresses(id);
        if taken == Taken::New {
            self.reporter.meter().linked(id.node, &name);
            self.introduce_others(id);
        }
        if self.has_proven_link(id) && (taken == Taken::New || !was_proven) {
            self.remember_peers();
        }
        taken
    }

    /// If all places for links are taken and `ip` has fewer of them than another address, a link
    /// with a node there ends: a host that makes up identities cannot keep others out. Members of
    /// Views that this node may be in keep theirs.
    fn make_room(&mut self, newcomer: MemberId, ip: IpAddr) {
        let views: Vec<_> = self.election.open_views().cloned().collect();
        let stays = |id: MemberId| views.iter().any(|view| view.contains(id));
        let Some(member) = self.peers.crowded_out_by(newcomer, ip, stays) else { return };
        trace::info!(peer = %member, "most links lead to one address: one of them gives way to a \
            newcomer");
        self.turn_away(member, CROWDED_OUT_MS);
    }

    /// Replays to a member over its new link this node's board entries, operation messages, open
    /// plan steps and rates. Operations use the link themselves after their replay.
    fn replay(&mut self, to: MemberId) {
        let Some((session, rank)) =
            self.installed.session().cloned().zip(self.installed.rank_of(to))
        else {
            return self.peers.let_speak(to);
        };
        for (key, value) in session.board().own() {
            self.peers.send_again(
                to,
                Message::Post(Box::new(Post { view: session.digest(), key, value })),
            );
        }
        self.peers.replay(to, &session, rank);
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
            self.reporter.count().misbehaviours += 1;
            self.step(Input::Breach(member));
        }
        self.step(Input::LinkDown(member));
        if link.is_unheard() && self.installed.rank_of(member).is_none() {
            // The peer does not admit this node, which it sees only after the handshake.
            self.reporter.complain(member, link.address, Complaint::NotAdmitted);
            return self.roster.set_aside(member, UNWELCOME_MS, self.clock.now());
        }
        if !link.is_direct() {
            return self.seek_lost(member, DirectDial::Over);
        }
        self.relays.end_over(member, (&self.peers, &self.handshakes));
        self.seek_lost(member, DirectDial::UnderWay);
        let mut to = self.other_addresses_of(member);
        to.retain(|to| !is_same_interface(*to, link.address));
        // A forwarder of the connection may say that no node is there.
        let at = if link.is_proven() { 0 } else { to.len() };
        to.insert(at, link.address);
        // A redial that already runs because the link was silent will do.
        self.redial(member, to);
    }

    /// Closes the member's link, and the circuits over it if it was direct.
    pub(super) fn drop_link(&mut self, member: MemberId) {
        if self.peers.drop_link(member).is_some_and(|link| link.is_direct()) {
            self.relays.end_over(member, (&self.peers, &self.handshakes));
        }
    }

    /// Closes the link of a member that broke the protocol. It may reconnect, and stays a member
    /// unless it does it again and again.
    pub(super) fn close_link_of(&mut self, member: MemberId) {
        trace::warn!(peer = %member, "a member broke the protocol; its link is closed");
        self.reporter.count().misbehaviours += 1;
        self.step(Input::Breach(member));
        self.drop_link(member);
        self.roster.link_down(member, self.clock.now());
        self.step(Input::LinkDown(member));
    }

    pub(super) fn ping(&mut self) {
        let sent = self.clock.now_us();
        let members: Vec<MemberId> = self.peers.iter().map(|(id, _)| *id).collect();
        for member in members {
            self.peers.send(member, Message::Ping(sent));
        }
    }

    pub(super) fn on_pong(&mut self, from: MemberId, number: u64) {
        self.step(Input::Heard(from));
        let (now, now_us) = (self.clock.now(), self.clock.now_us());
        let Some(sample_us) = now_us.checked_sub(number).and_then(|us| u32::try_from(us).ok())
        else {
            return;
        };
        let Some(link) = self.peers.get_mut(from) else { return };
        link.has_answered(self.clock.at_us(number));
        link.round_trip.sample(now, sample_us);
        let Some(rtt_us) = link.round_trip.us() else { return };
        let port = self.port_toward(from);
        if port.is_some_and(|port| port.kind == InterfaceKind::Wifi) {
            self.election.set_over_radio(from);
        }
        let host = self.peers.get(from).and_then(|link| link.hello.host);
        let own = self.handshakes.local().hello.host;
        let links = self.election.links_mut();
        links.set_host(self.me, own);
        links.set_host(from, host);
        links.round_trip(self.me, from, rtt_us, port);
    }

    /// The port through which the links with a member leave this machine.
    pub(super) fn port_toward(&self, member: MemberId) -> Option<Port> {
        if self.shares_host_with(member) {
            return Some(Port::unmeasured(InterfaceKind::Loopback, MEMORY));
        }
        let rank = self.installed.rank_of(member);
        let by_data = rank.and_then(|rank| self.paths.data_path(rank)?.at().ours);
        let by_control = || self.peers.get(member).and_then(|link| link.local);
        self.network.port_of(by_data.or_else(by_control)?)
    }

    /// Whether the data link with a member goes through memory.
    pub(super) fn shares_host_with(&self, member: MemberId) -> bool {
        let own = self.handshakes.local().hello.host;
        own.is_some() && self.peers.get(member).is_some_and(|link| link.hello.host == own)
    }
}

/// The number of the port through which members of one host talk to each other.
const MEMORY: u32 = 1;

/// The listen address of a peer that dialled from `from`. Keeps the scope, without which a
/// link-local address cannot be dialled.
fn listening_at(mut from: SocketAddr, port: u16) -> SocketAddr {
    from.set_port(port);
    match from.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), port),
        IpAddr::V6(_) => from,
    }
}
