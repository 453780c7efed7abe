//! Layer: Host.
//!
//! One node: its election, its links, its View, and what passes between them.

mod links;
mod paths;
mod plans;
mod rates;
mod relays;
mod report;
mod telling;
mod views;
mod wiring;

pub use report::{engine_reason, peer_at};

use super::datalinks::DataLinks;
use super::deadlines::Deadlines;
use super::event::{Event, LinkEnd};
use super::peers::Peers;
use super::unanswered::Unanswered;
use super::{Sleep, Store, Told, Wires, Wiring};
use crate::collective::{Closing, Engine, Envelope, LostResults, Meter, Outgoing};
use crate::defect::Seeded;
use crate::discovery::{Advert, Discovery, InterfaceReport, Limits, Origin, Roster, Sighting};
use crate::election::{
    Applicant, Durable, Effect, Election, ElectionConfig, Input, Message, Operations, PROBE,
};
use crate::engine::EngineChoice;
use crate::identity::{MemberId, Name, Namespace, NodeId};
use crate::link::{Gate, Listener, Local, Net, Refusal, Replays};
use crate::relay::Tunnels;
use crate::status::{Counters, State, Status};
use crate::view::{OpId, Rank, View, ViewDigest};
use crate::wire::{Encode, PROTOCOL_VERSION};
use paths::Ways;
use plans::Planning;
use relays::Relays;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

/// Everything outside that a node needs.
pub struct Doors {
    /// Connections.
    pub net: Arc<dyn Net>,
    /// The node's port.
    pub listener: Box<dyn Listener>,
    /// Who else is there.
    pub discovery: Box<dyn Discovery>,
    /// How this machine is connected.
    pub wires: Box<dyn Wires>,
    /// Durable state.
    pub store: Box<dyn Store>,
    /// Whether this machine has slept.
    pub sleep: Box<dyn Sleep>,
    /// What can run the collectives; each kind once, the native one always.
    pub engines: Vec<Arc<dyn Engine>>,
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
    /// How this machine was connected when the node started.
    pub wiring: Wiring,
    /// Own addresses to announce; empty where discovery knows them.
    pub advertised: Vec<SocketAddr>,
    /// Addresses known beforehand.
    pub known: Vec<(SocketAddr, Origin)>,
    /// Members a View needs before it is of use.
    pub min_members: usize,
    /// What a test breaks in this node.
    pub(crate) seeded: Seeded,
}

/// Between two round-trip measurements.
const PING: Duration = Duration::from_millis(500);

/// Between two reports of what is decided, while operations are listed.
const REPORT: Duration = Duration::from_millis(250);

/// A sleep that is worth a word. Clocks of one machine differ by less.
const SLEEP_MIN: Duration = Duration::from_secs(1);

/// From when on somebody waited for is worth a warning.
const WAITING_WARN: Duration = Duration::from_secs(10);

pub(super) struct Node {
    config: NodeConfig,
    me: MemberId,
    epoch: Instant,
    net: Arc<dyn Net>,
    wires: Box<dyn Wires>,
    store: Box<dyn Store>,
    engines: Vec<Arc<dyn Engine>>,
    sleep: Box<dyn Sleep>,
    events: mpsc::Sender<Event>,
    ends: mpsc::UnboundedSender<LinkEnd>,
    durable: mpsc::UnboundedSender<u64>,
    views: watch::Sender<Option<Arc<Envelope>>>,
    status: watch::Sender<Status>,
    meter: Arc<Meter>,
    lost: LostResults,
    happened: broadcast::Sender<crate::events::Event>,
    election: Election,
    roster: Roster,
    gate: Gate,
    replays: Arc<Mutex<Replays>>,
    peers: Peers,
    data: DataLinks,
    deadlines: Deadlines,
    unanswered: Unanswered,
    envelope: Option<Arc<Envelope>>,
    /// It is not shown to callers yet.
    is_envelope_new: bool,
    outgoing: Option<mpsc::UnboundedReceiver<Outgoing>>,
    /// The Views that a data link may belong to, for the tasks that answer handshakes.
    open: Arc<RwLock<Vec<OpenView>>>,
    /// The Views that are written there.
    open_now: Vec<Arc<View>>,
    names: BTreeMap<NodeId, Name>,
    counters: Counters,
    committed_before: u64,
    refusals: BTreeMap<SocketAddr, Refusal>,
    /// Members that do not answer this node's dials, though they are linked.
    walled: BTreeSet<MemberId>,
    waiting: Option<(OpId, Instant, bool)>,
    planning: Planning,
    ways: Ways,
    relays: Relays,
    /// How often the engine of the installed View has failed here.
    engine_failures: u32,
    /// How this machine is connected, as it was last seen.
    wiring: Wiring,
    wires_at: Instant,
    /// What discovery last said of each interface.
    interfaces: Vec<InterfaceReport>,
    tick_at: Instant,
    ping_at: Instant,
    report_at: Instant,
    port: u16,
}

/// What a node works with: doors, and the queues of what its tasks and its disk report.
pub(super) struct Means {
    pub(super) net: Arc<dyn Net>,
    pub(super) wires: Box<dyn Wires>,
    pub(super) store: Box<dyn Store>,
    pub(super) engines: Vec<Arc<dyn Engine>>,
    pub(super) sleep: Box<dyn Sleep>,
    pub(super) tunnels: Tunnels,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) ends: mpsc::UnboundedSender<LinkEnd>,
    pub(super) durable: mpsc::UnboundedSender<u64>,
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
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        self.0
            .filter(|envelope| envelope.digest() == view)
            .map_or_else(Closing::default, |envelope| envelope.freeze())
    }

    fn in_flight(&self) -> usize {
        self.0.map_or(0, |envelope| envelope.in_flight())
    }

    fn engine(&self) -> Option<EngineChoice> {
        self.0.map(|envelope| envelope.engine())
    }
}

impl NodeConfig {
    pub(crate) fn first_status(&self, port: u16) -> Status {
        Status {
            node: self.local.hello.id.node,
            name: self.local.hello.name.clone(),
            namespace: self.namespace.name().as_str().to_owned(),
            open: self.namespace.is_open(),
            port,
            state: State::Alone { interfaces: Vec::new() },
            view: None,
            peers: Vec::new(),
            interfaces: Vec::new(),
            others: Vec::new(),
            duplicates: Vec::new(),
            quarantined: Vec::new(),
            disk_waits: None,
            waiting: None,
            counters: Counters::default(),
        }
    }
}

impl Node {
    pub(super) fn new(config: NodeConfig, port: u16, means: Means, told: Told) -> Node {
        let Means { net, wires, store, engines, sleep, tunnels, events, ends, durable } = means;
        let Told { views, status, meter, happened } = told;
        let hello = &config.local.hello;
        let me = hello.id;
        let (name, stateless, engines_offered) =
            (hello.name.clone(), hello.stateless, hello.engines);
        let applicant = Applicant { id: me, name, stateless, engines: engines_offered };
        let election = Election::new(applicant, config.durable.clone(), config.election.clone());
        let namespace = config.namespace.clone();
        let wiring = config.wiring.clone();
        config.local.set_trusted(wiring.trusted.clone());
        let mut roster =
            Roster::new(Limits::default(), wiring.policy.clone(), me.boot, move |boot| {
                namespace.tag(boot)
            });
        config.known.iter().for_each(|(to, origin)| roster.add(*to, *origin, 0));
        let now = Instant::now();
        Node {
            me,
            epoch: now,
            net,
            wires,
            store,
            engines,
            sleep,
            views,
            status,
            meter,
            happened,
            election,
            roster,
            gate: Gate::new(),
            replays: Arc::new(Mutex::new(Replays::default())),
            peers: Peers::new(me.node, events.clone()),
            events,
            ends,
            durable,
            data: DataLinks::default(),
            deadlines: Deadlines::default(),
            unanswered: Unanswered::default(),
            envelope: None,
            is_envelope_new: false,
            outgoing: None,
            open: Arc::new(RwLock::new(Vec::new())),
            open_now: Vec::new(),
            names: BTreeMap::new(),
            counters: Counters::default(),
            lost: LostResults::default(),
            committed_before: 0,
            refusals: BTreeMap::new(),
            walled: BTreeSet::new(),
            waiting: None,
            planning: Planning::of(None, 0),
            ways: Ways::default(),
            wiring,
            wires_at: now,
            relays: Relays::new(me, tunnels),
            engine_failures: 0,
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
        let dial = self
            .roster
            .next_due(now)
            .map_or(Duration::MAX, |due| Duration::from_millis(due.saturating_sub(now).max(1)));
        let now = Instant::now();
        let tick = self.tick_at.saturating_duration_since(now);
        tick.min(dial).min(self.deadlines.pause(now)).min(self.unanswered.pause(now))
    }

    /// What the View's operations ask for; waits while there is no View.
    pub(super) async fn outgoing(&mut self) -> Option<Outgoing> {
        match &mut self.outgoing {
            Some(outgoing) => outgoing.recv().await,
            None => std::future::pending().await,
        }
    }

    /// The same that is there already.
    pub(super) fn outgoing_now(&mut self) -> Option<Outgoing> {
        self.outgoing.as_mut()?.try_recv().ok()
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Answered { from, ticket, result } => {
                self.gate.release(ticket);
                self.on_answered(from, result);
            }
            Event::Dialled { to, result } => self.on_dialled(to, result),
            Event::Redialled { member, to, result } => self.on_redialled(member, to, result),
            Event::RelayAnswered { stations, result } => self.on_relay_answered(&stations, result),
            Event::RelayDialled { stations, result } => self.on_relay_dialled(&stations, result),
            Event::Message { from, message } => self.on_message(from, message),
            Event::Closed { member, generation, misbehaved } => {
                self.on_closed(member, generation, misbehaved)
            }
            Event::DataLink { view, peer, link } => self.on_data_link(view, peer, link),
            Event::DataLinkBlocked { view, peer } => self.on_data_link_blocked(view, peer),
            Event::DialWanted { view, peer } => self.ask_to_dial(view, peer),
            Event::Path { view, peer, to, link } => self.on_path(view, peer, to, link),
            Event::Moved { view, peer } => self.on_moved(view, peer),
            Event::Burst { view, peer, said } => self.on_burst(view, peer, said),
            Event::DataLinkLost { view, peer } => self.on_link_end(LinkEnd { view, peer }),
        }
    }

    /// A data link has ended.
    pub(super) fn on_link_end(&mut self, LinkEnd { view, peer }: LinkEnd) {
        tracing::debug!(?view, %peer, "a data link ended");
        self.step(Input::DataLinkLost(view));
    }

    /// The state of this ticket is durable.
    pub(super) fn on_durable(&mut self, ticket: u64) {
        self.step(Input::Persisted(ticket));
    }

    pub(super) fn on_outgoing(&mut self, outgoing: Outgoing) {
        self.notice_sleep();
        match outgoing {
            Outgoing::Deadline(op, after) => self.arm(op, after),
            Outgoing::VotesWanted(op) => self.await_votes(op),
            Outgoing::Post { key, value } => self.post(&key, &value),
            Outgoing::EngineFailed => self.on_engine_failed(),
        }
    }

    pub(super) fn on_sighting(&mut self, sighting: Sighting) {
        self.roster.sighted(sighting, self.now());
    }

    /// What every turn ends with: time passes, due dials go out, the status is renewed.
    pub(super) fn turn(&mut self, discovery: &mut dyn Discovery) {
        let now = Instant::now();
        self.expire(now);
        self.expel_who_withholds_votes(now);
        if now >= self.tick_at {
            self.step(Input::Tick);
            self.tick_at = now + Duration::from_millis(self.election.rest_ms());
            self.peers.reap();
            for (member, generation) in self.peers.overrun() {
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
                self.wish_for_trials();
                self.meter.report();
            }
            self.seek();
            self.look_at_wires(now, discovery);
            self.watch_paths();
            self.watch_waiting(now);
            self.go_on_planning();
            self.publish();
        }
        for dial in self.roster.due(self.now()) {
            self.dial(dial.to);
        }
        self.show_envelope();
    }

    pub(super) fn leave(&mut self) {
        self.step(Input::Leave);
        self.end();
    }

    /// Nobody waits any more for what this node would have done.
    fn end(&mut self) {
        self.data.clear();
        if let Some(envelope) = self.envelope.take() {
            envelope.leave();
        }
        self.meter.leave();
        self.views.send_replace(None);
        self.status.send_modify(|status| {
            status.state = State::Closed;
            status.view = None;
        });
    }

    /// Ends the links when what is queued has left.
    pub(super) async fn close(mut self) {
        self.peers.flush().await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Before anything else is done: nothing that the driver knew before the sleep may be said
    /// after it.
    fn notice_sleep(&mut self) {
        let slept = self.sleep.slept();
        if slept > SLEEP_MIN {
            tracing::info!(?slept, "this machine has slept");
            self.feed(Input::Woke);
        }
    }

    fn step(&mut self, input: Input) {
        self.notice_sleep();
        self.feed(input);
    }

    fn feed(&mut self, input: Input) {
        let now = self.now();
        let effects = self.election.step(now, input, &mut Ledgers(self.envelope.as_ref()));
        for effect in effects {
            self.carry_out(effect);
        }
        self.tell_notices();
        self.open_views();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(to, message) => {
                self.peers.send(to, message);
            }
            Effect::Persist(ticket, durable) => {
                let told = self.durable.clone();
                // Without a driver nobody is left to tell.
                self.store.save(durable.to_bytes(), Box::new(move || _ = told.send(ticket)));
            }
            Effect::Install(view, decides) => self.install(&view, decides),
            Effect::CutOff => {
                if let Some(envelope) = &self.envelope {
                    envelope.cut_off();
                }
            }
            Effect::Drop(member) => self.hang_up(member),
        }
    }

    /// Whoever was only cut off is to be found again: nobody else tells that its addresses are free
    /// to be dialled.
    fn hang_up(&mut self, member: MemberId) {
        self.drop_link(member);
        let now = self.now();
        match self.election.keeps_away_ms(now, member) {
            Some(wait_ms) => self.roster.set_aside(member, wait_ms, now),
            None => self.roster.link_down(member, now),
        }
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        match message {
            Message::Op(message) => self.on_op(from, &message),
            Message::Post(post) => self.on_post(from, &post),
            Message::Plan(message) => {
                self.step(Input::Heard(from));
                self.on_plan(from, &message);
            }
            Message::Rate(message) => {
                self.step(Input::Heard(from));
                self.on_rate(from, message);
            }
            Message::Relay(frame) => self.on_relay(from, *frame),
            Message::Dial(view) => self.on_asked_to_dial(from, view),
            Message::Pong(number) if number < PROBE => self.on_pong(from, number),
            Message::Peers(known) => {
                let now = self.now();
                known
                    .iter()
                    .filter(|p| p.id.node != self.me.node)
                    .for_each(|p| self.roster.add(p.address, Origin::Gossip, now));
            }
            Message::Leave => {
                self.step(Input::Message(from, Message::Leave));
                self.hang_up(from);
            }
            message => self.step(Input::Message(from, message)),
        }
    }
}

impl Drop for Node {
    /// However a driver ends, by a panic too: a call that is open ends with it.
    fn drop(&mut self) {
        self.end();
    }
}
