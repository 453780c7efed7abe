//! The event loop of a simulated world, and the effects of its elections.

use super::super::claims::{Act, Claim, Ending, History};
use super::disks::Disks;
use super::network::{Disturbance, Network};
use super::processes::Node;
use super::session::Session;
use crate::collective::{Ledger, LedgerEffect};
use crate::election::{Decides, Durable, Effect, Input, LeftOut, Notice};
use crate::identity::{MemberId, NodeId};
use crate::protocol::{Message, Mutation, Partition, Sizes, View};
use crate::wire::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Interval of the ticks of all nodes, and of link set-up between nodes that can reach each other.
const TICK_MS: u64 = 20;

pub(super) struct World {
    pub(super) now: u64,
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) network: Network,
    pub(super) disks: Disks,
    /// Longest time an engine takes for a result.
    pub(super) engine_ms: u64,
    rng: u64,
    /// Configuration of nodes that start from now on.
    pub(super) partition: Partition,
    /// The sizes that nodes ask for, where they are not the usual ones.
    pub(super) sizes: BTreeMap<u8, Sizes>,
    pub(super) quarantine_ms: (u64, u64),
    pub(super) shows_notices: bool,
    /// The trace: one line for each notable event.
    pub(super) trace: Vec<String>,
    pub(super) history: History,
    /// The rule that all nodes break.
    pub(super) mutation: Mutation,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            now: 0,
            nodes: BTreeMap::new(),
            network: Network::default(),
            disks: Disks::default(),
            engine_ms: 0,
            rng: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            partition: Partition::default(),
            sizes: BTreeMap::new(),
            quarantine_ms: (0, 0),
            shows_notices: false,
            trace: Vec::new(),
            history: History::default(),
            mutation: Mutation::NONE,
        }
    }

    pub(super) fn repetition(&mut self, per_mille: u64) {
        self.network.rates.repeated = per_mille;
        self.network.rates.overtaking = per_mille;
    }

    /// Loses all messages between these two, silently.
    pub(super) fn part(&mut self, a: u8, b: u8) {
        self.network.mute(a, b);
        self.network.mute(b, a);
    }

    /// Lets time pass, from one event to the next.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now = self.next_event().min(end);
            self.resume_due();
            let is_tick = self.now.is_multiple_of(TICK_MS);
            if is_tick {
                self.relink();
            }
            self.deliver_due();
            self.persist_due();
            self.results_due();
            if is_tick {
                for n in self.living() {
                    self.feed(n, Input::Tick);
                }
            }
        }
    }

    pub(super) fn next_event(&self) -> u64 {
        let takes = |n: u8| self.nodes.get(&n).is_none_or(|node| node.paused.is_none());
        let tick = (self.now / TICK_MS + 1) * TICK_MS;
        let results = self
            .nodes
            .values()
            .filter(|n| n.alive)
            .filter_map(|n| n.session.results.values().min().copied())
            .min();
        let resumed = self.nodes.values().filter_map(|node| node.paused.as_ref()?.until).min();
        let events = [self.network.next(takes), self.disks.next(), results, resumed, Some(tick)];
        events.into_iter().flatten().min().unwrap_or(tick).max(self.now + 1)
    }

    pub(super) fn living(&self) -> Vec<u8> {
        self.nodes.iter().filter(|(_, node)| node.alive).map(|(n, _)| *n).collect()
    }

    /// Whether all living nodes, and no others, are in one View that is not frozen.
    pub(super) fn is_whole(&self) -> bool {
        let living: BTreeMap<MemberId, &Node> =
            self.nodes.values().filter(|node| node.alive).map(|node| (node.id(), node)).collect();
        let Some(view) = living.values().next().and_then(|node| node.session.view.as_ref()) else {
            return living.is_empty();
        };
        let same =
            |node: &&Node| node.session.view.as_ref() == Some(view) && !node.election.is_frozen();
        living.values().all(same)
            && view.members.iter().map(|m| m.id).collect::<BTreeSet<_>>().iter().eq(living.keys())
    }

    /// The final state of a living node, as one line.
    pub(super) fn state(&self, n: u8) -> String {
        let node = &self.nodes[&n];
        let view = node.session.view.as_ref();
        let view = view.map_or("no view".to_owned(), |v| format!("view {}", v.ballot.round));
        let frozen = if node.election.is_frozen() { ", frozen" } else { "" };
        let open = node.session.ledger.as_ref().map_or(0, Ledger::in_flight);
        let open = if open == 0 { String::new() } else { format!(", {open} open") };
        let out = node.election.left_out(self.now);
        let out = match out {
            Some(LeftOut::NoPlace { members, most }) => format!(", {members} of {most} run"),
            Some(LeftOut::TooFew { present }) => format!(", {present} would be too few"),
            None => String::new(),
        };
        format!("{} ends in {view}{frozen}{open}{out}", letter(n))
    }

    /// The claims that do not hold so far.
    pub(super) fn broken(&self) -> Vec<&'static str> {
        let is_majority = matches!(self.partition, Partition::Majority { .. });
        let differ = (is_majority && self.history.halves_differ).then_some(Claim::OneOutcome);
        self.history.broken().chain(differ).map(Claim::name).collect()
    }

    /// Number of called operations without an answer.
    pub(super) fn unanswered(&self) -> usize {
        let open = |n: &u8| self.nodes[n].session.ledger.as_ref().map_or(0, Ledger::in_flight);
        self.living().iter().map(open).sum()
    }

    /// A xorshift step (Marsaglia 2003).
    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % below
    }

    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.random(1000) < per_mille
    }

    pub(super) fn log(&mut self, n: u8, line: &str) {
        self.trace.push(format!("{:>6} {} {line}", self.now, letter(n)));
    }

    pub(super) fn feed(&mut self, n: u8, input: Input) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        if let Some(paused) = &mut node.paused {
            if input != Input::Tick {
                paused.waiting.push_back(input);
            }
            return;
        }
        let effects = node.election.step(self.now - node.behind, input, &mut node.session);
        for effect in effects {
            self.carry_out(n, effect);
        }
        self.take_notices(n);
        self.spread(n);
    }

    pub(super) fn take_notices(&mut self, n: u8) {
        let notices =
            self.nodes.get_mut(&n).map(|node| node.election.take_notices()).unwrap_or_default();
        if self.shows_notices {
            self.trace.extend(
                notices
                    .iter()
                    .map(|notice| format!("{:>6} {}: {}", self.now, letter(n), describe(notice))),
            );
        }
    }

    pub(super) fn carry_out(&mut self, n: u8, effect: Effect) {
        match effect {
            Effect::Send(to, message) => self.send(n, to, &message),
            Effect::Persist(ticket, durable) => self.persist(n, ticket, durable),
            Effect::Install(view, decides) => self.install(n, &view, decides),
            Effect::CutOff => self.cut_off(n),
            Effect::Drop(id) => self.hang_up(n, id),
        }
    }

    pub(super) fn persist(&mut self, n: u8, ticket: u64, durable: Durable) {
        let more = self.random(3);
        self.disks.write(self.now, n, ticket, durable, more);
    }

    pub(super) fn send(&mut self, n: u8, to: MemberId, message: &Message) {
        if let Message::Accepted(id) = message {
            let who = self.nodes[&n].id();
            self.history.note(who, &Act::Accepted(*id));
        }
        let Some(peer) = self.node_of(to).filter(|peer| self.network.is_linked(n, *peer)) else {
            return;
        };
        let rates = self.network.rates;
        // Drawn at any rate, so that delays change the random sequence as little as possible.
        let late = self.random(1000) < rates.late;
        let disturbance = Disturbance {
            late_ms: if late { self.random(200) } else { 0 },
            repeated: self.happens(rates.repeated),
            overtaking: self.happens(rates.overtaking),
        };
        // Encoded and decoded, as on a real link.
        let decoded = Message::from_bytes(&message.to_bytes())
            .unwrap_or_else(|why| panic!("own messages decode, {why:?}: {message:?}"));
        self.network.send(self.now, n, peer, decoded, disturbance);
    }

    /// The living node with this identity and boot.
    pub(super) fn node_of(&self, id: MemberId) -> Option<u8> {
        self.nodes.iter().find(|(_, node)| node.alive && node.id() == id).map(|(n, _)| *n)
    }

    /// Closes a link. The peer still receives all messages sent before.
    pub(super) fn hang_up(&mut self, n: u8, id: MemberId) {
        let Some(peer) = self.node_of(id) else { return };
        let (sent, me) = (self.network.take(n, peer), self.nodes[&n].id());
        if !self.network.loses(n, peer) {
            sent.into_iter().for_each(|message| self.feed(peer, Input::Message(me, message)));
        }
        self.unlink(n, peer);
    }

    pub(super) fn deliver_due(&mut self) {
        for (from, to) in self.network.due(self.now) {
            while self.nodes.get(&to).is_some_and(|node| node.paused.is_none()) {
                let Some(message) = self.network.pop_due(self.now, from, to) else { break };
                if self.network.loses(from, to) {
                    continue;
                }
                let id = self.nodes[&from].id();
                if let Message::Op(op) = &message {
                    self.on_op(to, id, op);
                }
                self.feed(to, Input::Message(id, message));
            }
        }
    }

    pub(super) fn persist_due(&mut self) {
        for write in self.disks.due(self.now) {
            if !self.nodes[&write.node].alive {
                continue;
            }
            if self.disks.refuses(self.now, &write) {
                self.disks.try_again(self.now, write);
            } else {
                self.disks.keep(&write);
                self.feed(write.node, Input::Persisted(write.ticket));
            }
        }
    }

    /// Links every pair of nodes that can reach each other, directly or over relays.
    pub(super) fn relink(&mut self) {
        let living = self.living();
        for a in living.iter().copied() {
            for b in living.iter().copied().filter(|b| a < *b) {
                let apart = self.network.is_muted(a, b) || self.network.is_muted(b, a);
                let asleep = [a, b].iter().any(|n| self.nodes[n].paused.is_some());
                let is_copy = self.nodes[&a].key == self.nodes[&b].key;
                if asleep || is_copy {
                    continue;
                }
                if apart || self.network.has_wall(a, b) {
                    self.relay(a, b);
                } else if !self.network.is_direct(a, b) {
                    self.network.link(a, b);
                    let (id_a, id_b) = (self.nodes[&a].id(), self.nodes[&b].id());
                    self.feed(a, Input::LinkUp(id_b));
                    self.feed(b, Input::LinkUp(id_a));
                    self.replay(a, b);
                    self.replay(b, a);
                }
            }
        }
    }

    /// Makes a relayed link between two nodes without a link, if there is a path.
    fn relay(&mut self, a: u8, b: u8) {
        if self.network.is_linked(a, b) {
            return;
        }
        let is_awake =
            |n: u8| self.nodes.get(&n).is_some_and(|node| node.alive && node.paused.is_none());
        let Some(over) = self.network.path(a, b, is_awake) else { return };
        let ids: Vec<MemberId> = over.iter().map(|n| self.nodes[n].id()).collect();
        self.network.relay(a, b, over);
        let (id_a, id_b) = (self.nodes[&a].id(), self.nodes[&b].id());
        self.feed(a, Input::RelayUp(id_b, ids.clone()));
        self.feed(b, Input::RelayUp(id_a, ids.into_iter().rev().collect()));
        self.replay(a, b);
        self.replay(b, a);
    }

    /// Breaks the connection of these two, which both notice. It may be made anew at once.
    pub(super) fn unlink(&mut self, a: u8, b: u8) {
        if self.network.is_direct(a, b) {
            for (x, y) in self.network.relayed_over(a, b) {
                self.unlink(x, y);
            }
        }
        if self.network.unlink(a, b) {
            for (n, other) in [(a, b), (b, a)] {
                if let Some(id) = self.nodes.get(&other).map(Node::id) {
                    self.feed(n, Input::LinkDown(id));
                }
            }
        }
    }

    pub(super) fn install(&mut self, n: u8, view: &Arc<View>, decides: Decides) {
        let mutation = self.mutation;
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let id = node.id();
        let old = std::mem::take(&mut node.session);
        let before = old.view.as_ref().map(|v| v.id());
        self.history.expect(Claim::FrozenStays, old.stays_closed());
        if view.ballot.proposer == id {
            // The proposer's own acceptance does not pass through `send`.
            self.history.note(id, &Act::Accepted(view.id()));
        }
        self.history.note(id, &Act::Installs { before, view: Arc::clone(view), decides });
        let name = |id: MemberId, in_sync: bool| {
            format!("{}{}", letter(id.node.0[0]), if in_sync { "" } else { "*" })
        };
        let names: Vec<String> = view.members.iter().map(|m| name(m.id, m.in_sync)).collect();
        let begun = if view.begun { "" } else { ", not begun" };
        self.log(n, &format!("installs {} [{}]{begun}", view.ballot.round, names.join(" ")));
        if let (Some(mut ledger), Some(before)) = (old.ledger, old.view) {
            match decides {
                Decides::Parent => ledger.decide(&view.committed, &view.failed),
                Decides::Nothing => ledger.cut_off(),
            }
            for effect in ledger.take_effects() {
                if let LedgerEffect::Resolved(op, outcome) = effect {
                    let ending = Ending::of(&ledger, op, outcome);
                    self.ended(n, &before, op, ending, Some(view.id()));
                }
            }
        }
        self.history.note(id, &Act::Installed { before, view: Arc::clone(view) });
        let (Some(node), Some(rank)) = (self.nodes.get_mut(&n), view.rank_of(id)) else { return };
        node.session = Session::of(view, Ledger::new(view, rank).with(mutation));
        if node.election.is_frozen() {
            // Installed late, only to decide the View before.
            crate::election::Operations::freeze(&mut node.session, view.digest());
        } else {
            self.history.note(id, &Act::Runs(view.id()));
        }
    }

    pub(super) fn cut_off(&mut self, n: u8) {
        let session = &mut self.nodes.get_mut(&n).expect("the node exists").session;
        let (Some(view), Some(mut ledger)) = (session.view.clone(), session.ledger.take()) else {
            return;
        };
        ledger.cut_off();
        session.is_cut_off = true;
        for effect in ledger.take_effects() {
            if let LedgerEffect::Resolved(op, outcome) = effect {
                let ending = Ending::of(&ledger, op, outcome);
                self.ended(n, &view, op, ending, None);
            }
        }
        self.nodes.get_mut(&n).expect("the node exists").session.ledger = Some(ledger);
    }
}

fn describe(notice: &Notice) -> String {
    let name = |node: NodeId| letter(node.0[0]);
    match notice {
        Notice::Joined(id) => format!("{} joined", name(id.node)),
        Notice::Merged(ids) => format!(
            "merged with {}",
            ids.iter().map(|id| name(id.node)).collect::<Vec<_>>().join(" ")
        ),
        Notice::Left(id) => format!("{} left", name(id.node)),
        Notice::Lost(id, why) => format!("{} lost, {why}", name(id.node)),
        Notice::Quarantined(node, ms) => format!("{} in quarantine for {ms} ms", name(*node)),
        Notice::Woke => "was away".to_owned(),
        Notice::Duplicate(node) => format!("{} is a duplicate", name(*node)),
        Notice::OneWay(id) => format!("{} does not hear this node", name(id.node)),
    }
}

pub(super) fn letter(n: u8) -> String {
    char::from(b'A' + n - 1).to_string()
}
