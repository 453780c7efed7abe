//! Layer: Core.
//!
//! The nodes of a world, and how time passes for them.

use super::book::Book;
use super::disks::{Disks, Write};
use super::network::{Fate, Network};
use crate::collective::{
    AbortReason, Call, CodecId, DType, Kind, Ledger, LedgerEffect, Mode, OpBody, OpMessage, Outcome, ReduceOp,
};
use crate::election::claims::{Claim, Counts, Deed, History};
use crate::election::{Applicant, Decides, Durable, Effect, Election, ElectionConfig, Input, Message, Notice};
use crate::engine::Engines;
use crate::identity::{Boot, MemberId, Name, NodeId};
use crate::partition::Partition;
use crate::view::{Lane, OpId, View, ViewId};
use crate::wire::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const SUM: Call =
    Call { kind: Kind::AllReduce(ReduceOp::Sum), dtype: DType::F32, count: 8, codec: CodecId::None, mode: Mode::PerOp };
const BEST_EFFORT: Lane = Lane(100);

/// Every so often time passes for every node, and who can reach each other gets a link.
const TICK_MS: u64 = 20;

pub(in crate::election) struct World {
    pub(in crate::election) now: u64,
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) network: Network,
    pub(super) disks: Disks,
    /// Of 1000 writes so many are the last thing that their node does.
    pub(super) deadly_writes: u64,
    /// An engine takes up to so long for a result.
    pub(super) engine_ms: u64,
    chance: u64,
    /// Of nodes that start from now on.
    pub(super) partition: Partition,
    pub(super) quarantine_ms: (u64, u64),
    pub(in crate::election) shows_notices: bool,
    /// A line for everything that counts, if somebody reads it.
    pub(in crate::election) trace: Vec<String>,
    pub(super) is_told: bool,
    pub(super) history: History,
    /// Operations that were answered `Ok`.
    pub(super) committed: u64,
}

pub(super) struct Node {
    /// Whose identity it has: its own, unless it is a copy.
    key: u8,
    pub(super) election: Election,
    pub(super) book: Book,
    boot: u64,
    pub(super) alive: bool,
    /// How long its own clock has stood still in all.
    behind: u64,
    /// While it sleeps, or is stopped, what comes to it waits.
    paused: Option<Paused>,
}

#[derive(Default)]
struct Paused {
    waiting: VecDeque<Input>,
    /// When it goes on by itself.
    until: Option<u64>,
}

impl World {
    pub(in crate::election) fn new(seed: u64) -> World {
        World {
            now: 0,
            nodes: BTreeMap::new(),
            network: Network::default(),
            disks: Disks::default(),
            deadly_writes: 0,
            engine_ms: 0,
            chance: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            partition: Partition::default(),
            quarantine_ms: (0, 0),
            shows_notices: false,
            trace: Vec::new(),
            is_told: true,
            history: History::default(),
            committed: 0,
        }
    }

    pub(in crate::election) fn lateness(&mut self, per_mille: u64) {
        self.network.weather.late = per_mille;
    }

    pub(in crate::election) fn repetition(&mut self, per_mille: u64) {
        self.network.weather.repeated = per_mille;
        self.network.weather.overtaking = per_mille;
    }

    /// What all nodes that start from now on think of a cut network.
    pub(in crate::election) fn rule(&mut self, rule: fn(Vec<NodeId>) -> Partition, roster: &[u8]) {
        self.partition = rule(roster.iter().map(|n| NodeId([*n; 32])).collect());
    }

    /// Whoever is lost again and again is kept out, by nodes that start from now on.
    pub(in crate::election) fn quarantine(&mut self) {
        self.quarantine_ms = ElectionConfig::default().quarantine_ms;
    }

    /// From now on a write takes so long on this node's disk.
    pub(in crate::election) fn disk(&mut self, n: u8, ms: u64) {
        self.disks.slow.insert(n, ms);
    }

    pub(in crate::election) fn start(&mut self, n: u8) {
        let (key, boot) = self.nodes.get(&n).map_or((n, 1), |old| (old.key, old.boot + 1));
        self.start_as(n, key, boot);
    }

    /// A process with a copy of another node's identity.
    pub(in crate::election) fn copy(&mut self, n: u8, of: u8) {
        self.start_as(n, of, 1000);
    }

    fn start_as(&mut self, n: u8, key: u8, boot: u64) {
        let config = ElectionConfig {
            partition: self.partition.clone(),
            quarantine_ms: self.quarantine_ms,
            seed: self.random(u64::MAX),
            ..ElectionConfig::default()
        };
        let id = MemberId { node: NodeId([key; 32]), boot: Boot(boot) };
        let applicant = Applicant { id, name: Name::from_lossy(&letter(n)), stateless: false, engines: Engines::NATIVE };
        let election = Election::new(applicant, self.disks.held(n), config);
        self.nodes.insert(n, Node { key, election, book: Book::default(), boot, alive: true, behind: 0, paused: None });
    }

    /// The process is gone at once; what was not durable is lost.
    pub(in crate::election) fn kill(&mut self, n: u8) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        let id = node.id();
        node.alive = false;
        self.disks.forget(n);
        self.network.forget(n);
        for other in self.network.neighbours(n) {
            self.unlink(n, other);
            self.feed(other, Input::LinkDown(id));
            self.feed(other, Input::Unreachable(id));
        }
    }

    pub(in crate::election) fn leave(&mut self, n: u8) {
        self.feed(n, Input::Leave);
        self.run(5);
        self.kill(n);
    }

    /// Nothing passes between these two any more, and nobody is told.
    pub(in crate::election) fn part(&mut self, a: u8, b: u8) {
        self.mute(a, b);
        self.mute(b, a);
    }

    /// What the first sends no longer comes to the second; the other way nothing changes.
    pub(in crate::election) fn mute(&mut self, from: u8, to: u8) {
        self.network.mute(from, to);
    }

    /// The connection of these two breaks, and both see it; they may make a new one at once.
    pub(in crate::election) fn cut(&mut self, a: u8, b: u8) {
        self.unlink(a, b);
    }

    pub(in crate::election) fn mend(&mut self) {
        self.network.mend();
    }

    /// Nothing happens on this node for so long; what comes meanwhile waits.
    pub(in crate::election) fn pause(&mut self, n: u8, ms: u64) {
        let until = Some(self.now + ms);
        if let Some(node) = self.nodes.get_mut(&n) {
            node.paused.get_or_insert_default().until = until;
        }
    }

    /// The process goes on; its clock has gone on too.
    pub(super) fn go_on(&mut self, n: u8) {
        let waiting = self.nodes.get_mut(&n).and_then(|node| node.paused.take()).unwrap_or_default().waiting;
        waiting.into_iter().for_each(|input| self.feed(n, input));
    }

    /// Time passes in which this node is stopped.
    pub(in crate::election) fn stop(&mut self, n: u8, ms: u64) {
        self.pause(n, u64::MAX / 2);
        self.run(ms);
        self.go_on(n);
    }

    /// The same of a machine that sleeps: its clock does not go on.
    pub(in crate::election) fn sleep(&mut self, n: u8, ms: u64) {
        self.pause(n, u64::MAX / 2);
        self.run(ms);
        if let Some(node) = self.nodes.get_mut(&n) {
            node.behind += ms;
            node.paused.get_or_insert_default().waiting.push_front(Input::Woke);
        }
        self.go_on(n);
    }

    /// An engine takes up to so long for a result.
    pub(in crate::election) fn engines(&mut self, ms: u64) {
        self.engine_ms = ms;
    }

    /// One call of an all_reduce on this node; its engine is done as soon as all have described theirs, or a little later.
    pub(in crate::election) fn call(&mut self, n: u8) {
        self.call_as(n, Lane::MAIN, SUM);
    }

    /// The same in a lane of its own.
    pub(super) fn call_in(&mut self, n: u8, lane: u32) {
        self.call_as(n, Lane::tagged(lane), SUM);
    }

    pub(in crate::election) fn sync(&mut self, n: u8, version: u64) {
        self.call_as(n, Lane::MAIN, Call { kind: Kind::Sync { version }, dtype: DType::U8, ..SUM });
    }

    /// The same in a lane of its own.
    pub(super) fn sync_in(&mut self, n: u8, lane: u32) {
        self.call_as(n, Lane::tagged(lane), Call { kind: Kind::Sync { version: 0 }, dtype: DType::U8, ..SUM });
    }

    /// A step of two calls.
    pub(super) fn step(&mut self, n: u8) {
        self.call_as(n, Lane::MAIN, Call { kind: Kind::Step { parts: 2 }, ..SUM });
    }

    /// Both ends call a message, if they are in one View.
    pub(super) fn message(&mut self, a: u8, b: u8) {
        let rank = |n: u8| self.nodes.get(&n).and_then(|node| node.book.view.as_ref()?.rank_of(node.id()));
        let (Some(from), Some(to)) = (rank(a), rank(b)) else { return };
        if self.nodes[&a].book.view == self.nodes[&b].book.view {
            let call = Call { kind: Kind::Message { from, to, tag: 7 }, ..SUM };
            for end in [a, b] {
                self.call_as(end, Lane::MAIN.messages(from, to), call);
            }
        }
    }

    /// A call that everybody decides alone, in a lane for these.
    pub(super) fn best_effort(&mut self, n: u8) {
        self.call_as(n, BEST_EFFORT, Call { mode: Mode::BestEffort, ..SUM });
    }

    /// The callers of all that is open on this node have had enough: a deadline, or the future is dropped.
    pub(in crate::election) fn give_up(&mut self, n: u8) {
        let Some(ledger) = self.nodes.get_mut(&n).and_then(|node| node.book.ledger.as_mut()) else { return };
        let open: Vec<OpId> = ledger.undecided().collect();
        open.into_iter().for_each(|op| ledger.abort(op, AbortReason::Deadline));
        self.spread(n);
    }

    fn call_as(&mut self, n: u8, lane: Lane, call: Call) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        let Some(ledger) = node.book.ledger.as_mut() else { return };
        match ledger.call(lane, call) {
            Ok(op) => {
                if let Kind::Step { parts } = call.kind {
                    (0..parts).for_each(|i| ledger.describe_part(op.part(i), Call { mode: Mode::PerStep, ..SUM }));
                }
                ledger.describe(op);
            }
            Err(refusal) => self.tell_story(n, || format!("call refused: {refusal:?}")),
        }
        self.spread(n);
    }

    /// Time passes, from one event to the next.
    pub(in crate::election) fn run(&mut self, ms: u64) {
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

    fn next_event(&self) -> u64 {
        let takes = |n: u8| self.nodes.get(&n).is_none_or(|node| node.paused.is_none());
        let tick = (self.now / TICK_MS + 1) * TICK_MS;
        let results = self.nodes.values().filter(|n| n.alive).filter_map(|n| n.book.results.values().min().copied()).min();
        let resumed = self.nodes.values().filter_map(|node| node.paused.as_ref()?.until).min();
        let events = [self.network.next(takes), self.disks.next(), results, resumed, Some(tick)];
        events.into_iter().flatten().min().unwrap_or(tick).max(self.now + 1)
    }

    pub(in crate::election) fn living(&self) -> Vec<u8> {
        self.nodes.iter().filter(|(_, node)| node.alive).map(|(n, _)| *n).collect()
    }

    /// Every living node is in one View of exactly the living.
    pub(super) fn is_whole(&self) -> bool {
        let living: BTreeMap<MemberId, &Node> =
            self.nodes.values().filter(|node| node.alive).map(|node| (node.id(), node)).collect();
        let Some(view) = living.values().next().and_then(|node| node.book.view.as_ref()) else { return living.is_empty() };
        let same = |node: &&Node| node.book.view.as_ref() == Some(view) && !node.election.is_frozen();
        living.values().all(same) && view.members.iter().map(|m| m.id).collect::<BTreeSet<_>>().iter().eq(living.keys())
    }

    /// Where a living node ended up, as one line.
    pub(in crate::election) fn state(&self, n: u8) -> String {
        let node = &self.nodes[&n];
        let view = node.book.view.as_ref().map_or_else(|| "no view".to_owned(), |v| format!("view {}", v.ballot.round));
        let frozen = if node.election.is_frozen() { ", frozen" } else { "" };
        let open = node.book.ledger.as_ref().map_or(0, Ledger::in_flight);
        let open = if open == 0 { String::new() } else { format!(", {open} open") };
        format!("{} ends in {view}{frozen}{open}", letter(n))
    }

    /// Called operations that nobody has answered yet.
    pub(super) fn unanswered(&self) -> usize {
        let open = |n: &u8| self.nodes[n].book.ledger.as_ref().map_or(0, Ledger::in_flight);
        self.living().iter().map(open).sum()
    }

    /// A xorshift step (Marsaglia 2003).
    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % below
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.random(1000) < per_mille
    }

    pub(super) fn tell_story(&mut self, n: u8, line: impl FnOnce() -> String) {
        if self.is_told {
            self.trace.push(format!("{:>6} {} {}", self.now, letter(n), line()));
        }
    }

    pub(super) fn feed(&mut self, n: u8, input: Input) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        if let Some(paused) = &mut node.paused {
            if input != Input::Tick {
                paused.waiting.push_back(input);
            }
            return;
        }
        let effects = node.election.step(self.now - node.behind, input, &mut node.book);
        for effect in effects {
            self.carry_out(n, effect);
        }
        self.take_notices(n);
        self.spread(n);
    }

    fn take_notices(&mut self, n: u8) {
        let notices = self.nodes.get_mut(&n).map(|node| node.election.take_notices()).unwrap_or_default();
        if self.shows_notices {
            self.trace.extend(notices.iter().map(|notice| format!("{:>6} {}: {}", self.now, letter(n), told(notice))));
        }
    }

    fn resume_due(&mut self) {
        let is_due = |node: &Node| node.paused.as_ref().and_then(|paused| paused.until).is_some_and(|until| until <= self.now);
        let due: Vec<u8> = self.nodes.iter().filter(|(_, node)| is_due(node)).map(|(n, _)| *n).collect();
        due.into_iter().for_each(|n| self.go_on(n));
    }

    fn carry_out(&mut self, n: u8, effect: Effect) {
        match effect {
            Effect::Send(to, message) => self.send(n, to, &message),
            Effect::Persist(ticket, durable) => self.persist(n, ticket, durable),
            Effect::Install(view, decides) => self.install(n, &view, decides),
            Effect::CutOff => self.cut_off(n),
            Effect::Drop(id) => self.hang_up(n, id),
        }
    }

    fn persist(&mut self, n: u8, ticket: u64, durable: Durable) {
        let more = self.random(3);
        self.disks.write(self.now, n, ticket, durable, more);
    }

    fn send(&mut self, n: u8, to: MemberId, message: &Message) {
        if let Message::Accepted(id) = message {
            let who = self.nodes[&n].id();
            self.history.note(who, &Deed::Accepted(*id));
        }
        let Some(peer) = self.whose(to).filter(|peer| self.network.is_linked(n, *peer)) else { return };
        let weather = self.network.weather;
        // A late one is drawn for whatever the weather, for the same story with and without it.
        let late = self.random(1000) < weather.late;
        let fate = Fate {
            late_ms: if late { self.random(200) } else { 0 },
            lost: self.happens(weather.lost),
            repeated: self.happens(weather.repeated),
            overtaking: self.happens(weather.overtaking),
        };
        // As on the real wire: encoded and decoded.
        let decoded =
            if self.is_told { Message::from_bytes(&message.to_bytes()).expect("own messages decode") } else { message.clone() };
        self.network.send(self.now, n, peer, decoded, fate);
    }

    /// The living node with this life of this identity.
    fn whose(&self, id: MemberId) -> Option<u8> {
        self.nodes.iter().find(|(_, node)| node.alive && node.id() == id).map(|(n, _)| *n)
    }

    /// What was said before still arrives.
    fn hang_up(&mut self, n: u8, id: MemberId) {
        let Some(peer) = self.whose(id) else { return };
        let (said, me) = (self.network.take(n, peer), self.nodes[&n].id());
        if !self.network.is_muted(n, peer) {
            said.into_iter().for_each(|message| self.feed(peer, Input::Message(me, message)));
        }
        self.unlink(n, peer);
    }

    fn deliver_due(&mut self) {
        for (from, to) in self.network.due(self.now) {
            while self.nodes.get(&to).is_some_and(|node| node.paused.is_none()) {
                let Some(message) = self.network.pop_due(self.now, from, to) else { break };
                if self.network.is_muted(from, to) {
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

    fn persist_due(&mut self) {
        for write in self.disks.due(self.now) {
            if !self.nodes[&write.node].alive {
                continue;
            }
            if self.happens(self.deadly_writes) {
                self.die_writing(&write);
            } else {
                self.disks.keep(&write);
                self.feed(write.node, Input::Persisted(write.ticket));
            }
        }
    }

    /// Before the write, or after it and before anybody hears of it. Writes that follow it are lost either way.
    fn die_writing(&mut self, write: &Write) {
        let before = self.random(2) == 0;
        if !before {
            self.disks.keep(write);
        }
        self.tell_story(write.node, || format!("dies {} a write", if before { "before" } else { "after" }));
        self.kill(write.node);
    }

    fn results_due(&mut self) {
        for n in self.living() {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(&n).filter(|node| node.paused.is_none()) else { continue };
            let due: Vec<OpId> = node.book.results.iter().filter(|(_, at)| **at <= now).map(|(op, _)| *op).collect();
            for op in &due {
                node.book.results.remove(op);
                if let Some(ledger) = &mut node.book.ledger {
                    ledger.done(*op, u128::from(op.number));
                }
            }
            if !due.is_empty() {
                self.spread(n);
            }
        }
    }

    /// Nodes that can reach each other have a link before the next tick.
    fn relink(&mut self) {
        let living = self.living();
        for a in living.iter().copied() {
            for b in living.iter().copied().filter(|b| a < *b) {
                let apart = self.network.is_muted(a, b) || self.network.is_muted(b, a);
                let asleep = [a, b].iter().any(|n| self.nodes[n].paused.is_some());
                let is_copy = self.nodes[&a].key == self.nodes[&b].key;
                if !self.network.is_linked(a, b) && !apart && !asleep && !is_copy {
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

    fn unlink(&mut self, a: u8, b: u8) {
        if self.network.unlink(a, b) {
            for (n, other) in [(a, b), (b, a)] {
                if let Some(id) = self.nodes.get(&other).map(Node::id) {
                    self.feed(n, Input::LinkDown(id));
                }
            }
        }
    }

    fn install(&mut self, n: u8, view: &Arc<View>, decides: Decides) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let id = node.id();
        let old = std::mem::take(&mut node.book);
        let before = old.view.as_ref().map(|v| v.id());
        self.history.expect(Claim::FrozenStays, old.stays_closed());
        if view.ballot.proposer == id {
            // It has told itself.
            self.history.note(id, &Deed::Accepted(view.id()));
        }
        self.history.note(id, &Deed::Installs { before, view: Arc::clone(view), decides });
        let name = |id: MemberId, in_sync: bool| format!("{}{}", letter(id.node.0[0]), if in_sync { "" } else { "*" });
        self.tell_story(n, || {
            let names: Vec<String> = view.members.iter().map(|m| name(m.id, m.in_sync)).collect();
            format!("installs {} [{}]", view.ballot.round, names.join(" "))
        });
        if let (Some(mut ledger), Some(before)) = (old.ledger, old.view) {
            match decides {
                Decides::Parent => ledger.decide(&view.committed),
                Decides::Nothing => ledger.cut_off(),
            }
            for effect in ledger.take_effects() {
                if let LedgerEffect::Resolved(op, outcome) = effect {
                    let counts = counts(&ledger, op);
                    self.ended(n, &before, op, outcome, Some(view.id()), counts);
                }
            }
        }
        self.history.note(id, &Deed::Installed { before, view: Arc::clone(view) });
        let (Some(node), Some(rank)) = (self.nodes.get_mut(&n), view.rank_of(id)) else { return };
        node.book = Book::of(view, Ledger::new(view, rank));
        if node.election.is_frozen() {
            // Installed late, for its outcome alone.
            crate::election::Operations::freeze(&mut node.book);
        }
    }

    fn cut_off(&mut self, n: u8) {
        let book = &mut self.nodes.get_mut(&n).expect("the node exists").book;
        let (Some(view), Some(mut ledger)) = (book.view.clone(), book.ledger.take()) else { return };
        ledger.cut_off();
        book.is_cut_off = true;
        for effect in ledger.take_effects() {
            if let LedgerEffect::Resolved(op, outcome) = effect {
                let counts = counts(&ledger, op);
                self.ended(n, &view, op, outcome, None, counts);
            }
        }
        self.nodes.get_mut(&n).expect("the node exists").book.ledger = Some(ledger);
    }

    fn on_op(&mut self, n: u8, from: MemberId, message: &OpMessage) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let Some(rank) = node.book.view.as_ref().and_then(|v| v.rank_of(from)) else { return };
        let Some(ledger) = node.book.ledger.as_mut().filter(|l| l.view() == message.view) else { return };
        let fine = match message.body {
            OpBody::Describe(descriptor) => ledger.on_descriptor(rank, descriptor),
            OpBody::Vote(op, vote) => ledger.on_vote(rank, op, vote),
            OpBody::Settled(below) => {
                ledger.on_settled(rank, below);
                Ok(())
            }
            OpBody::Resolved | OpBody::Ready(_) => Ok(()),
        };
        assert!(fine.is_ok(), "an honest member is never a misbehaving one");
        ledger.on_resolved(rank, &message.resolved);
        self.spread(n);
    }

    /// Carries out what the node's ledger wants.
    fn spread(&mut self, n: u8) {
        loop {
            let Some(node) = self.nodes.get_mut(&n) else { return };
            let Some(ledger) = node.book.ledger.as_mut() else { return };
            let effects = ledger.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out_op(n, &effect);
            }
        }
        if let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive && node.paused.is_none()) {
            // Every step asks how many operations are left.
            let effects = node.election.step(self.now - node.behind, Input::Heard(node.id()), &mut node.book);
            effects.into_iter().for_each(|effect| self.carry_out(n, effect));
        }
    }

    fn carry_out_op(&mut self, n: u8, effect: &LedgerEffect) {
        match *effect {
            LedgerEffect::Tell(body) => self.tell(n, body),
            LedgerEffect::Agreed(op, _) => self.agreed(n, op),
            LedgerEffect::Resolved(op, outcome) => {
                let book = &self.nodes[&n].book;
                if let (Some(view), Some(ledger)) = (book.view.clone(), &book.ledger) {
                    let counts = counts(ledger, op);
                    self.ended(n, &view, op, outcome, None, counts);
                }
            }
            LedgerEffect::Credit(..) | LedgerEffect::Cancel(_) | LedgerEffect::Retire(_) => {}
        }
    }

    fn agreed(&mut self, n: u8, op: OpId) {
        let after = if self.engine_ms == 0 { 0 } else { self.random(self.engine_ms) };
        let at = self.now + after;
        let Some(node) = self.nodes.get_mut(&n) else { return };
        if after > 0 {
            node.book.results.insert(op, at);
        } else if let Some(ledger) = node.book.ledger.as_mut() {
            ledger.done(op, u128::from(op.number));
        }
    }

    fn tell(&mut self, n: u8, body: OpBody) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let me = node.id();
        let (Some(ledger), Some(view)) = (&mut node.book.ledger, node.book.view.clone()) else { return };
        let audience = body.audience(view.size());
        let message = Message::Op(OpMessage { view: ledger.view(), body, resolved: ledger.report_resolved(audience) });
        let may_speak = !ledger.is_frozen();
        self.history.expect(Claim::FrozenStays, may_speak);
        let others = view.members.iter().enumerate().filter(|(rank, m)| audience >> rank & 1 == 1 && m.id != me);
        for (_, member) in others {
            self.send(n, member.id, &message);
        }
    }

    /// Tells all others of a node's View what is decided there, as its driver does with every heartbeat.
    pub(super) fn report_resolved(&mut self, n: u8) {
        if self.nodes[&n].book.ledger.as_ref().is_some_and(|ledger| !ledger.is_frozen() && !ledger.resolved().is_empty()) {
            self.tell(n, OpBody::Resolved);
        }
    }

    fn replay(&mut self, n: u8, to: u8) {
        let (node, to) = (&self.nodes[&n], self.nodes[&to].id());
        let (Some(ledger), Some(rank)) = (&node.book.ledger, node.book.view.as_ref().and_then(|v| v.rank_of(to))) else { return };
        let message = |body| Message::Op(OpMessage { view: ledger.view(), body, resolved: ledger.resolved() });
        let messages: Vec<Message> = ledger.replay(rank).into_iter().map(message).collect();
        messages.iter().for_each(|message| self.send(n, to, message));
    }

    fn ended(&mut self, n: u8, view: &Arc<View>, op: OpId, outcome: Outcome, next: Option<ViewId>, counts: Counts) {
        let id = self.nodes[&n].id();
        self.committed += u64::from(outcome == Outcome::Committed);
        self.tell_story(n, || {
            let short = match outcome {
                Outcome::Committed => "Ok".to_owned(),
                Outcome::Aborted(_) => "Aborted".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{op} of {}: {short}", view.ballot.round)
        });
        let counts = if op.lane == BEST_EFFORT { Counts::Alone } else { counts };
        self.history.note(id, &Deed::Ended { op: (view.id(), op), outcome, next, counts });
    }
}

fn counts(ledger: &Ledger, op: OpId) -> Counts {
    match () {
        () if op.lane.ends().is_some() => Counts::ForTwo,
        () if ledger.is_of_sync(op) => Counts::AsSync,
        () => Counts::ForAll,
    }
}

impl Node {
    pub(super) fn id(&self) -> MemberId {
        MemberId { node: NodeId([self.key; 32]), boot: Boot(self.boot) }
    }
}

fn told(notice: &Notice) -> String {
    let name = |node: NodeId| letter(node.0[0]);
    match notice {
        Notice::Joined(id) => format!("{} joined", name(id.node)),
        Notice::Merged(ids) => format!("merged with {}", ids.iter().map(|id| name(id.node)).collect::<Vec<_>>().join(" ")),
        Notice::Left(id) => format!("{} left", name(id.node)),
        Notice::Lost(id, why) => format!("{} lost, {why}", name(id.node)),
        Notice::Quarantined(node, ms) => format!("{} in quarantine for {ms} ms", name(*node)),
        Notice::Woke => "was away".to_owned(),
        Notice::Twin(node) => format!("{} is a duplicate", name(*node)),
        Notice::OneWay(id) => format!("{} does not hear this node", name(id.node)),
    }
}

pub(in crate::election) fn letter(n: u8) -> String {
    char::from(b'A' + n - 1).to_string()
}
