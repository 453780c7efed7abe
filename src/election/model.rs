//! Layer: Core.
//!
//! Model checking of small groups: every execution of the real agreement and the real ledgers over
//! a network that delivers each message at any time, any number of times, in any order, or never.
//! The checker (stateright) verifies the claims in every state.
//!
//! Real: `Agreement::step`, the only code that changes a View, and `Ledger`. Not modelled: time,
//! and all code that only decides when to propose. The model proposes any members at any time.
//!
//! The model allows more than reality: proposals may name unreachable nodes, and writes, calls and
//! proposals may take arbitrarily long. Two restrictions make the exhaustive runs finite: all
//! members begin a View's one operation when they install it, and refusals (`Nack`) are not sent.
//! The random walks ([`walk`]) also run without the first one.
//!
//! A group starts in a View of all nodes with an operation open. A write is durable at once, and a
//! crash keeps the durable state; a crashed node returns as a new member. With `slow_disks`, writes
//! take time.

mod memo;
mod runs;
mod shared;
mod state;
mod turn;
mod walk;

use super::claims::{Claim, History, Way};
use super::{Durable, Message};
use crate::defect::{Defect, Seeded};
use crate::view::{OpId, ViewDigest};
use memo::Memo;
use shared::Shared;
use state::{Left, Node, Packet, State, Step, member, place};
use stateright::{Model, Property};
use turn::Turn;

/// A group and the bounds of its executions.
#[derive(Clone, Debug)]
struct Group {
    nodes: u8,
    partition: Partition,
    left: Left,
    calls: Calls,
    slow_disks: bool,
    defect: Option<Defect>,
    memo: Memo,
}

/// Views that may be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partition {
    /// Any members: every part of a split group goes on.
    Continue,
    /// More than half of all nodes.
    Majority,
}

/// When operations begin. Results exist once all members of the View have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// One in each View, at its installation, known to all members.
    AtInstall,
    /// At any time, up to this many in flight on each member.
    ByPrograms(usize),
}

/// A transition of the model.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Propose(u8, Vec<u8>),
    Deliver(Shared<Packet>),
    Write(u8),
    Call(u8),
    Done(u8, OpId),
    Abort(u8, OpId),
    Remind(u8, u8),
    DataLink(u8, u8),
    CutOff(u8),
    Crash(u8),
}

impl Action {
    /// The node that takes the step.
    fn place(&self) -> usize {
        match self {
            Action::Deliver(packet) => place(packet.to),
            Action::Propose(n, _)
            | Action::Write(n)
            | Action::Call(n)
            | Action::Done(n, _)
            | Action::Abort(n, _)
            | Action::Remind(n, _)
            | Action::DataLink(_, n)
            | Action::CutOff(n)
            | Action::Crash(n) => usize::from(*n),
        }
    }
}

impl Action {
    /// The action in words, for traces.
    fn story(&self) -> String {
        let n = letter(self.place());
        match self {
            Action::Propose(_, members) => {
                let names: Vec<String> = members.iter().map(|m| letter(usize::from(*m))).collect();
                format!("{n} proposes [{}]", names.join(" "))
            }
            Action::Deliver(packet) => {
                format!("{n} hears from {}: {}", letter(place(packet.from)), packet.story())
            }
            Action::Write(_) => format!("{n} has written"),
            Action::Call(_) => format!("{n} calls"),
            Action::Done(_, op) => format!("{n} holds the result of {op}"),
            Action::Abort(_, op) => format!("{n} has enough of {op}"),
            Action::Remind(_, to) => format!("{n} says all again to {}", letter(usize::from(*to))),
            Action::DataLink(from, _) => {
                format!("{n} takes a data link from {}", letter(usize::from(*from)))
            }
            Action::CutOff(_) => format!("{n} gives up its View"),
            Action::Crash(_) => format!("{n} crashes and starts again"),
        }
    }

    /// The node that acts, and its step.
    fn step<'a>(&'a self, state: &State) -> (usize, Step<'a>) {
        let id = |n: &u8| state.nodes[usize::from(*n)].me;
        let step = match self {
            Action::Propose(_, members) => Step::Propose(members.iter().map(id).collect()),
            Action::Deliver(packet) => Step::Hear(packet),
            Action::Write(_) => Step::Write,
            Action::Call(_) => Step::Call,
            Action::Done(_, op) => Step::Done(*op),
            Action::Abort(_, op) => Step::Abort(*op),
            Action::Remind(_, to) => Step::Remind(id(to)),
            Action::DataLink(from, _) => {
                let view = state.nodes[usize::from(*from)].view.as_ref();
                Step::DataLink(view.map_or(ViewDigest([0; 32]), |v| v.digest()))
            }
            Action::CutOff(_) => Step::CutOff,
            Action::Crash(_) => Step::Crash,
        };
        (self.place(), step)
    }
}

impl Group {
    fn seeded(&self) -> Seeded {
        self.defect.into()
    }

    /// The initial state: all nodes in one View, reached by the rules themselves.
    fn first(&self) -> State {
        let fresh = |n| Shared::new(Node::start(member(n, 1), Durable::default(), self.seeded()));
        let nodes = (0..self.nodes).map(fresh).collect();
        let history = Shared::new(History::default());
        let mut state = State { nodes, packets: Vec::new(), history, left: self.left };
        state.left.proposals += 1;
        state = self.after(&state, &Action::Propose(0, (0..self.nodes).collect()));
        loop {
            let writing = (0..self.nodes).find(|n| !state.nodes[usize::from(*n)].writes.is_empty());
            // Installs only after all acceptances, even if a seeded defect sends the message early.
            let installs = |p: &&Shared<Packet>| matches!(p.message, Message::Install(_));
            let next =
                state.packets.iter().find(|p| !installs(p)).or(state.packets.first()).cloned();
            let Some(action) = writing.map(Action::Write).or(next.map(Action::Deliver)) else {
                break;
            };
            state = self.after(&state, &action);
        }
        assert!(
            state
                .nodes
                .iter()
                .all(|n| n.view.as_ref().is_some_and(|v| v.size() == usize::from(self.nodes)))
        );
        state
    }

    fn after(&self, state: &State, action: &Action) -> State {
        let (n, step) = action.step(state);
        let result = Turn::of(&state.nodes[n], self).take(&step);
        self.onward(state, action, &result)
    }

    /// Like `after`, with a trace line for the action and one for each deed.
    fn told(&self, state: &State, action: &Action, trace: &mut Vec<String>) -> State {
        let (n, step) = action.step(state);
        let result = Turn::of(&state.nodes[n], self).take(&step);
        trace.push(action.story());
        trace.extend(result.deeds.iter().map(|deed| format!("    {} {deed}", letter(n))));
        self.onward(state, action, &result)
    }

    fn onward(&self, state: &State, action: &Action, result: &turn::Result) -> State {
        let mut next = state.clone();
        match action {
            Action::Propose(..) => next.left.proposals -= 1,
            Action::Abort(..) => next.left.aborts -= 1,
            Action::CutOff(_) => next.left.cut_offs -= 1,
            Action::Crash(_) => next.left.crashes -= 1,
            _ => {}
        }
        next.apply(action.place(), result, &self.memo);
        next
    }

    fn least(&self) -> usize {
        match self.partition {
            Partition::Continue => 1,
            Partition::Majority => usize::from(self.nodes) / 2 + 1,
        }
    }

    /// All sets of members that `n` may propose.
    fn proposals(&self, n: u8) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (nodes, least) = (self.nodes, self.least());
        let set = move |bits: u32| (0..nodes).filter(|m| bits >> m & 1 == 1).collect::<Vec<u8>>();
        (1..1 << nodes)
            .filter(move |bits: &u32| bits >> n & 1 == 1 && bits.count_ones() as usize >= least)
            .map(set)
    }

    /// The claims that apply to this group.
    fn claims(&self) -> impl Iterator<Item = Claim> + use<> {
        let majority = self.partition == Partition::Majority;
        Claim::ALL.into_iter().filter(move |claim| majority || *claim != Claim::OneOutcome)
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        match claim {
            Claim::OneOutcome => !state.history.halves_differ,
            claim => !state.history.is_broken(claim),
        }
    }

    /// Next actions of the program, the engine and the callers of a node.
    fn calls(&self, n: u8, state: &State, actions: &mut Vec<Action>) {
        let node = &state.nodes[usize::from(n)];
        let Some(ledger) = node.ledger.as_ref().filter(|ledger| !ledger.is_frozen()) else {
            return;
        };
        if let Calls::ByPrograms(most) = self.calls
            && ledger.in_flight() < most
        {
            actions.push(Action::Call(n));
        }
        for (op, agreed) in ledger.unvoted() {
            // A result needs the contribution of every member.
            let all = node.view.as_ref().is_some_and(|view| state.history.all_have_run(view));
            if agreed && all {
                actions.push(Action::Done(n, op));
            }
            if state.left.aborts > 0 {
                actions.push(Action::Abort(n, op));
            }
        }
    }
}

/// The checker needs a plain function for each claim.
type Holds = fn(&Group, &State) -> bool;

fn letter(n: usize) -> String {
    char::from(b'A' + n as u8).to_string()
}

impl Model for Group {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for n in 0..self.nodes {
            if state.left.proposals > 0 {
                actions.extend(self.proposals(n).map(|members| Action::Propose(n, members)));
            }
            self.calls(n, state, actions);
            if !state.nodes[usize::from(n)].writes.is_empty() {
                actions.push(Action::Write(n));
            }
            if state.left.crashes > 0 {
                actions.push(Action::Crash(n));
            }
            if state.left.cut_offs > 0 && state.nodes[usize::from(n)].may_be_cut_off() {
                actions.push(Action::CutOff(n));
            }
        }
        actions.extend(state.packets.iter().cloned().map(Action::Deliver));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let (n, step) = action.step(state);
        let result = self
            .memo
            .recall(&state.nodes[n], &step, || Turn::of(&state.nodes[n], self).take(&step));
        let next = self.onward(state, &action, &result);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Group>> {
        let always: [(Claim, Holds); 12] = [
            (Claim::OneViewPerBallot, |g, s| g.holds(Claim::OneViewPerBallot, s)),
            (Claim::ViewsGrow, |g, s| g.holds(Claim::ViewsGrow, s)),
            (Claim::AllHaveAccepted, |g, s| g.holds(Claim::AllHaveAccepted, s)),
            (Claim::OneViewIsOpen, |g, s| g.holds(Claim::OneViewIsOpen, s)),
            (Claim::FrozenStays, |g, s| g.holds(Claim::FrozenStays, s)),
            (Claim::TogetherAlike, |g, s| g.holds(Claim::TogetherAlike, s)),
            (Claim::UnanimousStands, |g, s| g.holds(Claim::UnanimousStands, s)),
            (Claim::OneOutcome, |g, s| g.holds(Claim::OneOutcome, s)),
            (Claim::InSync, |g, s| g.holds(Claim::InSync, s)),
            (Claim::EndsOnce, |g, s| g.holds(Claim::EndsOnce, s)),
            (Claim::OkHolds, |g, s| g.holds(Claim::OkHolds, s)),
            (Claim::MostWins, |g, s| g.holds(Claim::MostWins, s)),
        ];
        let mine: Vec<Claim> = self.claims().collect();
        let always = always.into_iter().filter(|(claim, _)| mine.contains(claim));
        let mut all: Vec<Property<Group>> =
            always.map(|(claim, holds)| Property::always(claim.name(), holds)).collect();
        all.extend([
            Property::sometimes("committed by votes", |_: &Group, s: &State| {
                s.history.has_seen(Way::CommittedByVotes)
            }),
            Property::sometimes("committed by a View", |_: &Group, s: &State| {
                s.history.has_seen(Way::CommittedByView)
            }),
            Property::sometimes("aborted", |_: &Group, s: &State| s.history.has_seen(Way::Aborted)),
            Property::sometimes("left behind", |_: &Group, s: &State| {
                s.history.has_seen(Way::Unknown)
            }),
        ]);
        all
    }
}
