//! Layer: Core.
//!
//! What makes the agreement live: who is heard, when a change of the View is wanted, who proposes it, when to try again.
//!
//! Nothing here can make a View unsafe; it only decides when [`Agreement`] is asked to move.

use super::Durable;
use super::agreement::{Agreement, Effect, Surroundings};
use super::detector::{Detector, Limits, Verdict};
use super::message::{Heartbeat, Message, REACH_MAX, Reached};
use crate::collective::Closing;
use crate::identity::{MemberId, Name};
use crate::topology::{InterfaceKind, LinkMap, Path, Plan, plan, rank_order};
use crate::view::{Ballot, View, ViewDigest, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The times of an election, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Between two heartbeats. Shorter costs messages, longer delays the detection of silence.
    pub heartbeat_ms: u64,
    /// Silence limits.
    pub limits: Limits,
    /// A lost connection may be dialled again for so long before its peer counts as gone.
    pub redial_ms: u64,
    /// How long the group waits for more peers after the last new one, at rest and with operations in flight.
    pub damping_ms: (u64, u64),
    /// The longest it waits for more peers, at rest and with operations in flight.
    pub damping_cap_ms: (u64, u64),
    /// A proposer's place in the queue times this is how long it lets the others go first.
    pub turn_ms: u64,
    /// Operations in flight may finish for so long before a View is left for a joiner.
    pub drain_ms: u64,
    /// A question that is not answered by all for so long has failed. Whoever is gone is noticed sooner by other means.
    pub ask_ms: u64,
    /// A phase of a proposal that takes longer has failed.
    pub phase_ms: u64,
    /// The same for a member that waits for its disk.
    pub persisting_ms: u64,
    /// Whether a node that sees nobody makes a View of its own, when it has waited as long as it would for joiners.
    pub alone: Alone,
    /// Seed of the jitter.
    pub seed: u64,
}

/// What a node does that sees nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It waits. The rule, because a group of one is rarely what anybody wants.
    Waits,
    /// It is a group.
    Forms,
}

impl Default for ElectionConfig {
    fn default() -> ElectionConfig {
        ElectionConfig {
            heartbeat_ms: 250,
            limits: Limits::WIRED,
            redial_ms: 300,
            damping_ms: (100, 500),
            damping_cap_ms: (1000, 3000),
            turn_ms: 150,
            drain_ms: 500,
            ask_ms: 500,
            phase_ms: 2000,
            persisting_ms: 5000,
            alone: Alone::Waits,
            seed: 0,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A control link to this member is up.
    LinkUp(MemberId),
    /// The control link is gone; it may come back.
    LinkDown(MemberId),
    /// The member cannot be reached any more: dialling it again failed.
    Unreachable(MemberId),
    /// Authenticated bytes came from this member.
    Heard(MemberId),
    /// A message came over the member's control link.
    Message(MemberId, Message),
    /// A data link of this View was opened by another member.
    DataLink(ViewDigest),
    /// A data link of this View to another member is gone, though its control link may live. Links are not repaired
    /// inside a View: what was on its way is lost, and the next View decides about it.
    DataLinkLost(ViewDigest),
    /// The state of this ticket is durable.
    Persisted(u64),
    /// So many operations are in flight now.
    OpsInFlight(usize),
    /// This node leaves.
    Leave,
}

/// The operations of the installed View.
pub trait Operations {
    /// Freezes them and reports them; the same report at every later call.
    fn freeze(&mut self) -> Closing;
}

/// The election of one node.
#[derive(Clone, Debug)]
pub struct Election {
    me: MemberId,
    config: ElectionConfig,
    agreement: Agreement,
    links: LinkMap,
    peers: BTreeMap<MemberId, Peer>,
    attempt: Attempt,
    /// A `Prepare` that lets operations finish first.
    draining: Option<Drain>,
    /// Another proposer is at work until then.
    yield_until: u64,
    yielded_to: Option<MemberId>,
    retry_at: u64,
    failures: u32,
    repair_since: Option<u64>,
    heartbeat_at: u64,
    last_tick: Option<u64>,
    late_ms: u64,
    ops_in_flight: usize,
    chance: u64,
    leaving: bool,
    /// The installed View has lost a data link here.
    broken: bool,
    /// The last answer of [`Election::clique`] and the candidates it was found among, until somebody reports otherwise.
    clique: Option<(BTreeSet<MemberId>, BTreeSet<MemberId>)>,
}

/// What is known of one other member.
#[derive(Clone, Debug)]
struct Peer {
    detector: Detector,
    /// Since when the link is up, or since when it is down.
    link: Link,
    view: Option<ViewId>,
    /// Whom it says it reaches.
    reach: BTreeSet<MemberId>,
    view_since: u64,
    persisting: bool,
    /// It says that its View has lost a data link.
    broken: bool,
    left: bool,
    shunned_until: u64,
    /// It has said that it does not want this node in its View; not asked again before.
    refused_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up { since: u64 },
    Down { since: u64 },
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Attempt {
    Idle,
    Asking { members: BTreeSet<MemberId>, willing: BTreeSet<MemberId>, until: u64 },
    Proposing { until: u64 },
}

#[derive(Clone, Debug)]
struct Drain {
    from: MemberId,
    ballot: Ballot,
    members: Vec<MemberId>,
    until: u64,
}

/// A View that should be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    members: BTreeSet<MemberId>,
    /// From when on the first in the queue may propose it.
    from: u64,
}

impl Election {
    /// The election of this life of this node, with what an earlier life left on the disk.
    pub fn new(me: MemberId, name: Name, stateless: bool, durable: Durable, config: ElectionConfig) -> Election {
        Election {
            me,
            agreement: Agreement::new(me, name, stateless, durable),
            links: LinkMap::new(),
            peers: BTreeMap::new(),
            attempt: Attempt::Idle,
            draining: None,
            yield_until: 0,
            yielded_to: None,
            retry_at: 0,
            failures: 0,
            repair_since: None,
            heartbeat_at: 0,
            last_tick: None,
            late_ms: 0,
            ops_in_flight: 0,
            chance: config.seed | 1,
            leaving: false,
            broken: false,
            clique: None,
            config,
        }
    }

    /// One step. `now` is monotonic; effects are to be carried out in order.
    pub fn step(&mut self, now: u64, input: Input, ops: &mut dyn Operations) -> Vec<Effect> {
        let mut effects = Vec::new();
        // What comes with every call alone changes nothing that the next tick would not see.
        let routine = matches!(input, Input::Heard(_) | Input::OpsInFlight(_));
        self.take(now, input, ops, &mut effects);
        if !routine {
            self.pursue(now, ops, &mut effects);
        }
        self.loop_back(now, ops, effects)
    }

    /// The View this node is in.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.agreement.installed()
    }

    /// Whether that View is being replaced.
    pub fn is_frozen(&self) -> bool {
        self.agreement.is_frozen()
    }

    /// The Views to which a data link may belong now.
    pub fn open_views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.agreement.open_views()
    }

    /// The measured links.
    pub fn links_mut(&mut self) -> &mut LinkMap {
        &mut self.links
    }

    /// The members this node has a live control link with.
    pub fn reach(&self, now: u64) -> BTreeSet<MemberId> {
        self.peers.iter().filter(|(_, p)| p.alive(now, self.config.redial_ms)).map(|(id, _)| *id).take(REACH_MAX).collect()
    }

    /// How long nothing will happen by itself, in milliseconds.
    pub fn rest_ms(&self) -> u64 {
        let busy =
            self.attempt != Attempt::Idle || self.draining.is_some() || self.agreement.is_frozen() || self.repair_since.is_some();
        let unsettled = self.peers.keys().any(|id| self.agreement.installed().is_none_or(|v| !v.contains(*id)));
        if busy || unsettled { 20 } else { 50 }
    }

    fn take(&mut self, now: u64, input: Input, ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => self.on_tick(now, ops, effects),
            Input::LinkUp(peer) => self.on_link_up(now, peer, effects),
            Input::LinkDown(peer) => self.on_link_down(now, peer),
            Input::Unreachable(peer) => self.on_gone(now, peer, effects),
            Input::Heard(peer) => self.on_heard(now, peer),
            Input::Message(from, message) => self.on_message(now, from, message, ops, effects),
            Input::DataLink(digest) => self.agreement.on_data_link(digest, effects),
            Input::DataLinkLost(digest) => self.on_data_link_lost(now, digest, effects),
            Input::Persisted(ticket) => self.agreement.on_persisted(ticket, effects),
            Input::OpsInFlight(count) => self.on_ops(now, count, ops, effects),
            Input::Leave => self.on_leave(effects),
        }
    }

    /// Carries out at once what this node sends to itself; an acceptor is an acceptor.
    fn loop_back(&mut self, now: u64, ops: &mut dyn Operations, effects: Vec<Effect>) -> Vec<Effect> {
        let mut out = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send(to, message) if to == self.me => {
                    let mut more = Vec::new();
                    self.on_message(now, to, message, ops, &mut more);
                    out.extend(self.loop_back(now, ops, more));
                }
                Effect::Install(..) => {
                    self.on_installed(now);
                    out.push(effect);
                    self.announce(now, &mut out);
                }
                effect => out.push(effect),
            }
        }
        out
    }

    fn on_message(&mut self, now: u64, from: MemberId, message: Message, ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        if self.leaving {
            return;
        }
        self.on_heard(now, from);
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat(now, from, &heartbeat, effects),
            Message::Ask(members) => self.on_ask(now, from, &members, effects),
            Message::Willing => self.on_willing(now, from, effects),
            Message::Unwilling => self.on_unwilling(now, from),
            Message::Prepare(ballot, members) => self.on_prepare(now, from, ballot, members, ops, effects),
            Message::Promise(ballot, promise) => {
                let around = Around { ops, links: &self.links };
                self.agreement.on_promise(from, ballot, *promise, &around, effects);
                self.extend_phase(now);
            }
            Message::Nack(ballot, promised) => self.on_nack(now, ballot, promised),
            Message::Accept(view) => {
                self.yield_to(now, from, self.config.phase_ms);
                self.agreement.on_accept(from, &view, &mut Around { ops, links: &self.links }, effects);
            }
            Message::Accepted(id) => self.agreement.on_accepted(from, id, effects),
            Message::Install(id) => self.agreement.on_install(id, effects),
            Message::Leave => self.on_left(now, from, effects),
            // Not about membership: the driver's.
            Message::Op(_) | Message::Peers(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }

    fn on_tick(&mut self, now: u64, ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        let elapsed = now.saturating_sub(self.last_tick.replace(now).unwrap_or(now));
        let late = elapsed.saturating_sub(2 * self.rest_ms());
        self.late_ms = late.max(self.late_ms.saturating_sub(elapsed / 2));
        self.bury_the_silent(now, effects);
        if now >= self.heartbeat_at {
            self.announce(now, effects);
        }
        if self.draining.as_ref().is_some_and(|d| now >= d.until) {
            self.finish_drain(ops, effects);
        }
    }

    /// Tells every peer whom this node reaches and in which View it is.
    fn announce(&mut self, now: u64, effects: &mut Vec<Effect>) {
        self.heartbeat_at = now + self.config.heartbeat_ms;
        let reach = self.reach(now);
        let heartbeat = Heartbeat {
            view: self.agreement.installed_id(),
            reach: reach.into_iter().map(|id| self.reached(id)).collect(),
            persisting: self.agreement.is_persisting(),
            broken: self.broken,
        };
        let linked = self.peers.iter().filter(|(_, p)| matches!(p.link, Link::Up { .. })).map(|(id, _)| *id);
        effects.extend(linked.map(|id| Effect::Send(id, Message::Heartbeat(heartbeat.clone()))));
    }

    fn bury_the_silent(&mut self, now: u64, effects: &mut Vec<Effect>) {
        let late = self.late_ms;
        let silent = |p: &Peer| matches!(p.link, Link::Up { .. }) && p.detector.verdict(now, late) == Verdict::Dead;
        let expired = |p: &Peer| matches!(p.link, Link::Down { .. }) && !p.alive(now, self.config.redial_ms);
        let gone: Vec<MemberId> = self.peers.iter().filter(|(_, p)| silent(p) || expired(p)).map(|(id, _)| *id).collect();
        for id in gone {
            effects.push(Effect::Drop(id));
            self.on_gone(now, id, effects);
        }
    }

    fn on_link_up(&mut self, now: u64, id: MemberId, effects: &mut Vec<Effect>) {
        let detector = Detector::new(self.config.limits, self.config.heartbeat_ms, now);
        let (view, left) = self.peers.get(&id).map_or((None, false), |p| (p.view, p.left));
        let link = Link::Up { since: now };
        let peer = Peer {
            detector,
            link,
            view,
            reach: BTreeSet::new(),
            view_since: now,
            persisting: false,
            broken: false,
            left,
            shunned_until: 0,
            refused_until: 0,
        };
        self.peers.insert(id, peer);
        // Its next heartbeat says whom it reaches.
        self.links.set_reach(id, &BTreeSet::new());
        self.clique = None;
        self.announce(now, effects);
    }

    fn on_link_down(&mut self, now: u64, id: MemberId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.link = Link::Down { since: now };
        }
    }

    fn on_gone(&mut self, now: u64, id: MemberId, effects: &mut Vec<Effect>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.link = Link::Gone;
        peer.reach.clear();
        if self.yielded_to == Some(id) {
            self.yield_until = 0;
        }
        self.clique = None;
        self.links.set_reach(id, &BTreeSet::new());
        if !self.agreement.installed().is_some_and(|v| v.contains(id)) {
            self.forget(id);
        }
        self.announce(now, effects);
    }

    /// Drops everything about a node, also what others have said of their way to it: they will say so again.
    fn forget(&mut self, id: MemberId) {
        self.peers.remove(&id);
        self.links.forget(id);
        self.clique = None;
        for peer in self.peers.values_mut() {
            peer.reach.remove(&id);
        }
    }

    fn on_heard(&mut self, now: u64, id: MemberId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.detector.heard(now);
            peer.shunned_until = 0;
        }
    }

    fn on_heartbeat(&mut self, now: u64, from: MemberId, heartbeat: &Heartbeat, effects: &mut Vec<Effect>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.detector.heartbeat(now);
        peer.persisting = heartbeat.persisting;
        peer.broken = heartbeat.broken;
        if peer.view != heartbeat.view {
            peer.view = heartbeat.view;
            peer.view_since = now;
        }
        self.learn_reach(from, &heartbeat.reach);
        let mine = self.agreement.installed_id().zip(self.agreement.installed().map(|v| v.contains(from)));
        match (mine, heartbeat.view) {
            // It has missed the Install.
            (Some((mine, true)), theirs) if !self.is_frozen() && theirs.is_none_or(|v| v.ballot < mine.ballot) => {
                effects.push(Effect::Send(from, Message::Install(mine)));
            }
            // This node may have missed it.
            (_, Some(theirs)) => self.agreement.on_install(theirs, effects),
            _ => {}
        }
    }

    fn reached(&self, id: MemberId) -> Reached {
        Reached { id, rtt_us: self.links.path(self.me, id).map_or(0, |path| path.rtt_us) }
    }

    fn learn_reach(&mut self, from: MemberId, reach: &[Reached]) {
        let to: BTreeSet<MemberId> = reach.iter().map(|r| r.id).collect();
        if let Some(peer) = self.peers.get_mut(&from).filter(|p| p.reach != to) {
            self.links.set_reach(from, &to);
            peer.reach = to;
            self.clique = None;
        }
        for reached in reach.iter().filter(|r| r.rtt_us > 0) {
            self.links.observe(
                from,
                reached.id,
                Path { rtt_us: reached.rtt_us, from_kind: InterfaceKind::Other, to_kind: InterfaceKind::Other },
            );
        }
    }

    fn on_ask(&mut self, now: u64, from: MemberId, members: &[MemberId], effects: &mut Vec<Effect>) {
        let mine_first = self.attempt != Attempt::Idle && self.turn(from, members) > self.turn(self.me, members);
        let willing = members.contains(&self.me) && !mine_first && self.would_leave(now, from, members);
        if willing {
            self.attempt = Attempt::Idle;
            self.agreement.withdraw();
            self.yield_to(now, from, self.config.ask_ms);
        }
        effects.push(Effect::Send(from, if willing { Message::Willing } else { Message::Unwilling }));
    }

    /// Whether, from here, the View has a reason to be replaced as `from` asks.
    fn would_leave(&self, now: u64, from: MemberId, members: &[MemberId]) -> bool {
        let Some(view) = self.agreement.installed() else { return true };
        let alive = self.reach(now);
        // What an outsider cannot reach is no loss of this View.
        let cut = |m: MemberId| view.contains(from) && m != from && !self.links.reachable_both_ways(from, m);
        let lost = |m: MemberId| m != self.me && (!alive.contains(&m) || cut(m));
        let new = |m: &MemberId| !view.contains(*m) && alive.contains(m);
        self.is_frozen()
            || view.ballot.proposer == from
            || view.members.iter().any(|m| lost(m.id))
            // Only for a larger View, or two outsiders could take a member from each other for ever.
            || members.len() > view.size() && members.iter().any(new)
            || self.is_out_of_step(now, view)
            || self.is_broken(view)
    }

    fn on_willing(&mut self, now: u64, from: MemberId, effects: &mut Vec<Effect>) {
        let Attempt::Asking { members, willing, .. } = &mut self.attempt else { return };
        if members.contains(&from) {
            willing.insert(from);
        }
        if willing.len() == members.len() {
            let members = std::mem::take(members);
            self.attempt = Attempt::Proposing { until: now + self.config.phase_ms };
            self.agreement.propose(members, effects);
        }
    }

    fn on_unwilling(&mut self, now: u64, from: MemberId) {
        self.note_refusal(now, from);
        if matches!(&self.attempt, Attempt::Asking { members, .. } if members.contains(&from)) {
            // It will see soon what this node has seen, or this node will see that it was wrong.
            self.fail(now, 40);
        }
    }

    /// This View is to be repaired, and somebody in a later one does not want this node there: it goes on without them.
    /// Otherwise those who were left behind would wait in a View that is over.
    fn note_refusal(&mut self, now: u64, from: MemberId) {
        let mine = self.agreement.installed_id();
        if self.repair_since.is_some()
            && let Some(peer) = self.peers.get_mut(&from).filter(|p| p.view.is_some() && p.view > mine)
        {
            peer.refused_until = now + self.config.phase_ms;
        }
    }

    fn on_prepare(
        &mut self,
        now: u64,
        from: MemberId,
        ballot: Ballot,
        members: Vec<MemberId>,
        ops: &mut dyn Operations,
        effects: &mut Vec<Effect>,
    ) {
        self.yield_to(now, from, self.config.phase_ms);
        // What waits for a lost member or a lost link cannot finish.
        let can_finish = |v: &View| v.members.iter().all(|m| members.contains(&m.id)) && !self.is_broken(v);
        let nobody_lost = self.agreement.installed().is_some_and(|v| can_finish(v));
        if nobody_lost && self.ops_in_flight > 0 && !self.is_frozen() {
            self.draining = Some(Drain { from, ballot, members, until: now + self.config.drain_ms });
            return;
        }
        self.agreement.on_prepare(from, ballot, &members, &mut Around { ops, links: &self.links }, effects);
    }

    fn on_ops(&mut self, _now: u64, count: usize, ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        self.ops_in_flight = count;
        if count == 0 && self.draining.is_some() {
            self.finish_drain(ops, effects);
        }
    }

    fn finish_drain(&mut self, ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        if let Some(Drain { from, ballot, members, .. }) = self.draining.take() {
            self.agreement.on_prepare(from, ballot, &members, &mut Around { ops, links: &self.links }, effects);
        }
    }

    fn on_nack(&mut self, now: u64, ballot: Ballot, promised: Ballot) {
        let running = self.agreement.proposal().is_some();
        self.agreement.on_nack(ballot, promised);
        if running && self.agreement.proposal().is_none() {
            self.fail(now, self.config.turn_ms);
        }
    }

    fn on_data_link_lost(&mut self, now: u64, digest: ViewDigest, effects: &mut Vec<Effect>) {
        if !self.broken && !self.is_frozen() && self.agreement.installed_id().is_some_and(|id| id.digest == digest) {
            self.broken = true;
            self.announce(now, effects);
        }
    }

    /// Whether this member, or one of those it hears, has lost a data link of the View.
    fn is_broken(&self, view: &View) -> bool {
        let id = self.agreement.installed_id();
        self.broken || view.members.iter().filter_map(|m| self.peers.get(&m.id)).any(|p| p.broken && p.view == id)
    }

    fn on_leave(&mut self, effects: &mut Vec<Effect>) {
        self.leaving = true;
        effects.extend(self.peers.keys().map(|id| Effect::Send(*id, Message::Leave)));
    }

    fn on_left(&mut self, now: u64, from: MemberId, effects: &mut Vec<Effect>) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.left = true;
        }
        self.on_gone(now, from, effects);
    }

    fn on_installed(&mut self, now: u64) {
        self.attempt = Attempt::Idle;
        self.draining = None;
        self.clique = None;
        self.broken = false;
        self.failures = 0;
        self.retry_at = 0;
        self.repair_since = None;
        self.yield_until = 0;
        self.yielded_to = None;
        let Some(view) = self.agreement.installed().cloned() else { return };
        for (id, peer) in &mut self.peers {
            if view.contains(*id) {
                peer.view_since = now;
                peer.shunned_until = 0;
                peer.refused_until = 0;
            }
        }
        let over: Vec<MemberId> =
            self.peers.iter().filter(|(id, p)| p.link == Link::Gone && !view.contains(**id)).map(|(id, _)| *id).collect();
        for id in over {
            self.forget(id);
        }
    }

    /// Moves a change of the View forward, if one is wanted.
    fn pursue(&mut self, now: u64, _ops: &mut dyn Operations, effects: &mut Vec<Effect>) {
        if self.leaving {
            return;
        }
        self.give_up_what_takes_too_long(now);
        let Some(wanted) = self.wanted(now) else {
            self.repair_since = None;
            if matches!(self.attempt, Attempt::Asking { .. }) {
                self.attempt = Attempt::Idle;
            }
            return;
        };
        let members: Vec<MemberId> = wanted.members.iter().copied().collect();
        let turn = self.turn(self.me, &members) as u64;
        let jitter = if turn == 0 { 0 } else { self.jitter(self.config.turn_ms / 3) };
        let due = (wanted.from + turn * self.config.turn_ms + jitter).max(self.retry_at).max(self.yield_until);
        if self.attempt == Attempt::Idle && now >= due {
            self.ask(now, wanted.members, effects);
        }
    }

    fn ask(&mut self, now: u64, members: BTreeSet<MemberId>, effects: &mut Vec<Effect>) {
        let list: Vec<MemberId> = members.iter().copied().collect();
        effects.extend(list.iter().filter(|m| **m != self.me).map(|m| Effect::Send(*m, Message::Ask(list.clone()))));
        let until = now + self.config.ask_ms;
        self.attempt = Attempt::Asking { members, willing: BTreeSet::new(), until };
        self.on_willing(now, self.me, effects);
    }

    fn give_up_what_takes_too_long(&mut self, now: u64) {
        match &self.attempt {
            Attempt::Asking { members, willing, until } if now >= *until => {
                let silent: Vec<MemberId> = members.difference(willing).copied().collect();
                self.shun(now, &silent);
                self.fail(now, self.config.turn_ms);
            }
            Attempt::Proposing { until } if now >= *until => {
                let silent = self.agreement.proposal().map_or_else(BTreeSet::new, |(_, silent)| silent);
                self.shun(now, &silent.into_iter().collect::<Vec<_>>());
                self.fail(now, self.config.turn_ms);
            }
            _ => {}
        }
    }

    /// A member that answers nothing is left out of the next attempt, until it is heard again.
    fn shun(&mut self, now: u64, silent: &[MemberId]) {
        for id in silent {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.shunned_until = now + self.config.phase_ms;
            }
        }
    }

    fn fail(&mut self, now: u64, base_ms: u64) {
        self.attempt = Attempt::Idle;
        self.agreement.withdraw();
        let backoff = (base_ms << self.failures.min(5)).min(5000);
        self.failures += 1;
        self.retry_at = now + backoff + self.jitter(base_ms);
    }

    /// All promises are in: the next phase gets its own time.
    fn extend_phase(&mut self, now: u64) {
        let waits_for_disk = |m: &MemberId| self.peers.get(m).is_some_and(|p| p.persisting);
        let persisting = self.agreement.proposal().is_some_and(|(_, silent)| silent.iter().any(waits_for_disk));
        let phase = if persisting { self.config.persisting_ms } else { self.config.phase_ms };
        if let Attempt::Proposing { until } = &mut self.attempt {
            *until = now + phase;
        }
    }

    fn yield_to(&mut self, now: u64, to: MemberId, for_ms: u64) {
        if to != self.me {
            self.yield_until = self.yield_until.max(now + for_ms);
            self.yielded_to = Some(to);
        }
    }

    /// The change this node wants, if the View should be another one.
    fn wanted(&mut self, now: u64) -> Option<Wanted> {
        let members = self.clique(now);
        let view = self.agreement.installed().cloned();
        let Some(view) = view else { return self.first_view(now, members) };
        let lost = !self.is_intact(&view, &members);
        if lost || self.is_frozen() || self.is_out_of_step(now, &view) || self.is_broken(&view) {
            let from = *self.repair_since.get_or_insert(now);
            // A link may close because its member is just leaving the View for a proposal that has not come here yet.
            let grace = if lost || self.is_frozen() { 0 } else { self.config.turn_ms / 5 };
            return Some(Wanted { members, from: from + grace });
        }
        self.repair_since = None;
        (members.len() > view.size()).then(|| Wanted { from: self.damped(now, &members, Some(&view)), members })
    }

    fn first_view(&self, now: u64, members: BTreeSet<MemberId>) -> Option<Wanted> {
        match (members.len(), self.config.alone) {
            (0 | 1, Alone::Waits) => None,
            (0 | 1, Alone::Forms) => Some(Wanted { members, from: self.config.damping_cap_ms.0 }),
            _ => Some(Wanted { from: self.damped(now, &members, None), members }),
        }
    }

    /// The largest set of nodes that all reach each other, this one among them; present members first.
    fn clique(&mut self, now: u64) -> BTreeSet<MemberId> {
        let shunned = |id: &MemberId| self.peers.get(id).is_some_and(|p| p.shunned_until.max(p.refused_until) > now);
        let candidates: BTreeSet<MemberId> = self.reach(now).into_iter().filter(|id| !shunned(id)).collect();
        if let Some((known, clique)) = &self.clique
            && *known == candidates
        {
            return clique.clone();
        }
        self.links.set_reach(self.me, &candidates);
        let prefer = self.agreement.installed().map_or_else(BTreeSet::new, |v| v.members.iter().map(|m| m.id).collect());
        let clique = self.links.largest_clique_with(self.me, &prefer);
        self.clique = Some((candidates, clique.clone()));
        clique
    }

    /// All members of this View still reach each other, also when a larger group without one of them shows itself: those
    /// who have just met know too little of each other yet.
    fn is_intact(&self, view: &View, members: &BTreeSet<MemberId>) -> bool {
        let present: BTreeSet<MemberId> = view.members.iter().map(|m| m.id).collect();
        present.is_subset(members) || self.links.is_clique(&present)
    }

    /// Some member of this View is in another one, and not just for the moment of an Install.
    fn is_out_of_step(&self, now: u64, view: &View) -> bool {
        let id = self.agreement.installed_id();
        let astray = |p: &Peer| p.view != id && now >= p.view_since + self.config.phase_ms;
        view.members.iter().filter_map(|m| self.peers.get(&m.id)).any(astray)
    }

    /// When those who came last have been waited for.
    fn damped(&self, now: u64, members: &BTreeSet<MemberId>, view: Option<&View>) -> u64 {
        let new = members.iter().filter(|id| view.is_none_or(|v| !v.contains(**id))).filter_map(|id| self.peers.get(id));
        let ups: Vec<u64> = new.filter_map(|p| if let Link::Up { since } = p.link { Some(since) } else { None }).collect();
        let (first, last) = (ups.iter().min().copied().unwrap_or(now), ups.iter().max().copied().unwrap_or(now));
        let pick = |(rest, busy)| if self.ops_in_flight == 0 { rest } else { busy };
        (last + pick(self.config.damping_ms)).min(first + pick(self.config.damping_cap_ms))
    }

    /// A member's place in the queue of proposers: the leader of the newest View first, then by id.
    fn turn(&self, who: MemberId, members: &[MemberId]) -> usize {
        let views = members.iter().filter_map(|m| self.peers.get(m).and_then(|p| p.view));
        let mine = self.agreement.installed_id();
        let leader = views.chain(mine).max().map(|v| v.ballot.proposer);
        let before = |m: &&MemberId| match leader {
            Some(leader) if who == leader => false,
            Some(leader) if **m == leader => true,
            _ => **m < who,
        };
        members.iter().filter(before).count()
    }

    /// A xorshift step (Marsaglia 2003): spreads retries, decides nothing.
    fn jitter(&mut self, below_ms: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        if below_ms == 0 { 0 } else { self.chance % below_ms }
    }
}

impl Peer {
    fn alive(&self, now: u64, redial_ms: u64) -> bool {
        !self.left
            && match self.link {
                Link::Up { .. } => true,
                Link::Down { since } => now < since + redial_ms,
                Link::Gone => false,
            }
    }
}

/// What the agreement sees of this node.
struct Around<'a> {
    ops: &'a mut dyn Operations,
    links: &'a LinkMap,
}

impl Surroundings for Around<'_> {
    fn freeze(&mut self) -> Closing {
        self.ops.freeze()
    }

    fn arrange(&self, members: &BTreeSet<MemberId>, current: Option<&View>) -> (Vec<MemberId>, Plan) {
        let current: Vec<MemberId> = current.map_or_else(Vec::new, |v| v.members.iter().map(|m| m.id).collect());
        let order = rank_order(&current, members);
        let plan = plan(&order, self.links);
        (order, plan)
    }
}
