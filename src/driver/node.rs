//! Layer: Host.
//!
//! One node: its election, its links, its View, and what passes between them.

use super::datalinks::{DataDial, DataLinks, watched};
use super::event::Event;
use super::peers::{Peers, Taken};
use super::{Outlets, Store};
use crate::collective::{Closing, Engine, Envelope, OpMessage, Outgoing, Pool};
use crate::discovery::{AddressPolicy, Advert, DialOutcome, Discovery, InterfaceReport, Limits, Origin, Roster, Sighting};
use crate::election::{Decides, Durable, Effect, Election, ElectionConfig, Input, Message, Operations, PeerAddress};
use crate::error::Peer;
use crate::identity::{MemberId, Namespace};
use crate::link::{
    DataAsk, DataTerms, Gate, Listener, Local, Net, Purpose, Refusal, Replays, Session, Stream, initiate, into_data_link, respond,
};
use crate::status::{Counters, PeerStatus, State, Status, ViewStatus, Waiting};
use crate::topology::{Interface, InterfaceKind, Path};
use crate::view::{OpId, Rank, View, ViewDigest};
use crate::wire::{Encode, PROTOCOL_VERSION};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Everything outside that a node needs.
pub struct Doors {
    /// Connections.
    pub net: Arc<dyn Net>,
    /// The node's port.
    pub listener: Box<dyn Listener>,
    /// Who else is there.
    pub discovery: Box<dyn Discovery>,
    /// Durable state.
    pub store: Box<dyn Store>,
    /// What runs the collectives.
    pub engine: Arc<dyn Engine>,
}

/// What a node is.
pub struct NodeConfig {
    /// Its keys and introduction.
    pub local: Arc<Local>,
    /// Its cluster.
    pub namespace: Namespace,
    /// The name of its announcement.
    pub instance: String,
    /// What an earlier life left on the disk.
    pub durable: Durable,
    /// The times of the election.
    pub election: ElectionConfig,
    /// Which hints may be dialled.
    pub policy: AddressPolicy,
    /// Own addresses to announce; empty where discovery knows them.
    pub advertised: Vec<SocketAddr>,
    /// Addresses known beforehand.
    pub known: Vec<(SocketAddr, Origin)>,
    /// Members a View needs before it is of use.
    pub min_members: usize,
    /// This machine's interfaces.
    pub interfaces: Vec<Interface>,
}

/// Between two round-trip measurements.
const PING: Duration = Duration::from_millis(500);

/// Between two reports of what is decided, while operations are listed.
const REPORT: Duration = Duration::from_millis(250);

/// From when on somebody waited for is worth a warning.
const WAITING_WARN: Duration = Duration::from_secs(10);

pub(super) struct Node {
    config: NodeConfig,
    me: MemberId,
    epoch: Instant,
    net: Arc<dyn Net>,
    store: Box<dyn Store>,
    engine: Arc<dyn Engine>,
    events: mpsc::Sender<Event>,
    views: watch::Sender<Option<Arc<Envelope>>>,
    status: watch::Sender<Status>,
    election: Election,
    roster: Roster,
    gate: Gate,
    replays: Arc<Mutex<Replays>>,
    peers: Peers,
    data: DataLinks,
    pool: Pool,
    envelope: Option<Arc<Envelope>>,
    outgoing: Option<mpsc::UnboundedReceiver<Outgoing>>,
    /// The Views that a data link may belong to, for the tasks that answer handshakes.
    open: Arc<RwLock<Vec<OpenView>>>,
    names: BTreeMap<MemberId, crate::identity::Name>,
    counters: Counters,
    committed_before: u64,
    refusals: BTreeMap<SocketAddr, Refusal>,
    duplicate: bool,
    waiting: Option<(OpId, Instant, bool)>,
    /// What discovery last said of each interface.
    interfaces: Vec<InterfaceReport>,
    tick_at: Instant,
    ping_at: Instant,
    report_at: Instant,
    port: u16,
}

/// What a handshake for a data link must know of a View.
struct OpenView {
    digest: ViewDigest,
    members: Vec<MemberId>,
    me: Rank,
}

/// The installed View's operations, as the election sees them.
struct Ledgers<'a>(Option<&'a Arc<Envelope>>);

impl Operations for Ledgers<'_> {
    fn freeze(&mut self) -> Closing {
        self.0.map_or_else(Closing::default, |envelope| envelope.freeze())
    }
}

impl NodeConfig {
    pub(super) fn first_status(&self, port: u16) -> Status {
        Status {
            node: self.local.hello.id.node,
            name: self.local.hello.name.clone(),
            namespace: self.namespace.name().as_str().to_owned(),
            open: self.namespace.is_open(),
            port,
            state: State::Alone,
            view: None,
            peers: Vec::new(),
            interfaces: Vec::new(),
            others: Vec::new(),
            waiting: None,
            counters: Counters::default(),
        }
    }
}

impl Node {
    #[expect(clippy::too_many_arguments, reason = "the doors, taken apart once")]
    pub(super) fn new(
        config: NodeConfig,
        net: Arc<dyn Net>,
        store: Box<dyn Store>,
        engine: Arc<dyn Engine>,
        events: mpsc::Sender<Event>,
        views: watch::Sender<Option<Arc<Envelope>>>,
        status: watch::Sender<Status>,
        port: u16,
    ) -> Node {
        let hello = &config.local.hello;
        let me = hello.id;
        let election = Election::new(me, hello.name.clone(), hello.stateless, config.durable.clone(), config.election.clone());
        let namespace = config.namespace.clone();
        let mut roster = Roster::new(Limits::default(), config.policy.clone(), me.boot, move |boot| namespace.tag(boot));
        config.known.iter().for_each(|(to, origin)| roster.add(*to, *origin, 0));
        let now = Instant::now();
        Node {
            me,
            epoch: now,
            net,
            store,
            engine,
            views,
            status,
            election,
            roster,
            gate: Gate::new(),
            replays: Arc::new(Mutex::new(Replays::default())),
            peers: Peers::new(me.node, events.clone()),
            events,
            data: DataLinks::default(),
            pool: Pool::new(),
            envelope: None,
            outgoing: None,
            open: Arc::new(RwLock::new(Vec::new())),
            names: BTreeMap::new(),
            counters: Counters::default(),
            committed_before: 0,
            refusals: BTreeMap::new(),
            duplicate: false,
            waiting: None,
            interfaces: Vec::new(),
            tick_at: now,
            ping_at: now,
            report_at: now,
            port,
            config,
        }
    }

    pub(super) fn advert(&self) -> Advert {
        Advert {
            instance: self.config.instance.clone(),
            boot: self.me.boot,
            tag: Some(self.config.namespace.tag(self.me.boot)),
            version: PROTOCOL_VERSION,
            suites: 1,
            pairing: false,
            port: self.port,
            addresses: self.config.advertised.clone(),
        }
    }

    /// How long the driver may sleep.
    pub(super) fn pause(&self) -> Duration {
        let now = self.now();
        let dial = self.roster.next_due(now).map_or(Duration::MAX, |due| Duration::from_millis(due.saturating_sub(now).max(1)));
        self.tick_at.saturating_duration_since(Instant::now()).min(dial)
    }

    /// What the View's operations want said; waits while there is no View.
    pub(super) async fn outgoing(&mut self) -> Option<Outgoing> {
        match &mut self.outgoing {
            Some(outgoing) => outgoing.recv().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Answered { from, ticket, result } => {
                self.gate.release(ticket);
                self.on_answered(from, result);
            }
            Event::Dialled { to, result } => self.on_dialled(to, result),
            Event::Redialled { member, to, result } => self.on_redialled(member, to, result),
            Event::Message { from, message } => self.on_message(from, message),
            Event::Closed { member, generation, misbehaved } => self.on_closed(member, generation, misbehaved),
            Event::DataLink { view, peer, link } => self.on_data_link(view, peer, link),
            Event::DataLinkLost { view, .. } => self.step(Input::DataLinkLost(view)),
            Event::Persisted(ticket) => self.step(Input::Persisted(ticket)),
            Event::Deadline(view, op) => {
                if let Some(envelope) = self.envelope.as_ref().filter(|e| e.digest() == view) {
                    envelope.expire(op);
                }
            }
            Event::Resolved(address) => self.roster.add(address, Origin::Fixed, self.now()),
        }
    }

    pub(super) fn on_outgoing(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Tell(message) => self.tell(&message),
            Outgoing::InFlight(count) => self.step(Input::OpsInFlight(count)),
            Outgoing::Deadline(op, after) => self.arm(op, after),
        }
    }

    /// A connection: past the gate it gets two seconds for its handshake, beside everything else.
    pub(super) fn on_accepted(&mut self, accepted: io::Result<(Box<dyn Stream>, SocketAddr)>) {
        let Ok((stream, from)) = accepted else { return };
        let ip = from.ip().to_canonical();
        let Ok(ticket) = self.gate.admit(self.now(), ip) else {
            self.counters.overloads += 1;
            return;
        };
        let (local, replays, open) = (Arc::clone(&self.config.local), Arc::clone(&self.replays), Arc::clone(&self.open));
        let events = self.events.clone();
        tokio::spawn(async move {
            let result = respond(stream, &local, &replays, |ask| terms(&open, ask)).await;
            let _ = events.send(Event::Answered { from, ticket, result }).await;
        });
    }

    pub(super) fn on_sighting(&mut self, sighting: Sighting) {
        self.roster.sighted(sighting, self.now());
    }

    /// What every turn ends with: time passes, due dials go out, the status is renewed.
    pub(super) fn turn(&mut self, discovery: &dyn Discovery) {
        let now = Instant::now();
        if now >= self.tick_at {
            self.step(Input::Tick);
            self.tick_at = now + Duration::from_millis(self.election.rest_ms());
            self.peers.reap();
            for (member, generation) in self.peers.stuck() {
                self.on_closed(member, generation, None);
            }
            if now >= self.ping_at {
                self.ping_at = now + PING;
                self.ping();
            }
            if now >= self.report_at {
                self.report_at = now + REPORT;
                self.interfaces = discovery.report();
                self.report_resolved();
            }
            self.watch_waiting(now);
            self.publish();
        }
        for dial in self.roster.due(self.now()) {
            self.dial(dial.to);
        }
    }

    pub(super) fn leave(&mut self) {
        // Votes that are said already: without them the others would need a new View to decide.
        while let Some(said) = self.outgoing.as_mut().and_then(|outgoing| outgoing.try_recv().ok()) {
            self.on_outgoing(said);
        }
        self.step(Input::Leave);
        self.data.clear();
        if let Some(envelope) = self.envelope.take() {
            envelope.cut_off();
        }
        self.views.send_replace(None);
        self.status.send_modify(|status| {
            status.state = State::Closed;
            status.view = None;
        });
    }

    /// Ends the links when what is queued has left.
    pub(super) async fn close(self) {
        self.peers.flush().await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn step(&mut self, input: Input) {
        let now = self.now();
        let effects = self.election.step(now, input, &mut Ledgers(self.envelope.as_ref()));
        for effect in effects {
            self.carry_out(effect);
        }
        self.open_views();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(to, message) => {
                self.peers.send(to, message);
            }
            Effect::Persist(ticket, durable) => {
                let events = self.events.clone();
                // The disk's thread may wait for the driver; never the other way round.
                self.store.save(durable.to_bytes(), Box::new(move || drop(events.blocking_send(Event::Persisted(ticket)))));
            }
            Effect::Install(view, decides) => self.install(&view, decides),
            Effect::Drop(member) => drop(self.peers.drop_link(member)),
        }
    }

    fn install(&mut self, view: &Arc<View>, decides: Decides) {
        self.data.clear();
        if let Some(before) = self.envelope.take() {
            match decides {
                Decides::Parent => before.decide(&view.committed),
                Decides::Nothing => before.cut_off(),
            }
            before.backend().close();
            self.committed_before += before.committed();
        }
        let Some(me) = view.rank_of(self.me) else { return };
        let (tx, rx) = mpsc::unbounded_channel();
        let backend = self.engine.open(view, me);
        let envelope = Arc::new(Envelope::new(Arc::clone(view), me, backend, self.pool.clone(), tx));
        tracing::info!(view = %view.id(), rank = %me, size = view.size(), in_sync = view.in_sync(), "installed a view");
        self.counters.views += 1;
        self.outgoing = Some(rx);
        self.envelope = Some(Arc::clone(&envelope));
        for member in &view.members {
            self.names.insert(member.id, member.name.clone());
        }
        self.waiting = None;
        if self.election.is_frozen() {
            // Installed late, for its outcome alone: the next one is under way.
            envelope.freeze();
            return;
        }
        self.dial_data_links(view, me);
        // Whoever gets the Context may ask for the status at once.
        self.publish();
        let enough = view.size() >= self.config.min_members;
        self.views.send_replace(enough.then_some(envelope));
        self.step(Input::OpsInFlight(0));
    }

    fn dial_data_links(&mut self, view: &View, me: Rank) {
        let digest = view.digest();
        for peer in view.ranks().filter(|r| *r > me) {
            let Some(expect) = view.member(peer).map(|m| m.id) else { continue };
            let Some(to) = self.peers.get(expect).map(|l| l.address) else { continue };
            let dial = DataDial { view: digest, me, peer, expect, to };
            self.data.dial(dial, Arc::clone(&self.net), Arc::clone(&self.config.local), self.events.clone());
        }
    }

    fn open_views(&mut self) {
        let known: Vec<ViewDigest> = self.lock_open().iter().map(|v| v.digest).collect();
        let views: Vec<Arc<View>> = self.election.open_views().cloned().collect();
        if views.iter().map(|v| v.digest()).ne(known) {
            let me = self.me;
            let open = views.iter().filter_map(|v| {
                let members = v.members.iter().map(|m| m.id).collect();
                Some(OpenView { digest: v.digest(), members, me: v.rank_of(me)? })
            });
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = open.collect();
        }
    }

    fn lock_open(&self) -> std::sync::RwLockReadGuard<'_, Vec<OpenView>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_answered(&mut self, from: SocketAddr, result: Result<(Box<dyn Stream>, Session), Refusal>) {
        match result {
            Ok((stream, session)) => {
                self.gate.authenticated(self.now(), from.ip().to_canonical());
                let address = listening_at(from, session.peer.port);
                match session.purpose {
                    Purpose::Control => self.on_linked(stream, session, address, Dialled::ByPeer),
                    Purpose::Data { view, src, .. } => self.on_data_accepted(stream, session, view, src),
                }
            }
            Err(refusal) => self.count(refusal),
        }
    }

    fn count(&mut self, refusal: Refusal) {
        tracing::debug!(%refusal, "refused a connection");
        match refusal {
            Refusal::OtherVersion { .. } => self.counters.other_versions += 1,
            Refusal::Overloaded(_) | Refusal::TooSlow | Refusal::Replayed => self.counters.overloads += 1,
            Refusal::DuplicateIdentity => self.duplicate = true,
            Refusal::UnknownView | Refusal::SelfDial | Refusal::Closed | Refusal::Io(_) => {}
            _ => self.counters.strangers += 1,
        }
    }

    fn dial(&self, to: SocketAddr) {
        let (net, local, events) = (Arc::clone(&self.net), Arc::clone(&self.config.local), self.events.clone());
        tokio::spawn(async move {
            let result = connect(net, &local, to, None).await;
            let _ = events.send(Event::Dialled { to, result }).await;
        });
    }

    fn on_dialled(&mut self, to: SocketAddr, result: Result<(Box<dyn Stream>, Session), Refusal>) {
        let now = self.now();
        match result {
            Ok((stream, session)) => {
                self.refusals.remove(&to);
                self.roster.dialled(to, DialOutcome::Authenticated(session.peer.id), now);
                self.on_linked(stream, session, to, Dialled::ByMe);
            }
            Err(refusal) => {
                tracing::debug!(%to, %refusal, "a dial failed");
                self.duplicate |= refusal == Refusal::DuplicateIdentity;
                let outcome = match refusal {
                    Refusal::SelfDial => DialOutcome::Myself,
                    Refusal::OtherVersion { theirs } => DialOutcome::OtherVersion(theirs),
                    _ => DialOutcome::Failed,
                };
                self.roster.dialled(to, outcome, now);
                if self.refusals.len() < 64 || self.refusals.contains_key(&to) {
                    self.refusals.insert(to, refusal);
                }
            }
        }
    }

    fn on_linked(&mut self, stream: Box<dyn Stream>, session: Session, address: SocketAddr, dialled: Dialled) {
        let (id, name) = (session.peer.id, session.peer.name.clone());
        let dialler = if dialled == Dialled::ByMe { self.me.node } else { id.node };
        let taken = self.peers.take(stream, session, address, dialler);
        if taken == Taken::Refused {
            return;
        }
        tracing::debug!(peer = %id, %name, %address, ?taken, ?dialled, "linked");
        self.counters.links += 1;
        self.names.insert(id, name);
        self.roster.link_up(id);
        self.roster.add(address, Origin::Remembered, self.now());
        self.bury_earlier_lives(id);
        self.step(Input::LinkUp(id));
        self.replay(id);
        if taken == Taken::New {
            let peers = self.peers.iter().filter(|(other, _)| **other != id);
            let known = peers.map(|(other, link)| PeerAddress { id: *other, address: link.address }).collect();
            self.peers.send(id, Message::Peers(known));
            self.remember_peers();
        }
    }

    /// A node that has started again is not what it was: its identity is locked by one process at a time.
    fn bury_earlier_lives(&mut self, id: MemberId) {
        let earlier: Vec<MemberId> =
            self.peers.iter().map(|(other, _)| *other).filter(|o| o.node == id.node && o.boot != id.boot).collect();
        for old in earlier {
            self.peers.drop_link(old);
            self.step(Input::Unreachable(old));
        }
    }

    fn replay(&mut self, to: MemberId) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.view().contains(to)) else { return };
        for message in envelope.replay() {
            self.peers.send(to, Message::Op(message));
        }
    }

    fn remember_peers(&mut self) {
        let addresses: BTreeSet<SocketAddr> = self.peers.iter().map(|(_, l)| l.address).collect();
        self.store.remember(addresses.into_iter().collect());
    }

    fn on_closed(&mut self, member: MemberId, generation: u64, misbehaved: Option<String>) {
        let Some(link) = self.peers.closed(member, generation) else { return };
        if let Some(why) = misbehaved {
            tracing::warn!(peer = %member, why, "closed the link of a member that broke the protocol");
            self.counters.misbehaviours += 1;
        }
        self.step(Input::LinkDown(member));
        let (net, local, events, to) = (Arc::clone(&self.net), Arc::clone(&self.config.local), self.events.clone(), link.address);
        tokio::spawn(async move {
            let result = connect(net, &local, to, Some(member)).await;
            let _ = events.send(Event::Redialled { member, to, result }).await;
        });
    }

    fn on_redialled(&mut self, member: MemberId, to: SocketAddr, result: Result<(Box<dyn Stream>, Session), Refusal>) {
        match result {
            Ok((stream, session)) => self.on_linked(stream, session, to, Dialled::ByMe),
            Err(_) if self.peers.get(member).is_some() => {}
            Err(refusal) => {
                tracing::debug!(peer = %member, %refusal, "a member cannot be reached any more");
                self.roster.link_down(member, self.now());
                self.step(Input::Unreachable(member));
            }
        }
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Op(message) => self.on_op(from, &message),
            Message::Ping(number) => {
                self.peers.send(from, Message::Pong(number));
            }
            Message::Pong(number) => self.on_pong(from, number),
            Message::Peers(known) => {
                let now = self.now();
                known.iter().filter(|p| p.id.node != self.me.node).for_each(|p| self.roster.add(p.address, Origin::Gossip, now));
            }
            Message::Leave => {
                self.step(Input::Message(from, Message::Leave));
                self.peers.drop_link(from);
                self.roster.link_down(from, self.now());
            }
            message => self.step(Input::Message(from, message)),
        }
    }

    fn on_op(&mut self, from: MemberId, message: &OpMessage) {
        self.step(Input::Heard(from));
        let Some(envelope) = self.envelope.clone() else { return };
        let Some(rank) = envelope.view().rank_of(from) else { return };
        if message.view == envelope.digest() && envelope.on_message(rank, message.body, &message.resolved).is_err() {
            self.expel(rank);
        }
    }

    /// Closes the link of a member that broke the protocol. It may come back; the election decides about its place.
    fn expel(&mut self, rank: Rank) {
        let Some(member) = self.envelope.as_ref().and_then(|e| e.view().member(rank).map(|m| m.id)) else { return };
        tracing::warn!(peer = %member, "a member sent what no honest member sends; its link is closed");
        self.counters.misbehaviours += 1;
        self.peers.drop_link(member);
        self.roster.link_down(member, self.now());
        self.step(Input::LinkDown(member));
    }

    fn on_data_accepted(&mut self, stream: Box<dyn Stream>, session: Session, view: ViewDigest, src: Rank) {
        self.step(Input::DataLink(view));
        match into_data_link(stream, session) {
            Ok(link) => {
                let link = watched(link, view, src, self.events.clone());
                self.on_data_link(view, src, link);
            }
            Err(error) => tracing::warn!(%error, "a data link could not be set up"),
        }
    }

    fn on_data_link(&mut self, view: ViewDigest, peer: Rank, link: Box<dyn crate::link::DataLink>) {
        if let Some(envelope) = self.envelope.as_ref().filter(|e| e.digest() == view) {
            envelope.backend().attach(peer, link);
        }
    }

    fn tell(&mut self, message: &OpMessage) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.digest() == message.view) else { return };
        for member in envelope.view().members.iter().filter(|m| m.id != self.me) {
            self.peers.send(member.id, Message::Op(message.clone()));
        }
    }

    fn arm(&mut self, op: OpId, after: Duration) {
        let Some(view) = self.envelope.as_ref().map(|e| e.digest()) else { return };
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = events.send(Event::Deadline(view, op)).await;
        });
    }

    fn ping(&mut self) {
        let sent = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        let members: Vec<MemberId> = self.peers.iter().map(|(id, _)| *id).collect();
        for member in members {
            self.peers.send(member, Message::Ping(sent));
        }
    }

    fn on_pong(&mut self, from: MemberId, number: u64) {
        self.step(Input::Heard(from));
        let now = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        let Some(sample) = now.checked_sub(number).and_then(|us| u32::try_from(us).ok()) else { return };
        let Some(link) = self.peers.get_mut(from) else { return };
        // Smoothed as TCP does (RFC 6298).
        let rtt_us = link.rtt_us.map_or(sample, |rtt| rtt - rtt / 8 + sample / 8).max(1);
        link.rtt_us = Some(rtt_us);
        let local = link.local.map(|a| a.ip());
        let from_kind = local.map_or(InterfaceKind::Other, |ip| self.kind_of(ip));
        self.election.links_mut().observe(self.me, from, Path { rtt_us, from_kind, to_kind: InterfaceKind::Other });
    }

    fn kind_of(&self, ip: IpAddr) -> InterfaceKind {
        let ip = ip.to_canonical();
        let found = self.config.interfaces.iter().find(|i| i.addresses.iter().any(|a| a.ip == ip));
        found.map_or(InterfaceKind::Other, |i| i.kind)
    }

    fn report_resolved(&mut self) {
        if let Some(message) = self.envelope.as_ref().and_then(|e| e.resolved()) {
            self.tell(&message);
        }
    }

    /// Notices a call that others have not made; warns once when it has waited long.
    fn watch_waiting(&mut self, now: Instant) {
        let waiting = self.envelope.as_ref().and_then(|e| e.waiting_for());
        self.waiting = match (waiting, self.waiting) {
            (Some((op, ranks)), Some((known, since, warned))) if known == op => {
                let late = now.duration_since(since) >= WAITING_WARN;
                if late && !warned {
                    tracing::warn!(%op, ?ranks, "an operation waits for ranks that have not called it");
                }
                Some((op, since, warned || late))
            }
            (Some((op, _)), _) => Some((op, now, false)),
            (None, _) => None,
        };
    }

    fn publish(&mut self) {
        let view = self.envelope.as_ref().map(|e| self.view_status(e));
        let mut counters = self.counters;
        counters.committed = self.committed_before + self.envelope.as_ref().map_or(0, |e| e.committed());
        let status = Status {
            node: self.me.node,
            name: self.config.local.hello.name.clone(),
            namespace: self.config.namespace.name().as_str().to_owned(),
            open: self.config.namespace.is_open(),
            port: self.port,
            state: self.state(),
            peers: self
                .peers
                .iter()
                .map(|(id, l)| PeerStatus { node: id.node, name: l.hello.name.clone(), address: l.address, rtt_us: l.rtt_us })
                .collect(),
            view,
            interfaces: self.interfaces.clone(),
            others: self.others(),
            waiting: self.waiting_status(),
            counters,
        };
        self.status.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
    }

    fn state(&self) -> State {
        let wanted = self.config.min_members;
        match &self.envelope {
            _ if self.duplicate => State::Duplicate,
            Some(e) if e.view().size() >= wanted && e.is_synced() => State::In,
            Some(e) if e.view().size() >= wanted => State::NeedsSync,
            Some(e) => State::NotEnoughPeers { present: e.view().size(), wanted },
            None if self.peers.iter().next().is_none() => State::Alone,
            None if self.peers.iter().count() >= crate::view::MEMBERS_MAX => State::Full,
            None => State::Forming,
        }
    }

    fn view_status(&self, envelope: &Envelope) -> ViewStatus {
        let view = envelope.view();
        ViewStatus {
            id: view.id(),
            members: view.ranks().filter_map(|rank| peer_at(view, rank)).collect(),
            engine: view.engine,
            plan: view.plan.reason.clone(),
            in_sync: envelope.is_synced(),
            committed: envelope.committed(),
        }
    }

    fn waiting_status(&self) -> Option<Waiting> {
        let (op, since, _) = self.waiting?;
        let envelope = self.envelope.as_ref()?;
        let (_, ranks) = envelope.waiting_for().filter(|(now, _)| *now == op)?;
        let ranks = ranks.into_iter().filter_map(|rank| peer_at(envelope.view(), rank)).collect();
        Some(Waiting { op, ranks, since: since.elapsed() })
    }

    /// Who is seen and not joined, a sentence each.
    fn others(&self) -> Vec<String> {
        let adverts = self.roster.others().take(16).map(|advert| {
            let at = advert.addresses.first().map_or_else(|| format!("port {}", advert.port), ToString::to_string);
            match advert.version {
                PROTOCOL_VERSION => format!("another cluster is here ({at}): `potluck join` enters it with its key"),
                theirs => {
                    format!("a node at {at} speaks protocol {theirs}, this one {PROTOCOL_VERSION}: run the same version on both")
                }
            }
        });
        let refused = self.refusals.iter().take(16).map(|(to, refusal)| format!("{to}: {refusal}"));
        adverts.chain(refused).collect()
    }
}

/// Who dialled a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialled {
    ByMe,
    ByPeer,
}

/// A member as errors and reports name it.
pub fn peer_at(view: &View, rank: Rank) -> Option<Peer> {
    view.member(rank).map(|m| Peer { rank, name: m.name.clone(), node: m.id.node })
}

/// Where a peer that dialled from `from` listens. With its scope: a link-local address leads nowhere without one.
fn listening_at(mut from: SocketAddr, port: u16) -> SocketAddr {
    from.set_port(port);
    match from.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), port),
        IpAddr::V6(_) => from,
    }
}

async fn connect(
    net: Arc<dyn Net>,
    local: &Local,
    to: SocketAddr,
    expect: Option<MemberId>,
) -> Result<(Box<dyn Stream>, Session), Refusal> {
    let stream = net.dial(to).await?;
    initiate(stream, local, Purpose::Control, expect).await
}

fn terms(open: &RwLock<Vec<OpenView>>, ask: &DataAsk) -> Option<DataTerms> {
    let open = open.read().unwrap_or_else(PoisonError::into_inner);
    let view = open.iter().find(|v| v.digest.hint() == ask.hint && v.me == ask.dst)?;
    Some(DataTerms { view: view.digest, expect: *view.members.get(ask.src.index())? })
}
