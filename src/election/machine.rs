//! The liveness part of an election: failure detection, the reasons for a change of the View,
//! proposer scheduling and retries.
//!
//! Nothing here can make a View unsafe; it only decides when [`Agreement`] is asked to act.

mod beside;
mod contests;
mod drain;
#[cfg(test)]
mod drain_tests;
mod duplicates;
#[cfg(test)]
mod duplicates_tests;
mod link_quality;
#[cfg(test)]
mod link_quality_tests;
mod losses;
#[cfg(test)]
mod losses_tests;
mod peer;
mod peers;
mod places;
#[cfg(test)]
mod places_tests;
mod proposer;
mod stranded;
#[cfg(test)]
mod stranded_tests;
#[cfg(test)]
mod testing;
mod view_change;
mod waking;
mod wanted;

use super::agreement::{Agreement, Durable, Effect, Environment, Event};
use super::applicant::Applicant;
use super::config::ElectionConfig;
use super::notice::{NOTICES_MAX, Notice};
use super::quarantine::Quarantine;
use crate::identity::MemberId;
use crate::protocol::{
    Closing, EngineChoice, Engines, Message, REACH_MAX, Sizes, View, ViewDigest,
};
use crate::report::LossReason;
use crate::topology::{Arrangement, LinkMap, arrange};
use contests::Duplicates;
pub use duplicates::PROBE;
use peer::{Link, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use view_change::{Attempt, ViewChange};

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A direct control link to this member is up. It may replace another link to it.
    LinkUp(MemberId),
    /// A relayed control link to this member is up, over these relays in order from this node.
    RelayUp(MemberId, Vec<MemberId>),
    /// The control link is down; it may be dialled again.
    LinkDown(MemberId),
    /// The member is unreachable: re-dialling failed.
    Unreachable(MemberId),
    /// Authenticated bytes came from this member.
    Heard(MemberId),
    /// A message came over the member's control link.
    Message(MemberId, Message),
    /// A data link of this View was opened by another member.
    DataLink(ViewDigest),
    /// A data link of this View to another member is lost, even if the control link lives. Data
    /// links are not repaired within a View: data in flight is lost, and the next View decides the
    /// outcome.
    DataLinkLost(ViewDigest),
    /// This View must be replaced, although its members and links work: an operation is disputed,
    /// which the next View decides, or its records are full.
    MustEnd(ViewDigest),
    /// The engine of this View does not work on this node, although peers and links do.
    EngineUnfit(ViewDigest),
    /// This member is linked and withholds a vote that a correct member gives at once.
    Withheld(MemberId),
    /// This peer sent a message that no correct node sends, and its link is being closed.
    Breach(MemberId),
    /// The state with this ticket, and every earlier one, is durable.
    Persisted(u64),
    /// This machine has slept, or this process was stopped: its beliefs are out of date.
    Woke,
    /// Another living process presented this node's own identity.
    Duplicate,
    /// This node leaves.
    Leave,
}

/// The operations of the installed View, as the election sees them.
pub trait Operations {
    /// Freezes the operations of this View and reports them; later calls return the same report. If
    /// that View's operations are not open yet, the report is empty, and none may be called when
    /// they open.
    fn freeze(&mut self, view: ViewDigest) -> Closing;

    /// Number of operations that have begun and are not decided.
    fn in_flight(&self) -> usize;

    /// The engine that the operations of the installed View use at present, if known.
    fn engine(&self) -> Option<EngineChoice> {
        None
    }
}

/// The election of one node: a pure state machine, driven by [`Election::step`].
#[derive(Clone, Debug)]
pub struct Election {
    me: MemberId,
    /// The sizes of the group that this node asks for.
    sizes: Sizes,
    config: ElectionConfig,
    agreement: Agreement,
    links: LinkMap,
    peers: BTreeMap<MemberId, Peer>,
    change: ViewChange,
    /// Since when a member of the View reports a later one without this node.
    left_behind_since: Option<u64>,
    /// Since when this node waits for its own disk.
    persisting_since: Option<u64>,
    heartbeat_at: u64,
    last_tick: Option<u64>,
    late_ms: u64,
    ops_in_flight: usize,
    chance: u64,
    leaving: bool,
    /// The last heartbeat announced that this node waits for its disk.
    told_persisting: bool,
    duplicates: Duplicates,
    quarantine: Quarantine,
    notices: Vec<Notice>,
    /// The effects of the present step so far, in order.
    effects: Vec<Effect>,
    one_way_told: Option<MemberId>,
    /// Peers to which this machine's end of the link is a radio.
    over_radio: BTreeSet<MemberId>,
    /// The other members of the last installed View.
    members: Option<Vec<MemberId>>,
}

impl Election {
    /// Starts the election of this boot of this node, with the durable state of earlier boots.
    pub fn new(applicant: Applicant, durable: Durable, config: ElectionConfig) -> Election {
        Election {
            me: applicant.id,
            sizes: applicant.sizes,
            agreement: Agreement::new(applicant, durable).with_partition(config.partition.clone()),
            links: LinkMap::new(),
            peers: BTreeMap::new(),
            change: ViewChange::default(),
            left_behind_since: None,
            persisting_since: None,
            heartbeat_at: 0,
            last_tick: None,
            late_ms: 0,
            ops_in_flight: 0,
            chance: config.seed | 1,
            leaving: false,
            told_persisting: false,
            duplicates: Duplicates::default(),
            quarantine: Quarantine::default(),
            notices: Vec::new(),
            effects: Vec::new(),
            one_way_told: None,
            over_radio: BTreeSet::new(),
            members: None,
            config,
        }
    }

    /// The same election with one rule broken.
    #[cfg(test)]
    pub(crate) fn with(self, mutation: crate::protocol::Mutation) -> Election {
        Election { agreement: self.agreement.with(mutation), ..self }
    }

    /// One step. `now` is monotonic, in milliseconds. The effects must be carried out in order.
    pub fn step(&mut self, now: u64, input: Input, ops: &mut dyn Operations) -> Vec<Effect> {
        // `Heard` comes with all traffic; the proposer logic can wait for the next tick.
        let routine = matches!(input, Input::Heard(_));
        self.ops_in_flight = ops.in_flight();
        let was_frozen = self.is_frozen();
        if self.was_away(now) && input != Input::Woke {
            self.on_woke(now, ops);
        }
        self.take(now, input, ops);
        let drains = self.change.draining.is_some();
        if drains && (self.ops_in_flight == 0 || self.drains_in_vain()) {
            self.finish_drain(ops);
        }
        if self.is_frozen() && !was_frozen {
            // Ends the drains of the other members.
            self.announce(now);
        }
        let persisting = self.agreement.is_persisting();
        self.persisting_since = persisting.then(|| self.persisting_since.unwrap_or(now));
        // First its own answers, so that it does not give up waiting for one that is just there.
        let mut effects = self.loop_back(now, ops);
        // The state of the old View says nothing about a new one; the next step looks at that.
        let installs = effects.iter().any(|effect| matches!(effect, Effect::Install(..)));
        if !routine && !installs {
            self.propose_when_due(now);
            self.give_up_when_stranded(now, ops);
            effects.extend(self.loop_back(now, ops));
        }
        effects
    }

    /// Whether the installed View is frozen: it will be replaced.
    pub fn is_frozen(&self) -> bool {
        self.agreement.is_frozen()
    }

    /// Whether a promise waits until no operation is in flight.
    pub fn is_draining(&self) -> bool {
        self.change.draining.is_some()
    }

    /// The Views to which a data link may belong now: installed or accepted.
    pub fn open_views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.agreement.open_views()
    }

    /// Takes the notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn note(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }

    /// The link map: known paths between members.
    pub fn links(&self) -> &LinkMap {
        &self.links
    }

    /// The link map, to record measurements.
    pub fn links_mut(&mut self) -> &mut LinkMap {
        &mut self.links
    }

    /// Members to which this node has a control link, or had one that may still be dialled again;
    /// at most [`REACH_MAX`].
    pub fn reach(&self, now: u64) -> BTreeSet<MemberId> {
        self.peers
            .iter()
            .filter(|(_, p)| p.alive(now, self.redial_ms()))
            .map(|(id, _)| *id)
            .take(REACH_MAX)
            .collect()
    }

    /// The interval until the next [`Input::Tick`] is due, in milliseconds: 20 while a change is
    /// under way or a peer is outside the View, else 50.
    pub fn rest_ms(&self) -> u64 {
        let busy = self.change.attempt != Attempt::Idle
            || self.change.draining.is_some()
            || self.agreement.is_frozen()
            || self.change.repair_since.is_some();
        let unsettled =
            self.peers.keys().any(|id| self.agreement.installed().is_none_or(|v| !v.contains(*id)));
        if busy || unsettled { 20 } else { 50 }
    }

    fn take(&mut self, now: u64, input: Input, ops: &mut dyn Operations) {
        match input {
            Input::Tick => self.on_tick(now, ops),
            Input::LinkUp(peer) => self.on_link_up(now, peer, Vec::new()),
            Input::RelayUp(peer, over) => self.on_link_up(now, peer, over),
            Input::LinkDown(peer) => self.on_link_down(now, peer),
            Input::Unreachable(peer) => self.on_lost(now, peer, LossReason::Closed),
            Input::Heard(peer) => self.on_heard(now, peer),
            Input::Message(from, message) => self.on_message(now, from, message, ops),
            Input::DataLink(digest) => self.agree(Event::DataLink(digest), ops),
            Input::DataLinkLost(digest) | Input::MustEnd(digest) => {
                self.on_broken(now, digest);
            }
            Input::EngineUnfit(digest) => self.on_engine_unfit(now, digest),
            Input::Withheld(peer) => self.on_withheld(now, peer),
            Input::Breach(peer) => self.on_breach(now, peer),
            Input::Persisted(ticket) => self.agree(Event::Persisted(ticket), ops),
            Input::Woke => self.on_woke(now, ops),
            Input::Duplicate => self.on_own_duplicate(now),
            Input::Leave => self.on_leave(),
        }
    }

    /// Takes the effects so far. Delivers messages that this node sends to itself at once: the
    /// proposer is an acceptor too.
    fn loop_back(&mut self, now: u64, ops: &mut dyn Operations) -> Vec<Effect> {
        let mut out = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Send(to, message) if to == self.me => {
                    self.on_message(now, to, message, ops);
                    out.extend(self.loop_back(now, ops));
                }
                Effect::Install(..) => {
                    self.on_installed(now);
                    out.push(effect);
                    self.announce(now);
                    out.append(&mut self.effects);
                }
                effect => out.push(effect),
            }
        }
        out
    }

    fn on_message(&mut self, now: u64, from: MemberId, message: Message, ops: &mut dyn Operations) {
        if self.leaving || self.duplicates.are_at_odds(now, from) {
            return;
        }
        self.on_heard(now, from);
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat(now, from, &heartbeat),
            Message::Ask(members) => self.on_ask(now, from, &members),
            Message::Willing => self.on_willing(now, from),
            Message::Unwilling => self.on_unwilling(now, from),
            Message::Prepare(ballot, members) => {
                self.on_prepare(now, from, ballot, members, ops);
            }
            Message::Promise(..) => {
                let (said, running) = (self.effects.len(), self.agreement.proposal().is_some());
                self.agree(Event::Message(from, message), ops);
                if self.effects.len() > said {
                    self.next_phase(now);
                }
                if running && self.agreement.proposal().is_none() {
                    self.fail(now, self.config.turn_ms);
                }
            }
            Message::Nack(ballot, promised) => self.on_nack(now, ballot, promised),
            Message::Accept(_) => {
                self.yield_to_proposer(now, from);
                self.agree(Event::Message(from, message), ops);
            }
            Message::Accepted(_) | Message::Install(_) => {
                self.agree(Event::Message(from, message), ops);
            }
            Message::Leave => self.on_left(now, from),
            Message::Ping(number) => self.effects.push(Effect::Send(from, Message::Pong(number))),
            Message::Pong(number) => self.on_pong(now, from, number),
            Message::Duplicate(duplicate) => self.on_duplicate(now, from, duplicate),
            // Not about membership: the control loop handles these.
            Message::Op(_)
            | Message::Post(_)
            | Message::Peers(_)
            | Message::Plan(_)
            | Message::Rate(_)
            | Message::Relay(_)
            | Message::Dial(_) => {}
        }
    }

    /// Passes an event to the agreement rules.
    fn agree(&mut self, event: Event, ops: &mut dyn Operations) {
        self.effects
            .extend(self.agreement.step(event, &mut LiveEnvironment { ops, links: &self.links }));
    }

    fn on_tick(&mut self, now: u64, ops: &mut dyn Operations) {
        let elapsed = now.saturating_sub(self.last_tick.replace(now).unwrap_or(now));
        let late = elapsed.saturating_sub(2 * self.rest_ms());
        self.late_ms = late.max(self.late_ms.saturating_sub(elapsed / 2));
        self.lose_the_silent(now);
        self.watch_for_one_way(now);
        // Announces a disk wait at the first tick; a write that ends before it needs no
        // announcement.
        if now >= self.heartbeat_at || self.agreement.is_persisting() && !self.told_persisting {
            self.announce(now);
        }
        if self.change.draining.as_ref().is_some_and(|d| now >= d.until) {
            self.finish_drain(ops);
        }
    }

    /// This View cannot decide all of its operations: it must be replaced.
    pub(super) fn on_broken(&mut self, now: u64, digest: ViewDigest) {
        if !self.change.broken
            && !self.is_frozen()
            && self.agreement.installed_id().is_some_and(|id| id.digest == digest)
        {
            self.change.broken = true;
            self.announce(now);
        }
    }

    fn on_leave(&mut self) {
        self.leaving = true;
        self.effects.extend(self.peers.keys().map(|id| Effect::Send(*id, Message::Leave)));
    }

    fn on_installed(&mut self, now: u64) {
        self.change = ViewChange::default();
        let Some(view) = self.agreement.installed().cloned() else { return };
        self.compare_members(now, &view);
        for (id, peer) in &mut self.peers {
            if view.contains(*id) {
                peer.view_since = now;
                peer.shunned_until = 0;
                peer.refused_until = 0;
            }
        }
        let over: Vec<MemberId> = self
            .peers
            .iter()
            .filter(|(id, p)| p.link == Link::Gone && !view.contains(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.forget(id);
        }
    }
}

/// The [`Environment`] through which the agreement sees this node.
struct LiveEnvironment<'a> {
    ops: &'a mut dyn Operations,
    links: &'a LinkMap,
}

impl Environment for LiveEnvironment<'_> {
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        self.ops.freeze(view)
    }

    fn arrange(
        &self,
        members: &BTreeMap<MemberId, Engines>,
        current: Option<&View>,
    ) -> Arrangement {
        arrange(members, current, self.ops.engine(), self.links)
    }
}
