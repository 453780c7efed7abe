//! The control plane of one node: its parts, and the dispatch of inputs to them.
//!
//! Each part is a struct with private fields in a file of its own, and gets the needed values of
//! other parts as arguments. [`ControlPlane`] owns them all. The files in `control_plane/` hold its
//! actions on each kind of input that concerns several parts.

mod addresses;
mod control_path;
mod data_dials;
mod doubts;
mod evictions;
mod fresh_keys;
mod links;
mod observing;
mod plan_steps;
mod rate_steps;
mod search;
mod status;
mod trials;
mod views;

use super::access_control::AccessControl;
use super::clock::Clock;
use super::config::NodeConfig;
use super::data_link::DataLinks;
use super::data_paths::DataPaths;
use super::doors::{Queues, Tools};
use super::event::{Event, LinkEnd};
use super::handshakes::Handshakes;
use super::installed::Installed;
use super::kept_paths::KeptPaths;
use super::looking_back::LooksBack;
use super::name_lookups::NameLookups;
use super::network::Network;
use super::peers::{Link, Peers};
use super::planner::Planner;
use super::published::Published;
use super::rates::Rates;
use super::redials::Redials;
use super::relays::Relays;
use super::renewals::Renewals;
use super::reporter::Reporter;
use super::status_links::StatusLinks;
use crate::collective::Outgoing;
use crate::discovery::{Advert, Discovery, Limits, Roster, Sighting};
use crate::election::{Applicant, Effect, Election, Input, Operations, PROBE};
use crate::identity::MemberId;
use crate::os::Store;
use crate::protocol::{Closing, EngineChoice, Message, ViewDigest};
use crate::session::ViewSession;
use crate::trace;
use crate::wire::Encode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// One node. The control loop owns it; other tasks reach it through the queues.
pub(super) struct ControlPlane {
    me: MemberId,
    /// The time since the start, and when the periodic work is due.
    clock: Clock,
    /// Agrees on Views with the other members; knows the map of their links.
    election: Election,
    /// Decides which nodes may link with this node.
    access: AccessControl,
    /// The addresses of other nodes, and when to dial them.
    roster: Roster,
    /// The network interfaces of this machine, and this node's addresses there.
    network: Network,
    /// Accepts and dials connections, until their handshake has ended.
    handshakes: Handshakes,
    /// The control links, at most one per member, with their send queues.
    peers: Peers,
    /// The links over which nodes tell each other their status.
    status_links: StatusLinks,
    names: NameLookups,
    /// Circuits over other members, and the search for members without a direct link.
    relays: Relays,
    /// Members whose control link is being made anew.
    redials: Redials,
    /// When links that live long get fresh keys.
    renewals: Renewals,
    /// The dials of the View's data links.
    data: DataLinks,
    /// The path of each data link, and the trials of other paths.
    paths: DataPaths,
    /// The measured rates of the View's paths.
    rates: Rates,
    /// The search for a plan that fits the rates.
    planner: Planner,
    /// When the rates of paths are stored for the next start.
    kept_paths: KeptPaths,
    /// The session of the installed View, and the deadlines and missing votes of its operations.
    installed: Installed,
    /// Status, events and counters for the program.
    reporter: Reporter,
    store: Box<dyn Store>,
    durable: mpsc::UnboundedSender<u64>,
    events: mpsc::Sender<Event>,
    ends: mpsc::UnboundedSender<LinkEnd>,
}

/// The election's access to the operations of the installed View.
struct Ledgers<'a>(Option<&'a Arc<ViewSession>>);

impl Operations for Ledgers<'_> {
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        self.0
            .filter(|session| session.digest() == view)
            .map_or_else(Closing::default, |session| session.freeze())
    }

    fn in_flight(&self) -> usize {
        self.0.map_or(0, |session| session.in_flight())
    }

    fn engine(&self) -> Option<EngineChoice> {
        self.0.map(|session| session.engine())
    }
}

impl ControlPlane {
    pub(super) fn new(
        config: NodeConfig,
        port: u16,
        tools: Tools,
        queues: Queues,
        told: Published,
    ) -> ControlPlane {
        let hello = &config.local.hello;
        let (me, name) = (hello.id, hello.name.clone());
        let applicant = Applicant {
            id: me,
            name: name.clone(),
            stateless: hello.stateless,
            engines: hello.engines,
            sizes: config.sizes,
        };
        config.local.set_trusted(config.interface_set.trusted.clone());
        let access = AccessControl::new(
            Arc::clone(&config.local),
            config.trust,
            config.admission,
            tools.admissions,
            config.grace,
        );
        let mut election = Election::new(applicant, config.durable, config.election);
        election.links_mut().recall(config.known_paths);
        let policy = config.interface_set.policy.clone();
        let mut roster = Roster::new(Limits::default(), policy, me.boot, access.relation());
        config.known.iter().for_each(|(to, origin)| roster.add(*to, *origin, 0));
        let peers = Peers::new(me.node, queues.events.clone(), config.mutation);
        let installed = Installed::new(me, tools.engines, peers.session().clone(), config.mutation);
        let looks_back = LooksBack {
            net: Arc::clone(&tools.net),
            local: Arc::clone(&config.local),
            events: queues.events.clone(),
            faults: Arc::clone(&tools.faults),
        };
        let (status, events) = (told.status.subscribe(), queues.events.clone());
        let observes = config.local.hello.observer;
        let status_links = StatusLinks::new(observes, looks_back, status, events);
        ControlPlane {
            me,
            clock: Clock::new(tools.sleep),
            election,
            access,
            roster,
            network: Network::new(
                tools.interface_source,
                config.interface_set,
                config.instance,
                port,
                config.advertised,
            ),
            handshakes: Handshakes::new(tools.net, config.local, queues.events.clone()),
            peers,
            status_links,
            names: NameLookups::new(config.names, queues.events.clone()),
            relays: Relays::new(me, queues.tunnels),
            redials: Redials::default(),
            renewals: Renewals::new(me, config.renew_after),
            data: DataLinks::default(),
            paths: DataPaths::default(),
            rates: Rates::default(),
            planner: Planner::of(None, 0),
            kept_paths: KeptPaths::default(),
            installed,
            reporter: Reporter::new(
                told,
                (me.node, name),
                config.sizes,
                config.gloo,
                config.notices,
            ),
            store: tools.store,
            durable: queues.durable,
            events: queues.events,
            ends: queues.ends,
        }
    }

    pub(super) fn advert(&self) -> Advert {
        self.network.advert(self.me.boot, self.access.tags())
    }

    /// Whether this node's advert has changed since the last call of this method.
    pub(super) fn has_new_advert(&mut self) -> bool {
        self.access.takes_new_advert()
    }

    /// Time until the next tick, dial or deadline.
    pub(super) fn pause(&self) -> Duration {
        let now = self.now();
        let dial = self
            .roster
            .next_due(now)
            .map_or(Duration::MAX, |due| Duration::from_millis(due.saturating_sub(now).max(1)));
        let now = Instant::now();
        self.clock.pause(now).min(dial).min(self.installed.pause(now))
    }

    /// The next request from the operations of the View. Pending while there is no View.
    pub(super) async fn outgoing(&mut self) -> Option<Outgoing> {
        self.installed.outgoing().await
    }

    /// As [`outgoing`](Self::outgoing), without waiting.
    pub(super) fn outgoing_now(&mut self) -> Option<Outgoing> {
        self.installed.outgoing_now()
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Answered { from, ticket, result } => {
                self.handshakes.ended(ticket);
                self.on_answered(from, result);
            }
            Event::Dialled { to, result } => self.on_dialled(to, result),
            Event::Redialled { member, to, result } => self.on_redialled(member, to, result),
            Event::RelayAnswered { nodes, result } => self.on_relay_answered(&nodes, result),
            Event::RelayDialled { nodes, result } => self.on_relay_dialled(&nodes, result),
            Event::Message { from, message } => self.on_message(from, message),
            Event::Op { from, message, handled } => {
                self.on_op(from, &message);
                // After the message: it may be the end of the last operation in flight.
                self.on_heard(from);
                drop(handled);
            }
            Event::Heard(member) => self.on_heard(member),
            Event::Breach(member) => self.close_link_of(member),
            Event::Closed { member, generation, misbehaved } => {
                self.on_closed(member, generation, misbehaved);
            }
            Event::DataLink { view, peer, link } => self.on_data_link(view, peer, link),
            Event::DataLinkBlocked { view, peer } => self.on_data_link_blocked(view, peer),
            Event::DialWanted { view, peer } => self.ask_to_dial(view, peer),
            Event::Path { view, peer, to, link } => self.on_path(view, peer, to, link),
            Event::Moved { view, peer } => self.on_moved(view, peer),
            Event::Burst { view, peer, said } => self.on_burst(view, peer, said),
            Event::StatusLink { node, number, told } => self.on_told(node, number, told),
            Event::LookBack { node, dial, reply } => self.on_look_back(node, dial, reply),
            Event::LookedUp { number, found } => self.on_looked_up(number, found),
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
            Outgoing::Deadline(op, after) => self.installed.arm(op, after),
            Outgoing::VotesWanted(op) => self.installed.await_votes(op),
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
        self.installed.expire(now);
        self.expel_members_that_withhold_votes(now);
        if self.clock.is_tick_due(now) {
            self.tick(now, discovery);
        }
        for dial in self.roster.due(self.now()) {
            self.handshakes.dial(dial);
        }
        self.show_session();
    }

    fn tick(&mut self, now: Instant, discovery: &mut dyn Discovery) {
        self.step(Input::Tick);
        self.clock.tick_after(now, self.election.rest_ms());
        self.peers.reap();
        for (member, generation) in self.peers.overrun() {
            self.on_closed(member, generation, None);
        }
        if self.clock.takes_ping(now, self.peers.iter().count()) {
            self.ping();
        }
        if self.clock.takes_report(now) {
            self.reporter.set_interfaces(discovery.report());
            if let Some(session) = self.installed.session() {
                session.tell_resolved();
            }
            self.wish_for_trials();
            self.leave_detours();
            self.renew_links();
            self.keep_paths();
            self.look_at_paths();
            self.reporter.meter().report();
        } else if self.access.changes_key() {
            // All links get fresh keys before links by the old key end.
            self.renew_links();
        }
        self.renew_status_links();
        self.seek();
        self.look_up_names(now);
        self.look_at_interfaces(now, discovery);
        self.look_at_admission(now);
        self.watch_paths();
        let waiting = self.installed.session().and_then(|session| session.waiting_for());
        self.reporter.watch_waiting(waiting, now);
        self.go_on_planning();
        self.roster.set_waiting(!self.has_group(), self.clock.now());
        self.publish();
    }

    pub(super) fn leave(&mut self) {
        self.step(Input::Leave);
        self.end();
    }

    /// Closes all data links and the session, and tells callers that the node is closed. Called
    /// twice without harm.
    fn end(&mut self) {
        self.data.clear();
        if let Some(session) = self.installed.take() {
            session.leave();
        }
        self.reporter.close();
    }

    /// Sends the queued messages and the last answers to observers. Returns the rest of the node,
    /// whose drop ends the links and may wait for the disk.
    pub(super) async fn close(mut self) -> ControlPlane {
        tokio::join!(self.peers.flush(), self.status_links.finish());
        self
    }

    /// Stores the rates of paths for the next start, if it is time.
    fn keep_paths(&mut self) {
        if self.kept_paths.takes(self.clock.now()) {
            self.store.keep_paths(self.election.links().known_paths().to_bytes());
        }
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Reports a suspend to the election. Called before any other input, because knowledge from
    /// before the suspend must not be sent after it.
    fn notice_sleep(&mut self) {
        if self.clock.has_slept() {
            self.feed(Input::Woke);
        }
    }

    fn step(&mut self, input: Input) {
        self.notice_sleep();
        self.feed(input);
    }

    fn feed(&mut self, input: Input) {
        let now = self.now();
        let effects = self.election.step(now, input, &mut Ledgers(self.installed.session()));
        for effect in effects {
            self.carry_out(effect);
        }
        // During a drain this node delivers, so that the election misses no moment without an
        // operation in flight.
        self.installed.open_to_readers(!self.election.is_draining());
        let notices = self.election.take_notices();
        notices.into_iter().for_each(|notice| self.reporter.tell_notice(notice));
        self.handshakes.open_views(self.election.open_views().cloned().collect());
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(to, message) => {
                self.peers.send(to, message);
            }
            Effect::Persist(ticket, durable) => {
                let told = self.durable.clone();
                // The receiver is gone only if the control loop is.
                self.store.save(durable.to_bytes(), Box::new(move || _ = told.send(ticket)));
            }
            Effect::Install(view, decides) => self.install(&view, decides),
            Effect::CutOff => {
                if let Some(session) = self.installed.session() {
                    session.cut_off();
                }
            }
            Effect::Drop(member) => self.hang_up(member),
        }
    }

    /// Closes the link with a member. If no duplicate identity keeps this node away from it, the
    /// member's addresses become due for a dial at once.
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
        if self.peers.get_mut(from).is_some_and(Link::hears) {
            self.reporter.forget_complaints(from.node);
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
            Message::Prepare(..) if !self.access.admits_proposal(self.clock.now(), from.node) => {
                self.reporter.count().overloads += 1;
            }
            message => self.step(Input::Message(from, message)),
        }
    }
}

impl Drop for ControlPlane {
    /// Also runs on a panic of the control loop, so no open call outlives it.
    fn drop(&mut self) {
        self.end();
    }
}
