//! Nodes outside a running View, which their peers tell of it. The rule is the one of the elections
//! (`elsewhere.rs`), without its times: every report is fresh, and its sender answers.

use super::Group;
use super::action::Action;
use super::state::{ModelState, Node, place};
use crate::election::{Report, joins_one, to_join};
use crate::identity::MemberId;
use crate::protocol::{Mutant, ViewId};
use std::collections::BTreeSet;

impl Group {
    /// Whether this node may propose a View of these members: neither it nor one that it asks takes
    /// that for a View beside a running one.
    pub(super) fn may_propose(&self, state: &ModelState, n: u8, members: &[u8]) -> bool {
        if !self.keeps_together {
            return true;
        }
        let ids: BTreeSet<MemberId> =
            members.iter().map(|m| state.nodes[usize::from(*m)].me).collect();
        let mutation = self.mutation();
        members.iter().all(|m| {
            let broken = if *m == n { Mutant::BeginsBeside } else { Mutant::AgreesBeside };
            mutation.has(broken) || !state.nodes[usize::from(*m)].is_beside(&ids, state)
        })
    }

    /// A later View is news for a node outside of it.
    pub(super) fn tell(&self, to: u8, state: &ModelState, actions: &mut Vec<Action>) {
        if !self.keeps_together {
            return;
        }
        let listener = &state.nodes[usize::from(to)];
        let mine = listener.agreement.installed_id();
        let is_news = |from: &u8| {
            let view_sender = &state.nodes[usize::from(*from)];
            let theirs = view_sender.agreement.installed_id();
            theirs > mine && listener.told.get(&view_sender.me).copied() != theirs
        };
        actions.extend((0..self.nodes).filter(is_news).map(|from| Action::Tell(from, to)));
    }

    /// Whether this is a proposal of nodes that a running View has left behind or not met yet, one
    /// of which knows that View from all its members.
    pub(super) fn begins_beside(&self, state: &ModelState, action: &Action) -> bool {
        let Action::Propose(_, members) = action else { return false };
        let nodes = || members.iter().map(|m| &*state.nodes[usize::from(*m)]);
        let running = state.nodes.iter().filter_map(|node| node.view.as_ref());
        let mut running = running.filter(|view| view.size() > 1 && state.runs(view));
        self.keeps_together
            && running.any(|view| {
                let is_outside = |node: &Node| {
                    !view.contains(node.me)
                        && node.view.as_ref().is_none_or(|old| {
                            let is_in_it = view.members.iter().any(|m| old.contains(m.id));
                            is_in_it && old.ballot < view.ballot
                        })
                };
                let knows = |node: &Node| {
                    view.members.iter().all(|m| node.told.get(&m.id) == Some(&view.id()))
                };
                nodes().all(is_outside) && nodes().any(knows)
            })
    }
}

impl Node {
    /// Whether a View of these members would be one beside a running View, as far as this node has
    /// been told.
    fn is_beside(&self, members: &BTreeSet<MemberId>, state: &ModelState) -> bool {
        let mine = self.agreement.installed();
        let lives = |id: MemberId| state.nodes[place(id)].me == id;
        let report = |(from, view): (&MemberId, &ViewId)| Report {
            from: *from,
            view: *view,
            is_believed: true,
            keeps_out: false,
            is_full: false,
            has_gone_on: mine.is_some_and(|mine| {
                mine.contains(*from)
                    && view.ballot > mine.ballot
                    && !self.agreement.open_views().any(|open| open.id() == *view)
            }),
        };
        let told = self.told.iter().filter(|(from, _)| lives(**from));
        let elsewhere = told.filter(|(_, view)| Some(**view) != self.agreement.installed_id());
        let reports: Vec<Report> = elsewhere.map(report).collect();
        let running = to_join(mine.is_some_and(|view| view.begun), &reports);
        let view_of = |id: MemberId| {
            if id == self.me { self.agreement.installed_id() } else { self.told.get(&id).copied() }
        };
        !running.is_empty() && !joins_one(members, &running, view_of)
    }
}
