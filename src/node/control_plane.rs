//! One node: its election, control links, data links, installed View, and the dispatch between
//! them.

mod admissions;
mod admitting;
mod circuits;
mod connecting;
mod links;
mod measurements;
mod open_view;
mod paths;
mod places;
mod planning;
mod plans;
mod rates;
mod relays;
mod renewal;
mod renewals;
mod report;
mod room;
mod telling;
mod views;
mod way;
mod ways;
mod wiring;

use super::admission::{Admission, Admissions};
use super::data_link::DataLinks;
use super::deadlines::Deadlines;
use super::event::{Event, LinkEnd};
use super::peers::Peers;
use super::proposals::Proposals;
use super::told::Told;
use super::unanswered::Unanswered;
use crate::collective::{Engine, Outgoing};
use crate::discovery::{Advert, Discovery, InterfaceReport, Limits, Origin, Roster, Sighting};
use crate::election::{
    Applicant, Durable, Effect, Election, ElectionConfig, Input, Operations, PROBE,
};
use crate::identity::{MemberId, Name, NodeId, Trust};
use crate::link::{Gate, Listener, Local, Net, Refusal, Replays};
use crate::os::{Sleep, Store, Wires, Wiring};
use crate::protocol::{Closing, EngineChoice, Message, OpId, Seeded, View, ViewDigest};
use crate::relay::Tunnels;
use crate::report::{Counters, State, Status};
use crate::session::{Envelope, LostResults, Meter};
use crate::trace;
use crate::wire::{Encode, PROTOCOL_VERSION};
use admissions::Admitting;
pub use admitting::GRACE;
use circuits::Relays;
use open_view::OpenView;
use planning::Planning;
pub use renewal::RENEW_AFTER;
use renewals::Renewals;
pub use report::{engine_reason, peer_at};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use ways::Ways;

/// The outside interfaces of a node.
pub struct Doors {
    /// Opens connections.
    pub net: Arc<dyn Net>,
    /// Accepts connections on the node's port.
    pub listener: Box<dyn Listener>,
    /// Finds other nodes.
    pub discovery: Box<dyn Discovery>,
    /// Network interfaces of this machine.
    pub wires: Box<dyn Wires>,
    /// Who is admitted.
    pub admissions: Box<dyn Admissions>,
    /// Durable state.
    pub store: Box<dyn Store>,
    /// Detects that this machine was suspended.
    pub sleep: Box<dyn Sleep>,
    /// Engines that can run the collectives: at most one of each kind, and always the native one.
    pub engines: Vec<Arc<dyn Engine>>,
}

/// The identity and configuration of a node.
pub struct NodeConfig {
    /// Its keys and the hello it sends in handshakes.
    pub local: Arc<Local>,
    /// Its cluster, and who is denied, when the node starts.
    pub admission: Admission,
    /// Which of the nodes that prove the cluster key are admitted.
    pub trust: Trust,
    /// The instance name of its announcement.
    pub instance: String,
    /// Durable state of the node's previous run.
    pub durable: Durable,
    /// Timing of the election.
    pub election: ElectionConfig,
    /// Network interfaces when the node started.
    pub wiring: Wiring,
    /// Own addresses to announce; empty if discovery determines them.
    pub advertised: Vec<SocketAddr>,
    /// Addresses known at the start.
    pub known: Vec<(SocketAddr, Origin)>,
    /// A View with fewer members is not shown to callers.
    pub min_members: usize,
    /// When a link gets fresh keys.
    pub(crate) renew_after: Duration,
    /// How long links by a key that is not accepted any more stand while they are renewed.
    pub(crate) grace: Duration,
    /// What a test breaks in this node.
    pub(crate) seeded: Seeded,
}

/// Interval between round-trip measurements.
const PING: Duration = Duration::from_millis(500);

/// Interval of the periodic work on the session: reports of resolved operations, wishes for path
/// trials, metering, and the interface reports of discovery.
const REPORT: Duration = Duration::from_millis(250);

/// Shortest suspend that counts. The clocks of one machine differ by less.
const SLEEP_MIN: Duration = Duration::from_secs(1);

/// Warn about missing ranks when an operation has waited this long for them.
const WAITING_WARN: Duration = Duration::from_secs(10);

/// The state of one node. The driver's loop owns it; other tasks reach it through the queues.
pub(super) struct Node {
    config: NodeConfig,
    me: MemberId,
    epoch: Instant,
    net: Arc<dyn Net>,
    wires: Box<dyn Wires>,
    store: Box<dyn Store>,
    engines: Vec<Arc<dyn Engine>>,
    sleep: Box<dyn Sleep>,
    admitting: Admitting,
    events: mpsc::Sender<Event>,
    ends: mpsc::UnboundedSender<LinkEnd>,
    durable: mpsc::UnboundedSender<u64>,
    views: watch::Sender<Option<Arc<Envelope>>>,
    status: watch::Sender<Status>,
    meter: Arc<Meter>,
    lost: LostResults,
    happened: broadcast::Sender<crate::report::Event>,
    election: Election,
    roster: Roster,
    gate: Gate,
    replays: Arc<Mutex<Replays>>,
    peers: Peers,
    data: DataLinks,
    deadlines: Deadlines,
    unanswered: Unanswered,
    envelope: Option<Arc<Envelope>>,
    /// The session has not been shown to callers yet.
    is_envelope_new: bool,
    outgoing: Option<mpsc::UnboundedReceiver<Outgoing>>,
    /// Views that a data link may belong to. The tasks that answer handshakes read it.
    open: Arc<RwLock<Vec<OpenView>>>,
    /// The Views that `open` was last written from.
    open_now: Vec<Arc<View>>,
    names: BTreeMap<NodeId, Name>,
    counters: Counters,
    committed_before: u64,
    refusals: BTreeMap<SocketAddr, Refusal>,
    /// Members that do not answer this node's data dials although they have a control link.
    walled: BTreeSet<MemberId>,
    waiting: Option<(OpId, Instant, bool)>,
    planning: Planning,
    ways: Ways,
    renewals: Renewals,
    proposals: Proposals,
    relays: Relays,
    /// Number of failures of the engine in the installed View on this node.
    engine_failures: u32,
    /// The network interfaces at the last look.
    wiring: Wiring,
    wires_at: Instant,
    /// The last report of discovery on each interface.
    interfaces: Vec<InterfaceReport>,
    tick_at: Instant,
    ping_at: Instant,
    report_at: Instant,
    port: u16,
}

/// The parts that a node is made of: the doors, and the queues by which tasks and the disk report.
pub(super) struct Means {
    pub(super) net: Arc<dyn Net>,
    pub(super) wires: Box<dyn Wires>,
    pub(super) admissions: Box<dyn Admissions>,
    pub(super) store: Box<dyn Store>,
    pub(super) engines: Vec<Arc<dyn Engine>>,
    pub(super) sleep: Box<dyn Sleep>,
    pub(super) tunnels: Tunnels,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) ends: mpsc::UnboundedSender<LinkEnd>,
    pub(super) durable: mpsc::UnboundedSender<u64>,
}

/// The election's access to the operations of the installed View.
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
            namespace: self.admission.namespace.name().as_str().to_owned(),
            open: self.admission.namespace.is_open(),
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
        let Means { net, wires, admissions, store, engines, sleep, tunnels, events, ends, durable } =
            means;
        let Told { views, status, meter, happened } = told;
        let hello = &config.local.hello;
        let me = hello.id;
        let (name, stateless, engines_offered) =
            (hello.name.clone(), hello.stateless, hello.engines);
        let applicant = Applicant { id: me, name, stateless, engines: engines_offered };
        let election = Election::new(applicant, config.durable.clone(), config.election.clone());
        let namespace = config.admission.namespace.clone();
        let wiring = config.wiring.clone();
        config.local.set_trusted(wiring.trusted.clone());
        config.local.set_denied(config.admission.denied.clone());
        if let Trust::Pinned(nodes) = &config.trust {
            config.local.pin(nodes.clone());
        }
        let mut roster =
            Roster::new(Limits::default(), wiring.policy.clone(), me.boot, move |boot, tag| {
                namespace.knows(boot, tag)
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
            admitting: Admitting::new(admissions),
            views,
            status,
            meter,
            happened,
            election,
            roster,
            gate: Gate::new(),
            replays: Arc::new(Mutex::new(Replays::default())),
            peers: Peers::new(me.node, events.clone(), config.seeded),
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
            renewals: Renewals::new(),
            proposals: Proposals::default(),
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
            tag: Some(self.config.admission.namespace.tag(self.me.boot)),
            version: PROTOCOL_VERSION,
            suites: 1,
            pairing: None,
            port: self.port,
            addresses: self.config.advertised.clone(),
        }
    }

    /// Time until the next tick, dial or deadline.
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

    /// The next request from the operations of the View. Pending while there is no View.
    pub(super) async fn outgoing(&mut self) -> Option<Outgoing> {
        match &mut self.outgoing {
            Some(outgoing) => outgoing.recv().await,
            None => std::future::pending().await,
        }
    }

    /// As [`outgoing`](Self::outgoing), without waiting.
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
            Event::Op { from, message, handled } => {
                self.on_heard(from);
                self.on_op(from, &message);
                drop(handled);
            }
            Event::Heard(member) => self.on_heard(member),
            Event::Breach(member) => self.on_breach(member),
            Event::Closed { member, generation, misbehaved } => {
                self.on_closed(member, generation, misbehaved);
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
        trace::debug!(?view, %peer, "a data link ended");
        self.step(Input::DataLinkLost(view));
    }

    /// The state saved under this ticket is durable.
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
            Outgoing::MustEnd => self.on_must_end(),
        }
    }

    pub(super) fn on_sighting(&mut self, sighting: Sighting) {
        self.roster.sighted(sighting, self.now());
    }

    /// Ends every turn: expires operations, runs the tick and the periodic work, dials due
    /// addresses, and shows a new session to callers.
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
                self.leave_detours();
                self.renew_links();
                self.meter.report();
            }
            self.seek();
            self.look_at_wires(now, discovery);
            self.look_at_admission(now);
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

    /// Closes all data links and the session, and tells callers that the node is closed. Called
    /// twice without harm.
    fn end(&mut self) {
        self.data.clear();
        self.peers.session().set(None);
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

    /// Sends the queued messages, then ends the links.
    pub(super) async fn close(mut self) {
        self.peers.flush().await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Reports a suspend to the election. Called before any other input, because knowledge from
    /// before the suspend must not be sent after it.
    fn notice_sleep(&mut self) {
        let slept = self.sleep.slept();
        if slept > SLEEP_MIN {
            trace::info!(?slept, "this machine has slept");
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
                // The receiver is gone only if the driver is.
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

    /// Closes the link with a member. If no duplicate identity keeps this node away from it, the
    /// member's addresses may be dialled again; only this call frees them.
    fn hang_up(&mut self, member: MemberId) {
        self.drop_link(member);
        let now = self.now();
        match self.election.keeps_away_ms(now, member) {
            Some(wait_ms) => self.roster.set_aside(member, wait_ms, now),
            None => self.roster.link_down(member, now),
        }
    }

    fn on_heard(&mut self, from: MemberId) {
        self.hears(from);
        self.step(Input::Heard(from));
    }

    /// The member has said something over its link.
    fn hears(&mut self, from: MemberId) {
        if let Some(link) = self.peers.get_mut(from) {
            link.hears();
        }
    }

    fn on_message(&mut self, from: MemberId, message: Message) {
        self.hears(from);
        match message {
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
            Message::Peers(known) => self.on_peers(from, &known),
            Message::Leave => {
                self.step(Input::Message(from, Message::Leave));
                self.hang_up(from);
            }
            Message::Prepare(..) if !self.proposals.admit(self.now(), from.node) => {
                self.counters.overloads += 1;
            }
            message => self.step(Input::Message(from, message)),
        }
    }
}

impl Drop for Node {
    /// Also runs on a panic of the driver, so no open call outlives it.
    fn drop(&mut self) {
        self.end();
    }
}
