//! The state of a modelled group: its nodes, the messages in flight, and the record of the run.

use super::super::claims::History;
use super::memo::Memo;
use super::shared::Shared;
use super::turn::Result;
use crate::collective::{Ledger, Revising};
use crate::election::{Agreement, Applicant, Durable};
use crate::identity::{Boot, MemberId, Name, NodeId};
use crate::protocol::{
    Ballot, Engines, Lane, Message, Mutation, OpId, PlanMessage, PlanStep, Rank, Sizes, View,
    ViewDigest, ViewId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    pub(super) nodes: Vec<Shared<Node>>,
    /// Messages in flight, sorted by hash. A message stays until its receiver would ignore it
    /// forever, so that it can arrive late, repeatedly, in any order, or never.
    pub(super) packets: Vec<Shared<Packet>>,
    pub(super) history: Shared<History>,
    /// Bounds of the rest of the execution.
    pub(super) budget: Budget,
}

/// How many more events of each kind may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) proposals: u16,
    pub(super) crashes: u16,
    pub(super) aborts: u16,
    pub(super) cut_offs: u16,
    /// Calls of programs.
    pub(super) calls: u16,
    /// Control links that break and are made anew.
    pub(super) losses: u16,
    /// Changes of the plan.
    pub(super) plans: u16,
}

/// One boot of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) me: MemberId,
    pub(super) agreement: Agreement,
    pub(super) ledger: Option<Ledger>,
    /// The View of the ledger.
    pub(super) view: Option<Arc<View>>,
    /// The durable state.
    pub(super) durable: Durable,
    /// Pending writes with their tickets, oldest first.
    pub(super) writes: VecDeque<(u64, Durable)>,
    /// The change of the View's plan that it leads, as rank 0.
    pub(super) revising: Option<Revising>,
    /// The revision of the last change that it has led in this View, or the View's own.
    pub(super) revision: u32,
    /// Calls that wait for their plan.
    pub(super) held: Vec<OpId>,
    /// The View that each peer has told it of last.
    pub(super) told: BTreeMap<MemberId, ViewId>,
}

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) message: Message,
    /// For a message about an operation or a plan: the ballot of the View.
    pub(super) about: Option<Ballot>,
}

/// A step of one node.
#[derive(Clone, Debug, Hash)]
pub(super) enum Step<'a> {
    Propose(BTreeSet<MemberId>),
    Hear(&'a Shared<Packet>),
    Write,
    Call(Lane),
    Done(OpId),
    Abort(OpId),
    Remind(MemberId),
    Report,
    HoldAll,
    Decide,
    Told(MemberId, Option<ViewId>),
    DataLink(ViewDigest),
    CutOff,
    Crash,
}

/// Node `n` in its boot `boot`.
pub(super) fn member(n: u8, boot: u64) -> MemberId {
    MemberId { node: NodeId([n; 32]), boot: Boot(boot) }
}

/// The index of a member's node.
pub(super) fn place(id: MemberId) -> usize {
    usize::from(id.node.0[0])
}

impl Node {
    pub(super) fn start(me: MemberId, durable: Durable, sizes: Sizes, mutation: Mutation) -> Node {
        let applicant = Applicant {
            id: me,
            name: Name::from_lossy("n"),
            stateless: false,
            engines: Engines::NATIVE,
            sizes,
        };
        let agreement = Agreement::new(applicant, durable.clone()).with(mutation);
        Node {
            me,
            agreement,
            ledger: None,
            view: None,
            durable,
            writes: VecDeque::new(),
            revising: None,
            revision: 0,
            held: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    /// Whether it has open operations that could end as indeterminate.
    pub(super) fn may_be_cut_off(&self) -> bool {
        !self.agreement.is_cut_off()
            && self.ledger.as_ref().is_some_and(|ledger| ledger.undecided().next().is_some())
    }

    /// Whether it may begin a change of the plan of its View.
    pub(super) fn may_lead(&self) -> bool {
        let leads = |view: &Arc<View>| view.rank_of(self.me) == Some(Rank(0));
        self.view.as_ref().is_some_and(leads)
            && !self.agreement.is_frozen()
            && self.revising.is_none()
    }

    /// Whether a message can never change anything here any more.
    fn ignores(&self, packet: &Packet) -> bool {
        if packet.to != self.me {
            return true;
        }
        if !matches!(packet.message, Message::Op(_) | Message::Plan(_)) {
            return self.agreement.ignores(packet.from, &packet.message);
        }
        if packet.about.is_none_or(|ballot| !self.agreement.may_run(ballot)) {
            return true;
        }
        let (Some(ledger), Some(view)) = (&self.ledger, &self.view) else { return false };
        let Some(rank) = view.rank_of(packet.from) else { return false };
        match &packet.message {
            Message::Op(op) => ledger.view() == op.view && ledger.knows(rank, op),
            Message::Plan(plan) => ledger.view() == plan.view && self.needs_no(rank, plan),
            _ => false,
        }
    }

    /// Whether this answer about a plan is known here. Each message of rank 0 is answered.
    fn needs_no(&self, from: Rank, plan: &PlanMessage) -> bool {
        let known = |revision: u32| self.revising.as_ref().map(|r| (r, r.revision() == revision));
        let heard = |revision: u32, which: fn((bool, bool)) -> bool| {
            known(revision).is_none_or(|(r, same)| !same || which(r.has_heard(from)))
        };
        match plan.body {
            PlanStep::Held { revision, .. } => heard(revision, |(held, _)| held),
            PlanStep::Switched { revision } => heard(revision, |(_, switched)| switched),
            PlanStep::Hold { .. } | PlanStep::Switch { .. } => false,
        }
    }

    /// Whether it waits for an answer to this message, if it is one of rank 0 about a plan.
    fn waits_for_answers(&self, message: &Message) -> bool {
        let Message::Plan(plan) = message else { return true };
        match plan.body {
            PlanStep::Hold { revision } | PlanStep::Switch { revision, .. } => {
                self.revising.as_ref().is_some_and(|r| r.revision() == revision)
            }
            _ => true,
        }
    }
}

impl Packet {
    /// The message in words, for traces.
    pub(super) fn describe(&self) -> String {
        match &self.message {
            Message::Prepare(ballot, _) => format!("prepare {}", ballot.round),
            Message::Promise(ballot, promise) => {
                let prev = promise.prev.map_or(0, |v| v.ballot.round);
                format!(
                    "promise {}, from {prev}, lists {:?}, {} committed",
                    ballot.round,
                    promise.closing.ops,
                    promise.closing.committed.len()
                )
            }
            Message::Accept(view) => format!("accept {}", view.ballot.round),
            Message::Accepted(id) => format!("accepted {}", id.ballot.round),
            Message::Install(id) => format!("install {}", id.ballot.round),
            Message::Op(op) => format!("{:?}, resolved {:?}", op.body, op.resolved),
            Message::Plan(plan) => format!("{:?}", plan.body),
            other => format!("{other:?}"),
        }
    }
}

impl ModelState {
    /// Applies the result of a node's step.
    pub(super) fn apply(&mut self, n: usize, result: &Result, memo: &Memo) {
        let who = result.node.me;
        self.nodes[n] = result.node.clone();
        if !result.acts.is_empty() {
            self.history = memo.history(&self.history, who, &result.acts);
        }
        result.packets.iter().for_each(|packet| self.post(packet.clone()));
        self.tidy();
    }

    /// Loses all messages in flight between two nodes.
    pub(super) fn cut(&mut self, a: usize, b: usize) {
        let ends = |p: &Packet| (place(p.from), place(p.to));
        self.packets.retain(|p| ends(p) != (a, b) && ends(p) != (b, a));
    }

    fn post(&mut self, packet: Shared<Packet>) {
        if self.nodes[place(packet.to)].me != packet.to {
            return;
        }
        if let Err(at) = self.packets.binary_search_by_key(&packet.hash_value(), Shared::hash_value)
        {
            self.packets.insert(at, packet);
        }
    }

    /// Drops messages that cannot change anything any more, and proposals that cannot succeed.
    fn tidy(&mut self) {
        loop {
            let nodes = &self.nodes;
            let is_over = |p: &Packet| !nodes[place(p.from)].waits_for_answers(&p.message);
            self.packets.retain(|p| !nodes[place(p.to)].ignores(p) && !is_over(p));
            let lost: Vec<usize> = (0..self.nodes.len()).filter(|n| self.has_lost(*n)).collect();
            if lost.is_empty() {
                return;
            }
            for n in lost {
                self.nodes[n].change(|node| node.agreement.withdraw());
            }
        }
    }

    /// Whether the node's proposal waits for an answer that cannot come.
    fn has_lost(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        let (Some((_, silent)), Some((ballot, drafted))) =
            (node.agreement.proposal(), node.agreement.ballot())
        else {
            return false;
        };
        let under_way = |m: MemberId| {
            let between = |p: &&Shared<Packet>| {
                (p.from, p.to) == (m, node.me) || (p.from, p.to) == (node.me, m)
            };
            let about = |p: &Shared<Packet>| match &p.message {
                Message::Prepare(b, _) | Message::Promise(b, _) => *b == ballot,
                Message::Accept(view) => view.ballot == ballot,
                Message::Accepted(id) => id.ballot == ballot,
                _ => false,
            };
            let writes = self.nodes[place(m)].me == m && !self.nodes[place(m)].writes.is_empty();
            writes || self.packets.iter().filter(between).any(about)
        };
        drafted && node.agreement.promised() != ballot || silent.into_iter().any(|m| !under_way(m))
    }
}
