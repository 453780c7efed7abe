//! One step of one node: the real rules and the real ledger answer, and their effects are carried
//! out.

use super::super::claims::{Act, Claim, Ending};
use super::Group;
use super::shared::Shared;
use super::state::{Node, Packet, Step, place};
use crate::collective::{Ledger, LedgerEffect};
use crate::election::{Decides, Durable, Effect, Environment, Event};
use crate::identity::{Boot, MemberId};
use crate::memory::DType;
use crate::protocol::{
    AbortReason, Call, CallKind, Closing, Descriptor, Engines, Lane, Message, OpBody, OpId,
    OpMessage, Rank, RankSet, ReduceOp, View, ViewDigest, ViewId,
};
use crate::topology::{Arrangement, LinkMap, arrange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 1);

/// The digest of every result: all members compute the same.
const RESULT: u128 = 1;

/// A step of one node.
pub(super) struct Turn<'a> {
    group: &'a Group,
    pub(super) node: Node,
    packets: Vec<Shared<Packet>>,
    acts: Vec<Act>,
}

/// The result of a step. It depends on the node alone.
#[derive(Debug)]
pub(super) struct Result {
    pub(super) node: Shared<Node>,
    pub(super) packets: Vec<Shared<Packet>>,
    pub(super) acts: Vec<Act>,
}

struct LiveEnvironment<'a> {
    ledger: Option<&'a mut Ledger>,
}

impl Environment for LiveEnvironment<'_> {
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        self.ledger
            .as_mut()
            .filter(|ledger| ledger.view() == view)
            .map_or_else(Closing::default, |ledger| ledger.freeze())
    }

    fn arrange(
        &self,
        members: &BTreeMap<MemberId, Engines>,
        current: Option<&View>,
    ) -> Arrangement {
        // No rule depends on links; every pair gets a direct one.
        Arrangement {
            no_direct_link: Vec::new(),
            ..arrange(members, current, None, &LinkMap::new())
        }
    }
}

impl<'a> Turn<'a> {
    pub(super) fn of(node: &Node, group: &'a Group) -> Turn<'a> {
        Turn { group, node: node.clone(), packets: Vec::new(), acts: Vec::new() }
    }

    /// Takes the step.
    pub(super) fn take(mut self, step: &Step<'_>) -> Result {
        match step {
            Step::Propose(members) => self.propose(members.clone()),
            Step::Hear(packet) => self.hear(packet.from, &packet.message),
            Step::Write => self.write(),
            Step::Call(lane) => self.begin(*lane),
            // The engine holds the full result.
            Step::Done(op) => self.ledger().done(*op, RESULT),
            // The caller's deadline is over.
            Step::Abort(op) => self.ledger().abort(*op, AbortReason::Deadline),
            Step::Remind(to) => self.remind(*to),
            // Said with every heartbeat.
            Step::Report => self.report(),
            Step::HoldAll => self.hold_all(),
            Step::Decide => self.decide_plan(),
            Step::Told(by, view) => self.told(*by, *view),
            Step::DataLink(view) => self.agree(Event::DataLink(*view)),
            Step::CutOff => self.cut_off(),
            Step::Crash => self.crash(),
        }
        self.start_held();
        self.spread();
        self.check();
        self.node.agreement.forget_tickets();
        Result { node: Shared::new(self.node), packets: self.packets, acts: self.acts }
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.node.ledger.as_mut().expect("only a member of a View is asked to")
    }

    fn propose(&mut self, members: BTreeSet<MemberId>) {
        let mut effects = Vec::new();
        self.node.agreement.propose(members, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn hear(&mut self, from: MemberId, message: &Message) {
        match message {
            Message::Op(op) => self.hear_of_operation(from, op),
            Message::Plan(plan) => self.hear_of_plan(from, plan),
            message => self.agree(Event::Message(from, message.clone())),
        }
    }

    /// The oldest write becomes durable.
    fn write(&mut self) {
        if let Some((ticket, durable)) = self.node.writes.pop_front() {
            self.persisted(ticket, durable);
        }
    }

    /// Repeats all that `to` may have missed, as after a lost link, and announces the installed
    /// View as a heartbeat does.
    fn remind(&mut self, to: MemberId) {
        let (Some(ledger), Some(view)) = (&mut self.node.ledger, &self.node.view) else { return };
        let Some(rank) = view.rank_of(to) else { return };
        let bodies = ledger.replay(rank);
        let message = |body| {
            Message::Op(OpMessage {
                view: ledger.view(),
                body,
                resolved: ledger.report_resolved(RankSet::EMPTY.with(rank)),
                enclosed: None,
            })
        };
        let mut all: Vec<Message> =
            bodies.into_iter().chain([OpBody::Resolved]).map(message).collect();
        if !self.node.agreement.is_frozen() {
            all.push(Message::Install(view.id()));
        }
        all.into_iter().for_each(|message| self.post(to, message));
        self.replay_plan(rank);
    }

    /// The node gives up waiting for enough others.
    fn cut_off(&mut self) {
        let mut effects = Vec::new();
        let mut environment = LiveEnvironment { ledger: self.node.ledger.as_mut() };
        self.node.agreement.cut_off(&mut environment, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn end_without_outcome(&mut self) {
        let (Some(ledger), Some(view)) = (&mut self.node.ledger, &self.node.view) else { return };
        ledger.cut_off();
        for effect in ledger.take_effects() {
            if let LedgerEffect::Resolved(op, outcome) = effect {
                self.acts.push(Act::Ended {
                    op: (view.id(), op),
                    ending: Ending::of(ledger, op, outcome),
                    next: None,
                });
            }
        }
    }

    /// The process ends and starts again with the durable state.
    fn crash(&mut self) {
        let durable = self.node.durable.clone();
        let me = MemberId { boot: Boot(self.node.me.boot.0 + 1), ..self.node.me };
        let sizes = self.group.sizes_of(place(me));
        self.node = Node::start(me, durable, sizes, self.group.mutation());
    }

    fn agree(&mut self, event: Event) {
        let mut environment = LiveEnvironment { ledger: self.node.ledger.as_mut() };
        let effects = self.node.agreement.step(event, &mut environment);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(to, message) => self.send(to, message),
            Effect::Persist(ticket, durable) if self.group.slow_disks => {
                self.node.writes.push_back((ticket, durable));
            }
            Effect::Persist(ticket, durable) => self.persisted(ticket, durable),
            Effect::Install(view, decides) => self.install(view, decides),
            Effect::CutOff => self.end_without_outcome(),
            Effect::Drop(_) => {}
        }
    }

    fn persisted(&mut self, ticket: u64, durable: Durable) {
        self.node.durable = durable;
        self.agree(Event::Persisted(ticket));
    }

    fn send(&mut self, to: MemberId, message: Message) {
        let me = self.node.me;
        if let Message::Accepted(id) = message {
            self.acts.push(Act::Accepted(id));
        }
        match message {
            message if to == me => self.agree(Event::Message(me, message)),
            // A refusal only saves its receiver time, and the model has none.
            Message::Nack(..) => {}
            message => self.post(to, message),
        }
    }

    /// Tells the others which operations are decided here.
    fn report(&mut self) {
        if let Some(view) = self.node.view.clone() {
            self.tell(&view, OpBody::Resolved);
        }
    }

    /// A peer tells this node of its View.
    fn told(&mut self, by: MemberId, view: Option<ViewId>) {
        if let Some(view) = view {
            self.node.told.insert(by, view);
        }
    }

    pub(super) fn post(&mut self, to: MemberId, message: Message) {
        let about = if let Message::Op(_) | Message::Plan(_) = message {
            self.node.view.as_ref().map(|v| v.ballot)
        } else {
            None
        };
        self.packets.push(Shared::new(Packet { from: self.node.me, to, message, about }));
    }

    fn install(&mut self, view: Arc<View>, decides: Decides) {
        let (me, id) = (self.node.me, view.id());
        let before = self.node.view.as_ref().map(|v| v.id());
        self.acts.push(Act::Installs { before, view: Arc::clone(&view), decides });
        if let Some(mut old) = self.node.ledger.take() {
            match decides {
                Decides::Parent => old.decide(&view.committed, &view.failed),
                Decides::Nothing => old.cut_off(),
            }
            for effect in old.take_effects() {
                if let LedgerEffect::Resolved(op, outcome) = effect {
                    let ending = Ending::of(&old, op, outcome);
                    let old = before.expect("its ledger was of a View");
                    self.acts.push(Act::Ended { op: (old, op), ending, next: Some(id) });
                }
            }
        }
        self.acts.push(Act::Installed { before, view: Arc::clone(&view) });
        let Some(rank) = view.rank_of(me) else { return };
        let bounds = self.group.bounds;
        let mut ledger = Ledger::new(&view, rank).with(self.group.mutation()).within(bounds);
        if self.node.agreement.is_frozen() {
            // Installed late, only to decide the View before.
            ledger.freeze();
        } else {
            self.acts.push(Act::Runs(id));
        }
        self.node.ledger = Some(ledger);
        self.view_has_a_plan(&view);
        self.node.view = Some(view);
        if self.group.calls == super::Calls::AtInstall {
            self.group.lanes().for_each(|lane| self.begin_everywhere(lane));
        }
    }

    fn next_call(ledger: &Ledger) -> Call {
        if ledger.is_synced() {
            SUM
        } else {
            Call { kind: CallKind::Sync { version: 0 }, dtype: DType::U8, ..SUM }
        }
    }

    fn begin(&mut self, lane: Lane) {
        let Some(ledger) = &mut self.node.ledger else { return };
        let call = Turn::next_call(ledger);
        if let Ok(op) = ledger.call(lane, call) {
            // A sync is announced before its plan is known.
            if let CallKind::Sync { .. } = call.kind {
                ledger.describe(op);
            }
            self.node.held.push(op);
            self.start_held();
        }
    }

    /// Begins the calls whose plan is known.
    fn start_held(&mut self) {
        let (Some(ledger), Some(view)) = (&mut self.node.ledger, &self.node.view) else { return };
        if ledger.is_frozen() {
            return;
        }
        let is_known = |op: &mut OpId| ledger.revision_of(*op).is_some();
        let known: Vec<OpId> = self.node.held.extract_if(.., is_known).collect();
        for op in known {
            ledger.describe(op);
            // The engine is told nothing of one that has ended meanwhile.
            let is_open = ledger.undecided().any(|open| open == op);
            let runs = is_open && self.group.has_plans;
            if let Some(revision) = ledger.revision_of(op).filter(|_| runs) {
                self.acts.push(Act::RunsUnder((view.id(), op), revision));
            }
        }
    }

    /// Begins the View's one operation, and records that all other members have begun it.
    fn begin_everywhere(&mut self, lane: Lane) {
        self.begin(lane);
        let (Some(ledger), Some(view)) = (&mut self.node.ledger, &self.node.view) else { return };
        let op = OpId { lane, number: 0 };
        let call = if view.in_sync() {
            SUM
        } else {
            Call { kind: CallKind::Sync { version: 0 }, dtype: DType::U8, ..SUM }
        };
        let descriptor = Descriptor { op, call, plan_revision: view.plan.revision };
        for rank in
            view.ranks().filter(|rank| view.member(*rank).is_some_and(|m| m.id != self.node.me))
        {
            assert!(
                ledger.on_descriptor(rank, descriptor).is_ok(),
                "an honest member is never a misbehaving one"
            );
        }
        ledger.take_effects();
    }

    fn hear_of_operation(&mut self, from: MemberId, message: &OpMessage) {
        let (Some(ledger), Some(view)) = (&mut self.node.ledger, &self.node.view) else { return };
        let Some(rank) = view.rank_of(from).filter(|_| ledger.view() == message.view) else {
            return;
        };
        let is_honest = ledger.hear(rank, message).is_ok();
        self.expect(Claim::Honest, is_honest);
    }

    /// Carries out the effects of the ledger.
    fn spread(&mut self) {
        loop {
            let (Some(ledger), Some(view)) = (&mut self.node.ledger, self.node.view.clone()) else {
                return;
            };
            let effects = ledger.take_effects();
            if effects.is_empty() {
                return;
            }
            let frozen = ledger.is_frozen();
            for effect in effects {
                match effect {
                    LedgerEffect::Tell(body) => {
                        self.expect(Claim::FrozenStays, !frozen);
                        self.tell(&view, body);
                    }
                    LedgerEffect::Resolved(op, outcome) => {
                        let Some(ledger) = &self.node.ledger else { return };
                        let ending = Ending::of(ledger, op, outcome);
                        self.acts.push(Act::Ended { op: (view.id(), op), ending, next: None });
                    }
                    LedgerEffect::Agreed(..)
                    | LedgerEffect::Credit(..)
                    | LedgerEffect::Cancel(_)
                    | LedgerEffect::Retire(_) => {}
                }
            }
        }
    }

    fn tell(&mut self, view: &View, body: OpBody) {
        let Some(ledger) = &mut self.node.ledger else { return };
        let audience = body.audience(view.size());
        let message = OpMessage {
            view: ledger.view(),
            body,
            resolved: ledger.report_resolved(audience),
            enclosed: None,
        };
        for (rank, other) in view.members.iter().enumerate() {
            if audience.contains(Rank::from(rank)) && other.id != self.node.me {
                self.post(other.id, Message::Op(message.clone()));
            }
        }
    }

    /// Checks the claims about a single state of this node.
    fn check(&mut self) {
        let agreement = &self.node.agreement;
        let ours = |v: &Arc<View>| v.contains(self.node.me) && v.ballot <= agreement.promised();
        let open: Vec<&Arc<View>> = agreement.open_views().collect();
        let one_open = open.iter().all(|v| ours(v))
            && open.len() <= 2
            && !(agreement.is_frozen() && open.len() > 1);
        let unchanged = match (agreement.closing(), &self.node.ledger) {
            (Some(closing), Some(ledger)) if !agreement.is_cut_off() => {
                ledger.is_frozen() && *closing == ledger.clone().freeze()
            }
            _ => true,
        };
        self.expect(Claim::OneViewIsOpen, one_open);
        self.expect(Claim::FrozenStays, unchanged);
    }

    pub(super) fn expect(&mut self, claim: Claim, holds: bool) {
        if !holds {
            self.acts.push(Act::Breaks(claim));
        }
    }
}
