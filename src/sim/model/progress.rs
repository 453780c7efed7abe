//! The actions that need no decision: messages arrive, writes and results are ready. When none of
//! this is left, every call that all members have made must have been answered.

use super::action::Action;
use super::state::{ModelState, Node};
use super::{Calls, Group};
use crate::collective::Revising;
use crate::protocol::{OpId, View};
use stateright::Model;
use std::sync::Arc;

impl Group {
    /// The actions that need no decision.
    pub(super) fn progress(&self, state: &ModelState, actions: &mut Vec<Action>) {
        for n in 0..self.nodes {
            let node = &state.nodes[usize::from(n)];
            if !node.writes.is_empty() {
                actions.push(Action::Write(n));
            }
            if node.revising.as_ref().is_some_and(Revising::is_held) {
                actions.push(Action::Decide(n));
            }
            let has_decided = |node: &Node| {
                let ledger = node.ledger.as_ref().filter(|ledger| !ledger.is_frozen());
                ledger.is_some_and(|ledger| !ledger.resolved().is_empty())
            };
            if self.calls != Calls::AtInstall && self.answers && has_decided(node) {
                actions.push(Action::Report(n));
            }
        }
        actions.extend(state.packets.iter().cloned().map(Action::Deliver));
    }

    /// Whether a call waits for ever: nothing goes on by itself, and in a View that runs on all its
    /// members a call that all have made is open, or none can be made although none is open.
    pub(super) fn is_stuck(&self, state: &ModelState) -> bool {
        if !state.nodes.iter().any(|node| state.waits(node)) {
            return false;
        }
        let mut actions = Vec::new();
        self.progress(state, &mut actions);
        (0..self.nodes).for_each(|n| self.results(n, state, &mut actions));
        actions.into_iter().all(|action| self.next_state(state, action).is_none())
    }
}

impl ModelState {
    /// Whether this node waits in a View that runs on all its members.
    fn waits(&self, node: &Node) -> bool {
        let (Some(ledger), Some(view)) = (&node.ledger, &node.view) else { return false };
        if !self.runs(view) {
            return false;
        }
        let by_all = |op: OpId| {
            let callers = op.lane.participants(view.size());
            let takes_part =
                |other: &&Node| view.rank_of(other.me).is_some_and(|rank| callers.contains(rank));
            self.members(view).filter(takes_part).all(|other| other.has_called(op))
        };
        let is_blocked = ledger.is_full() && ledger.undecided().next().is_none();
        is_blocked || ledger.undecided().any(by_all)
    }

    /// The nodes that are members of this View.
    fn members<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().map(|node| &**node).filter(|node| view.contains(node.me))
    }

    /// Whether all members of this View live, have installed it, and have not left it.
    pub(super) fn runs(&self, view: &Arc<View>) -> bool {
        let runs = |node: &Node| node.view.as_ref() == Some(view) && !node.agreement.is_frozen();
        self.members(view).count() == view.size() && self.members(view).all(runs)
    }

    /// Whether a member holds this call until it knows its plan.
    pub(super) fn is_held(&self, view: &View, op: OpId) -> bool {
        self.members(view).any(|node| node.held.contains(&op))
    }
}

impl Node {
    fn has_called(&self, op: OpId) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.has_called(op))
    }
}
