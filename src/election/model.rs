//! Layer: Core.
//!
//! Every history of a small group: the real agreement and the real ledgers, and between them a
//! network that delivers what it likes, as often as it likes, in any order or never. A model
//! checker goes through all of them and looks at the claims.
//!
//! What is real: `Agreement::step`, which is all that an election lets happen to a View, and
//! `Ledger`. What is not here: time, and everything that only decides when to propose. A model
//! proposes whenever and for whomever it likes.
//!
//! What is looked at is more than can happen: nobody has to be reached to be proposed, and nothing
//! but a member's part in it ends a write, a call or a proposal. What is left out, so that there is
//! an end: in the runs through all histories the operation of a View is begun by all with it, and
//! answers that only say no are not sent. The walks ([`walk`]) have all of that but the last.
//!
//! A group starts in a View of all with an operation under way. A write is on the disk at once, and
//! a crash keeps what is there; whoever crashes is a new member. In a group of `slow_disks` writes
//! take their time.

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

/// A group, and what may happen to it.
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

/// Which Views may be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partition {
    /// Of any members: every part of a cut group goes on.
    Continue,
    /// Of more than half of all nodes.
    Majority,
}

/// When operations begin. Results are held when all members of the View have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// One in each View, with it, and everybody knows.
    AtInstall,
    /// When each program calls them, so many in flight.
    ByPrograms(usize),
}

/// Something that happens.
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
    /// Whose step it is.
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
    /// What happens, in words.
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

    /// What it makes whom do.
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

    /// All nodes in one View, by the rules themselves.
    fn first(&self) -> State {
        let fresh = |n| Shared::new(Node::start(member(n, 1), Durable::default(), self.seeded()));
        let nodes = (0..self.nodes).map(fresh).collect();
        let history = Shared::new(History::default());
        let mut state = State { nodes, packets: Vec::new(), history, left: self.left };
        state.left.proposals += 1;
        state = self.after(&state, &Action::Propose(0, (0..self.nodes).collect()));
        loop {
            let writing = (0..self.nodes).find(|n| !state.nodes[usize::from(*n)].writes.is_empty());
            // Nobody is told to install before all have accepted, whatever the rules here are.
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

    /// The same, and a line for what was done and one for everything that counts of it.
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

    /// All sets of nodes that `n` may propose.
    fn proposals(&self, n: u8) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (nodes, least) = (self.nodes, self.least());
        let set = move |bits: u32| (0..nodes).filter(|m| bits >> m & 1 == 1).collect::<Vec<u8>>();
        (1..1 << nodes)
            .filter(move |bits: &u32| bits >> n & 1 == 1 && bits.count_ones() as usize >= least)
            .map(set)
    }

    /// The claims that hold for this group.
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

    /// What a program, an engine and a caller of this node may do next.
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
            // Without everybody's part there is no result.
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

/// A checker wants a plain function for each claim.
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
