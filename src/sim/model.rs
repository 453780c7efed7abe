//! Model checking of small groups: every execution of the real agreement and the real ledgers over
//! a network that delivers each message at any time, any number of times, in any order, or never.
//! The checker (stateright) verifies the claims in every state.
//!
//! Real: `Agreement::step`, the only code that changes a View, `Ledger`, `Revising`, and the rule
//! that keeps nodes from beginning a View beside a running one (`elsewhere`). Not modelled: time,
//! and all other code that only decides when to propose. The model proposes any members at any
//! time.
//!
//! The model allows more than reality: proposals may name unreachable nodes, and writes, calls and
//! proposals may take arbitrarily long. Restrictions make the exhaustive runs finite: refusals
//! (`Nack`) are not sent, and in most runs all members begin a View's one operation when they
//! install it. In the others programs call a few times, in one lane or two, links break and are
//! made anew, the plan changes, or limits are reached ([`runs`]). The random walks ([`walk`]) mix
//! these.
//!
//! A group starts in a View of all nodes, or, where its beginning is checked, in none. A write is
//! durable at once, and a crash keeps the durable state; a crashed node returns as a new member.
//! With `slow_disks`, writes take time.

mod action;
mod memo;
mod outside;
mod plans;
mod progress;
mod runs;
mod shared;
mod state;
mod turn;
mod walk;

use super::claims::{Claim, EndKind, History};
use crate::collective::{Ledger, LedgerBounds};
use crate::election::Durable;
use crate::protocol::{
    GroupRanks, Lane, MEMBERS_MAX, Message, Mutant, Mutation, OpId, Rank, Sizes,
};
use action::{Action, letter};
use memo::Memo;
use shared::Shared;
use state::{Budget, ModelState, Node, Packet, member};
use stateright::{Model, Property};
use turn::Turn;

/// A group and the bounds of its executions.
#[derive(Clone, Debug)]
struct Group {
    nodes: u8,
    partition: Partition,
    budget: Budget,
    calls: Calls,
    /// The lanes in which programs call.
    lanes: u32,
    /// The ranks 0 and 2 call among themselves, too.
    has_sub_group: bool,
    slow_disks: bool,
    /// The limits of all ledgers.
    bounds: LedgerBounds,
    /// Views that are made before the run begins, after one of all nodes: the members of each.
    opening: Vec<Vec<u8>>,
    /// The members of one View more, which the first has proposed and the second has accepted. It
    /// is not installed when the run begins.
    half_made: Option<[u8; 2]>,
    /// There is no first View of all nodes.
    starts_apart: bool,
    /// The sizes that the first nodes ask for; the others want the usual ones.
    sizes: Vec<Sizes>,
    /// Plans change in this run.
    has_plans: bool,
    /// Nodes tell each other of their Views, and begin none beside a running one.
    keeps_together: bool,
    /// Links lose messages only when they break, so every call is answered.
    answers: bool,
    mutant: Option<Mutant>,
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

impl Group {
    /// Three nodes with one lane and all that the other fields add left out.
    fn of(partition: Partition, budget: Budget) -> Group {
        Group {
            nodes: 3,
            partition,
            budget,
            calls: Calls::AtInstall,
            lanes: 1,
            has_sub_group: false,
            slow_disks: false,
            bounds: LedgerBounds::default(),
            opening: Vec::new(),
            half_made: None,
            starts_apart: false,
            sizes: Vec::new(),
            has_plans: false,
            keeps_together: false,
            answers: false,
            mutant: None,
            memo: Memo::default(),
        }
    }

    fn mutation(&self) -> Mutation {
        self.mutant.into()
    }

    /// The initial state: the nodes in their first Views, reached by the rules themselves.
    fn first(&self) -> ModelState {
        let fresh = |n| {
            let sizes = self.sizes_of(usize::from(n));
            Shared::new(Node::start(member(n, 1), Durable::default(), sizes, self.mutation()))
        };
        let nodes = (0..self.nodes).map(fresh).collect();
        let history = Shared::new(History::default());
        let mut state = ModelState { nodes, packets: Vec::new(), history, budget: self.budget };
        let all = (0..self.nodes).collect();
        let first = Some(&all).filter(|_| !self.starts_apart);
        for members in first.into_iter().chain(&self.opening) {
            state = self.open(&state, members);
        }
        match self.half_made {
            Some(members) => self.half_open(&state, members),
            None => state,
        }
    }

    /// The state after these nodes have made a View.
    fn open(&self, state: &ModelState, members: &[u8]) -> ModelState {
        let mut state = self.proposed(state, members);
        while let Some(action) = self.next_for_a_view(&state) {
            state = self.after(&state, &action);
        }
        let is_in = |n: &u8| {
            let view = &state.nodes[usize::from(*n)].view;
            view.as_ref().is_some_and(|v| v.size() == members.len())
        };
        assert!(members.iter().all(is_in));
        state
    }

    /// The state after the first of these nodes has proposed a View of both, and the second has
    /// accepted it.
    fn half_open(&self, state: &ModelState, members: [u8; 2]) -> ModelState {
        let mut state = self.proposed(state, &members);
        let is_acceptance = |p: &Shared<Packet>| matches!(p.message, Message::Accepted(_));
        while !state.packets.iter().any(is_acceptance) {
            let action = self.next_for_a_view(&state).expect("the View is accepted");
            state = self.after(&state, &action);
        }
        state
    }

    fn proposed(&self, state: &ModelState, members: &[u8]) -> ModelState {
        let mut state = state.clone();
        state.budget.proposals += 1;
        self.after(&state, &Action::Propose(members[0], members.to_vec()))
    }

    /// The next write or message about a View.
    fn next_for_a_view(&self, state: &ModelState) -> Option<Action> {
        let writing = (0..self.nodes).find(|n| !state.nodes[usize::from(*n)].writes.is_empty());
        // Installs only after all acceptances, even if a mutant sends the message early.
        let about_a_view = |p: &&Shared<Packet>| !matches!(p.message, Message::Op(_));
        let installs = |p: &&Shared<Packet>| matches!(p.message, Message::Install(_));
        let mut coming = state.packets.iter().filter(about_a_view);
        let next = coming.clone().find(|p| !installs(p)).or(coming.next()).cloned();
        writing.map(Action::Write).or(next.map(Action::Deliver))
    }

    /// The sizes that a node asks for.
    fn sizes_of(&self, n: usize) -> Sizes {
        self.sizes.get(n).copied().unwrap_or_default()
    }

    /// The lanes in which programs call.
    fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        let of_all = [Lane::MAIN].into_iter().chain((0..).map(Lane::tagged));
        let ranks = GroupRanks::of([0, 2].map(Rank).into_iter().collect());
        let of_some = self.has_sub_group.then_some(Lane::of_group(ranks, 0, MEMBERS_MAX));
        of_all.take(self.lanes as usize).chain(of_some)
    }

    /// The lanes in which the program of a member calls now.
    fn lanes_of(&self, node: &Node, ledger: &Ledger) -> impl Iterator<Item = Lane> + use<> {
        let place = node.view.as_ref().and_then(|view| Some((view.rank_of(node.me)?, view.size())));
        let is_synced = ledger.is_synced();
        self.lanes().filter(move |lane| {
            let takes_part = |(rank, size): (Rank, usize)| {
                lane.fits(size) && lane.participants(size).contains(rank)
            };
            place.is_some_and(takes_part) && (is_synced || lane.is_of_all())
        })
    }

    fn after(&self, state: &ModelState, action: &Action) -> ModelState {
        let (n, step) = action.step(state);
        let result = Turn::of(&state.nodes[n], self).take(&step);
        self.onward(state, action, &result)
    }

    /// Like `after`, with a trace line for the action and one for each act.
    fn after_traced(
        &self,
        state: &ModelState,
        action: &Action,
        trace: &mut Vec<String>,
    ) -> ModelState {
        let (n, step) = action.step(state);
        let result = Turn::of(&state.nodes[n], self).take(&step);
        trace.push(action.describe());
        trace.extend(result.acts.iter().map(|act| format!("    {} {act}", letter(n))));
        self.onward(state, action, &result)
    }

    fn onward(&self, state: &ModelState, action: &Action, result: &turn::Result) -> ModelState {
        let mut next = state.clone();
        match action {
            Action::Propose(..) => next.budget.proposals -= 1,
            Action::Abort(..) => next.budget.aborts -= 1,
            Action::CutOff(_) => next.budget.cut_offs -= 1,
            Action::Crash(_) => next.budget.crashes -= 1,
            Action::Call(..) => next.budget.calls -= 1,
            Action::HoldAll(_) => next.budget.plans -= 1,
            Action::Redial(a, b) => {
                next.budget.losses -= 1;
                next.cut(usize::from(*a), usize::from(*b));
            }
            _ => {}
        }
        if self.begins_beside(state, action) {
            next.history.change(|history| history.expect(Claim::OneHistory, false));
        }
        next.apply(action.place(), result, &self.memo);
        if let Action::Redial(a, b) = action {
            let other = Action::Remind(*b, *a);
            let (n, step) = other.step(&next);
            let result = Turn::of(&next.nodes[n], self).take(&step);
            next.apply(n, &result, &self.memo);
        }
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
        let (majority, answers) = (self.partition == Partition::Majority, self.answers);
        Claim::ALL.into_iter().filter(move |claim| match claim {
            Claim::OneOutcome => majority,
            Claim::Answered => answers,
            _ => true,
        })
    }

    fn holds(&self, claim: Claim, state: &ModelState) -> bool {
        match claim {
            Claim::OneOutcome => !state.history.halves_differ,
            Claim::Answered => !self.is_stuck(state),
            claim => !state.history.is_broken(claim),
        }
    }

    /// Next actions of the program, the engine and the callers of a node.
    fn calls(&self, n: u8, state: &ModelState, actions: &mut Vec<Action>) {
        let node = &state.nodes[usize::from(n)];
        let Some(ledger) = node.ledger.as_ref().filter(|ledger| !ledger.is_frozen()) else {
            return;
        };
        if let Calls::ByPrograms(most) = self.calls
            && state.budget.calls > 0
            && ledger.in_flight() < most
            && !ledger.is_full()
        {
            actions.extend(self.lanes_of(node, ledger).map(|lane| Action::Call(n, lane)));
        }
        if state.budget.aborts > 0 {
            actions.extend(ledger.unvoted().map(|(op, _)| Action::Abort(n, op)));
        }
        self.results(n, state, actions);
    }

    /// The results that the engine of a node may hold now.
    fn results(&self, n: u8, state: &ModelState, actions: &mut Vec<Action>) {
        let node = &state.nodes[usize::from(n)];
        let (Some(ledger), Some(view)) = (&node.ledger, &node.view) else { return };
        // A result needs the contribution of every member.
        let is_whole = |op: OpId| state.history.all_have_run(view) && !state.is_held(view, op);
        let whole = ledger.unvoted().filter(|(op, agreed)| *agreed && is_whole(*op));
        actions.extend(whole.map(|(op, _)| Action::Done(n, op)));
    }
}

/// The checker needs a plain function for each claim.
type Holds = fn(&Group, &ModelState) -> bool;

impl Model for Group {
    type State = ModelState;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState> {
        vec![self.first()]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<Action>) {
        for n in 0..self.nodes {
            if state.budget.proposals > 0 {
                let may = self.proposals(n).filter(|members| self.may_propose(state, n, members));
                actions.extend(may.map(|members| Action::Propose(n, members)));
            }
            if state.budget.crashes > 0 {
                actions.push(Action::Crash(n));
            }
            if state.budget.cut_offs > 0 && state.nodes[usize::from(n)].may_be_cut_off() {
                actions.push(Action::CutOff(n));
            }
            if state.budget.plans > 0 && state.nodes[usize::from(n)].may_lead() {
                actions.push(Action::HoldAll(n));
            }
            if state.budget.losses > 0 {
                actions.extend((0..n).map(|other| Action::Redial(other, n)));
            }
            self.tell(n, state, actions);
            self.calls(n, state, actions);
        }
        self.progress(state, actions);
    }

    fn next_state(&self, state: &ModelState, action: Action) -> Option<ModelState> {
        let (n, step) = action.step(state);
        let result = self
            .memo
            .recall(&state.nodes[n], &step, || Turn::of(&state.nodes[n], self).take(&step));
        let next = self.onward(state, &action, &result);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Group>> {
        let always: [(Claim, Holds); 17] = [
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
            (Claim::OneHistory, |g, s| g.holds(Claim::OneHistory, s)),
            (Claim::OnePlan, |g, s| g.holds(Claim::OnePlan, s)),
            (Claim::Answered, |g, s| g.holds(Claim::Answered, s)),
            (Claim::Honest, |g, s| g.holds(Claim::Honest, s)),
            (Claim::SizesHold, |g, s| g.holds(Claim::SizesHold, s)),
        ];
        let mine: Vec<Claim> = self.claims().collect();
        let always = always.into_iter().filter(|(claim, _)| mine.contains(claim));
        let mut all: Vec<Property<Group>> =
            always.map(|(claim, holds)| Property::always(claim.name(), holds)).collect();
        all.extend([
            Property::sometimes("committed by votes", |_: &Group, s: &ModelState| {
                s.history.has_seen(EndKind::CommittedByVotes)
            }),
            Property::sometimes("committed by a View", |_: &Group, s: &ModelState| {
                s.history.has_seen(EndKind::CommittedByView)
            }),
            Property::sometimes("aborted", |_: &Group, s: &ModelState| {
                s.history.has_seen(EndKind::Aborted)
            }),
            Property::sometimes("left behind", |_: &Group, s: &ModelState| {
                s.history.has_seen(EndKind::Unknown)
            }),
        ]);
        all
    }
}
